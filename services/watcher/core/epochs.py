"""Whether a LIST comes from another store than the one that was seen before: an etcd restored from a backup.  Pure.

Versions are the store's revision.  A consistent LIST is as new as anything that anybody was told before it was asked
for: one that is older, or shows an older version of something, is not of the store that we know.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.frameworks.training import REQUESTS
from shared.job.naming import Uid
from shared.job.state import Job


class Known(msgspec.Struct, frozen=True):
    """What was known of one resource before a LIST was asked for."""

    epoch: int
    reached: int
    """How far the watch got, or anything that the log has seen of this resource."""
    versions: Mapping[Uid, int]
    """Of each object, by uid, as the log has it."""


def known(epoch: int, reached: int, jobs: Iterable[Job], resource: Resource[Any]) -> Known:
    """What `jobs` say of a resource, and the watch that reached `reached`."""
    versions: dict[Uid, int] = {}
    for job in jobs:
        if job.epoch == epoch:
            versions.update(_of(job, resource))
    return Known(epoch, max([reached, *versions.values()]), versions)


def went_back(before: Known, version: int, objects: Iterable[Object]) -> bool:
    """Whether a LIST at `version` that shows `objects` cannot come after what was known `before` it was asked for."""
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
