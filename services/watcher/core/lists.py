"""Which lists are implausible: of an older store, or without too many jobs.  Pure.

etcd may have been restored from a backup.  Versions are the store's revision, and a consistent LIST is at least as new
as every earlier answer: a LIST with an older version, or with an older version of an object, is of another store.

A job that a list lacks, or a pod of which was taken, is asked for.
"""

from collections.abc import Collection, Iterable
from typing import Any

from services.watcher.core.cache import Cache
from services.watcher.core.questions import Confirm
from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.frameworks.scale_requests import REQUESTS
from shared.job.events.event import At
from shared.job.evolve_pods import pods_gone
from shared.job.naming import Uid
from shared.job.policies.verdict import verdict
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import ended

VANISHED_AT_ONCE = 10
"""If more jobs than this, and more than a fifth of all, are missing from one LIST, none counts as gone."""


def question(job: Job, cache: Cache) -> Confirm | None:
    """A GET of the job, if its list lacks it or a pod that ends its attempt was taken from it."""
    pods, lacks = _taken(job, cache), missing(job, cache) and not cache.held_back
    return Confirm(cache.epoch, tuple(sorted(pods)), lacks) if lacks or pods else None


def _taken(job: Job, cache: Cache) -> set[Uid]:
    """Pods that vanished, or ended because they are being deleted, and with which the attempt ends.

    Each is lost if a later GET still finds the job, and neither the job nor its namespace is being deleted: a watch of
    pods may be ahead of that of jobs, and the controller of namespaces deletes pods before their job.  The pods of a
    deleted job are no failure.
    """
    if cache.listing_of(job) is None or job.resource.gone or job.deleting or not cache.pods.listed:
        return set()
    now, roles = cache.pods_to_tell(job), _ending(job)
    pods = [pod for pod in job.pods.views.values() if pod.slot in job.attempt.slots]
    taken = {pod.uid: pod.role for pod in pods if pod.uid not in now and cache.shows_gone(job, pod)}
    taken |= {pod.uid: pod.role for pod in pods if pod.uid in now and now[pod.uid].deleting and ended(now[pod.uid])}
    if taken and verdict(job) is None and verdict(pods_gone(job, [*taken], At(0, ""))) is not None:
        # Too few workers would be left, or one that nothing replaces.
        return {*taken}
    return {uid for uid, role in taken.items() if role in roles}


def _ending(job: Job) -> Collection[str]:
    """The roles with whose pods an attempt always ends."""
    if job.spec is None or job.spec.has_launcher or job.spec.handling.restarts == "Pod":
        return (LAUNCHER,)
    return (job.spec.handling.leader,)


def missing(job: Job, cache: Cache) -> bool:
    """True if the job exists by the log, and the complete list of its kind lacks it."""
    return counts(job, cache) and cache.job(job.key) is None


def counts(job: Job, cache: Cache) -> bool:
    """True if the job exists by the log, and its kind was listed."""
    listing = cache.listing_of(job)
    return bool(job.resource.kind) and not job.resource.gone and listing is not None and listing.listed


def too_many(missing: int, known: int) -> bool:
    """True if so many jobs are missing that the LIST is implausible."""
    return missing > max(VANISHED_AT_ONCE, known // 5)


class Known:
    """The versions of one resource that were known before a LIST."""

    def __init__(self, resource: Resource[Any], epoch: int, reached: int) -> None:
        """`reached` is the version of the watch."""
        self.epoch = epoch
        self.reached = reached
        """The newest version that the watch or the log has seen."""
        self._resource = resource
        self._versions: dict[Uid, int] = {}

    def add(self, job: Job) -> None:
        if job.resource.epoch == self.epoch:
            for uid, version in _of(job, self._resource):
                self._versions[uid] = version
                self.reached = max(self.reached, version)

    def has_newer(self, thing: Object) -> bool:
        """True if this object of a LIST is older than what was known: the LIST is of another store."""
        return thing.metadata.version < self._versions.get(Uid(thing.metadata.uid), 0)


def _of(job: Job, resource: Resource[Any]) -> Iterable[tuple[Uid, int]]:
    kind = resource.kind
    if resource == PODS:
        return [(pod.uid, pod.version) for pod in job.pods.views.values()]
    if resource in REQUESTS.values():
        return [(request.uid, request.version) for request in job.scaling.requests.values() if request.kind == kind]
    if not resource.group:
        return [(child.uid, child.version) for child in job.objects.children.values() if child.kind == kind]
    same = (job.resource.api_version.partition("/")[0], job.resource.kind) == (resource.group, kind)
    return [(job.key.uid, job.resource.version)] if same else []
