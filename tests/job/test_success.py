"""When a job without a launcher succeeded: the corners of `shared/job/policies/verdict.py`."""

import msgspec

from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.watcher import JobObserved
from shared.job.policies.verdict import verdict
from shared.job.views import spans
from tests.kit.builders import workers
from tests.kit.replicas import (
    TOGETHER,
    WORKERS,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
    observed,
)
from tests.kit.stories import given

replace = msgspec.structs.replace


def succeeded(*events: AnyEvent) -> bool:
    end = verdict(given(*events).job)
    return end is not None and end.success


class TestWhereAllOfTheLeaderRoleHaveToSucceed:
    def test_one_that_failed_and_comes_again_is_waited_for(self):
        story = [*a_running_replicated_job(led_by_workers("All", policy="OnFailure")), ended("worker", 1, 3)]
        assert not succeeded(*story, ended("worker", 0, 0))

    def test_pods_of_other_roles_are_not_waited_for(self):
        spec = a_replicated_spec(handling=replace(TOGETHER, succeeds="All"))
        assert succeeded(*a_running_replicated_job(spec), ended("chief", 0, 0))

    def test_none_is_not_all(self):
        """The one that failed was replaced, and a scale-in released the others."""
        spec = led_by_workers("All", policy="OnFailure")
        again = SlotsAssigned(slots=(workers(2),), replaces=(workers(0),), reason="WorkersReplaced")
        released = SlotsReleased(slots=(workers(1, 2),))
        new_names = replace(spec, handling=replace(spec.handling, in_place=False))
        assert not succeeded(*a_running_replicated_job(new_names), ended("worker", 0, 3), again, released)


class TestAfterAnEditThatNamesAnotherLeaderRole:
    """The pods of that role come with the next attempt: this one ends with its last pod."""

    def renamed(self) -> JobObserved:
        edited = a_replicated_spec("OnFailure", handling=replace(TOGETHER, leader="master"))
        return replace(observed(edited), generation=2, version=2)

    def test_one_that_failed_and_comes_again_is_waited_for(self):
        story = [*a_running_replicated_job(a_replicated_spec("OnFailure")), self.renamed()]
        assert not succeeded(*story, ended("chief", 0, 0), ended("worker", 0, 0), ended("worker", 1, 3))

    def test_an_attempt_without_pods_does_not_succeed(self):
        story = [*a_running_replicated_job(a_replicated_spec("OnFailure")), self.renamed()]
        every = SlotsReleased(slots=spans([*WORKERS, *given(*story).job.attempt.slots]))
        assert not succeeded(*story, every)
