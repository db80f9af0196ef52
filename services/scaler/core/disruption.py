"""Workers whose node is about to go, or who are about to be evicted: drained and released before that happens.  Pure.

That they leave the hosts files at once is `membership.py`'s; their places are vacant from their release on, and the
scheduler fills them again.
"""

from services.scaler.core import membership
from shared.job.events.scaler import WorkersReleased
from shared.job.naming import Slot, Uid
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import DISRUPTION_DRAIN, passed
from shared.job.views import spans


def owed(job: Job) -> list[Step]:
    """The release of those that nobody uses any more; nothing while they drain."""
    if job.between_attempts or job.spec is None or not job.spec.handling.elastic:
        # Where every worker is needed to the end, each works for as long as its node lets it.
        return []
    # Whom a request brings or takes is its own to release.
    others = job.scaling.arriving | job.outgoing
    free = [slot for slot in membership.disrupted(job) if slot not in others and _unused(job, slot)]
    return [Record(WorkersReleased(request=Uid(""), slots=spans(free), reason="Disrupted"))] if free else []


def _unused(job: Job, slot: Slot) -> bool:
    """The hosts files do not list it, and the launcher had time to let go of it, if ever they did."""
    if slot.index in job.listed_workers:
        return False
    departure = job.departures.get(slot)
    if departure is None:
        return True
    return bool(departure.seen) and (not departure.drain or passed(job, departure.seen, DISRUPTION_DRAIN))
