"""A process remembers no more Kubernetes Events than the jobs that are there want."""

from services.status.checkpoints import Announced
from services.status.core.effects import Announce
from shared.job.naming import Uid
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY
from tests.kit.stories import given


def a_failure(sequence: int) -> Announce:
    return Announce(
        "v1", "TrainingJob", KEY.name, Uid("1"), sequence, "2030-01-01T00:00:00Z", "TrainingJobWorkerFailed", ""
    )


def test_an_event_that_is_wanted_no_more_is_forgotten():
    announced, history = Announced(), given(*a_running_job(workers=1)).history
    for sequence in range(1000):
        announced.decided(history, [a_failure(sequence)])
        assert announced.owes(history) == (sequence == 0)
        announced.made(history.job.key, a_failure(sequence))
        announced.decided(history, [a_failure(sequence)])
        assert not announced.owes(history)
    assert sum(map(len, announced._made.values())) == 1


def test_a_job_that_was_gone_before_its_event_was_there_stays_forgotten():
    announced, history = Announced(), given(*a_running_job(workers=1)).history
    announced.decided(history, [a_failure(1)])
    announced.forget(history.job.key)
    announced.made(history.job.key, a_failure(1))
    assert not announced._made
