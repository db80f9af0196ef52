"""Assigns slots for pods that ended or vanished without a release, or whose node is announced to go.  Pure.

`shared/job/policies/replacement.py` has the rules: which pods are replaced, how often and after which back-off;
`shared/job/policies/notice.py` which are replaced ahead.
"""

from services.scheduler.core.effects import DeletePod
from shared.job.events.scheduler import SlotsAssigned
from shared.job.naming import Slot
from shared.job.policies import notice, numbering, replacement
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.verdict import verdict
from shared.job.views import spans


def next_steps(job: Job) -> list[Step]:
    """Slots for every vacancy whose back-off is over."""
    due = [slot for slot, vacancy in replacement.replaceable(job).items() if replacement.due(job, vacancy)]
    due += notice.to_replace(job)
    if not due or verdict(job) is not None:
        # An attempt that is over gets no pods.
        return []
    if job.spec is not None and job.spec.handling.in_place:
        return _in_place(job, due)
    new = numbering.new_workers(job, len(due))
    return [Record(SlotsAssigned(slots=(new,), replaces=spans(due), reason="WorkersReplaced"))]


def _in_place(job: Job, due: list[Slot]) -> list[Step]:
    """The same slots again; the old pod is deleted first, because the new one has its name."""
    left = {pod.slot: pod for pod in sorted(job.pods.values(), key=lambda pod: pod.deleting, reverse=True)}
    free = [slot for slot in due if slot not in left]
    # `slots.surplus` deletes the pods in released slots.
    going: list[Step] = [
        DeletePod(pod.name, pod.uid)
        for slot in due
        if slot in job.attempt.spent and (pod := left.get(slot)) is not None and not pod.deleting
    ]
    if not free:
        return going
    return [Record(SlotsAssigned(slots=spans(free), replaces=spans(free), reason="PodsReplaced")), *going]
