"""Heads: does this log lead to the head that a resource shows?  Pure.

A head beyond the log's end, or of another log, means that history was lost.  A wrong hash within the log means so
only when the checkpoint, which status writes first, shows it too; else somebody wrote into the resource.
"""

from collections.abc import Mapping

from shared.job.chain import Head, checkpoint_of
from shared.job.events.watcher import HeadForged, HistoryAccepted, HistoryBroken, JobAdopted
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import PodView, alive, ended, spans


def judge(
    identity: str, log: str, head: Head, *, began: int, end: int, known: str | None, checkpoint: str
) -> HistoryBroken | HeadForged | None:
    """What is wrong with `head`, or None.

    `end` is the log's last sequence, and `began` what it was when nobody here had seen a head of this job yet: one
    that was beyond it is of events that a restored log had lost, though the log has grown past its sequence since.
    `known` is the hash that the fold had at the head's sequence (None: no longer kept), `checkpoint` the head in the
    bucket as `<log>/<sequence>:<hash>`, which may be as old as the log that was restored with it.
    """
    if log != identity:
        return _broken(log, head, "OtherLog")
    if head.sequence > end:
        return _broken(log, head, "BeyondTheEnd")
    if known is None or known == head.hash:
        return None
    if head.sequence > began:
        return _broken(log, head, "BeyondTheEnd")
    if checkpoint == checkpoint_of(log, head):
        return _broken(log, head, "HashMismatch")
    return HeadForged(log=log, sequence=head.sequence, hash=head.hash)


def told(job: Job, wrong: HistoryBroken | HeadForged, found: int) -> bool:
    """The log knows of it, or a person accepted it before; `found` is how far the fold was when it was found."""
    head = Head(wrong.sequence, wrong.hash)
    if head in job.integrity.accepted:
        return True
    if isinstance(wrong, HeadForged):
        return job.integrity.repair > found
    return job.integrity.doubt is not None and job.integrity.doubt.head == head


def accepted(job: Job, wish: str, pods: Mapping[Uid, PodView]) -> list[JobAdopted | HistoryAccepted]:
    """A person named exactly the head that broke this history: take on what is there, then go on."""
    doubt = job.integrity.doubt
    if doubt is None or wish != str(doubt.head):
        return []
    go_on = HistoryAccepted(sequence=doubt.head.sequence, hash=doubt.head.hash)
    if job.attempt.slots or job.phase or not pods:
        return [go_on]
    attempt = max(pod.attempt for pod in pods.values())
    strict = job.spec is not None and job.spec.handling.strict
    slots = {
        pod.slot
        for pod in pods.values()
        # An end that decides something counts; another worker that ended is simply no more.
        if pod.attempt == attempt and (alive(pod) or (ended(pod) and (strict or pod.role == LAUNCHER)))
    }
    if not slots:
        return [go_on]
    adopted = JobAdopted(
        source="AcceptedLoss",
        attempt=attempt,
        slots=spans(slots),
        lost=spans(_missing(job, attempt) - slots),
        next_index=max((slot.index for slot in slots if slot.role == WORKER), default=-1) + 1,
    )
    return [adopted, go_on]


def _missing(job: Job, attempt: int) -> frozenset[Slot]:
    """Of a job that needs every pod, all that its spec asks for; another goes on with what there is."""
    if job.spec is None or not job.spec.handling.strict:
        return frozenset()
    return frozenset(Slot(attempt, role.name, index) for role in job.spec.roles for index in range(role.replicas))


def _broken(log: str, head: Head, reason: str) -> HistoryBroken:
    return HistoryBroken(log=log, sequence=head.sequence, hash=head.hash, reason=reason)
