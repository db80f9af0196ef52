"""The limits that end an attempt: the corners of `shared/job/policies/verdict.py`."""

from shared.job.attempt import Verdict
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import PodsGone, TimePassed
from shared.job.naming import Uid
from tests.kit.builders import a_created_job, a_running_job, a_spec, observed, pods, worker, workers
from tests.kit.stories import judged

TOO_LATE = TimePassed(anchor=3, timer="Scheduling")
"""schedulingTimeoutSeconds after the first slots, which are the third event of a created job."""


def test_the_active_deadline_ends_a_job_between_two_attempts_too():
    running = a_running_job(active_deadline_seconds=60, restart="OnFailure")
    late = TimePassed(anchor=2, timer="ActiveDeadline")
    end = judged(*running, JobRestarting(reason="TrainingJobFailed"), late)
    assert end is not None
    assert end.reason == "DeadlineExceeded"


class TestSchedulingTimeout:
    def stuck(self, message: str = "") -> list[AnyEvent]:
        pending = worker(1, phase="Pending", reason="Unschedulable", message=message)
        return [*a_created_job(scheduling_timeout_seconds=30), pods(worker(0), pending)]

    def test_before_the_first_slots_no_time_runs(self):
        created = a_created_job(scheduling_timeout_seconds=30)[:2]
        assert judged(*created, TOO_LATE) is None

    def test_a_job_that_runs_is_not_too_late(self):
        assert judged(*a_running_job(scheduling_timeout_seconds=30), TOO_LATE) is None

    def test_an_edit_that_removes_it_is_heard_until_the_end(self):
        assert judged(*self.stuck(), TOO_LATE) is not None
        assert judged(*self.stuck(), TOO_LATE, observed(a_spec(), generation=2)) is None

    def test_what_a_pod_waits_for_is_told_rather_than_a_refusal(self):
        end = judged(*self.stuck(), EffectRefused(effect="CreatePod", reason="Forbidden"), TOO_LATE)
        assert end is not None
        assert end.message.endswith("; resnet-worker-1: Unschedulable")

    def test_its_message_fits_into_a_condition(self):
        end = judged(*self.stuck("x" * 2000), TOO_LATE)
        assert end is not None
        assert len(end.message.encode()) == 1024


def test_too_few_workers_are_counted_by_those_that_run():
    lost = [*a_running_job(workers=3, least=2, of_workers="Always"), PodsGone(uids=(Uid("pod-1"), Uid("pod-2")))]
    replaced = SlotsAssigned(slots=(workers(3, 4),), replaces=(workers(1, 2),), reason="WorkersReplaced")
    waiting = [replaced, pods(worker(3, phase="Pending")), TimePassed(anchor=len(lost), timer="BelowMinimum")]
    assert judged(*lost, *waiting) == Verdict(False, "BelowMinimum", "1 worker runs, 2 are needed")
