"""What pods change by turns for weeks, of which the log has the first turn alone.  Pure.

A kubelet that cannot pull an image tells the try and the wait before the next one.  A container that crashes beside a
training runs in each try.  It is well once it has run for as long as makes the kubelet begin its back-off anew.
"""

from collections.abc import Iterator

import msgspec

from services.watcher.core.cache import Cache
from shared.job import timers
from shared.job.state import Job
from shared.job.timers import Timer
from shared.job.views import PULL_WAITS, PULLS_FAILED, PodView

WELL_SECONDS = 600
"""A kubelet forgets the crashes of a container that ran for ten minutes."""


def as_known(known: PodView | None, pod: PodView) -> PodView:
    """The pod as the log has it, where a turn is all that changed: with the cause of a pull, and with what is well.

    The log's `runs_again` is the number of restarts that are well since long; `well_again` alone raises it.
    """
    if known is None:
        return msgspec.structs.replace(pod, runs_again=0) if pod.runs_again else pod
    if known.phase == "Succeeded" and pod.phase == "Running" and pod.restarts == known.restarts and not pod.deleting:
        # It ended before other containers made the kubelet call the whole pod failed.
        return msgspec.structs.replace(
            pod, phase=known.phase, exits=known.exits, reason=known.reason, message=known.message
        )
    if known.reason in PULLS_FAILED and pod.reason == PULL_WAITS:
        # The try has the cause in its message.
        return msgspec.structs.replace(pod, reason=known.reason, message=known.message)
    well = known.runs_again
    if pod.ready and 0 < pod.runs_again <= well:
        return msgspec.structs.replace(pod, reason="", message="", runs_again=well)
    return pod if pod.runs_again == well else msgspec.structs.replace(pod, runs_again=well)


def of_crashes(job: Job, cache: Cache) -> Iterator[Timer]:
    """The timers of containers that crashed beside a training and run again; another crash begins another one."""
    if job.over or job.halted or job.resource.gone or not job.pods.troubles:
        return
    now = cache.pods_of(job.key)
    for uid, since in job.pods.troubles.items():
        known, pod = job.pods.views[uid], now.get(uid)
        if pod is not None and pod.ready and pod.runs_again and as_known(known, pod).reason == known.reason:
            yield Timer(since.sequence, timers.well(uid, pod.runs_again), WELL_SECONDS)
