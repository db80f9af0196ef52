"""The milestones of an attempt before Running, as conditions that became true.  Pure.

`waiting.py` says why one is not reached.
"""

import msgspec

from shared.job import text
from shared.job.conditions import holds, with_condition
from shared.job.events.event import At
from shared.job.state import Job, with_status
from shared.job.views import alive

replace = msgspec.structs.replace

MILESTONES = ("WorkersCreated", "WorkersReady", "LauncherCreated")
"""The conditions of an attempt before Running."""


def with_milestones(job: Job, at: At) -> Job:
    """The job with the milestones that its pods reached: each becomes true once in an attempt."""
    if not job.starting:
        return job
    conditions = job.status.conditions
    # The pods that start together: all but the launcher.
    together = job.spec is not None and not job.spec.has_launcher
    workers = job.attempt.slots if together else job.attempt.workers
    if workers and not holds(conditions, "WorkersReady"):
        message = text.counted(len(workers), "pod" if together else "worker")
        # The look at each slot comes once there can be a pod in it.
        pods = job.by_slot() if len(job.pods.views) >= len(workers) else {}
        views = [pods[slot] for slot in workers if slot in pods]
        if len(views) == len(workers) and all(alive(view) for view in views):
            conditions = with_condition(
                conditions, "WorkersCreated", at, reason=f"{job.resource.kind}WorkersCreated", message=message
            )
            if all(view.ready for view in views):
                conditions = with_condition(
                    conditions, "WorkersReady", at, reason=f"{job.resource.kind}WorkersReady", message=message
                )
    if job.launcher is not None:
        conditions = with_condition(conditions, "LauncherCreated", at, reason=f"{job.resource.kind}LauncherCreated")
    return with_status(job, conditions=conditions) if conditions is not job.status.conditions else job
