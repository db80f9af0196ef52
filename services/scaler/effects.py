"""What the scaler does in the cluster, as data."""

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


class OwnRequest(Effect, frozen=True):
    """The job as the request's controller owner: from then on it can bind to no other."""

    kind: ScaleKind
    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"request/{self.uid}"


class DeleteHosts(Effect, frozen=True):
    """The hosts ConfigMap that the garbage collector left."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return "hosts"
