"""What the scheduler does in the cluster, as data."""

from shared.job.naming import Slot, Uid
from shared.job.steps import Effect


class CreateService(Effect, frozen=True):
    """A headless Service: the one behind all names, or that of one slot's pod."""

    slot: Slot | None = None

    @property
    def target(self) -> str:
        return f"service/{self.slot.role}/{self.slot.index}" if self.slot is not None else "service"


class CreateSecret(Effect, frozen=True):
    """The Secret with the key pair that the job's pods reach each other with."""

    @property
    def target(self) -> str:
        return "secret"


class CreatePod(Effect, frozen=True):
    """The pod of a slot; `scaleout` names the ScaleOut that asked for it."""

    slot: Slot
    scaleout: str = ""

    @property
    def target(self) -> str:
        return f"pod/{self.slot.role}/{self.slot.index}"


class ClaimPod(Effect, frozen=True):
    """Our labels on this very pod, which another operator made."""

    name: str
    uid: Uid
    slot: Slot

    @property
    def target(self) -> str:
        return f"pod/{self.uid}"


class DeletePod(Effect, frozen=True):
    """This very pod, by uid."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"pod/{self.uid}"


class DeleteService(Effect, frozen=True):
    """What the garbage collector left, or whose pod is no more."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"service/{self.uid}"


class DeleteSecret(Effect, frozen=True):
    """What the garbage collector left."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return "secret"


class DeleteJob(Effect, frozen=True):
    """The job's own resource, by uid: its time to live is over."""

    @property
    def target(self) -> str:
        return "job"
