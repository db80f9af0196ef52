"""Drains and releases workers before their eviction or the removal of their node.  Pure.

`membership.py` takes them out of the hosts files.  The scheduler replaces them before that where there is time for it,
else after their release.
"""

from shared.job import reasons
from shared.job.events.scaler import WorkersReleased
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timers import DISRUPTION_DRAIN, passed
from shared.job.views import spans


def next_steps(job: Job) -> list[Step]:
    """Release the disrupted workers that the launcher no longer uses; nothing while they drain."""
    if job.between_attempts or job.spec is None or not job.spec.handling.elastic:
        # A job that needs every worker to the end keeps each until the kubelet stops it.
        return []
    # The open request releases the workers that it adds or removes.
    others = job.scaling.arriving | job.outgoing
    free = [slot for slot in disrupted(job) if slot not in others and _unused(job, slot)]
    return [Record(WorkersReleased(request=Uid(""), slots=spans(free), reason=reasons.DISRUPTED))] if free else []


def disrupted(job: Job) -> SortedSet[Slot]:
    """Worker slots whose pod will be evicted or lose its node, or has a replacement for that."""
    ahead = job.attempt.replaced_ahead
    if not (job.disrupted or ahead):
        return SortedSet()
    pods, workers = job.by_slot(), job.attempt.workers
    doomed = [slot for slot in workers if (pod := pods.get(slot)) is not None and pod.uid in job.disrupted]
    return SortedSet([*doomed, *(slot for slot in ahead if slot in workers)])


def _unused(job: Job, slot: Slot) -> bool:
    """True if the hosts files never listed the worker, or no longer do and the drain time has passed."""
    if slot.index in job.listed_workers:
        return False
    departure = job.departures.get(slot)
    if departure is None:
        return True
    return bool(departure.seen) and (not departure.drain or passed(job, departure.seen, DISRUPTION_DRAIN))
