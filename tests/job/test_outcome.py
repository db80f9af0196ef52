"""Whether an attempt failed or succeeded, and what is said of it: the corners of `shared/job/policies/verdict.py`."""

import pytest
from msgspec.structs import replace

from shared.job.attempt import Verdict
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import DisruptionNoticed, JobAdopted, JobObserved, PodsGone, PodsObserved, TimePassed
from shared.job.naming import Uid
from shared.job.policies.verdict import verdict
from shared.job.spec import WORKER, Handling, JobSpec, RestartPolicy
from shared.job.views import Exit, Slots, spans
from tests.kit.builders import a_created_job, a_running_job, a_spec, exited, launcher, pods, worker, workers
from tests.kit.builders import observed as edited
from tests.kit.replicas import (
    TOGETHER,
    WORKERS,
    a_created_replicated_job,
    a_replicated_spec,
    a_running_replicated_job,
    ended,
    led_by_workers,
    observed,
    replica,
)
from tests.kit.stories import given, judged

WHOLE_JOB = replace(TOGETHER, restarts="Job")
"""The leader's failure restarts the whole job."""

LOOSE = replace(TOGETHER, strict=False)
"""A kind without a launcher whose pods are not all needed."""


def end(*events: AnyEvent) -> Verdict:
    found = verdict(given(*events).job)
    assert found is not None
    return found


class TestTheLauncher:
    def test_exit_0_is_a_success_although_its_node_is_about_to_go(self):
        noticed = DisruptionNoticed(node="node-1", uids=(Uid("pod-launcher"),), reason="NodeScaledDown")
        done = pods(launcher(version=30, phase="Succeeded", exits=exited(0)))
        assert judged(*a_running_job(), noticed, done) == Verdict(True, "TrainingJobSucceeded")

    def test_an_eviction_that_was_called_off_excuses_no_later_failure(self):
        evicted = pods(launcher(version=30, disruption="EvictionByEvictionAPI"))
        off, failed = pods(launcher(version=40)), launcher(version=50, phase="Failed", exits=exited(1))
        assert not end(*a_running_job(), evicted, off, pods(failed)).disrupted
        noticed = DisruptionNoticed(node="node-1", uids=(Uid("pod-launcher"),), reason="NodeScaledDown")
        assert end(*a_running_job(), noticed, evicted, off, pods(failed)).disrupted, "its node goes all the same"

    def test_out_of_memory_is_final_where_the_kind_says_so(self):
        killed = pods(launcher(version=30, phase="Failed", exits=exited(137, "OOMKilled")))
        for final in (False, True):
            handling = Handling(out_of_memory_is_final=final)
            assert end(*a_running_job(of_launcher="ExitCode", handling=handling), killed).permanent is final


class TestTheLeader:
    """In a job without a launcher, of a kind that restarts the whole job for its leader."""

    def spec(self, policy: RestartPolicy) -> JobSpec:
        return a_replicated_spec(policy, handling=WHOLE_JOB)

    def test_a_leader_that_succeeded_fails_nothing_while_another_one_runs(self):
        spec = led_by_workers("All")
        running = a_running_replicated_job(replace(spec, handling=replace(spec.handling, restarts="Job")))
        assert judged(*running, ended("worker", 0, 0)) is None

    def test_of_several_that_failed_the_first_is_told(self):
        spec = led_by_workers("First")
        running = a_running_replicated_job(replace(spec, handling=replace(spec.handling, restarts="Job")))
        found = end(*running, ended("worker", 1, 3), ended("worker", 0, 4))
        assert (found.message, found.because.slot) == ("resnet-worker-0 exited with 4 (Error)", WORKERS[0])

    def test_a_disruption_says_whose(self):
        noticed = DisruptionNoticed(node="node-1", uids=(Uid("chief-0-0"),), reason="NodeScaledDown")
        found = judged(*a_running_replicated_job(self.spec("Never")), noticed, PodsGone(uids=(Uid("chief-0-0"),)))
        assert found == Verdict(False, "Disrupted", "resnet-chief-0 was disrupted: NodeScaledDown", disrupted=True)

    def test_a_deletion_is_no_final_exit_whatever_the_code_and_is_told_as_everywhere(self):
        deleted = replica("chief", 0, version=50, phase="Failed", exits=exited(1), deleting=True)
        found = end(*a_running_replicated_job(self.spec("ExitCode")), PodsObserved(pods=(deleted,)))
        assert (found.permanent, found.message) == (False, "resnet-chief-0 was deleted (exit code 1)")

    @pytest.mark.parametrize(("policy", "permanent"), [("ExitCode", True), ("OnFailure", False), ("Always", False)])
    def test_only_exit_code_asks_for_the_code(self, policy: RestartPolicy, permanent: bool):
        assert end(*a_running_replicated_job(self.spec(policy)), ended("chief", 0, 3)).permanent is permanent


class TestAPodThatTheOthersNeed:
    def limited(self, limit: int) -> list[AnyEvent]:
        return a_running_replicated_job(a_replicated_spec("OnFailure", limit=limit))

    def test_the_last_replacement_that_the_limit_allows_is_no_end(self):
        assert judged(*self.limited(1), ended("worker", 1, 3)) is None

    def test_of_two_that_fail_at_once_one_may_be_too_many(self):
        both = [replica("worker", index, version=50, phase="Failed", exits=exited(3)) for index in (0, 1)]
        assert judged(*self.limited(1), PodsObserved(pods=tuple(both))) == Verdict(
            False,
            "BackoffLimitExceeded",
            "resnet-worker-1 exited with 3 (Error), and backoffLimit (1) allows no further replacement",
            permanent=True,
        )

    @pytest.mark.parametrize("before", [[], [PodsGone(uids=(Uid("worker-0-0"),))]], ids=["alone", "beside a deletion"])
    def test_a_pod_beyond_the_size_is_not_needed(self, before: list[AnyEvent]):
        """Another operator scaled the job to two workers, and its third failed before it was deleted."""
        spec = a_replicated_spec("OnFailure", limit=1)
        there = PodsObserved(pods=(replica("chief", 0), *(replica("worker", index) for index in range(3))))
        slots = (Slots(0, "chief", ((0, 0),)), Slots(0, WORKER, ((0, 2),)))
        taken_over = JobAdopted(source="AnotherOperator", attempt=0, slots=slots, size=2)
        assert judged(*a_created_replicated_job(spec)[:2], there, taken_over, *before, ended("worker", 2, 3)) is None


def failed(**more: object) -> PodsObserved:
    return PodsObserved(pods=(replica("worker", 1, version=50, phase="Failed", **more),))


@pytest.mark.parametrize(
    ("loss", "reason", "message"),
    [
        pytest.param(
            failed(reason="NodeLost"), "TrainingJobFailed", "resnet-worker-1 is lost: NodeLost", id="no exit was seen"
        ),
        pytest.param(
            failed(exits=exited(137, "OOMKilled")),
            "OOMKilled",
            "resnet-worker-1 exited with 137 (OOMKilled)",
            id="out of memory",
        ),
        pytest.param(
            failed(exits=(Exit("main", 1, "Error", "no such file"),)),
            "TrainingJobFailed",
            "resnet-worker-1 exited with 1 (Error): no such file",
            id="with its last words",
        ),
    ],
)
def test_a_loss_is_told_with_what_is_known_of_it(loss: AnyEvent, reason: str, message: str):
    found = end(*a_running_replicated_job(a_replicated_spec("Never")), loss)
    assert (found.reason, found.message, found.because.slot) == (reason, message, WORKERS[1])


def test_a_refusal_is_told_in_the_words_of_the_api_server_which_name_the_field():
    refused = EffectRefused(
        effect="CreatePod", reason="Invalid", field="spec.x", permanent=True, message="spec.x: write a number"
    )
    assert end(*a_created_job(), refused).message == "CreatePod was refused for good: spec.x: write a number"


class TestBeforeTheStart:
    WHOLE = Handling(whole=True)
    LOST = pods(worker(0), worker(1, phase="Failed", exits=exited(1)))
    REPLACED = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")

    def test_a_kind_whose_launcher_waits_for_all_workers_misses_each(self):
        assert judged(*a_created_job(2, least=1), self.LOST) is None
        assert end(*a_created_job(2, least=1, handling=self.WHOLE), self.LOST).reason == "Error"

    @pytest.mark.parametrize("handling", [Handling(), WHOLE], ids=["minReplicas", "all workers"])
    def test_an_edit_to_more_workers_makes_none_of_those_before_too_few(self, handling: Handling):
        """Without minReplicas it is replicas, and so the edit raises both before the job has grown."""
        begun = a_created_job(2, least=2, of_workers="OnFailure", handling=handling)
        grown = edited(a_spec(3, least=3, of_workers="OnFailure", handling=handling), generation=2)
        assert judged(*begun, self.LOST, self.REPLACED, grown) is None

    def test_a_worker_that_was_replaced_is_not_the_one_that_is_missed(self):
        begun = a_created_job(2, least=2, of_workers="OnFailure", backoff_limit=1)
        found = end(*begun, self.LOST, self.REPLACED, pods(worker(0, version=40, phase="Failed", exits=exited(3))))
        assert found.message == "resnet-worker-0 ended with 3 before the launcher was made"

    def test_the_newest_failure_is_told(self):
        first, second = (pods(worker(index, phase="Failed", exits=exited(index))) for index in (2, 1))
        found = end(*a_created_job(3, least=2), first, second)
        assert found.message == "resnet-worker-1 ended with 1 before the launcher was made"


class TestBeforeTheStartWithoutALauncher:
    """A kind without a launcher that goes on with minReplicas."""

    def story(self) -> list[AnyEvent]:
        spec = a_replicated_spec(handling=LOOSE)
        chief, role = spec.roles
        return a_created_replicated_job(replace(spec, roles=(chief, replace(role, min_replicas=2))))

    def test_too_few_workers_end_it(self):
        assert end(*self.story(), ended("worker", 1, 3)).message == "resnet-worker-1 ended with 3 before the job ran"

    def test_the_end_of_another_pod_is_not_told_for_that_of_a_worker(self):
        found = end(*self.story(), ended("worker", 1, 3), ended("chief", 0, 4))
        assert found.message == "resnet-worker-1 ended with 3 before the job ran"


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
        assert judged(*self.stuck(), TOO_LATE, edited(a_spec(), generation=2)) is None

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
