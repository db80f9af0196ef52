"""An attempt of a job: its slots, what happened to the pods in them, its members and its end.  Pure.

A restart begins a new `Attempt`.  `Job.pods` has the pods, of earlier attempts too until they are deleted.
"""

from collections.abc import Mapping

import msgspec

from shared.job.events.event import UNKNOWN, At, Cause
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER
from shared.job.views import PodView

KEPT_FAILURES = 16
"""The number of newest failures that a job keeps, for Kubernetes Events; the log has all of them."""


def was_deleted(code: int | None) -> str:
    """`was deleted (exit code 137)`, of a pod that a person or a program deleted."""
    return "was deleted" if code is None else f"was deleted (exit code {code})"


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A worker pod that ended or disappeared without a `WorkersReleased` decision."""

    pod: str
    reason: str
    code: int | None
    at: At
    message: str = ""
    """What the container said last, or the kubelet's sentence for the reason."""
    deleted: bool = False
    """A person or a program deleted the pod before it ended."""


class Notice(msgspec.Struct, frozen=True, gc=False):
    """The announced end of a pod's node."""

    at: At
    seconds: int
    """Seconds from then until the node goes."""


class Vacancy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A slot whose pod ended or vanished without a release; the launcher's slot has none."""

    at: At
    reason: str
    code: int | None = None
    """The exit code of the training container; None if it is unknown."""
    message: str = ""
    """The termination message of the container, or the kubelet's message for the reason."""
    succeeded: bool = False
    taken: bool = False
    """The pod was deleted, or vanished, before it ended."""
    disrupted: bool = False
    """The pod was evicted or preempted, or its node was removed."""
    losses: int = 0
    """The number of consecutive blameless losses before this one, each soon after its replacement."""
    wait: int = 0
    """Seconds from the loss to the replacement; what happens to other pods meanwhile does not change it."""
    ran: bool = True
    """False if the training container never ran: such a pod starts nothing."""

    @property
    def blameless(self) -> bool:
        """True for a deletion or a disruption: it counts against no limit."""
        return self.taken or self.disrupted

    @property
    def deleted(self) -> bool:
        """A person or a program deleted the pod, which nothing else took away."""
        return self.taken and not self.disrupted

    @property
    def cause(self) -> str:
        """Why the pod went: what one that is deleted ends with is not why."""
        return "Deleted" if self.deleted else self.reason

    @property
    def how(self) -> str:
        """How the pod went: `exited with 1 (Error)`, `was deleted`, `is lost: Evicted`."""
        if self.deleted:
            return was_deleted(self.code)
        return f"exited with {self.code} ({self.reason})" if self.code is not None else f"is lost: {self.reason}"


class Refill(msgspec.Struct, frozen=True, gc=False):
    """A worker that replaced a lost one."""

    at: At
    losses: int
    """The number of consecutive blameless losses before it."""
    reason: str = ""
    """The reason of the loss that it followed."""
    why: str = ""
    """That loss, as a sentence."""


class Tally(msgspec.Struct, frozen=True, gc=False):
    """The numbers of pods of a role that ended in this attempt; the pods may be deleted since."""

    succeeded: int = 0
    failed: int = 0


UNREACHABLE = "NodeUnreachable"
NOT_READY = "NodeNotReady"
"""Why a node is lost: its kubelet is silent, or says itself that the node is not ready."""

NEVER = -1
"""The value of `force_delete_after` of a job whose pods are never deleted by force."""


class FailuresOn(msgspec.Struct, frozen=True, gc=False):
    """Training containers of a job that failed on one node."""

    count: int
    at: At
    """The newest of them."""


class LostNode(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod's lost node."""

    node: str
    reason: str
    """`NodeUnreachable` or `NodeNotReady`."""
    since: str
    """Since when the node is lost, by the API server."""
    at: At
    """The event by which this became known."""
    force_after: int | None = None
    """The setting at that time: the seconds after its grace period when a pod is deleted by force; None for never."""
    terminating: At | None = None
    """Since when the pod is also being deleted: only its kubelet could end that."""


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A worker that left the hosts files and whose slot is not released yet."""

    version: int
    """The version of the first hosts files without the worker."""
    drain: int
    """Seconds that the worker gets once those files are in place."""
    pod: Uid = Uid("")
    """Its pod at that time; empty if there was none."""
    seen: int = 0
    """The sequence at which those files were seen in place; 0 before."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No hosts files were published in this attempt."""

    version: int = 0
    """The version of the newest hosts files of any attempt; 0 if there are none."""


class Members(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The members by the newest `HostsPublished` or by the job's adoption."""

    version: int
    """The version of the newest hosts files; 0 if another operator wrote them."""
    indices: SortedSet[int]
    """Worker indices in the newest hosts files."""
    leaving: SortedSet[int] = SortedSet()
    """Workers that a scale-in took out of the hosts files and has not released yet."""
    departures: Mapping[Slot, Departure] = {}
    """Workers that left the hosts files for any reason; may have entries of released slots."""
    written: int = 0
    """The sequence at which this version was seen in the cluster; 0 before."""
    edited: int = 0
    """The sequence at which another client was seen to have changed the files of this version; 0 before."""
    grew: At | None = None
    """When the newest hosts files of this attempt were published that have more workers than those before them, or
    replace files that another client had changed.
    """


Membership = Unknown | Members


class Verdict(msgspec.Struct, frozen=True):
    """The end of an attempt: success or failure, and the reason."""

    success: bool
    reason: str
    message: str = ""
    permanent: bool = False
    """True if no further attempt may follow."""
    disrupted: bool = False
    """True if a disruption ended the attempt: another one follows and counts against no limit."""
    because: Cause = UNKNOWN
    """The event that ended the attempt."""


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
    gang: int = 0
    """How many of its first pods have to find places together; 0 if each may alone."""
    placed: bool = False
    """True once a pod of that gang had a node, and so all of them had."""
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
    """Since when the kube-scheduler finds no node for the launcher, or for some of the fewest workers that a job with
    elasticity trains with; None while they have theirs."""
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
        return Slot(self.number, WORKER, index)
