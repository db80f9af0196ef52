"""The milestones of an attempt before Running, as conditions, and what prevents the next one.  Pure."""

import msgspec

from shared.job import text
from shared.job.conditions import Condition, holds, with_condition
from shared.job.events.event import At
from shared.job.state import Job
from shared.job.views import alive

replace = msgspec.structs.replace

MILESTONES = ("WorkersCreated", "WorkersReady", "LauncherCreated")
"""The conditions of an attempt before Running."""


class Trouble(msgspec.Struct, frozen=True):
    """The reason why a pod cannot start."""

    pod: str
    reason: str
    message: str = ""
    """The kube-scheduler's or the kubelet's own sentence."""

    @property
    def sentence(self) -> str:
        return text.with_words(f"{self.pod}: {self.reason}", self.message)


_ON_THE_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons that every starting pod has."""


def trouble(job: Job) -> Trouble | None:
    """Why a pod cannot start: the first one by index, then in the order of the roles."""
    waiting = [
        pod for pod in job.pods.values() if (pod.reason not in _ON_THE_WAY or pod.uid in job.lost) and alive(pod)
    ]
    if not waiting:
        return None
    pods = job.by_slot()
    order = [role.name for role in job.spec.roles] if job.spec is not None else []
    first = min(
        (pod for pod in waiting if pod.slot in job.attempt.slots and pods[pod.slot] is pod),
        key=lambda pod: (pod.index, order.index(pod.role) if pod.role in order else len(order), pod.role),
        default=None,
    )
    if first is None:
        return None
    if (lost := job.lost.get(first.uid)) is not None:
        return Trouble(first.name, lost.reason, f"it waits for node {lost.node}")
    return Trouble(first.name, first.reason, first.message)


def hindered(job: Job) -> Condition | None:
    """The newest milestone that is not reached, with why not: an image, a full cluster, a name that is taken."""
    waits = (known for known in job.conditions if known.type in MILESTONES and not known.status and known.message)
    return max(waits, key=lambda known: known.updated.sequence, default=None)


def with_milestones(job: Job, at: At) -> Job:
    """The job with the milestones that its pods reached: each becomes true once in an attempt."""
    if not job.starting:
        return job
    conditions = job.conditions
    # The pods that start together: all but the launcher.
    together = job.spec is not None and not job.spec.has_launcher
    workers = job.attempt.slots if together else job.attempt.workers
    if workers and not holds(conditions, "WorkersReady"):
        message = f"{len(workers)} {'pods' if together else 'workers'}"
        # The look at each slot comes once there can be a pod in it.
        pods = job.by_slot() if len(job.pods) >= len(workers) else {}
        views = [pods[slot] for slot in workers if slot in pods]
        if len(views) == len(workers) and all(alive(view) for view in views):
            conditions = with_condition(
                conditions, "WorkersCreated", at, reason=f"{job.kind}WorkersCreated", message=message
            )
            if all(view.ready for view in views):
                conditions = with_condition(
                    conditions, "WorkersReady", at, reason=f"{job.kind}WorkersReady", message=message
                )
        if not holds(conditions, "WorkersReady"):
            conditions = _with_trouble(job, conditions, at)
    launcher = job.launcher
    if launcher is not None:
        waits = trouble(job) if holds(conditions, "WorkersReady") else None
        why = waits.sentence if waits else ""
        conditions = with_condition(conditions, "LauncherCreated", at, reason=f"{job.kind}LauncherCreated", message=why)
    return replace(job, conditions=conditions) if conditions is not job.conditions else job


def _with_trouble(job: Job, conditions: tuple[Condition, ...], at: At) -> tuple[Condition, ...]:
    waits = trouble(job)
    if waits is not None:
        return with_condition(conditions, "WorkersReady", at, status=False, reason=waits.reason, message=waits.sentence)
    if any(known.type == "WorkersReady" and known.message for known in conditions):
        # The trouble that the message names is over, and no other pod has one.
        return with_condition(conditions, "WorkersReady", at, status=False, reason="WorkersStarting")
    return conditions
