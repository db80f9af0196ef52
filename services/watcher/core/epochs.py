"""Detects that etcd was restored from a backup.  Pure.

Versions are the store's revision.  A consistent LIST is at least as new as every earlier answer: a LIST with an older
version, or with an older version of an object, comes from another store.
"""

from collections.abc import Iterable
from typing import Any

from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.frameworks.scale_requests import REQUESTS
from shared.job.naming import Uid
from shared.job.state import Job


class Known:
    """The versions of one resource that were known before a LIST."""

    def __init__(self, resource: Resource[Any], epoch: int, reached: int) -> None:
        """`reached` is the version of the watch."""
        self.epoch = epoch
        self.reached = reached
        """The newest version that the watch or the log has seen."""
        self._resource = resource
        self._versions: dict[Uid, int] = {}
        """The version of each object in the log, by uid."""

    def add(self, job: Job) -> None:
        """The versions in one job."""
        if job.epoch == self.epoch:
            for uid, version in _of(job, self._resource):
                self._versions[uid] = version
                self.reached = max(self.reached, version)

    def has_newer(self, thing: Object) -> bool:
        """True if this object of a LIST is older than what was known: the LIST is of another store."""
        return thing.metadata.version < self._versions.get(Uid(thing.metadata.uid), 0)


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
