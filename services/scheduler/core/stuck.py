"""Deletes terminating pods of lost nodes by force, once their time is over.  Pure.

`shared/job/policies/lost_nodes.py` has the rules; without the setting or the job's annotation nothing is deleted so.
"""

from services.scheduler.core.effects import DeletePod
from shared.job.policies import lost_nodes
from shared.job.state import Job
from shared.job.steps import Step


def next_steps(job: Job) -> list[Step]:
    """Delete these pods by uid, without a grace period."""
    due = sorted(lost_nodes.forced(job), key=lambda pod: (pod.name, pod.uid))
    return [DeletePod(pod.name, pod.uid, force=True) for pod in due]
