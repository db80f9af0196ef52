"""Which index a new worker gets: one after the highest, as the README of et-operator shows it.  Pure.

A name may come again once its worker left in order and its pod is gone.  That of a worker that failed or was lost does
not come again in the attempt, as Horovod trusts no host that failed; nor does one whose pod was not seen and may come.
"""

from shared.job.sorted_set import SortedSet
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.views import Slots


def new_workers(job: Job, count: int) -> Slots:
    """Slots for `count` new workers, all of them after the highest."""
    first = max([job.attempt.spoilt, *(index + 1 for index in taken(job))])
    return Slots(job.attempt.number, WORKER, ((first, first + count - 1),))


def taken(job: Job) -> SortedSet[int]:
    """The indices of workers that are there: a terminating pod keeps its name until it is gone."""
    there = job.attempt.unreleased | {pod.slot for pod in job.pods.values()}
    return SortedSet(slot.index for slot in there if (slot.attempt, slot.role) == (job.attempt.number, WORKER))
