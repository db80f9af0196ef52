"""How long the workers of a node that is announced to go stay members, and which are replaced ahead.  Pure.

Replacements are made first; a worker leaves when one is Ready for it.  Without room for them it trains on until shortly
before its node goes.  A worker whose pod is evicted, or whose node may go at any moment, leaves at once.
"""

from shared.job.events.event import At
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.timers import NOTICE, passed
from shared.job.views import alive

LEAVE_BEFORE_SECONDS = 15
"""How long before the end of its node a worker leaves: the launcher loads the files, and the worker drains."""


def seconds_to_stay(job: Job, uid: Uid) -> int:
    """Seconds from the notice during which the worker may stay a member; 0 if it leaves at once."""
    notice, pod = job.notices.get(uid), job.pods.get(uid)
    if notice is None or pod is None or pod.disruption:
        return 0
    return max(notice.seconds - LEAVE_BEFORE_SECONDS, 0)


def timer_name(seconds: int) -> str:
    return f"{NOTICE}{seconds}"


def in_time(job: Job) -> SortedSet[Slot]:
    """The slots of announced workers that may stay for now."""
    if not job.notices:
        return SortedSet()
    workers = job.attempt.workers
    return SortedSet(
        pod.slot
        for uid, notice in job.notices.items()
        if (seconds := seconds_to_stay(job, uid))
        and (pod := job.pods[uid]).slot in workers
        and not passed(job, notice.at.sequence, timer_name(seconds))
    )


def of_launcher(job: Job) -> tuple[At, str, str] | None:
    """When it became known that the launcher's node goes, the reason, and a sentence; None while nothing is known."""
    launcher = job.launcher
    known = job.notices.get(launcher.uid) if launcher is not None else None
    if launcher is None or known is None or not alive(launcher) or job.over:
        return None
    when = f" {known.seconds} s after {known.at.clock}" if known.seconds else ""
    reason = job.disrupted.get(launcher.uid, "")
    said = f"{reason}: node {launcher.node} goes{when}, and {launcher.name} with it"
    return known.at, reason, f"{said}; the next attempt begins then, and counts against no limit"


def to_replace(job: Job) -> SortedSet[Slot]:
    """The members of a running job for which a replacement is to be made ahead.

    A kind that replaces workers under their names cannot: the name is taken until the worker is gone.
    """
    if job.spec is None or not job.spec.handling.elastic or job.spec.handling.in_place:
        return SortedSet()
    if job.phase not in ("Running", "Scaling"):
        return SortedSet()
    staying = in_time(job) - job.attempt.replaced_ahead - job.scaling.arriving - job.outgoing
    return SortedSet(slot for slot in staying if slot.index in job.listed_workers)
