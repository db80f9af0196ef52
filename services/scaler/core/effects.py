"""What the scaler does in the cluster, as data."""

from typing import ClassVar

from shared.job.naming import Uid
from shared.job.spec import ScaleKind
from shared.job.steps import Effect


class WriteHosts(Effect, frozen=True):
    """The hosts ConfigMap with these members, unless it holds this version or a newer one."""

    version: int
    members: tuple[int, ...]
    """Worker indices, ascending."""

    @property
    def target(self) -> str:
        return "hosts"


class NudgeLauncher(Effect, frozen=True):
    """An annotation of the launcher pod, so that its kubelet loads the hosts files now and not within a minute."""

    name: str
    uid: Uid
    version: int

    @property
    def target(self) -> str:
        return "launcher"


class LinkHosts(Effect, frozen=True):
    """In a launcher that another operator made: its hosts files as links to those that follow the ConfigMap.

    Only once these show the `version`, and then the launcher counts as nudged to load it.
    """

    apart: ClassVar[bool] = True

    name: str
    uid: Uid
    container: str
    version: int

    @property
    def target(self) -> str:
        return "launcher"


class OwnRequest(Effect, frozen=True):
    """The job as the request's controller owner: from then on it can bind to no other."""

    kind: ScaleKind
    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"request/{self.uid}"


class RunScript(Effect, frozen=True, kw_only=True):
    """A request's script, in the launcher's first container.  What came of it is a `ScriptFinished`."""

    apart: ClassVar[bool] = True

    kind: ScaleKind
    name: str
    request: Uid
    pod: str
    pod_uid: Uid
    container: str
    hosts: str
    """Its only argument: `pod:slots,pod2:slots`."""
    timeout: int
    """Seconds."""
    decision: int
    """The sequence of the decision to run it."""

    @property
    def once(self) -> int:
        return self.decision

    @property
    def target(self) -> str:
        return f"script/{self.request}"


class CheckDrain(Effect, frozen=True, kw_only=True):
    """A look at which leaving workers the launcher's processes still know.  What it shows is a `DrainChecked`."""

    apart: ClassVar[bool] = True

    request: Uid
    pod: str
    container: str
    workers: tuple[tuple[int, str], ...]
    """Index and name."""
    count: int
    """Which look it is, from one: two of them are two wishes."""

    @property
    def target(self) -> str:
        return f"drain/{self.request}"


class DeleteHosts(Effect, frozen=True):
    """The hosts ConfigMap that the garbage collector left."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return "hosts"
