"""What events are made of: how the log sees slots, pods, children and members.  Pure; as permanent as the events."""

from collections.abc import Iterable, Iterator

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


class Exit(msgspec.Struct, frozen=True, gc=False):
    """How one container ended."""

    container: str
    code: int
    reason: str = ""


class PodView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the log knows of a pod.  Views of one uid and epoch are ordered by `version`, the resourceVersion."""

    uid: Uid
    name: str
    version: int
    attempt: int
    role: str
    index: int
    phase: str = "Pending"
    """Pending, Running, Succeeded, Failed, Unknown; the end is told with the exit of the last container."""
    ready: bool = False
    exits: tuple[Exit, ...] = ()
    reason: str = ""
    """The pod's own (`Evicted`) or that of a container that waits (`ImagePullBackOff`)."""
    node: str = ""
    deleting: bool = False
    disruption: str = ""
    """The reason of its `DisruptionTarget` condition."""
    hosts: int = 0
    """Of a launcher: the version of the hosts files that it was nudged to load."""
    claimed: bool = True
    """It carries our labels; those that another operator made do not at first."""

    @property
    def slot(self) -> Slot:
        return Slot(self.attempt, self.role, self.index)


def ended(pod: PodView) -> bool:
    """The pod reached a terminal phase."""
    return pod.phase in ("Succeeded", "Failed")


def alive(pod: PodView | None) -> bool:
    """The pod runs or will, and nobody asked it to go."""
    return pod is not None and not ended(pod) and not pod.deleting


class ChildView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A Service, ConfigMap, Secret or RBAC object under one of the job's names."""

    kind: str
    name: str
    uid: Uid
    version: int
    ours: bool
    """False: it belongs to somebody else and is never touched."""
    hosts: int = 0
    """Of the hosts ConfigMap: the version inside."""


class Reached(msgspec.Struct, frozen=True, gc=False):
    """A condition that a job had reached with another operator; its message is not kept."""

    type: str
    status: bool
    reason: str
    time: str
    """When it became so, as that operator wrote it; empty when it did not say."""


class Count(msgspec.Struct, frozen=True, gc=False):
    """How many pods of a role had ended, as another operator counted them."""

    role: str
    succeeded: int = 0
    failed: int = 0


class Member(msgspec.Struct, frozen=True, gc=False):
    """A worker chosen to leave, by slot and by the pod that held it then."""

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
    """The indices within inclusive ranges."""
    return SortedSet(index for low, high in pairs for index in range(low, high + 1))


def spans(slots: Iterable[Slot]) -> tuple[Slots, ...]:
    """Slots grouped by attempt and role, each group as ranges."""
    groups: dict[tuple[int, str], list[int]] = {}
    for slot in slots:
        groups.setdefault((slot.attempt, slot.role), []).append(slot.index)
    return tuple(Slots(attempt, role, ranges(found)) for (attempt, role), found in sorted(groups.items()))


def each(groups: Iterable[Slots]) -> SortedSet[Slot]:
    """The slots within groups."""
    return SortedSet(slot for group in groups for slot in group)
