"""The scheduler's effects on the cluster, as data."""

from typing import ClassVar

from shared.job.naming import Slot, Uid
from shared.job.steps import Effect


class CreateService(Effect, frozen=True):
    """Create a headless Service: the job's, or that of one slot's pod."""

    bulk: ClassVar[bool] = True

    slot: Slot | None = None

    @property
    def target(self) -> str:
        return f"service/{self.slot.role}/{self.slot.index}" if self.slot is not None else "service"

    @property
    def lasting(self) -> bool:
        return self.slot is None


class CreateSecret(Effect, frozen=True):
    """Create the Secret with the ssh keys of an attempt.  The outcome is a `SecretMade`."""

    attempt: int
    name: str

    @property
    def target(self) -> str:
        return f"secret/{self.attempt}"


class CreatePod(Effect, frozen=True):
    """Create the pod of a slot; `scaleout` is the name of the ScaleOut that added the slot, `gang` of its PodGroup.

    It keeps off the nodes to `avoid`, if others have room.
    """

    bulk: ClassVar[bool] = True

    slot: Slot
    scaleout: str = ""
    gang: str = ""
    avoid: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"pod/{self.slot.role}/{self.slot.index}"


class ClaimPod(Effect, frozen=True):
    """Put Muster's labels on a pod, given by uid, that another operator created."""

    bulk: ClassVar[bool] = True

    name: str
    uid: Uid
    slot: Slot

    @property
    def target(self) -> str:
        return f"pod/{self.uid}"


class DeletePod(Effect, frozen=True):
    """Delete a pod by uid; with `force` without a grace period, so that no kubelet has to confirm it.

    One that is `drained` gets a short grace period.
    """

    bulk: ClassVar[bool] = True

    name: str
    uid: Uid
    force: bool = False
    drained: bool = False

    @property
    def target(self) -> str:
        return f"pod/{self.uid}"


class DeleteService(Effect, frozen=True):
    """Delete a Service by uid: its job is gone, or its pod's slot was released."""

    bulk: ClassVar[bool] = True

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"service/{self.uid}"


class DeleteSecret(Effect, frozen=True):
    """Delete the Secret of an attempt by uid.  The outcome is a `SecretGone`."""

    attempt: int
    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"secret/{self.attempt}"


class CreateAutoscaler(Effect, frozen=True):
    """Create the HorizontalPodAutoscaler with the metrics of the job.  The outcome is an `AutoscalerMade`."""

    target: ClassVar[str] = "autoscaler"


class DeleteAutoscaler(Effect, frozen=True):
    """Delete the HorizontalPodAutoscaler by uid.  The outcome is an `AutoscalerGone`."""

    uid: Uid

    target: ClassVar[str] = "autoscaler"


class CreatePodGroup(Effect, frozen=True):
    """Create the PodGroup of a gang, of which so many pods find places together."""

    name: str
    least: int

    @property
    def target(self) -> str:
        return f"podgroup/{self.name}"

    @property
    def lasting(self) -> bool:
        return True


class DeletePodGroup(Effect, frozen=True):
    """Delete a PodGroup by uid: its pods are gone."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"podgroup/{self.uid}"


class WriteWorkload(Effect, frozen=True):
    """Create the Workload of a job in a queue; or with a `uid` write one without quota anew."""

    name: str
    queue: str
    pod_sets: tuple[tuple[str, int], ...]
    """Each role with its number of pods."""
    uid: Uid | None = None
    replaces: str = ""
    """The name of the smaller Workload that it replaces once it is admitted."""

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class ShrinkWorkload(Effect, frozen=True):
    """Lower the numbers of pods of a Workload with quota: that gives the quota of those that are gone back."""

    name: str
    uid: Uid
    pod_sets: tuple[tuple[str, int], ...]
    """Each role with its number of pods."""

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class ReturnQuota(Effect, frozen=True):
    """Give the quota of an evicted Workload back: its pods are gone."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class ReadyWorkload(Effect, frozen=True):
    """Tell Kueue that the pods are Ready: it evicts a Workload whose pods never are."""

    name: str
    uid: Uid

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class FinishWorkload(Effect, frozen=True):
    """Finish a Workload with its job, and take its finalizer away."""

    name: str
    uid: Uid
    reason: str

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class DeleteWorkload(Effect, frozen=True):
    """Delete a Workload by uid, with its finalizer: that gives its quota back."""

    name: str
    uid: Uid
    waiting: bool = False
    """True: only while it has no quota, as pods may run with it as soon as it has."""

    @property
    def target(self) -> str:
        return f"workload/{self.name}"


class DeleteJob(Effect, frozen=True):
    """Delete the job's own resource by uid: its time to live is over."""

    target: ClassVar[str] = "job"
