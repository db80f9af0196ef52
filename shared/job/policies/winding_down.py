"""Whether pods that still run after their job succeeded have time to end by themselves.  Pure.

The scheduler of a parameter server ends when the workers say good-bye to it, some of them with work left: their logs
and exits are results, too.
"""

from shared.job.state import Job
from shared.job.timers import WINDING_DOWN, passed

SECONDS = 30
"""A server that serves for ever is deleted after that."""


def lasts(job: Job) -> bool:
    """True while the clean-up waits for them."""
    if job.phase != "Succeeded" or job.ended is None or job.spec is None or not job.spec.handling.winds_down:
        return False
    if job.spec.clean_pod_policy == "None" or not job.attempt.slots:
        return False
    return not passed(job, job.ended.sequence, WINDING_DOWN)
