"""One attempt of a job: its slots, and what happened to the pods in them.  A restart begins a new `Attempt`.  Pure.

The pods themselves are in `Job.pods`: those of an earlier attempt are there until they are deleted.
"""

from collections.abc import Mapping

import msgspec

from shared.job.events.event import At
from shared.job.losses import Refill, Tally, Vacancy
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER
from shared.job.views import PodView


class Unseen(msgspec.Struct, frozen=True, gc=False):
    """Slots that were released between attempts before a pod was seen in them.  Such a pod may still appear."""

    slots: SortedSet[Slot] = SortedSet()
    since: int = 0
    """The sequence at which they were released."""


class Attempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What belongs to one attempt alone.  `Attempt(number=n)` is an attempt that has no slots yet."""

    number: int = 0
    since: int = 0
    """The sequence of the restart, or of the adoption, that began it; 0 of a job's first attempt."""
    assigned: At | None = None
    """When the attempt got its first slots."""
    slots: SortedSet[Slot] = SortedSet()
    """Slots that have a pod or get one: assigned or accepted, and neither released nor spent."""
    spent: SortedSet[Slot] = SortedSet()
    """Slots whose pod ended or vanished by itself.  It is not made again, and its remains may stay."""
    next_index: int = 0
    """The highest worker index that the attempt ever used, plus one."""
    vacancies: Mapping[Slot, Vacancy] = {}
    """Spent slots that were neither replaced nor released; never the launcher's."""
    refilled: Mapping[Slot, Refill] = {}
    """Slots that replaced others.  Entries of slots that are no more are harmless."""
    replaced: int = 0
    """How many pods were replaced for a fault of their own."""
    tallies: Mapping[str, Tally] = {}
    """By role, how many pods ended."""
    news: Mapping[Slot, int] = {}
    """By slot, the sequence of the newest fact that changed its pod: its phase, readiness, exits, or its way out."""
    launcher_lost: bool = False
    """The launcher vanished before its end was seen."""
    launcher_gone: PodView | None = None
    """The launcher as it ended, or as it was last seen once its pod is no more.

    An end that was seen outlives the pod, also when the pod is deleted afterwards.
    """
    launcher_ended: int = 0
    """The sequence at which `launcher_gone` became known; 0 before."""
    inherited: SortedSet[Uid] = SortedSet()
    """The pods that another operator made, of a job that was taken over from it."""
    gathered: bool = False
    """At least minReplicas workers ran at some time since the job's phase was Running."""
    below_minimum: int = 0
    """The sequence at which fewer than minReplicas workers ran; 0 while there are enough."""

    @property
    def begun(self) -> bool:
        """The attempt got its first slots."""
        return self.next_index > 0 or self.assigned is not None

    @property
    def places(self) -> SortedSet[Slot]:
        """Every slot that was not released, spent or not."""
        return self.slots | self.spent

    @property
    def launched(self) -> bool:
        """The launcher's slot was assigned."""
        return any(slot.role == LAUNCHER for slot in self.places)

    @property
    def workers(self) -> SortedSet[Slot]:
        """The worker slots that have a pod or get one."""
        return SortedSet(slot for slot in self.slots if slot.role == WORKER)

    def worker_slot(self, index: int) -> Slot:
        """The slot of a worker of this attempt."""
        return Slot(self.number, WORKER, index)
