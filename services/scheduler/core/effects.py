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

    changes: ClassVar[str] = "secret/{0.attempt}"

    attempt: int
    name: str


class CreatePod(Effect, frozen=True):
    """Create the pod of a slot; `scaleout` is the name of the ScaleOut that added the slot, `gang` of its PodGroup.

    It keeps off the nodes to `avoid`, if others have room.
    """

    changes: ClassVar[str] = "pod/{0.slot.role}/{0.slot.index}"
    bulk: ClassVar[bool] = True

    slot: Slot
    scaleout: str = ""
    gang: str = ""
    avoid: tuple[str, ...] = ()


class ClaimPod(Effect, frozen=True):
    """Put Muster's labels on a pod, given by uid, that another operator created."""

    changes: ClassVar[str] = "pod/{0.uid}"
    bulk: ClassVar[bool] = True

    name: str
    uid: Uid
    slot: Slot


class DeletePod(Effect, frozen=True):
    """Delete a pod by uid; with `force` without a grace period, so that no kubelet has to confirm it.

    One that is `drained` gets a short grace period.
    """

    changes: ClassVar[str] = "pod/{0.uid}"
    bulk: ClassVar[bool] = True

    name: str
    uid: Uid
    force: bool = False
    drained: bool = False


class DeleteService(Effect, frozen=True):
    """Delete a Service by uid: its job is gone, or its pod's slot was released."""

    changes: ClassVar[str] = "service/{0.uid}"
    bulk: ClassVar[bool] = True

    name: str
    uid: Uid


class DeleteSecret(Effect, frozen=True):
    """Delete the Secret of an attempt by uid.  The outcome is a `SecretGone`."""

    changes: ClassVar[str] = "secret/{0.attempt}"

    attempt: int
    name: str
    uid: Uid


class CreateAutoscaler(Effect, frozen=True):
    """Create the HorizontalPodAutoscaler with the metrics of the job.  The outcome is an `AutoscalerMade`."""

    changes: ClassVar[str] = "autoscaler"


class DeleteAutoscaler(Effect, frozen=True):
    """Delete the HorizontalPodAutoscaler by uid.  The outcome is an `AutoscalerGone`."""

    changes: ClassVar[str] = "autoscaler"

    uid: Uid


class CreatePodGroup(Effect, frozen=True):
    """Create the PodGroup of a gang, of which so many pods find places together."""

    changes: ClassVar[str] = "podgroup/{0.name}"

    name: str
    least: int

    @property
    def lasting(self) -> bool:
        return True


class DeletePodGroup(Effect, frozen=True):
    """Delete a PodGroup by uid: its pods are gone."""

    changes: ClassVar[str] = "podgroup/{0.uid}"

    name: str
    uid: Uid


class WriteWorkload(Effect, frozen=True):
    """Create the Workload of a job in a queue; or with a `uid` write one without quota anew."""

    changes: ClassVar[str] = "workload/{0.name}"

    name: str
    queue: str
    pod_sets: tuple[tuple[str, int], ...]
    """Each role with its number of pods."""
    uid: Uid | None = None
    replaces: str = ""
    """The name of the smaller Workload that it replaces once it is admitted."""


class OfWorkload(Effect, frozen=True):
    """Change or delete the Workload of this uid; one that is gone stays so."""

    changes: ClassVar[str] = "workload/{0.name}"

    name: str
    uid: Uid


class ShrinkWorkload(OfWorkload, frozen=True):
    """Lower the numbers of pods of a Workload with quota: that gives the quota of those that are gone back."""

    pod_sets: tuple[tuple[str, int], ...]
    """Each role with its number of pods."""


class ReturnQuota(OfWorkload, frozen=True):
    """Give the quota of an evicted Workload back: its pods are gone."""


class ReadyWorkload(OfWorkload, frozen=True):
    """Tell Kueue that the pods are Ready: it evicts a Workload whose pods never are."""


class FinishWorkload(OfWorkload, frozen=True):
    """Finish a Workload with its job, and take its finalizer away."""

    reason: str


class DeleteWorkload(OfWorkload, frozen=True):
    """Delete a Workload by uid, with its finalizer: that gives its quota back."""

    waiting: bool = False
    """True: only while it has no quota, as pods may run with it as soon as it has."""


class DeleteJob(Effect, frozen=True):
    """Delete the job's own resource by uid: its time to live is over."""

    changes: ClassVar[str] = "job"
