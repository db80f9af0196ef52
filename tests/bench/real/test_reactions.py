"""Where the clock of a reaction stops."""

from math import inf

from tests.bench.real.client import Counts, Job, JobStatus, Meta
from tests.bench.real.reactions import whole


def a_job(failed: int, listed: int = 0, active: int = 4) -> Job:
    """Of so many failed workers, the first `listed` of them still among the current ones."""
    names = [f"job-0-worker-{index}" for index in (*range(listed), *range(failed, 5))]
    counts = {"Worker": Counts(active=active, failed=failed)}
    return Job(Meta(name="job-0"), JobStatus("Running", replica_statuses=counts, current_workers=tuple(names)))


def test_the_clock_stops_at_the_first_status_that_stays():
    part, rest = a_job(1, listed=1), a_job(1)
    assert whole([(1.0, part), (2.0, rest), (3.0, rest)], 1, after=0.5, until=inf) == 2.0


def test_a_count_that_follows_later_belongs_to_the_truth():
    assert whole([(1.0, a_job(1, active=5)), (2.0, a_job(1))], 1, after=0.5, until=inf) == 2.0


def test_what_follows_from_the_next_change_is_not_counted():
    assert whole([(0.1, a_job(0)), (1.0, a_job(1)), (6.0, a_job(2))], 1, after=0.5, until=5.0) == 1.0


def test_a_status_that_comes_after_the_next_change_tells_of_both():
    assert whole([(1.0, a_job(0)), (7.0, a_job(2))], 1, after=0.5, until=5.0) == 7.0
