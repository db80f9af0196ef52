"""The chains of causes that answer the questions about a job, one of its slots, or a scale request.  Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from shared.job.attempt import Members
from shared.job.naming import Slot, WorkerName
from shared.job.policies import replacement
from shared.job.reasons import NAME_HELD, plain
from shared.job.scaling import Request
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import alive
from shared.telling.causes.links import Link, back_off_line, listing, request_waits_for, waits_for
from shared.telling.causes.walk import Causes


class Chain(msgspec.Struct, frozen=True):
    """An answer: the newest link first, each followed by its cause, or by a link of an earlier chain."""

    question: str
    links: tuple[Link, ...]


def of_job(causes: Causes, shown: str = "") -> list[Chain]:
    """Why the job is in its phase, what it waits for, and why it has its size.

    `shown` is the phase in its status, if that is another: some kinds are Restarting while pods of a job that runs are
    replaced.
    """
    job, newest, at = causes.job, causes.newest.get, causes.at.get
    live = not job.over and not job.resource.gone
    listed = live and not job.between_attempts and isinstance(job.membership, Members)
    asked = {
        "why it is gone": newest("JobGone") if job.resource.gone else None,
        "why it is being deleted": newest("JobDeleting") if job.deleting and not job.resource.gone else None,
        _about_phase(causes, shown): causes.phase,
        "what it waits for": waits_for(causes),
        "why its newest edit is not acted upon": newest("JobObserved")
        if job.resource.problems and job.status.phase
        else None,
        f"why this is attempt {job.attempt.number + 1}": at(job.attempt.since) if job.attempt.number else None,
        "why it is below its minimum": at(job.attempt.below_minimum) if live else None,
        f"why these workers are in the {listing(job)}": newest("HostsPublished") if listed else None,
        "why it is to have this size": causes.sized if live else None,
    }
    chains: list[Chain] = []
    told: set[int] = set()
    for question, head in asked.items():
        if head is None or id(head) in told:
            continue
        links: list[Link] = []
        for link in head.chain():
            links.append(link)
            if id(link) in told:
                break
            told.add(id(link))
        chains.append(Chain(question, tuple(links)))
    if live and (failed := _losses(causes)):
        question = "which pods were lost, and when they are replaced"
        if shown in ("", job.status.phase):
            chains.append(Chain(question, failed))
        else:
            chains.insert(0, Chain(f"why it is {shown}: {question}", failed))
    first = newest("JobObserved")
    return chains or ([Chain("what is known of it", tuple(first.chain()))] if first is not None else [])


def _about_phase(causes: Causes, shown: str) -> str:
    job = causes.job
    if job.resource.gone:
        return f"why it was {job.status.phase}"
    return (
        f"why it is {job.status.phase}" if shown in ("", job.status.phase) else f"why its attempt is {job.status.phase}"
    )


def _losses(causes: Causes) -> tuple[Link, ...]:
    """This attempt's failures that the job remembers, newest first; none if no lost pod awaits its replacement.

    The failure of a pod that is replaced later has the length of the back-off and its end.
    """
    job = causes.job
    lost = {} if job.between_attempts else replacement.replaceable(job)
    if not lost:
        return ()
    slots = {job.pod_name(slot): slot for slot in causes.lives}
    began = job.attempt.assigned.sequence if job.attempt.assigned is not None else 0
    links = list[Link]()
    for failure in reversed(job.status.failures):
        slot = slots.get(WorkerName(failure.pod))
        link = causes.find(failure.at.sequence, slot) if failure.at.sequence >= began else None
        if link is not None and slot in lost and lost[slot].at == failure.at:
            next_try = back_off_line(lost[slot].at.time, lost[slot].wait)
            link = link.says(f"{link.text}; {next_try}", link.cause, unknown=link.unknown)
        if link is not None:
            links.append(link)
    return tuple(links)


def of_slot(causes: Causes, slot: Slot) -> Chain:
    """All links of one slot and its pod, with their causes."""
    return Chain(f"why {causes.job.pod_name(slot)} is as it is", _closed(causes.lives[slot]))


def of_request(causes: Causes, request: Request) -> list[Chain]:
    """All links of a request, with their causes; and what it waits for."""
    links = _closed(causes.requests.get(request.uid, []))
    chains = [Chain(f"why {request.kind.lower()}/{request.name} is {request_state(causes, request)}", links)]
    awaited = request_waits_for(causes, request)
    if awaited is not None and awaited not in links:
        chains.append(Chain("what it waits for", tuple(awaited.chain())))
    return chains


def slot_of(causes: Causes, word: str) -> Slot | None:
    """The slot that a person names: `resnet-worker-3`, `worker-3`, `3`, or `launcher` for a role with one pod.

    Of several attempts, the newest counts.
    """
    job = causes.job
    known = causes.lives.keys()
    roles = Counter(slot.role for slot in {(slot.role, slot.index): slot for slot in known}.values())

    def words(slot: Slot) -> Iterator[str]:
        yield job.pod_name(slot)
        if slot.role != LAUNCHER:
            yield f"{slot.role}-{slot.index}"
        if slot.role == WORKER:
            yield str(slot.index)
        elif roles[slot.role] == 1:
            yield slot.role

    return max((slot for slot in known if word in words(slot)), default=None)


def request_of(causes: Causes, word: str) -> Request | None:
    """The newest request of that name; `scalein/x` and `scaleout/x` name the kind, too."""
    kind, slash, name = word.rpartition("/")
    found = [
        request
        for request in causes.known.values()
        if name in (request.name, request.uid) and (not slash or kind.lower().rstrip("s") == request.kind.lower())
    ]
    return max(found, key=lambda request: request.order, default=None)


def slot_state(causes: Causes, slot: Slot) -> str:
    """The present state of a slot, in words."""
    job = causes.job
    pod = job.by_slot().get(slot)
    seen = "no pod" if pod is None else "Ready" if pod.ready else "being deleted" if pod.deleting else pod.phase
    if slot in job.attempt.slots:
        member = slot.role == WORKER and slot.attempt == job.attempt.number and slot.index in job.listed_workers
        if pod is None:
            return "; ".join(("its pod is not created yet", *_refusals_of_pod(job, slot)))
        beside = ", and has trouble beside it" if pod.ready else ""
        waits = f"{beside}: {plain(pod.reason, pod.message)}" if pod.reason and alive(pod) else ""
        return f"{seen}, and in the {listing(job)}{waits}" if member and alive(pod) else f"{seen}{waits}"
    if slot in job.attempt.spent:
        successor = causes.successors.get(slot)
        then = f"{job.pod_name(successor)} took its place" if successor else "that pod is not made again"
        name = job.pod_name(slot)
        lost = job.attempt.vacancies.get(slot)
        # Once another took its place, its failure alone is remembered; names are used again.
        of_name = (failure.deleted for failure in reversed(job.status.failures) if failure.pod == name)
        deleted = lost.deleted if lost is not None else next(of_name, False)
        return f"{seen}; it {'was deleted' if deleted else 'ended or went by itself'}, and {then}"
    return f"{seen}; it was released"


def _refusals_of_pod(job: Job, slot: Slot) -> Iterator[str]:
    """Why the pod of a slot is not created: a name that is held keeps only its own slot."""
    for known in job.efforts.refusals.values():
        if known.effect == "CreatePod" and (known.reason != NAME_HELD or slot in known.slots):
            yield known.sentence if known.reason in known.sentence else f"{known.reason}: {known.sentence}"


def request_state(causes: Causes, request: Request) -> str:
    """The present state of a request, in words."""
    if request.uid not in causes.job.scaling.requests:
        return "gone before its turn came"
    return f"{request.phase} ({request.reason})" if request.reason else request.phase


def _closed(links: Iterable[Link]) -> tuple[Link, ...]:
    """These links and all their causes, newest first."""
    found: dict[int, Link] = {}
    for head in links:
        for link in head.chain():
            found.setdefault(id(link), link)
    return tuple(sorted(found.values(), key=lambda link: -link.sequence))
