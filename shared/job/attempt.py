"""An attempt of a job: its slots, and what happened to the pods in them.  A restart begins a new `Attempt`.  Pure.

`Job.pods` has the pods; pods of an earlier attempt stay in it until they are deleted.
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
    """Slots that were released before a pod was seen in them: such a pod may still appear."""

    slots: SortedSet[Slot] = SortedSet()
    since: int = 0
    """The sequence of their release."""


class Attempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of one attempt.  `Attempt(number=n)` has no slots yet."""

    number: int = 0
    since: int = 0
    """The sequence of the restart or the adoption that began the attempt; 0 for a job's first attempt."""
    assigned: At | None = None
    """When the attempt got its first slots."""
    queued: bool = False
    """True if it began with quota of a queue."""
    slots: SortedSet[Slot] = SortedSet()
    """Slots that have a pod or will get one: assigned or accepted, and neither released nor spent."""
    spent: SortedSet[Slot] = SortedSet()
    """Slots whose pod ended or vanished without a release.  The pod may still exist."""
    spoilt: int = 0
    """The highest index that no worker gets again, plus one: of released workers that had failed, were lost or had not
    been seen.
    """
    vacancies: Mapping[Slot, Vacancy] = {}
    """Spent slots that were neither replaced nor released, without the launcher's."""
    refilled: Mapping[Slot, Refill] = {}
    """Slots that replaced others; may have entries of released slots."""
    replaced_ahead: SortedSet[Slot] = SortedSet()
    """Workers that have a replacement and stay until it is Ready: their node is announced to go."""
    replaced: int = 0
    """The number of replacements that count against backoffLimit."""
    tallies: Mapping[str, Tally] = {}
    """By role, the numbers of pods that ended."""
    news: Mapping[Slot, int] = {}
    """By slot, the sequence of the newest fact about its pod's phase, readiness, exits, deletion or disruption."""
    launcher_lost: bool = False
    """The launcher vanished before its end was seen."""
    launcher_gone: PodView | None = None
    """The launcher's pod at its end, or as it was last seen before it vanished.

    A later deletion of the pod does not change its end.
    """
    launcher_ended: int = 0
    """The sequence at which `launcher_gone` became known; 0 before."""
    launcher_waits: At | None = None
    """Since when the kube-scheduler finds no node for the launcher; None while it has one."""
    inherited: SortedSet[Uid] = SortedSet()
    """The pods of an adopted job that another operator created."""
    gathered: bool = False
    """True once at least minReplicas workers ran while the job was Running."""
    below_minimum: int = 0
    """The sequence since which fewer than minReplicas workers run; 0 while enough run."""

    @property
    def begun(self) -> bool:
        """True once the attempt has its first slots."""
        return self.assigned is not None

    @property
    def unreleased(self) -> SortedSet[Slot]:
        """Every slot that was not released, including spent ones."""
        return self.slots | self.spent

    @property
    def launched(self) -> bool:
        """True once the launcher's slot is assigned."""
        return any(slot.role == LAUNCHER for slot in self.unreleased)

    @property
    def workers(self) -> SortedSet[Slot]:
        """The worker slots that have a pod or will get one."""
        return SortedSet([slot for slot in self.slots if slot.role == WORKER])

    def worker_slot(self, index: int) -> Slot:
        """The slot of a worker of this attempt."""
        return Slot(self.number, WORKER, index)
