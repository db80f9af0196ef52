"""Compares the heads in the resource and in the checkpoint with the log.  Pure.

A head beyond the log's end, of another log, or of a job without events means that history was lost.  A wrong hash
within the log is a dispute if the checkpoint, which the status service writes first, agrees with the log; otherwise it
is a loss too.  Either holds the job until a person decides which side is right.
"""

from collections.abc import Iterator, Mapping

import msgspec

from services.watcher.core.cache import Cache
from services.watcher.core.observed import ObservedJob
from services.watcher.core.questions import Answers, Compare, Evidence, Named, Question
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, HistoryDisputed, JobAdopted
from shared.job.fold import History
from shared.job.integrity import Broken, Disputed
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, JobSpec
from shared.job.state import Job
from shared.job.views import PodView, alive, ended, spans

replace = msgspec.structs.replace

MISMATCH = "HashMismatch"
OTHER_LOG = "OtherLog"

ACCEPTED_LOSS = "AcceptedLoss"
"""The source of an adopted job that goes on after a loss."""


def questions(job: Job, cache: Cache) -> Iterator[Compare]:
    """The comparison of the log with the head in the resource and, once, with the checkpoint.

    The checkpoint is read for jobs that are older than this process, and for those with a status and no event in the
    log.  A new job has none.
    """
    resource = cache.job(job.key)
    if resource is None:
        return
    shown = Named(resource.log, resource.head) if resource.head is not None else None
    recall = job.key in cache.found or (resource.inherited is not None and job == Job(key=job.key))
    if shown is not None or recall:
        yield Compare(shown, recall)


def doubt(job: Job, resource: ObservedJob | None, answers: Answers) -> HistoryBroken | HistoryDisputed | None:
    """The doubt about this history, until it is recorded or a person has accepted the head."""
    if resource is None or answers.evidence is None:
        return None
    # After an accepted loss the checkpoint may stay ahead of the log.
    found = fault(answers.evidence[1], alone=not job.integrity.accepted)
    if found is None or found.head in job.integrity.accepted:
        return None
    if job.integrity.doubt is not None and job.integrity.doubt.head == found.head:
        return None
    if isinstance(found, Disputed):
        return HistoryDisputed(theirs=found.head, ours=found.ours)
    return HistoryBroken(
        log=found.log,
        sequence=found.head.sequence,
        hash=found.head.hash,
        reason=found.reason,
        kind=resource.observed.kind,
        api_version=resource.observed.api_version,
    )


def warning(job: Job) -> tuple[str, str] | None:
    return ("head is wrong", job.integrity.sentence) if job.integrity.doubt is not None else None


def fault(evidence: Evidence, *, alone: bool = True) -> Broken | Disputed | None:
    """The fault of a history, or None.  With `alone` the checkpoint raises a doubt by itself."""
    shown, kept = evidence.shown, evidence.kept
    if shown is not None and (reason := _wrong(evidence, shown)):
        if reason == MISMATCH and kept is not None and _confirmed(evidence, kept):
            return Disputed(shown.head, kept.head)
        return Broken(shown.log, shown.head, reason)
    # A checkpoint of another log gives way once this log has begun the job.
    if alone and kept is not None and (kept.log == evidence.identity or evidence.empty):
        reason = _wrong(evidence, kept)
        return Broken(kept.log, kept.head, reason) if reason else None
    return None


def settled(answers: Answers) -> bool:
    """True if a head of the job was compared, and nothing was found wrong."""
    return answers.evidence is not None and fault(answers.evidence[1]) is None


def at_hand(question: Question, answers: Answers, history: History, identity: str) -> tuple[Compare, Evidence] | None:
    """The answer about a head that the fold itself read in the log of this `identity`; None if it has to be asked."""
    if not isinstance(question, Compare) or question.shown is None or (question.recall and not settled(answers)):
        return None
    shown, end = question.shown, history.sequence
    hashes = {shown.head.sequence: shown.head.hash}
    if shown.log != identity or history.hash_at(shown.head.sequence) != shown.head.hash:
        return None
    return question, Evidence(identity=identity, began=end, end=end, shown=shown, hashes=hashes)


def beyond_the_end(evidence: Evidence) -> bool:
    """True if the log, by the answer of its leader, ends before a head: it was truncated, or the leader lags."""
    heads = (named for named in (evidence.shown, evidence.kept) if named is not None)
    return any(named.log == evidence.identity and named.head.sequence > evidence.end for named in heads)


def _wrong(evidence: Evidence, named: Named) -> str:
    """Why the log does not lead to this head; empty when it does, or when that cannot be told any more."""
    if named.log != evidence.identity:
        return OTHER_LOG
    if named.head.sequence > evidence.end:
        return "BeyondTheEnd"
    known = evidence.hashes.get(named.head.sequence)
    if known is None or known == named.head.hash:
        return ""
    if named.head.sequence > evidence.began:
        # A restored log lost these events, and has grown past their sequence since.
        return "BeyondTheEnd"
    return "HistoryLost" if evidence.empty else MISMATCH


def _confirmed(evidence: Evidence, named: Named) -> bool:
    return named.log == evidence.identity and evidence.hashes.get(named.head.sequence) == named.head.hash


def accepted(job: Job, resource: ObservedJob, pods: Mapping[Uid, PodView]) -> list[JobAdopted | HistoryAccepted]:
    """The facts after a person accepted the head that raised the doubt: adopt the present pods, then go on."""
    doubt = job.integrity.doubt
    if doubt is None or resource.accept != str(doubt.head):
        return []
    go_on = HistoryAccepted(sequence=doubt.head.sequence, hash=doubt.head.hash)
    # An adopted attempt has begun, also where all its pods had ended.
    begun = bool(job.attempt.slots or job.status.phase or job.attempt.since)
    # Of a lost history, the status that its last events made knows the end.  A log that was restored keeps its name: of
    # a job that this log has begun, the status of another log says nothing.
    lost = isinstance(doubt, Broken) and not (begun and doubt.reason == OTHER_LOG)
    ended_before = lost and not job.over and resource.reached is not None and bool(resource.reached.end)
    if begun and not ended_before:
        found = _going_on(job, pods)
        return [found, go_on] if found is not None else [go_on]
    # A log that lost the job's first event does not know its spec.
    spec = job.spec or resource.observed.spec
    slots, attempt = _there(spec, job.attempt.number, pods)
    if not (ended_before or any(pod.node or pod.ran for pod in pods.values() if pod.slot in slots)):
        # The first slots of an attempt make its pods the job's, and the others of their gang.
        return [go_on]
    indices = [slot.index for slot in slots if slot.role == WORKER]
    adopted = JobAdopted(
        source=ACCEPTED_LOSS,
        attempt=attempt,
        slots=spans(slots),
        lost=spans(_missing(spec, attempt) - slots) if not ended_before else (),
        next_index=max(indices, default=-1) + 1,
    )
    if ended_before:
        assert resource.reached is not None
        adopted = replace(
            adopted,
            restarts=resource.reached.restarts,
            phase=resource.reached.end,
            start_time=resource.reached.start_time,
            completion_time=resource.reached.completion_time,
            conditions=resource.reached.conditions,
            counts=resource.reached.counts,
        )
    return [adopted, go_on]


def _going_on(job: Job, pods: Mapping[Uid, PodView]) -> JobAdopted | None:
    """The pods of a job that this log has begun, if it lost the decisions that made some of them; else None.

    The hosts files may list them, and no member's pod goes before they stop.  Of what this log has released none is
    taken on again: its hosts files had stopped.
    """
    if job.over or job.suspended:
        return None
    left = {member.uid for request in job.scaling.requests.values() if request.released for member in request.leaving}
    others = {uid: pod for uid, pod in pods.items() if uid not in left and uid not in job.pods.disrupted}
    slots, attempt = _there(job.spec, job.attempt.number, others)
    same = attempt == job.attempt.number
    living = {pod.slot for pod in others.values() if alive(pod)}
    known = job.attempt.unreleased - (living - job.attempt.slots) if same else frozenset[Slot]()
    if attempt < job.attempt.number or (same and not job.attempt.begun) or not slots - known:
        # The first slots of an attempt that has begun without any make its pods the job's.
        return None
    size = job.scaling.size
    if same:
        slots = (slots - job.attempt.spent) | (slots & living) | job.attempt.slots
    elif job.spec is not None and job.spec.has_launcher and not any(slot.role == LAUNCHER for slot in slots):
        # The launcher of that attempt starts with the full size.
        slots |= {Slot(attempt, WORKER, index) for index in range(size)}
    indices = [slot.index for slot in slots if slot.role == WORKER]
    return JobAdopted(
        source=ACCEPTED_LOSS,
        attempt=attempt,
        restarts=job.retries.restarts,
        slots=spans(slots),
        lost=spans(_missing(job.spec, attempt) - slots) if not same else (),
        next_index=max(indices, default=-1) + 1,
        size=max(size, len(indices)) if same else 0,
    )


def _there(spec: JobSpec | None, known: int, pods: Mapping[Uid, PodView]) -> tuple[frozenset[Slot], int]:
    """The slots of the newest attempt that has pods, and its number; the `known` one without pods."""
    attempt = max((pod.attempt for pod in pods.values()), default=known)
    strict, leader = (spec.handling.strict, spec.handling.leader) if spec is not None else (False, LAUNCHER)
    slots = frozenset(
        pod.slot
        for pod in pods.values()
        # The pod of the leader role decides the job's end; another ended worker counts as gone.
        if pod.attempt == attempt and (alive(pod) or (ended(pod) and (strict or pod.role in (LAUNCHER, leader))))
    )
    return slots, attempt


def _missing(spec: JobSpec | None, attempt: int) -> frozenset[Slot]:
    """Of a job that needs every pod, all that its spec asks for; another goes on with what there is."""
    if spec is None or not spec.handling.strict:
        return frozenset()
    # Pods that began without a rendezvous pod have theirs at the first worker.
    roles = [role for role in spec.roles if role.name != RENDEZVOUS]
    return frozenset(Slot(attempt, role.name, index) for role in roles for index in range(role.replicas))
