"""Conditions as the job's events leave them: which is true, since when, why.  Pure.

Their order is the order in which they last became what they are, as et-operator's users know it; their shape in a
status document is the status service's business.
"""

import msgspec

from shared.job.spec import LAUNCHER
from shared.job.state import At, Condition, Job, alive

replace = msgspec.structs.replace


def with_condition(
    conditions: tuple[Condition, ...],
    kind: str,
    at: At,
    *,
    status: bool = True,
    reason: str,
    message: str = "",
) -> tuple[Condition, ...]:
    """The conditions with one of this type: in place when its status stays or becomes false, else at the end."""
    for old in conditions:
        if old.type == kind:
            break
    else:
        return (*conditions, Condition(kind, status, reason, message, at, at))
    if (old.status, old.reason, old.message) == (status, reason, message):
        return conditions
    new = Condition(kind, status, reason, message, at if old.status != status else old.since, at)
    if status and not old.status:
        return (*(condition for condition in conditions if condition is not old), new)
    return tuple(new if condition is old else condition for condition in conditions)


def holds(conditions: tuple[Condition, ...], kind: str) -> bool:
    """A condition of this type is there and true."""
    return any(condition.type == kind and condition.status for condition in conditions)


def with_milestones(job: Job, at: At) -> Job:
    """The conditions that pods bring about on the way to Running: each becomes true once in an attempt."""
    if job.phase != "Created":
        return job
    conditions = job.conditions
    workers = job.workers
    if workers and not holds(conditions, "WorkersReady"):
        pods = job.by_slot()
        views = [pods.get(slot) for slot in workers]
        if all(alive(view) for view in views):
            conditions = with_condition(
                conditions, "WorkersCreated", at, reason="TrainingJobWorkersCreated", message=f"{len(views)} workers"
            )
            if all(view is not None and view.ready for view in views):
                conditions = with_condition(
                    conditions, "WorkersReady", at, reason="TrainingJobWorkersReady", message=f"{len(views)} workers"
                )
    if any(pod.role == LAUNCHER for pod in job.pods.values()) and not holds(conditions, "LauncherCreated"):
        conditions = with_condition(conditions, "LauncherCreated", at, reason="TrainingJobLauncherCreated")
    return replace(job, conditions=conditions) if conditions is not job.conditions else job
