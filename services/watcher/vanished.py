"""Jobs that a LIST lacks: which to ask for, and when there are too many of them to believe it.  Pure."""

from services.watcher.world import World
from shared.job.state import Job

VANISHED_AT_ONCE = 10
"""More jobs (or more than a fifth of all) missing from one LIST are not believed gone: a person decides."""


def may_be_gone(job: Job, world: World) -> bool:
    """The log knows it and the watch does not; its own GET has not said so yet."""
    return missing(job, world) and job.key not in world.confirmed_gone


def missing(job: Job, world: World) -> bool:
    """The log takes it for alive, and the complete list of its kind lacks it."""
    return counts(job, world) and world.job(job.key) is None


def counts(job: Job, world: World) -> bool:
    """The log takes it for alive, and its kind was listed."""
    level = world.level_of(job)
    return bool(job.generation) and not job.gone and level is not None and level.listed


def too_many(missing: int, known: int) -> bool:
    """Of the jobs that the log takes for alive so many are missing that the LIST is doubted, and not the jobs."""
    return missing > max(VANISHED_AT_ONCE, known // 5)
