"""Pods that ended or vanished by themselves: their places filled again.  Pure.

Which places, how often and how soon is `shared.job.replacement`'s to say.
"""

from services.scheduler.core.effects import DeletePod
from shared.job.events.scheduler import SlotsAssigned
from shared.job.naming import Slot
from shared.job.policies import replacement
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.verdict import verdict
from shared.job.views import Slots, spans


def owed(job: Job) -> list[Step]:
    """New slots for every place whose back-off is over."""
    due = [slot for slot, vacancy in replacement.owed(job).items() if replacement.due(job, slot, vacancy)]
    if not due or verdict(job) is not None:
        # Nobody comes back to an attempt that is over.
        return []
    if job.spec is not None and job.spec.handling.in_place:
        return _in_place(job, due)
    # Each has an index that was never used in this attempt.
    new = Slots(job.attempt.number, WORKER, ((job.attempt.next_index, job.attempt.next_index + len(due) - 1),))
    return [Record(SlotsAssigned(slots=(new,), replaces=spans(due), reason="WorkersReplaced"))]


def _in_place(job: Job, due: list[Slot]) -> list[Step]:
    """The same slots once more: what is left of a pod goes first, because the next one has its name."""
    left = {pod.slot: pod for pod in sorted(job.pods.values(), key=lambda pod: pod.deleting, reverse=True)}
    free = [slot for slot in due if slot not in left]
    # Those in places that were released go without being told here.
    going: list[Step] = [
        DeletePod(pod.name, pod.uid)
        for slot in due
        if slot in job.attempt.spent and (pod := left.get(slot)) is not None and not pod.deleting
    ]
    if not free:
        return going
    return [Record(SlotsAssigned(slots=spans(free), replaces=spans(free), reason="PodsReplaced")), *going]
