"""Detects that etcd was restored from a backup.  Pure.

Versions are the store's revision.  A consistent LIST is at least as new as every earlier answer: a LIST with an older
version, or with an older version of an object, comes from another store.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.frameworks.scale_requests import REQUESTS
from shared.job.naming import Uid
from shared.job.state import Job


class Known(msgspec.Struct, frozen=True):
    """The versions of one resource that were known before a LIST."""

    epoch: int
    reached: int
    """The newest version that the watch or the log has seen."""
    versions: Mapping[Uid, int]
    """The version of each object in the log, by uid."""


def known(epoch: int, reached: int, jobs: Iterable[Job], resource: Resource[Any]) -> Known:
    """The versions of a resource in `jobs`, and the version `reached` of its watch."""
    versions: dict[Uid, int] = {}
    for job in jobs:
        if job.epoch == epoch:
            versions.update(_of(job, resource))
    return Known(epoch, max([reached, *versions.values()]), versions)


def went_back(before: Known, version: int, objects: Iterable[Object]) -> bool:
    """True if a LIST at `version` with these `objects` is older than what was known `before` it."""
    return version < before.reached or any(
        thing.metadata.version < before.versions.get(Uid(thing.metadata.uid), 0) for thing in objects
    )


def _of(job: Job, resource: Resource[Any]) -> Iterable[tuple[Uid, int]]:
    kind = resource.kind
    if resource == PODS:
        return [(pod.uid, pod.version) for pod in job.pods.values()]
    if resource in REQUESTS.values():
        return [(request.uid, request.version) for request in job.scaling.requests.values() if request.kind == kind]
    if not resource.group:
        return [(child.uid, child.version) for child in job.children.values() if child.kind == kind]
    same = (job.api_version.partition("/")[0], job.kind) == (resource.group, kind)
    return [(job.key.uid, job.version)] if same else []
