"""Scale requests that the log lacks, or has in another state.  Pure."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.watcher.core.cache import Cache
from services.watcher.core.observed import ObservedRequest
from shared.job.events.watcher import ScaleRequested, ScaleRequestGone
from shared.job.fold import Histories
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.scaling import Request
from shared.job.spec import Problem
from shared.job.state import Job
from shared.job.text import of_range_words

OVER = ("ScaleSucceeded", "ScaleFailed")

_UNKNOWN = (Problem(reason="HistoryLost", message="create the request again: how far it got is not known"),)


def changed(
    job: Job, cache: Cache, histories: Histories, *, settled: bool
) -> Iterator[ScaleRequested | ScaleRequestGone]:
    """The facts that the log lacks about requests of this history, in the order of the queue.

    `settled` is False while a fact about requests that wait for this job is under way: it may be their end, so that
    none of them moves.
    """
    if not (cache.scalable.listed and all(listing.listed for listing in cache.requests.values())):
        return
    now = cache.requests_of(job.key)
    if not (now or job.scaling.requests):
        return
    waiting = _requests_of(histories, waiting_room(job.key))
    order = {uid: place for place, uid in enumerate(waiting)}
    last = len(order)
    most = _most_named(job)
    # After a deletion that orphans, a request has no owner: only the log shows whether it ran.
    elsewhere = _begun_elsewhere(job, histories) if now.keys() - job.scaling.requests.keys() else ()

    def turn(request: ObservedRequest) -> tuple[int, str, int]:
        return (order.get(request.uid, last), request.created, request.version)

    believed: Iterable[ObservedRequest]
    if job.key == waiting_room(job.key):
        believed = map(_in_brief, now.values())
    else:
        believed = (_as_far_as_known(job, request, waited=request.uid in order) for request in now.values())
    for request in sorted(believed, key=turn):
        known = job.scaling.requests.get(request.uid)
        if known is None and (request.uid in elsewhere or (request.uid not in order and request.phase in OVER)):
            # The request ran under another incarnation of its job, or in events that the log has lost.
            continue
        if known is None and request.uid in order and not settled:
            continue
        if known is not None and request.version < known.version and cache.epoch <= job.resource.epoch:
            continue
        if (
            known is None
            or known.gone
            or (request.owner and known.owner != request.owner)
            or (known.phase == "Pending" and not _is_known(request, known))
        ):
            yield _requested(_with_few_names(job, request, most), known)
    for known in job.scaling.requests.values():
        if known.gone or known.uid in now or known.resize is not None:
            continue
        moved = cache.request(known.uid)
        if moved is None:
            # A watch that lags does not show yet what another replica has recorded.
            if known.version <= cache.requests[known.kind].version or cache.epoch > job.resource.epoch:
                yield ScaleRequestGone(uid=known.uid)
        elif (
            known.uid in _requests_of(histories, cache.key_of(moved))
            if job.key.uid == NO_UID
            # What ran stays until it shows its end: once this history is sealed, nothing else tells that it ran.
            else known.phase == "Pending" or moved.phase in OVER
        ):
            yield ScaleRequestGone(uid=known.uid, reason="Bound")


def lost(job: Job, cache: Cache) -> Iterator[ScaleRequested | ScaleRequestGone]:
    """Of requests that wait in this log, and of which a later part ran that it has lost: none of them runs again."""
    now = cache.requests_of(job.key)
    for known in job.scaling.requests.values():
        request = now.get(known.uid)
        if request is None or known.phase != "Pending" or known.problems == _UNKNOWN:
            continue
        if request.phase in OVER:
            yield ScaleRequestGone(uid=known.uid, reason="HistoryLost")
        elif request.phase == "Scaling":
            yield _requested(msgspec.structs.replace(request, spec=None, problems=_UNKNOWN))


def concerned(job: Job, histories: Histories) -> tuple[JobKey, ...]:
    """The history of orphans from which requests may move to this job now; from there those with orphans that ran.

    None of those wakes it in turn.
    """
    room = waiting_room(job.key)
    if job.key == room:
        gone = (life.job for life in histories.lives(room) if life.job.resource.gone)
        return tuple(life.key for life in gone if any(known.shown for known in life.scaling.requests.values()))
    moves = not job.resource.gone and _requests_of(histories, room).keys() & job.scaling.requests.keys()
    return (room,) if moves else ()


def waiting_room(key: JobKey) -> JobKey:
    """The history of requests without a job of this name."""
    return JobKey(key.namespace, key.name, NO_UID)


def _requested(request: ObservedRequest, known: Request | None = None) -> ScaleRequested:
    stored = known is not None and (known.phase != "Pending" or _is_known(request, known))
    return ScaleRequested(
        kind=request.kind,
        name=request.name,
        uid=request.uid,
        version=request.version,
        owner=request.owner,
        spec=request.spec if not stored else None,
        problems=request.problems if not stored else (),
        by=(request.by,) if request.by is not None else (),
    )


def _is_known(request: ObservedRequest, known: Request) -> bool:
    same = (known.spec, known.problems) == (request.spec, request.problems)
    # What was recorded of too many names is not what the resource has.
    return same or (known.spec is not None and bool(known.spec.stranger))


def _most_named(job: Job) -> int:
    """As many workers as the job has, or has after the requests that wait."""
    waiting = [known for known in job.scaling.requests.values() if not known.over]
    coming = sum(known.spec.count or 0 for known in waiting if known.kind == "ScaleOut" and known.spec is not None)
    edits = [known.resize or 0 for known in waiting]
    size = job.spec.worker.replicas if job.spec is not None else 0
    return max(len(job.attempt.workers), size, *edits) + coming


def _with_few_names(job: Job, request: ObservedRequest, most: int) -> ObservedRequest:
    """The request; of more names than the job has workers, one that no worker has: it is rejected for that."""
    spec = request.spec
    named = of_range_words(spec.workers) if spec is not None else []
    if spec is None or len(named) <= most:
        return request
    absent = next(index for index in named if job.attempt.worker_slot(index) not in job.attempt.workers)
    few = msgspec.structs.replace(spec, workers="", stranger=job.pod_name(job.attempt.worker_slot(absent)))
    return msgspec.structs.replace(request, spec=few)


def _requests_of(histories: Histories, key: JobKey) -> Mapping[Uid, Request]:
    history = histories.get(key)
    return history.job.scaling.requests if history is not None else {}


def _begun_elsewhere(job: Job, histories: Histories) -> set[Uid]:
    """Requests that ran under other incarnations of this job's name: none of them runs again."""
    lives = [life.job for life in histories.lives(job.key) if life.job.key != job.key]
    return {uid for life in lives for uid, request in life.scaling.requests.items() if request.phase != "Pending"}


def _in_brief(request: ObservedRequest) -> ObservedRequest:
    """The request without the workers that it names, which are recorded once there is a job."""
    if request.spec is None or not request.spec.workers:
        return request
    return msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, workers=""))


def _as_far_as_known(job: Job, request: ObservedRequest, *, waited: bool) -> ObservedRequest:
    """The request, with a problem if it ran in events that the log has lost: it neither goes on nor begins anew."""
    known = job.scaling.requests.get(request.uid)
    begun_unseen = known is None and not waited
    if request.phase != "Scaling" or not (begun_unseen or (known is not None and known.problems == _UNKNOWN)):
        return request
    return msgspec.structs.replace(request, spec=None, problems=_UNKNOWN)
