"""Problems of a spec that came and went: what a running job shows of them, and when it stops."""

from shared.job.conditions import Condition
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobObserved
from shared.job.spec import Problem
from shared.job.state import Job
from tests.kit.builders import a_running_job, a_spec, observed
from tests.kit.stories import given

PROBLEM = Problem(reason="InvalidValue", field="spec.backoffLimit", message="set at least 0")
WRONG = JobObserved(kind="TrainingJob", api_version="v1", generation=1, version=2, problems=(PROBLEM,))


def created(*more: AnyEvent) -> Condition:
    job: Job = given(*a_running_job(), *more).job
    return next(condition for condition in job.status.conditions if condition.type == "Created")


def test_a_running_job_shows_what_is_wrong_with_its_newest_spec_and_runs_on():
    assert (created(WRONG).status, created(WRONG).reason) == (True, "InvalidValue")


def test_once_it_is_corrected_nothing_is_shown_any_more():
    before, after = created(), created(WRONG, observed(a_spec(), generation=2))
    assert (after.status, after.reason, after.message) == (True, before.reason, before.message)
    assert after.since == before.since
