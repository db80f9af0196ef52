"""How long the workers of a node that is announced to go stay members, and which are replaced ahead.  Pure.

Replacements are made first; a worker leaves when one is Ready for it.  Without room for them it trains on until shortly
before its node goes.  A worker whose pod is evicted, or whose node may go at any moment, leaves at once.
"""

from typing import NamedTuple

from shared.job import text
from shared.job.events.event import At
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, Handling
from shared.job.state import Job
from shared.job.timers import NOTICE, passed
from shared.job.views import PodView, alive

LEAVE_BEFORE_SECONDS = 15
"""How long before the end of its node a worker leaves: the launcher loads the files, and the worker drains."""


class Told(NamedTuple):
    """What people are told of pods whose node goes."""

    at: At
    """When that became known."""
    reason: str
    sentence: str
    role: str


def stays(job: Job, uid: Uid) -> list[tuple[At, int]]:
    """How long the worker may stay a member, in seconds from each notice; it leaves by the first of them that is over.

    Empty if it leaves at once.
    """
    pod = job.pods.get(uid)
    found = [(known.at, known.seconds - LEAVE_BEFORE_SECONDS) for known in job.notices.get(uid, ())]
    return found if pod is not None and not pod.disruption and all(seconds > 0 for _, seconds in found) else []


def timer_name(seconds: int) -> str:
    return f"{NOTICE}{seconds}"


def in_time(job: Job) -> SortedSet[Slot]:
    """The slots of workers that leave, and may stay for now."""
    ahead = job.attempt.replaced_ahead
    if not (job.notices or ahead):
        return SortedSet()
    workers = job.attempt.workers
    announced = [
        pod.slot
        for uid in job.notices
        if (pod := job.pods[uid]).slot in workers
        and (limits := stays(job, uid))
        and not any(passed(job, at.sequence, timer_name(seconds)) for at, seconds in limits)
    ]
    # Those whose notice was withdrawn wait for their replacements alone.
    staying = [pod.slot for uid, pod in job.pods.items() if pod.slot in ahead and uid not in job.disrupted]
    return SortedSet([*announced, *(slot for slot in staying if slot in workers)])


def told(job: Job) -> list[Told]:
    """Of the pods that nothing replaces before their node goes: of a launcher, and where a name is taken till then."""
    if job.over or job.spec is None:
        return []
    handling = job.spec.handling
    found: dict[tuple[str, str, At], list[PodView]] = {}
    for uid, known in job.notices.items():
        pod = job.pods[uid]
        if alive(pod) and pod.slot in job.attempt.slots and (handling.in_place or pod.role == LAUNCHER):
            found.setdefault((pod.role, pod.node, known[-1].at), []).append(pod)
    return [
        _told(job, handling, sorted(pods, key=lambda pod: pod.slot)) for _, pods in sorted(found.items(), key=_newest)
    ]


def _newest(found: tuple[tuple[str, str, At], list[PodView]]) -> tuple[int, str, str]:
    (role, node, at), _ = found
    return at.sequence, node, role


def _told(job: Job, handling: Handling, pods: list[PodView]) -> Told:
    """Of pods of one role on one node."""
    first, one = pods[0], len(pods) == 1
    known, reason = job.notices[first.uid][-1], job.disrupted.get(first.uid, "")
    when = f" {known.seconds} s after {known.at.clock}" if known.seconds else ""
    said = f"{reason}: node {first.node} goes{when}, and {text.named([pod.name for pod in pods])} with it; "
    if first.role == handling.leader and handling.restarts == "Job":
        return Told(known.at, reason, f"{said}the next attempt begins then, and counts against no limit", first.role)
    said += "a replacement has its name, and is made" if one else "replacements have their names, and are made"
    said += f" once {'it is' if one else 'they are'} gone"
    if handling.elastic and first.role == WORKER:
        before = f"{LEAVE_BEFORE_SECONDS} s before" if stays(job, first.uid) else "at once"
        said += f"; {'it leaves' if one else 'they leave'} the members {before}"
    return Told(known.at, reason, said, first.role)


def to_replace(job: Job) -> SortedSet[Slot]:
    """The members of a running job for which a replacement is to be made ahead.

    A kind that replaces workers under their names cannot: the name is taken until the worker is gone.
    """
    if job.spec is None or not job.spec.handling.elastic or job.spec.handling.in_place:
        return SortedSet()
    if not job.spec.has(WORKER):
        # An edit removed the role and its pod template.
        return SortedSet()
    if job.phase not in ("Running", "Scaling"):
        return SortedSet()
    staying = in_time(job) - job.attempt.replaced_ahead - job.scaling.arriving - job.outgoing
    return SortedSet(slot for slot in staying if slot.index in job.listed_workers)
