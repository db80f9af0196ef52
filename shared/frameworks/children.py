"""What every object made for a job carries: whose it is, in labels for people and in the owner for the API server.

Pure.
"""

from typing import Any

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.job.naming import ATTEMPT, GROUP_NAME, JOB_NAME, JOB_ROLE, JOB_UID, REPLICA_INDEX, JobKey, Slot

Document = dict[str, Any]


def child_metadata(kind: Resource[Custom], key: JobKey, name: str) -> Document:
    """Metadata of an object named `name` that the job of this kind controls."""
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": job_labels(kind, key),
        "ownerReferences": [owner_reference(kind, key)],
    }


def owner_reference(kind: Resource[Custom], key: JobKey) -> Document:
    """The job as controller: the garbage collector takes its children with it, nobody else adopts them."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": key.name,
        "uid": key.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_labels(kind: Resource[Custom], key: JobKey) -> dict[str, str]:
    return {GROUP_NAME: kind.group, JOB_NAME: key.name, JOB_UID: key.uid}


def slot_labels(kind: Resource[Custom], key: JobKey, slot: Slot) -> dict[str, str]:
    """The launcher has an index too: without one, a template's own label of that name would be believed."""
    return job_labels(kind, key) | {JOB_ROLE: slot.role, REPLICA_INDEX: str(slot.index), ATTEMPT: str(slot.attempt)}
