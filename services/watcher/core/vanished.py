"""Jobs that a list lacks and pods that were taken: when a job is asked for, and when a list is implausible.  Pure."""

from collections.abc import Collection

from services.watcher.core.cache import Cache
from services.watcher.core.questions import Confirm
from shared.job.events.event import At
from shared.job.evolve_pods import pods_gone
from shared.job.naming import Uid
from shared.job.policies.verdict import verdict
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import PodView, ended

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
    if cache.listing_of(job) is None or job.gone or job.deleting or not cache.pods.listed:
        return set()
    now, roles = cache.pods_of(job.key), _ending(job)
    pods = [pod for pod in job.pods.values() if pod.slot in job.attempt.slots and _is_taken(now.get(pod.uid))]
    taken = {pod.uid: pod.role for pod in pods if pod.uid in now or cache.shows_gone(job, pod)}
    if taken and verdict(job) is None and verdict(pods_gone(job, [*taken], At(0, ""))) is not None:
        # Too few workers would be left, or one that nothing replaces.
        return {*taken}
    return {uid for uid, role in taken.items() if role in roles}


def _is_taken(seen: PodView | None) -> bool:
    return seen is None or (seen.deleting and ended(seen))


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
    return bool(job.kind) and not job.gone and listing is not None and listing.listed


def too_many(missing: int, known: int) -> bool:
    """True if so many jobs are missing that the LIST is implausible."""
    return missing > max(VANISHED_AT_ONCE, known // 5)
