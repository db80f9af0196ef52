"""Jobs without a launcher: all pods begin together, one's end is the job's, and a lost one comes back in its place."""

import msgspec
import pytest

from services.scheduler.core.effects import ClaimPod, CreatePod, CreateService, DeletePod, DeleteService
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScaleAccepted, ScaleRejected
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobFailed, JobRestarting, JobRunning, JobSucceeded, JobSuspended
from shared.job.events.watcher import DisruptionNoticed, JobAdopted, JobObserved, PodsGone, PodsObserved, TimePassed
from shared.job.naming import Slot, Uid
from shared.job.policies import replacement
from shared.job.spec import JobSpec
from shared.job.steps import Record
from shared.job.views import Member, Slots, spans
from tests.kit.replicas import (
    CHIEF,
    TOGETHER,
    WORKERS,
    a_created_replicated_job,
    a_replicated_spec,
    a_running_replicated_job,
    all_slots,
    ended,
    led_by_workers,
    observed,
    replica,
    services,
)
from tests.kit.stories import given, scaler, scheduler, status

SPEC = a_replicated_spec()
OVER = Record(JobSucceeded(reason="TrainingJobSucceeded"))


def one(slot: Slot) -> tuple[Slots, ...]:
    return spans([slot])


class TestBeginning:
    def test_all_pods_get_their_slots_at_once(self):
        given(observed(SPEC), JobCreated(reason="TrainingJobCreated")).then(
            scheduler, Record(SlotsAssigned(slots=all_slots(SPEC), reason="JobCreated"))
        )

    def test_every_pod_gets_a_service_of_its_own_and_none_waits_for_hosts_files_or_keys(self):
        slots = (CHIEF, *WORKERS)
        story = given(observed(SPEC), JobCreated(reason="TrainingJobCreated"), SlotsAssigned(slots=all_slots(SPEC)))
        story.then(scheduler, *map(CreateService, slots), *map(CreatePod, slots))
        story.then_nothing(scaler)

    def test_it_does_not_begin_twice(self):
        alone = a_replicated_spec(workers=0)
        story = given(*a_created_replicated_job(alone), PodsObserved(pods=(replica("chief", 0),)))
        story.then_nothing(scheduler)

    def test_one_that_was_taken_on_in_the_middle_does_not_begin_again(self):
        alone = a_replicated_spec(workers=0)
        chief = (Slots(2, "chief", ((0, 0),)),)
        taken_on = [observed(alone), JobAdopted(source="AcceptedLoss", attempt=2, slots=chief)]
        given(*taken_on, services(alone), JobCreated(reason="TrainingJobCreated")).then(
            scheduler, CreatePod(Slot(2, "chief", 0))
        )

    def test_a_pod_of_another_operator_in_no_place_of_ours_goes_unclaimed(self):
        theirs = [replica("worker", index, claimed=False) for index in (0, 2)]
        taken_on = JobAdopted(source="AnotherOperator", attempt=0, slots=one(WORKERS[0]))
        story = given(
            observed(SPEC), JobCreated(reason="TrainingJobCreated"), taken_on, PodsObserved(pods=tuple(theirs))
        )
        claimed = [step for step in story.steps(scheduler) if isinstance(step, ClaimPod | DeletePod)]
        assert claimed == [
            DeletePod("resnet-worker-2", Uid("worker-2-0")),
            ClaimPod("resnet-worker-0", Uid("worker-0-0"), WORKERS[0]),
        ]

    def test_it_runs_when_the_pod_of_the_leading_role_runs(self):
        waiting = [*a_created_replicated_job(SPEC), PodsObserved(pods=(replica("worker", 0),))]
        assert Record(JobRunning(reason="TrainingJobRunning")) not in given(*waiting).steps(status)
        running = [*waiting, PodsObserved(pods=(replica("chief", 0),))]
        given(*running).then_among_others(status, Record(JobRunning(reason="TrainingJobRunning")))

    @pytest.mark.parametrize(("succeeds", "runs"), [("First", False), ("Any", True), ("All", True)])
    def test_another_pod_of_the_leading_role_will_do_where_its_end_would(self, succeeds: str, runs: bool):
        events = [*a_created_replicated_job(led_by_workers(succeeds)), PodsObserved(pods=(replica("worker", 1),))]
        assert (Record(JobRunning(reason="TrainingJobRunning")) in given(*events).steps(status)) is runs

    def test_a_job_of_no_pods_is_not_begun_again_and_again(self):
        without_roles = msgspec.structs.replace(SPEC, roles=())
        given(observed(without_roles), JobCreated(reason="TrainingJobCreated")).then_nothing(scheduler)

    def test_one_that_ran_and_ended_unseen_ran_all_the_same(self):
        story = given(*a_created_replicated_job(SPEC), ended("chief", 0, 0))
        story.then_among_others(status, Record(JobRunning(reason="TrainingJobRunning")))


@pytest.mark.parametrize(
    ("spec", "ends", "over"),
    [
        pytest.param(SPEC, [("chief", 0, 0)], True, id="the chief ended well"),
        pytest.param(SPEC, [("worker", 0, 0), ("worker", 1, 0)], False, id="only the workers did"),
        pytest.param(led_by_workers("First"), [("worker", 1, 0)], False, id="not the first worker"),
        pytest.param(led_by_workers("First"), [("worker", 0, 0)], True, id="the first worker"),
        pytest.param(led_by_workers("Any"), [("worker", 1, 0)], True, id="any worker"),
        pytest.param(led_by_workers("All"), [("worker", 1, 0)], False, id="not all workers"),
        pytest.param(led_by_workers("All"), [("worker", 1, 0), ("worker", 0, 0)], True, id="all workers"),
    ],
)
def test_success(spec: JobSpec, ends: list[tuple[str, int, int]], over: bool):
    story = given(*a_running_replicated_job(spec), *(ended(*end) for end in ends))
    assert (OVER in story.steps(status)) is over


def test_an_attempt_whose_leader_role_an_edit_renamed_succeeds_with_the_last_of_its_pods():
    edited = again_observed(a_replicated_spec(handling=msgspec.structs.replace(TOGETHER, leader="master")))
    story = [*a_running_replicated_job(SPEC), edited, ended("worker", 0, 0), ended("worker", 1, 0)]
    assert OVER not in given(*story).steps(status)
    assert OVER in given(*story, ended("chief", 0, 0)).steps(status)


class TestLosses:
    def test_without_a_policy_a_worker_that_failed_fails_the_job(self):
        given(*a_running_replicated_job(SPEC), ended("worker", 1, 3)).then_among_others(
            status, Record(JobFailed(reason="TrainingJobFailed", message="resnet-worker-1 exited with 3 (Error)"))
        )

    def test_one_that_the_others_can_do_without_fails_nothing(self):
        spares = a_replicated_spec(handling=msgspec.structs.replace(TOGETHER, spares=("worker",)))
        story = given(*a_running_replicated_job(spares), ended("worker", 1, 3))
        assert not any(isinstance(step, Record) for step in story.steps(status))
        failed = given(*a_running_replicated_job(spares), ended("chief", 0, 3)).steps(status)
        assert any(isinstance(step, Record) and isinstance(step.event, JobFailed) for step in failed)

    def test_a_worker_that_ended_well_is_no_loss(self):
        story = given(*a_running_replicated_job(a_replicated_spec("OnFailure")), ended("worker", 1, 0))
        story.then_nothing(scheduler)
        assert not any(isinstance(step, Record) for step in story.steps(status))

    def test_what_is_left_of_it_goes_before_its_place_is_filled_again(self):
        spec = a_replicated_spec("OnFailure")
        failed = [*a_running_replicated_job(spec), ended("worker", 1, 3)]
        given(*failed).then(scheduler, DeletePod("resnet-worker-1", Uid("worker-1-0")))
        gone = [*failed, PodsGone(uids=(Uid("worker-1-0"),))]
        again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
        given(*gone).then(scheduler, Record(again))
        given(*gone, again).then(scheduler, CreatePod(WORKERS[1]))
        back = PodsObserved(pods=(replica("worker", 1, life=1),))
        story = given(*gone, again, back)
        story.then_nothing(scheduler)
        assert WORKERS[1] in story.job.attempt.slots - story.job.attempt.spent

    def test_what_is_left_of_it_does_not_end_a_second_time_in_a_place_that_is_filled_again(self):
        again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
        went = replica("worker", 1, version=60, phase="Failed", deleting=True)
        lost = [*a_running_replicated_job(a_replicated_spec("OnFailure")), ended("worker", 1, 3), again]
        assert given(*lost, PodsObserved(pods=(went,))).job.attempt.vacancies == given(*lost).job.attempt.vacancies
        assert WORKERS[1] in given(*lost, PodsObserved(pods=(went,))).job.attempt.slots

    def test_the_second_time_it_waits(self):
        spec = a_replicated_spec("OnFailure")
        again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
        twice = [
            *a_running_replicated_job(spec),
            ended("worker", 1, 3),
            PodsGone(uids=(Uid("worker-1-0"),)),
            again,
            PodsObserved(pods=(replica("worker", 1, life=1),)),
            ended("worker", 1, 3, life=1),
            PodsGone(uids=(Uid("worker-1-1"),)),
        ]
        story = given(*twice)
        story.then_nothing(scheduler)
        (vacancy,) = story.job.attempt.vacancies.values()
        given(*twice, TimePassed(anchor=vacancy.at.sequence, timer=replacement.timer_name(10))).then(
            scheduler, Record(again)
        )

    def test_a_command_that_cannot_be_started_fails_a_job_that_never_ran(self):
        spec = a_replicated_spec("Never")
        story = given(*a_created_replicated_job(spec), ended("chief", 0, 128, reason="StartError"))
        (step, *_) = story.steps(status)
        assert isinstance(step, Record)
        assert isinstance(step.event, JobFailed)

    def test_a_pod_that_the_kubelet_rejected_does_not_begin_the_job_though_it_is_made_again(self):
        rejected = replica("chief", 0, phase="Failed", ran=False, reason="UnexpectedAdmissionError", message="m")
        story = given(*a_created_replicated_job(a_replicated_spec("OnFailure")), PodsObserved(pods=(rejected,)))
        assert not any(isinstance(step, Record) for step in story.steps(status))
        (failure,) = story.job.status.failures
        assert (failure.reason, failure.message) == ("UnexpectedAdmissionError", "m")

    def test_a_pod_that_was_seen_to_run_ran_although_its_kubelet_lost_the_container(self):
        runs = PodsObserved(pods=(replica("chief", 0),))
        lost = PodsObserved(pods=(replica("chief", 0, version=50, phase="Failed", ran=False, reason="Evicted"),))
        (vacancy,) = given(*a_created_replicated_job(SPEC), runs, lost).job.attempt.vacancies.values()
        assert vacancy.ran

    def test_the_limit_counts_replacements_of_pods_and_a_pod_beyond_it_begins_no_attempt(self):
        handling = msgspec.structs.replace(TOGETHER, restarts="Job")
        again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
        story = given(
            *a_running_replicated_job(a_replicated_spec("OnFailure", limit=1, handling=handling)),
            ended("worker", 1, 3),
            PodsGone(uids=(Uid("worker-1-0"),)),
            again,
            PodsObserved(pods=(replica("worker", 1, life=1),)),
            ended("worker", 1, 3, life=1),
        )
        (step, *_) = story.steps(status)
        assert isinstance(step, Record)
        assert isinstance(step.event, JobFailed)
        assert step.event.reason == "BackoffLimitExceeded"
        assert step.event.message == (
            "resnet-worker-1 exited with 3 (Error), and backoffLimit (1) allows no further replacement"
        )

    def test_a_pod_that_is_never_replaced_fails_the_job_whatever_restarts_its_leader(self):
        handling = msgspec.structs.replace(TOGETHER, restarts="Job")
        spec = a_replicated_spec("OnFailure", handling=handling)
        chief, worker = spec.roles
        never = msgspec.structs.replace(spec, roles=(chief, msgspec.structs.replace(worker, restart_policy="Never")))
        (step, *_) = given(*a_running_replicated_job(never), ended("worker", 1, 3)).steps(status)
        assert isinstance(step, Record)
        assert isinstance(step.event, JobFailed)

    @pytest.mark.parametrize("policy", ["Never", "ExitCode", "OnFailure", "Always"])
    def test_a_deleted_worker_comes_back_whatever_the_policy(self, policy):
        deleted = [*a_running_replicated_job(a_replicated_spec(policy)), PodsGone(uids=(Uid("worker-0-0"),))]
        again = SlotsAssigned(slots=one(WORKERS[0]), replaces=one(WORKERS[0]), reason="PodsReplaced")
        given(*deleted).then(scheduler, Record(again))
        assert not any(isinstance(step, Record) for step in given(*deleted).steps(status))

    def test_the_chief_comes_back_too_unless_it_ended_well(self):
        deleted = [*a_running_replicated_job(SPEC), PodsGone(uids=(Uid("chief-0-0"),))]
        again = SlotsAssigned(slots=one(CHIEF), replaces=one(CHIEF), reason="PodsReplaced")
        given(*deleted).then(scheduler, Record(again))
        given(*a_running_replicated_job(a_replicated_spec("Always")), ended("chief", 0, 0)).then_nothing(scheduler)

    def test_the_chief_takes_no_place_of_the_workers(self):
        lost = PodsGone(uids=(Uid("chief-0-0"), Uid("worker-0-0")))
        both = spans([CHIEF, WORKERS[0]])
        given(*a_running_replicated_job(SPEC), lost).then(
            scheduler, Record(SlotsAssigned(slots=both, replaces=both, reason="PodsReplaced"))
        )

    def test_no_worker_leaves_before_its_node_does(self):
        story = given(
            *a_running_replicated_job(SPEC), DisruptionNoticed(node="n", uids=(Uid("worker-0-0"),), reason="Spot")
        )
        story.then_nothing(scaler)
        story.then_nothing(scheduler)


class TestWhatTheJudgeRestarts:
    """A scheduler whose end is that of the attempt: by its policy all pods begin again."""

    SPEC = a_replicated_spec("ExitCode", handling=msgspec.structs.replace(TOGETHER, restarts="Job"))

    def events(self, code: int, reason: str = "", spec: JobSpec = SPEC) -> list[AnyEvent]:
        return [*a_running_replicated_job(spec), ended("chief", 0, code, reason=reason)]

    def test_a_retryable_end_begins_another_attempt(self):
        (step, *_) = given(*self.events(137)).steps(status)
        assert isinstance(step, Record)
        assert isinstance(step.event, JobRestarting)
        given(*self.events(137)).then_nothing(scheduler)

    def test_a_disruption_begins_another_attempt_whatever_the_policy_and_counts_against_no_limit(self):
        never = a_replicated_spec("Never", handling=msgspec.structs.replace(TOGETHER, restarts="Job"), limit=0)
        noticed = DisruptionNoticed(node="node-1", uids=(Uid("chief-0-0"),), reason="NodeScaledDown")
        story = [*a_running_replicated_job(never), noticed, PodsGone(uids=(Uid("chief-0-0"),))]
        (step, *_) = given(*story).steps(status)
        assert isinstance(step, Record)
        assert isinstance(step.event, JobRestarting)
        assert (step.event.reason, step.event.counted) == ("Disrupted", False)

    def test_the_next_attempt_has_all_pods_again(self):
        restarted = [
            *self.events(137),
            JobRestarting(reason="TrainingJobFailed"),
            SlotsReleased(slots=all_slots(self.SPEC), reason="JobRestarting"),
            PodsGone(uids=tuple(Uid(f"{role}-0") for role in ("chief-0", "worker-0", "worker-1"))),
            JobRestarted(attempt=1, reason="TrainingJobFailed"),
        ]
        slots = tuple(Slots(1, known.role, known.ranges) for known in all_slots(self.SPEC))
        given(*restarted).then(scheduler, Record(SlotsAssigned(slots=slots, reason="JobRestarted")))


def test_the_services_of_pods_stay_between_attempts_and_go_with_a_place_that_is_given_up():
    events = a_running_replicated_job(SPEC)
    released = SlotsReleased(slots=one(WORKERS[1]), reason="Test")
    given(*events, released).then_among_others(scheduler, DeleteService("resnet-worker-1", Uid("resnet-worker-1")))
    restarting = [*events, JobRestarting(reason="RestartRequested"), SlotsReleased(slots=all_slots(SPEC))]
    assert not any(isinstance(step, DeleteService) for step in given(*restarting).steps(scheduler))


def test_an_edit_of_a_job_that_cannot_grow_is_rejected():
    larger = msgspec.structs.replace(observed(a_replicated_spec(workers=3)), generation=2, version=2)
    given(*a_running_replicated_job(SPEC), larger).then(
        scaler, Record(ScaleRejected(request=Uid("replicas-2"), reason="NotElastic"))
    )


def test_a_worker_that_is_done_is_not_missed_for_ever():
    story = given(*a_running_replicated_job(SPEC), ended("worker", 0, 0), ended("worker", 1, 0))
    assert story.job.attempt.below_minimum == 0
    assert services(SPEC).children


class TestARoleThatIsTakenOutOfTheResource:
    """What is there stays until the end; its pods cannot be made again, and are not missed."""

    ALONE = a_replicated_spec(workers=0)

    def test_its_pods_stay(self):
        given(*a_running_replicated_job(SPEC), again_observed(self.ALONE)).then_nothing(scheduler)

    def test_one_that_was_not_made_yet_is_not_made(self):
        chief = PodsObserved(pods=(replica("chief", 0),))
        given(*a_created_replicated_job(SPEC), chief, again_observed(self.ALONE)).then_nothing(scheduler)

    def test_one_that_is_lost_is_no_loss(self):
        story = given(*a_running_replicated_job(SPEC), again_observed(self.ALONE), PodsGone(uids=(Uid("worker-0-0"),)))
        story.then_nothing(scheduler)
        assert not any(isinstance(step, Record) for step in story.steps(status))


def again_observed(spec: JobSpec) -> JobObserved:
    return msgspec.structs.replace(observed(spec), generation=2, version=2)


class TestAnElasticGroup:
    """Workers alone, any of which ends the job; each comes back in its place."""

    HANDLING = msgspec.structs.replace(TOGETHER, leader="worker", succeeds="Any", elastic=True)

    def three(self) -> list[AnyEvent]:
        spec = a_replicated_spec("OnFailure", workers=3, handling=self.HANDLING)
        workers = tuple(msgspec.structs.replace(role, max_replicas=5) for role in spec.roles if role.name == "worker")
        return a_running_replicated_job(msgspec.structs.replace(spec, roles=workers))

    def test_a_lost_member_waits_by_the_losses_of_the_job_while_a_request_adds_others(self):
        again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
        (resource, *_) = self.three()
        assert isinstance(resource, JobObserved)
        assert resource.spec is not None
        (role,) = resource.spec.roles
        larger = msgspec.structs.replace(resource.spec, roles=(msgspec.structs.replace(role, replicas=4),))
        story = given(
            *self.three(),
            HostsPublished(version=1, members=((0, 2),)),
            ended("worker", 1, 3),
            PodsGone(uids=(Uid("worker-1-0"),)),
            again,
            PodsObserved(pods=(replica("worker", 1, life=1),)),
            msgspec.structs.replace(resource, spec=larger, generation=2, version=2),
            ScaleAccepted(request=Uid("replicas-2"), kind="ScaleOut", added=one(Slot(0, "worker", 3)), deadline=600),
            ended("worker", 1, 3, life=1),
        )
        assert story.job.scaling.arriving
        assert story.job.attempt.vacancies[WORKERS[1]].wait == 10

    def test_one_that_waits_to_come_back_is_no_loss_while_another_leaves(self):
        request = Uid("replicas-2")
        leaving = ScaleAccepted(request=request, kind="ScaleIn", leaving=(Member(2, Uid("worker-2-0")),), drain=0)
        (resource, *_) = self.three()
        assert isinstance(resource, JobObserved)
        assert resource.spec is not None
        (role,) = resource.spec.roles
        smaller = msgspec.structs.replace(resource.spec, roles=(msgspec.structs.replace(role, replicas=2),))
        story = given(
            *self.three(),
            HostsPublished(version=1, members=((0, 2),)),
            ended("worker", 1, 3),
            msgspec.structs.replace(resource, spec=smaller, generation=2, version=2),
            leaving,
            HostsPublished(version=2, members=((0, 0),), request=request),
        )
        assert WORKERS[1] in replacement.replaceable(story.job)
        assert not any(isinstance(s, Record) and isinstance(s.event, JobFailed) for s in story.steps(status))


def test_late_news_of_a_pod_that_went_takes_nothing_from_its_successor():
    spec = a_replicated_spec("OnFailure")
    again = SlotsAssigned(slots=one(WORKERS[1]), replaces=one(WORKERS[1]), reason="PodsReplaced")
    back = [
        *a_running_replicated_job(spec),
        ended("worker", 1, 3),
        PodsGone(uids=(Uid("worker-1-0"),)),
        again,
        PodsObserved(pods=(replica("worker", 1, life=1),)),
    ]
    late = given(*back, ended("worker", 1, 3))
    assert WORKERS[1] in late.job.attempt.slots
    assert not late.job.attempt.vacancies
    later = given(*back, ended("worker", 1, 3), PodsGone(uids=(Uid("worker-1-0"),)))
    assert WORKERS[1] in later.job.attempt.slots


def test_another_number_of_workers_holds_from_the_next_attempt_where_they_do_not_come_and_go():
    larger = msgspec.structs.replace(observed(a_replicated_spec(workers=3)), generation=2, version=2)
    story = given(
        *a_running_replicated_job(SPEC),
        larger,
        ScaleRejected(request=Uid("replicas-2"), reason="NotElastic"),
        JobSuspended(reason="TrainingJobSuspended"),
        SlotsReleased(slots=all_slots(SPEC), reason="JobSuspended"),
        PodsGone(uids=tuple(Uid(f"{name}-0") for name in ("chief-0", "worker-0", "worker-1"))),
        JobCreated(reason="TrainingJobResumed"),
        JobRestarted(attempt=1, counted=False, reason="Resumed"),
    )
    slots = (Slots(1, "chief", ((0, 0),)), Slots(1, "worker", ((0, 2),)))
    story.then(scheduler, Record(SlotsAssigned(slots=slots, reason="JobRestarted")))


def test_a_leader_that_came_with_an_edit_does_not_keep_the_attempt_from_its_end():
    workers = led_by_workers("All")
    edited = msgspec.structs.replace(observed(SPEC), generation=2, version=2)
    story = given(*a_running_replicated_job(workers), edited, ended("worker", 0, 0), ended("worker", 1, 0))
    assert OVER in story.steps(status)


def test_no_pod_comes_back_once_the_job_has_its_end():
    spec = a_replicated_spec("Always")
    story = given(*a_running_replicated_job(spec), ended("worker", 1, 3), ended("chief", 0, 0))
    story.then_nothing(scheduler)
