"""Who holds a name that we wanted: us, an older life of the same job, or somebody else.  Pure.

Nothing foreign is ever adopted or touched; an older life is waited for, because its pods are on their way out.
"""

from shared.cluster.objects import Metadata, OwnerReference
from shared.errors import Refused, Transient
from shared.job.naming import JOB_UID, JobKey
from shared.job.state import Job

QUICK_SECONDS = 0.3
"""The retry while an older life of the same job lets go of its names."""


def ours(meta: Metadata, key: JobKey) -> bool:
    """The object's controller is this very job."""
    owner = meta.controller
    return owner is not None and owner.uid == key.uid


def settle(meta: Metadata | None, job: Job, what: str, *, same: bool = True, labelled: bool = True) -> None:
    """Make sense of *already exists*: return when the object is ours and the `same` as we meant to make.

    Raises `Transient` to wait (for an older life, or something that is being deleted or already gone), and `Refused`
    with reason `NameConflict` when it is somebody else's, with `LabelsChanged` when somebody took its labels, so that
    no watch of ours shows it; who puts them back asks with `labelled=False`.
    """
    key = job.key
    if meta is None:
        raise Transient(f"{what} vanished while we looked", retry_after=QUICK_SECONDS)
    if labelled and ours(meta, key) and (meta.labels or {}).get(JOB_UID) != key.uid:
        raise Refused(f"the labels of {what} were changed; delete it, and it is made again", reason="LabelsChanged")
    if ours(meta, key) and same and meta.deletion_timestamp is None:
        return
    if ours(meta, key) or meta.deletion_timestamp is not None or _older_life(meta, job):
        raise Transient(f"{what} still belongs to something that is going away", retry_after=QUICK_SECONDS)
    raise Refused(
        f"{what} belongs to somebody else; delete or rename it, or name the job differently", reason="NameConflict"
    )


def _older_life(meta: Metadata, job: Job) -> bool:
    """A job of this very kind had this name before; one of another kind may live beside it, and lets go of nothing."""
    owner = meta.controller
    if owner is None or owner.name != job.key.name or owner.kind != job.kind or _group(owner) != _group(job):
        return False
    return (meta.labels or {}).get(JOB_UID) == owner.uid != job.key.uid


def _group(of: OwnerReference | Job) -> str:
    return of.api_version.partition("/")[0]
