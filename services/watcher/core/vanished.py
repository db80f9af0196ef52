"""Jobs and launchers that a list lacks: which ones to GET, and when a list is implausible.  Pure."""

from services.watcher.core.cache import Cache
from services.watcher.core.questions import Confirm
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER
from shared.job.state import Job

VANISHED_AT_ONCE = 10
"""If more jobs than this, and more than a fifth of all, are missing from one LIST, none counts as gone."""


def question(job: Job, cache: Cache) -> Confirm | None:
    """A GET of the job, if its list lacks it or its launcher vanished before its end was seen."""
    launchers, lacks = _lost_launchers(job, cache), missing(job, cache) and not cache.held_back
    return Confirm(cache.epoch, tuple(sorted(launchers)), lacks) if lacks or launchers else None


def _lost_launchers(job: Job, cache: Cache) -> set[Uid]:
    """Launchers that vanished before their end was seen, of a job that is not being deleted.

    Each is lost if a later GET still finds the job: the watch of pods may be ahead of the watch of jobs, and the
    launcher of a deleted job is no failure.
    """
    if cache.listing_of(job) is None or job.gone or job.deleting or not cache.pods.listed:
        return set()
    launchers = [pod for pod in job.pods.values() if pod.role == LAUNCHER and pod.slot in job.attempt.slots]
    now = cache.pods_of(job.key)
    return {pod.uid for pod in launchers if pod.uid not in now and cache.shows_gone(job, pod)}


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
