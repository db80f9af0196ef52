"""Whose an object is: the job's, an earlier incarnation's or another owner's.

An object of another owner is never adopted, changed or deleted, whatever the log says.  Objects of an earlier
incarnation are waited for: the garbage collector deletes them.
"""

from datetime import datetime, timedelta
from typing import Any

from shared.cluster import Cluster, Resource
from shared.cluster.objects import Custom, Metadata
from shared.errors import Refused, Transient
from shared.frameworks.scale_requests import selected
from shared.job.naming import ATTEMPT, JOB_UID, NO_UID, JobKey
from shared.job.reasons import NAME_HELD, NOT_OURS
from shared.job.state import Job
from shared.job.text import forced_deletion, without_finalizers
from shared.untrusted import whole_number

QUICK_SECONDS = 0.3
"""Seconds until the next try, while the garbage collector deletes an earlier incarnation's objects."""


def is_controlled(meta: Metadata, key: JobKey) -> bool:
    """True if the object's controller is this job, by uid."""
    owner = meta.controller
    return owner is not None and owner.uid == key.uid


def must_be_controlled(
    meta: Metadata | None, job: Job, what: str, *, same: bool = True, labelled: bool = True, node: str = ""
) -> None:
    """Return if the object is the job's and the `same` as the one to create.

    Raises `Transient` if the object is gone, and with reason `NameHeld` if it is an earlier incarnation's or is being
    deleted; `node` is that of a pod, and may be why it does not end.  Raises `Refused` with
    reason `NameConflict` if it has another owner, and with `LabelsChanged` if it lost its labels, so that no watch
    shows it; a caller that restores the labels passes `labelled=False`.
    """
    key = job.key
    if meta is None:
        raise Transient(f"{what} was deleted meanwhile", retry_after=QUICK_SECONDS)
    if labelled and is_controlled(meta, key) and (meta.labels or {}).get(JOB_UID) != key.uid:
        message = (
            f"{what} lacks Muster's labels: they were changed, or another operator acts on the job, which has to stop;"
            " delete it, and Muster makes it again"
        )
        raise Refused(message, reason="LabelsChanged", words=message)
    if is_controlled(meta, key) and same and meta.deletion_timestamp is None:
        return
    if is_controlled(meta, key) or meta.deletion_timestamp is not None or _earlier_incarnation(meta, job):
        words = _held(meta, job, what, node)
        raise Transient(words, retry_after=QUICK_SECONDS, reason=NAME_HELD, words=words)
    raise conflict(what, meta)


async def is_there(cluster: Cluster, resource: Resource[Any], job: Job, name: str, uid: str) -> bool:
    """True if the object with this uid is there; what to do before it is deleted, changed or entered.

    A uid comes from the log, which may be forged.  Raises `Refused(reason="NotOurs")` if the object's controller
    and its labels do not say that it is this job's.
    """
    held = await cluster.get(resource.by_metadata, job.key.namespace, name)
    if held is None or held.metadata.uid != uid:
        return False
    must_be_ours(held.metadata, job, f"{resource.kind.lower()} {name}")
    return True


def must_be_ours(meta: Metadata, job: Job, what: str) -> None:
    """Raise `Refused(reason="NotOurs")` if the controller and the labels do not say that the object is this job's."""
    named = (meta.labels or {}).get(JOB_UID)
    # Another operator's objects get our labels once they are claimed.
    if not is_controlled(meta, job.key) or not (named == job.key.uid or (named is None and job.resource.adopted)):
        message = f"{what} is not of this job by its controller and labels, and is left alone"
        raise Refused(message, reason=NOT_OURS, words=message)


async def must_be_asked_of(
    cluster: Cluster,
    resource: Resource[Any],
    job: Job,
    kind: str,
    request: Custom,
    *,
    over: bool = False,
) -> None:
    """What to do before a scale request is changed; `resource` is that of the jobs which requests select.

    Raises `Refused(reason="NotAsked")` if it is not this job, and `Refused(reason="NotOurs")` if no job of this uid is
    there: the garbage collector would delete the request with such an owner.  A request without a job waits while a job
    of that name is there (`Transient`).  One that is `over`, and gets no owner any more, needs no job.
    """
    if is_controlled(request.metadata, job.key):
        return
    if selected(request) != job.key.name:
        message = f"{kind} {request.metadata.name} names another job, and is left alone"
        raise Refused(message, reason="NotAsked", words=message)
    if over and (job.key.uid == NO_UID or job.resource.gone):
        return
    held = await cluster.get(resource.by_metadata, job.key.namespace, job.key.name)
    if job.key.uid == NO_UID:
        if held is not None:
            raise Transient(f"{kind} {request.metadata.name} has its job now", retry_after=QUICK_SECONDS)
    elif held is None or held.metadata.uid != job.key.uid:
        message = f"{job.resource.kind} {job.key.name} with uid {job.key.uid} is not there"
        raise Refused(message, reason=NOT_OURS, words=message)


def _held(meta: Metadata, job: Job, what: str, node: str) -> str:
    """Which object holds the name, since when it is being deleted, what keeps it, and the way out."""
    kind, _, _ = what.rpartition(" ")
    owner = meta.controller
    if is_controlled(meta, job.key):
        attempt = whole_number((meta.labels or {}).get(ATTEMPT, ""))
        whose = f"attempt {attempt + 1}" if attempt not in (None, job.attempt.number) else "the same slot"
    elif owner is not None:
        earlier = "an earlier " if (owner.kind, owner.name) == (job.resource.kind, job.key.name) else ""
        whose = f"{earlier}{owner.kind} {owner.name} (uid {owner.uid})"
    else:
        whose = "another client"
    waits = f"{what} waits for the {kind} of that name of {whose}"
    if meta.deletion_timestamp is None:
        return f"{waits}, which the garbage collector has not deleted yet"
    until = datetime.fromisoformat(meta.deletion_timestamp)
    grace = meta.deletion_grace_period_seconds or 0
    waits += f", which is being deleted since {until - timedelta(seconds=grace):%Y-%m-%dT%H:%M:%SZ}"
    if meta.finalizers:
        return f"{waits}; {without_finalizers(job.key.namespace, kind.replace(' ', ''), meta.name, meta.finalizers)}"
    if grace:
        waits += f" with {grace} s to end"
    force = forced_deletion(job.key.namespace, meta.name)
    if meta.uid in job.pods.lost:
        return f"{waits}; node {node} does not answer; if its machine is off for good: {force}"
    if not node or is_controlled(meta, job.key):
        return waits
    # This job's history knows of no node on which only pods of others are.
    return f"{waits}; if it is there after that and the machine of node {node} is off for good: {force}"


def conflict(what: str, meta: Metadata) -> Refused:
    """The refusal to change an object of another owner; it names the owner."""
    owner = meta.controller
    whose = f"belongs to {owner.kind} {owner.name}" if owner is not None else "has no owner"
    message = f"{what} {whose}; delete or rename it, or name the job differently"
    return Refused(message, reason="NameConflict", words=message)


def _earlier_incarnation(meta: Metadata, job: Job) -> bool:
    """True if the object belongs to an earlier job of this kind and name.  A job of another kind may still run."""
    owner = meta.controller
    if (
        owner is None
        or owner.name != job.key.name
        or owner.kind != job.resource.kind
        or _group(owner.api_version) != _group(job.resource.api_version)
    ):
        return False
    return (meta.labels or {}).get(JOB_UID) == owner.uid != job.key.uid


def _group(api_version: str) -> str:
    return api_version.partition("/")[0]
