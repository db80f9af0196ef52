"""The values in events: views of slots, pods, children and members.  Pure; they change only as events may."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import msgspec

from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet


class Slots(msgspec.Struct, frozen=True, gc=False):
    """Slots of one attempt and role, as inclusive index ranges: a thousand workers are one pair of numbers."""

    attempt: int
    role: str
    ranges: tuple[tuple[int, int], ...]

    def __iter__(self) -> Iterator[Slot]:
        return (Slot(self.attempt, self.role, index) for low, high in self.ranges for index in range(low, high + 1))


AUTOSCALER = ("kube-controller-manager", "scale")
"""The manager and the subresource by which a HorizontalPodAutoscaler writes: no other controller of it scales a job."""


class Actor(msgspec.Struct, frozen=True, gc=False):
    """A client that wrote a resource, as the API server names it in `managedFields`."""

    manager: str
    """The name that the client gave itself, such as `kubectl-edit`."""
    operation: str = ""
    """`Apply` or `Update`."""
    subresource: str = ""
    """`scale`, if it wrote through that."""

    def __str__(self) -> str:
        if (self.manager, self.subresource) == AUTOSCALER:
            return f"an autoscaler ({self.manager}, {self.subresource})"
        return self.manager + (f" ({self.subresource})" if self.subresource else "")


class Exit(msgspec.Struct, frozen=True, gc=False):
    """How one container ended."""

    container: str
    code: int
    reason: str = ""
    message: str = ""
    """What a failed container said last, or one that succeeded left as its result where the kind reports it, at most
    2 KiB; empty where MUSTER_TERMINATION_MESSAGES is false."""
    checkpoint: int | None = None
    """The step of the checkpoint that it took at its end, as its termination message says."""


class PodView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The facts about a pod, whose phase, readiness and exit are those of its training container.

    Views of one uid and epoch are ordered by `version`, the resourceVersion.
    """

    uid: Uid
    name: str
    version: int
    attempt: int
    role: str
    index: int
    phase: str = "Pending"
    """Pending, Running, Succeeded, Failed or Unknown, of the training container; Running while it restarts in place."""
    ready: bool = False
    exits: tuple[Exit, ...] = ()
    """Once the training container ended: how it did, then the other containers that ended."""
    reason: str = ""
    """The pod's own reason (`Evicted`), or what keeps the training container from running (`ImagePullBackOff`) or from
    being Ready (`ContainersNotReady`); beside one that is Ready what keeps another container from running."""
    node: str = ""
    deleting: bool = False
    grace: int = 0
    """The grace period of its deletion in seconds; 0 before its deletion."""
    disruption: str = ""
    """The reason of its `DisruptionTarget` condition; `ContainerStatusUnknown` if its node does not know its end."""
    hosts: int = 0
    """The version of the hosts files that a launcher was nudged to load."""
    claimed: bool = True
    """False for a pod of another operator until it has Muster's labels."""
    message: str = ""
    """The message of the kube-scheduler or the kubelet when `reason` came; of `FailedMount` and the like from an Event
    about the pod."""
    ran: bool = True
    """False if nothing shows that the training container ever ran."""
    lingers: bool = False
    """True if the training container ended and others of the pod run on."""
    restarts: int = 0
    """How often the kubelet restarted the training container in place; this counts against backoffLimit where the job
    asked for it, and against nothing where its pod template did."""
    finalizers: tuple[str, ...] = ()
    """Those that keep it once it is being deleted, at most ten."""
    runs_again: int = 0
    """How often the kubelet restarted the containers that crashed beside the training, once all of them run again; in
    the log those restarts that are well since long."""

    @property
    def slot(self) -> Slot:
        return Slot(self.attempt, self.role, self.index)


INITIALIZING = "PodInitializing"
"""The reason of containers that wait for init containers, or for their own image after them."""

ON_THE_WAY = frozenset({"", "ContainerCreating", INITIALIZING})
"""The reasons of containers that wait and that nothing hinders."""


UNSCHEDULABLE = "Unschedulable"
"""The kube-scheduler's reason for a pod that fits on no node."""

USUAL = ON_THE_WAY | {"ContainersNotReady"}
"""The reasons of pods that start as they should; a readiness probe takes its time."""

PULLS_FAILED, PULL_WAITS = (
    frozenset({"ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"}),
    "ImagePullBackOff",
)
"""A kubelet tells them by turns while it cannot pull an image: the try, and the wait before the next one."""


TOLD_BY_EVENTS = frozenset(
    {
        "FailedAttachVolume",
        "FailedCreatePodContainer",
        "FailedCreatePodSandBox",
        "FailedMapVolume",
        "FailedMount",
        "FailedPrepareDynamicResources",
        "FailedResourceClaimCreation",
        "NetworkNotReady",
    }
)
"""The reasons why no container of a pod begins, which stand in Kubernetes Events alone: its status is as usual."""


def newer(pod: PodView, known: PodView) -> bool:
    """True if a view says more than the `known` one: a pod's version does not change when an Event tells of it."""
    told = not TOLD_BY_EVENTS.isdisjoint((pod.reason, known.reason))
    return pod.version > known.version or (told and pod.version == known.version)


def trouble(pod: PodView) -> str:
    """What keeps a pod from being up beside the usual; the same word for as long as it is one trouble."""
    if pod.deleting:
        return "deletion"
    if ended(pod) or pod.reason in USUAL:
        return ""
    return PULL_WAITS if pod.reason in PULLS_FAILED else pod.reason


def ended(pod: PodView) -> bool:
    """True if the training container of the pod ended."""
    return pod.phase in ("Succeeded", "Failed")


def occupies(pod: PodView) -> bool:
    """True while a container of the pod runs or may run: it holds its resources."""
    return not ended(pod) or pod.lingers


def alive(pod: PodView | None) -> bool:
    """True if the pod exists, has not ended and is not being deleted."""
    return pod is not None and not ended(pod) and not pod.deleting


def newest_versions(pods: Iterable[PodView]) -> dict[Slot, int]:
    """The version of the newest pod in each slot; an older pod in that slot was succeeded by it."""
    found: dict[Slot, int] = {}
    for pod in pods:
        slot = pod.slot
        found[slot] = max(found.get(slot, 0), pod.version)
    return found


class TolerationView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A toleration that a queue gives to pods."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class PodSetView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The pods of one role in a Workload; once it is admitted with all that its queue gives them."""

    role: str
    count: int = 0
    flavors: tuple[str, ...] = ()
    """The names of the ResourceFlavors that it was admitted to."""
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[TolerationView, ...] = ()
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class WorkloadView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Workload: what Kueue says about the job's quota."""

    queue: str
    generation: int = 0
    """The job's generation whose templates it has."""
    replaces: str = ""
    """The name of the Workload that it replaces, as a slice of an elastic job; empty for a whole one."""
    pod_sets: tuple[PodSetView, ...] = ()
    reserved: bool = False
    """True while it has quota."""
    refused: bool = False
    """True while Kueue says that there is no quota for its larger size; False for one that replaces none."""
    admitted: bool = False
    evicted: str = ""
    """The reason of its eviction; empty while it is not evicted."""
    message: str = ""
    """Kueue's words about the eviction."""
    finished: str = ""
    """The reason of its end."""
    ready: bool = False
    """True once Kueue knows that the pods are Ready."""
    held: bool = False
    """True while a finalizer keeps it."""
    deleting: bool = False

    @property
    def begins(self) -> bool:
        """True if pods are made with what its flavors give them."""
        return self.admitted and not (self.evicted or self.finished or self.deleting)

    def goes_on(self, later: Self) -> bool:
        """True if the same admission lasts in a later view."""
        flavors, now = ([(each.role, each.flavors) for each in view.pod_sets] for view in (self, later))
        return self.admitted and later.admitted and not self.evicted and flavors == now

    @property
    def answer(self) -> tuple[object, ...]:
        """What decides whether the job may run."""
        return self.reserved, self.admitted, self.evicted, self.finished, self.deleting

    def count(self, role: str) -> int:
        """The number of pods of a role."""
        return sum(pods.count for pods in self.pod_sets if pods.role == role)


class ChildView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Service, ConfigMap, RBAC object or Workload under one of the job's names."""

    kind: str
    name: str
    uid: Uid
    version: int
    ours: bool
    """False if the object has another controller; Muster never changes it."""
    hosts: int = 0
    """The version in the hosts ConfigMap."""
    workload: WorkloadView | None = None
    """What a Workload says; None for every other kind."""


class Reached(msgspec.Struct, frozen=True, gc=False):
    """A condition that a job had reached with another operator; its message is not kept."""

    type: str
    status: bool
    reason: str
    time: str
    """The transition time in that operator's status; empty if it has none."""


class Count(msgspec.Struct, frozen=True, gc=False):
    """The numbers of ended pods of a role in another operator's status."""

    role: str
    succeeded: int = 0
    failed: int = 0


class Member(msgspec.Struct, frozen=True, gc=False):
    """A leaving worker, by index and by the uid of its pod when it was chosen."""

    index: int
    uid: Uid = Uid("")


def ranges(indices: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Indices as inclusive ranges in ascending order: 0, 1, 2, 5 become (0, 2), (5, 5)."""
    found: list[tuple[int, int]] = []
    for index in sorted(indices):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return tuple(found)


def indices(pairs: Iterable[tuple[int, int]]) -> SortedSet[int]:
    """The indices in inclusive ranges."""
    return SortedSet([index for low, high in pairs for index in range(low, high + 1)])


def spans(slots: Iterable[Slot]) -> tuple[Slots, ...]:
    """Slots grouped by attempt and role, each group as ranges."""
    groups: dict[tuple[int, str], list[int]] = {}
    for slot in slots:
        groups.setdefault((slot.attempt, slot.role), []).append(slot.index)
    return tuple(Slots(attempt, role, ranges(found)) for (attempt, role), found in sorted(groups.items()))


def each(groups: Iterable[Slots]) -> SortedSet[Slot]:
    return SortedSet([slot for group in groups for slot in group])
