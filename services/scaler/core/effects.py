"""The scaler's effects on the cluster, as data."""

from typing import ClassVar

from shared.job.naming import Uid
from shared.job.spec import ScaleKind
from shared.job.steps import Effect


class WriteHosts(Effect, frozen=True):
    """Write the hosts ConfigMap with these members, unless it has this version or a newer one."""

    changes: ClassVar[str] = "hosts"

    version: int
    members: tuple[int, ...]
    """Worker indices, ascending."""

    @property
    def lasting(self) -> bool:
        return True


class NudgeLauncher(Effect, frozen=True):
    """Annotate the launcher pod: its kubelet then updates the hosts files at once, not within a minute."""

    changes: ClassVar[str] = "launcher"

    name: str
    uid: Uid
    version: int


class LinkHosts(Effect, frozen=True):
    """Replace the hosts files of an adopted launcher by links to the mounted ConfigMap, once that has the `version`.

    The launcher then counts as nudged to this version.
    """

    changes: ClassVar[str] = "launcher"
    apart: ClassVar[bool] = True

    name: str
    uid: Uid
    container: str
    version: int


class WriteSize(Effect, frozen=True):
    """Write the number of workers into the job's resource, if that still has this generation."""

    changes: ClassVar[str] = "size"

    size: int
    generation: int


class OwnRequest(Effect, frozen=True):
    """Make the job the request's controller owner: the request can then bind to no other job."""

    changes: ClassVar[str] = "request/{0.uid}"

    kind: ScaleKind
    name: str
    uid: Uid


class RunScript(Effect, frozen=True, kw_only=True):
    """Run a request's script in the launcher's first container.  The outcome is a `ScriptFinished`."""

    changes: ClassVar[str] = "script/{0.request}"
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


class CheckDrain(Effect, frozen=True, kw_only=True):
    """Check which leaving workers the launcher's processes name.  The outcome is a `DrainChecked`."""

    changes: ClassVar[str] = "drain/{0.request}"
    apart: ClassVar[bool] = True

    request: Uid
    pod: str
    pod_uid: Uid
    container: str
    workers: tuple[tuple[int, str], ...]
    """Index and name."""
    count: int
    """The number of this check, from 1: two checks of a request are two effects."""


class DeleteHosts(Effect, frozen=True):
    """Delete the hosts ConfigMap of a job that is gone, by uid."""

    changes: ClassVar[str] = "hosts"

    name: str
    uid: Uid
