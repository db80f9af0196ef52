"""Workers that ended or vanished by themselves: their places filled again.  Pure.

Which places, how often and how soon is `shared.job.replacement`'s to say.
"""

from shared.job import replacement
from shared.job.events import SlotsAssigned
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import passed
from shared.job.views import Slots, spans


def owed(job: Job) -> list[Step]:
    """New slots for every place whose back-off is over; each has an index that was never used in this attempt."""
    due = [
        slot
        for slot, vacancy in replacement.owed(job).items()
        if not replacement.delay(job, slot, vacancy) or passed(job, vacancy.at.sequence, replacement.TIMER)
    ]
    if not due:
        return []
    new = Slots(job.attempt, WORKER, ((job.next_index, job.next_index + len(due) - 1),))
    return [Record(SlotsAssigned(slots=(new,), replaces=spans(due), reason="WorkersReplaced"))]
