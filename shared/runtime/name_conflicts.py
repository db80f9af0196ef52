"""*Already exists*: whether the object with that name is the job's, an earlier incarnation's or another owner's.  Pure.

An object of another owner is never adopted or changed.  Objects of an earlier incarnation are waited for: the garbage
collector deletes them.
"""

from shared.cluster.objects import Metadata, OwnerReference
from shared.errors import Refused, Transient
from shared.job.naming import JOB_UID, JobKey
from shared.job.state import Job

QUICK_SECONDS = 0.3
"""Seconds until the next try, while the garbage collector deletes an earlier incarnation's objects."""


def is_controlled(meta: Metadata, key: JobKey) -> bool:
    """True if the object's controller is this job, by uid."""
    owner = meta.controller
    return owner is not None and owner.uid == key.uid


def must_be_controlled(meta: Metadata | None, job: Job, what: str, *, same: bool = True, labelled: bool = True) -> None:
    """Return if the object is the job's and the `same` as the one to create.

    Raises `Transient` if the object is an earlier incarnation's, is being deleted or is gone.  Raises `Refused` with
    reason `NameConflict` if it has another owner, and with `LabelsChanged` if it lost its labels, so that no watch
    shows it; a caller that restores the labels passes `labelled=False`.
    """
    key = job.key
    if meta is None:
        raise Transient(f"{what} was deleted meanwhile", retry_after=QUICK_SECONDS)
    if labelled and is_controlled(meta, key) and (meta.labels or {}).get(JOB_UID) != key.uid:
        message = f"the labels of {what} were changed; delete it, and Muster makes it again"
        raise Refused(message, reason="LabelsChanged", words=message)
    if is_controlled(meta, key) and same and meta.deletion_timestamp is None:
        return
    if is_controlled(meta, key) or meta.deletion_timestamp is not None or _earlier_incarnation(meta, job):
        raise Transient(f"{what} belongs to an owner that is being deleted", retry_after=QUICK_SECONDS)
    raise conflict(what, meta)


def conflict(what: str, meta: Metadata) -> Refused:
    """The refusal to change an object of another owner; it names the owner."""
    owner = meta.controller
    whose = f"belongs to {owner.kind} {owner.name}" if owner is not None else "was not made by Muster"
    message = f"{what} {whose}; delete or rename it, or name the job differently"
    return Refused(message, reason="NameConflict", words=message)


def _earlier_incarnation(meta: Metadata, job: Job) -> bool:
    """True if the object belongs to an earlier job of this kind and name.  A job of another kind may still run."""
    owner = meta.controller
    if owner is None or owner.name != job.key.name or owner.kind != job.kind or _group(owner) != _group(job):
        return False
    return (meta.labels or {}).get(JOB_UID) == owner.uid != job.key.uid


def _group(of: OwnerReference | Job) -> str:
    return of.api_version.partition("/")[0]
