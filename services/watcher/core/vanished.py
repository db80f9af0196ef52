"""Jobs and launchers that a list lacks: which to ask for, and when there are too many to believe it.  Pure."""

from collections.abc import Iterable

from services.watcher.core.cache import Cache
from services.watcher.core.questions import Confirm
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER
from shared.job.state import Job

VANISHED_AT_ONCE = 10
"""More jobs (or more than a fifth of all) missing from one LIST are not believed gone: a person decides."""


def question(job: Job, cache: Cache) -> Confirm | None:
    """Ask for the job itself if its list lacks it, or if its launcher vanished before its end was seen."""
    launchers = _lost_launchers(job, cache)
    if (missing(job, cache) and not cache.held_back) or launchers:
        return Confirm(cache.epoch, tuple(sorted(launchers)))
    return None


def _lost_launchers(job: Job, cache: Cache) -> set[Uid]:
    """Launchers that vanished before their end was seen, from a job that is not known to go itself.

    Each is lost once the job's own GET, asked after that, finds the job: the watch of pods may be ahead of the watch
    of jobs, and the launcher of a job that was deleted is no failure.
    """
    if cache.listing_of(job) is None or job.gone or job.deleting or not cache.pods.listed:
        return set()
    launchers = [pod for pod in job.pods.values() if pod.role == LAUNCHER and pod.slot in job.attempt.slots]
    now = cache.pods_of(job.key)
    return {pod.uid for pod in launchers if pod.uid not in now and cache.went(job, pod)}


def doubted(jobs: Iterable[Job], cache: Cache) -> tuple[int, int] | None:
    """How many of how many jobs are missing, where those are too many to be believed; None else."""
    alive = [job for job in jobs if counts(job, cache)]
    lost = sum(missing(job, cache) for job in alive)
    return (lost, len(alive)) if too_many(lost, len(alive)) else None


def missing(job: Job, cache: Cache) -> bool:
    """The log takes it for alive, and the complete list of its kind lacks it."""
    return counts(job, cache) and cache.job(job.key) is None


def counts(job: Job, cache: Cache) -> bool:
    """The log takes it for alive, and its kind was listed."""
    listing = cache.listing_of(job)
    return bool(job.kind) and not job.gone and listing is not None and listing.listed


def too_many(missing: int, known: int) -> bool:
    """Of the jobs that the log takes for alive so many are missing that the LIST is doubted, and not the jobs."""
    return missing > max(VANISHED_AT_ONCE, known // 5)
