"""What is true after an event: total, and the same event twice changes nothing that matters."""

from itertools import count

import msgspec
import pytest

from shared.job.attempt import KEPT_FAILURES, Tally
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At, EffectRefused
from shared.job.events.scaler import HostsPublished, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import JobRestarted, SecretGone, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobFailed
from shared.job.events.watcher import (
    ChildGone,
    ChildrenObserved,
    JobDeleting,
    JobGone,
    JobObserved,
    LauncherLost,
    PodsGone,
    PodsObserved,
    ScaleRequestGone,
    TimePassed,
)
from shared.job.evolve import evolve
from shared.job.naming import JobKey, Slot, Uid
from shared.job.spec import LAUNCHER, WORKER, Problem
from shared.job.state import Job, Memo
from shared.job.views import ChildView, Slots
from shared.job.waiting import conditions
from tests.job.examples import EXAMPLES
from tests.kit.builders import (
    R1,
    a_created_job,
    a_ready_job,
    a_running_job,
    a_spec,
    exited,
    hosts_file,
    launcher,
    observed,
    pods,
    scale_in,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import KEY, a_history
from tests.kit.stories import given

replace = msgspec.structs.replace

AT = At(1_000, "2030-01-02T00:00:00.000Z")
LATER = At(1_001, "2030-01-02T00:00:01.000Z")
EACH_A_NEW_ONE = (EffectRefused, JobRestarted)
"""A second refusal is a longer wait, a second restart another attempt: their guards keep them from coming twice."""

STAGES: dict[str, Job] = {
    "empty": Job(key=KEY),
    "running": a_history(a_running_job()).job,
    "scaling out": a_history([*a_running_job(), *scaling_out(2)]).job,
    "scaling in": a_history([*a_running_job(workers=3), *scaling_in(2)]).job,
    "over": a_history([*a_running_job(), JobFailed(reason="TrainingJobFailed")]).job,
    "gone": a_history([*a_running_job(), JobGone()]).job,
}


def name_of(event: AnyEvent) -> str:
    return type(event).__name__


def problem(generation: int) -> JobObserved:
    found = Problem(reason="NoContainers", field="spec", message="add a container")
    return replace(observed(a_spec(), generation=generation), spec=None, problems=(found,))


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_every_event_is_folded_at_every_stage_and_the_same_one_twice_changes_nothing_that_matters(event: AnyEvent):
    for stage, job in STAGES.items():
        once = evolve(job, event, AT)
        assert once.key == KEY, stage
        assert isinstance(event, EACH_A_NEW_ONE) or evolve(once, event, AT) == once, stage


@pytest.mark.parametrize("event", EXAMPLES, ids=name_of)
def test_no_state_is_changed_in_place(event: AnyEvent):
    before = STAGES["running"]
    copied = msgspec.msgpack.decode(msgspec.msgpack.encode(repr(before)))
    evolve(before, event, AT)
    assert repr(before) == copied


def test_an_older_view_of_a_pod_is_ignored():
    job = given(*a_running_job(), pods(worker(0, version=90, ready=False))).job
    assert evolve(job, pods(worker(0, version=89)), AT) == job
    assert evolve(job, pods(worker(0, version=90)), AT) == job
    assert evolve(job, pods(worker(0, version=91)), AT).pods.views[Uid("pod-0")].ready


def test_an_older_view_of_the_resource_is_ignored():
    job = given(observed(a_spec(2), generation=5)).job
    assert evolve(job, observed(a_spec(9), generation=4), AT) == job


def test_an_older_view_of_a_child_is_ignored():
    job = given(*a_running_job(), hosts_file(3)).job
    assert evolve(job, hosts_file(2), AT) == job
    assert evolve(job, hosts_file(4), AT).hosts == replace(job.hosts, version=104, hosts=4)  # type: ignore[type-var]


def test_a_child_made_again_under_its_name_replaces_the_old_one_whatever_its_version():
    child = ChildView(kind="Service", name="resnet", uid=Uid("svc-2"), version=1, ours=True)
    job = given(*a_running_job(), ChildrenObserved(children=(child,))).job
    assert job.objects.children["Service", "resnet"] == child
    gone = ChildGone(kind="Service", name="resnet", uid=Uid("svc"))
    assert evolve(job, gone, AT) == job, "the old one's end is not the new one's"


def test_in_a_newer_epoch_lower_versions_are_news():
    job = given(*a_running_job()).job
    back = PodsObserved(pods=(worker(0, version=1, ready=False),), epoch=1)
    job = evolve(job, back, AT)
    assert not job.pods.views[Uid("pod-0")].ready
    assert (
        not evolve(job, PodsObserved(pods=(worker(1, version=2, ready=False),), epoch=1), AT)
        .pods.views[Uid("pod-1")]
        .ready
    )


def test_whatever_raised_the_epoch_raised_it_for_pods_and_children_too():
    job = given(*a_running_job(), replace(observed(a_spec(), generation=1), epoch=1)).job
    assert (
        not evolve(job, PodsObserved(pods=(worker(0, version=1, ready=False),), epoch=1), AT)
        .pods.views[Uid("pod-0")]
        .ready
    )
    config = replace(hosts_file(1).children[0], version=1, hosts=9)
    assert evolve(job, ChildrenObserved(children=(config,), epoch=1), AT).hosts == config


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(pods(worker(0, version=999, ready=False)), id="pods"),
        pytest.param(hosts_file(999), id="children"),
        pytest.param(observed(a_spec(9), generation=999), id="resource"),
    ],
)
def test_what_an_older_epoch_shows_is_ignored(event: AnyEvent):
    job = given(*a_running_job(), replace(observed(a_spec(), generation=1), epoch=1)).job
    assert evolve(job, event, AT) == job


def test_the_last_valid_spec_holds_while_a_newer_one_has_problems():
    job = given(*a_running_job(workers=2), problem(2)).job
    assert job.spec == a_spec(2)
    assert job.resource.problems
    assert evolve(job, observed(a_spec(3), generation=3), AT).resource.problems == ()


def test_a_job_that_is_seen_again_after_it_was_gone_is_alive():
    job = given(*a_running_job(), JobDeleting(version=5, orphan=True), JobGone()).job
    again = evolve(job, observed(a_spec(), generation=6), AT)
    assert (again.resource.gone, again.deleting, again.resource.orphan) == (False, False, False)
    assert again.status.phase == "Running"


def test_a_change_of_the_resource_does_not_take_its_deletion_back():
    job = given(*a_running_job(), JobDeleting(version=5), observed(a_spec(), generation=6)).job
    assert job.deleting


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(JobDeleting(version=6), id="a deletion, whose version may have a status"),
        pytest.param(PodsObserved(pods=(), epoch=1), id="a restored store"),
        pytest.param(observed(a_spec(), generation=6), id="a newer version"),
    ],
)
def test_a_resource_is_blank_in_the_version_that_was_seen_so_alone(event: AnyEvent):
    job = given(replace(observed(a_spec(), generation=5), blank=True)).job
    assert job.resource.blank
    assert not evolve(job, event, AT).resource.blank


def test_an_orphaning_deletion_stays_one():
    job = given(*a_running_job(), JobDeleting(version=5, orphan=True), JobDeleting(version=6)).job
    assert job.resource.orphan


def test_a_pod_that_ended_spends_its_slot_and_is_counted_once():
    failed = pods(worker(1, version=90, phase="Failed", exits=exited(1)))
    job = given(*a_running_job(workers=2), failed, pods(worker(1, version=91, phase="Failed", exits=exited(1)))).job
    assert Slot(0, WORKER, 1) in job.attempt.spent
    assert Slot(0, WORKER, 1) not in job.attempt.slots
    assert job.attempt.tallies[WORKER] == Tally(failed=1)
    assert [(failure.pod, failure.reason, failure.code) for failure in job.status.failures] == [
        ("resnet-worker-1", "Error", 1)
    ]


def test_a_worker_that_ended_well_is_no_failure():
    job = given(*a_running_job(), pods(worker(1, version=90, phase="Succeeded", exits=exited(0)))).job
    assert job.attempt.tallies[WORKER] == Tally(succeeded=1)
    assert job.status.failures == ()


def test_a_pod_that_was_asked_to_go_is_not_counted_when_it_ends():
    job = given(*a_running_job(), pods(worker(1, version=90, phase="Failed", deleting=True))).job
    assert WORKER not in job.attempt.tallies
    assert [failure.reason for failure in job.status.failures] == ["Deleted"]


def test_the_count_outlives_the_pod_and_ends_with_the_attempt():
    story = [*a_running_job(), pods(worker(1, version=90, phase="Failed")), PodsGone(uids=(Uid("pod-1"),))]
    job = given(*story).job
    assert job.attempt.tallies[WORKER] == Tally(failed=1)
    assert len(job.status.failures) == 1, "its removal is not a second failure"
    assert evolve(job, JobRestarted(attempt=1), AT).attempt.tallies == {}


def test_a_pod_that_ends_is_counted_though_an_ended_pod_of_its_name_is_still_there():
    old = worker(1, version=90, phase="Failed", exits=exited(1))
    assigned = SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),))
    again = [*a_running_job(workers=2), pods(old), JobRestarted(attempt=1), assigned]
    new = replace(old, uid=Uid("pod-1-again"), version=95, attempt=1)
    attempt = given(*again, pods(new)).job.attempt
    assert attempt.tallies[WORKER] == Tally(failed=1)
    assert Slot(1, WORKER, 1) in attempt.spent


def test_a_pod_that_was_seen_before_its_slot_was_assigned_counts_from_the_assignment_on():
    seen = pods(worker(0), worker(1, phase="Failed", exits=exited(1)))
    *before, assigned = a_created_job(workers=2)
    early, late = given(*before, seen, assigned).job, given(*before, assigned, seen).job
    assert early.attempt.slots == late.attempt.slots == {Slot(0, WORKER, 0)}
    assert early.attempt.tallies == late.attempt.tallies == {WORKER: Tally(failed=1)}
    assert early.attempt.vacancies.keys() == late.attempt.vacancies.keys() == {Slot(0, WORKER, 1)}


def test_a_launcher_that_went_before_its_slot_was_assigned_is_not_the_launcher_of_that_slot():
    went = [pods(launcher(phase="Failed")), PodsGone(uids=(Uid("pod-launcher"),))]
    job = given(*a_ready_job(), *went, SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),))).job
    assert (job.seen_launcher, job.attempt.launcher_ended) == (None, 0)


def test_a_vanished_pod_spends_its_slot_unless_a_decision_released_it():
    vanished = PodsGone(uids=(Uid("pod-1"),))
    taken = given(*a_running_job(), vanished).job
    assert Slot(0, WORKER, 1) in taken.attempt.spent
    assert [failure.pod for failure in taken.status.failures] == ["resnet-worker-1"]
    released = given(*a_running_job(), SlotsReleased(slots=(workers(1),)), vanished).job
    assert released.attempt.spent == frozenset()
    assert released.status.failures == ()


def test_pods_of_no_slot_spend_nothing():
    stray = replace(worker(7, phase="Failed"), attempt=4)
    job = given(*a_running_job(), pods(stray)).job
    assert job.attempt.spent == frozenset()
    assert job.attempt.tallies == {}


def test_only_the_newest_failures_are_kept():
    count = KEPT_FAILURES + 4
    gone = PodsGone(uids=tuple(Uid(f"pod-{index}") for index in range(count)))
    assert len(given(*a_running_job(workers=count), gone).job.status.failures) == KEPT_FAILURES


def test_a_launcher_of_a_job_that_is_over_is_not_lost():
    lost = LauncherLost(uid=Uid("pod-launcher"))
    assert evolve(STAGES["running"], lost, AT).attempt.launcher_lost
    assert not evolve(STAGES["over"], lost, AT).attempt.launcher_lost
    assert not evolve(STAGES["empty"], lost, AT).attempt.launcher_lost


def test_a_restart_forgets_the_attempt_and_keeps_the_rest():
    job = evolve(STAGES["running"], JobRestarted(attempt=1), AT)
    assert (job.attempt.number, job.retries.restarts, job.attempt.slots, job.listed_workers) == (
        1,
        1,
        frozenset(),
        frozenset(),
    )
    assert job.membership.version == STAGES["running"].membership.version, "versions of the hosts files only grow"
    assert job.status.conditions == STAGES["running"].status.conditions, "history is never wiped"
    assert evolve(STAGES["running"], JobRestarted(attempt=1, counted=False), AT).retries.restarts == 0


def test_requests_keep_the_order_in_which_they_were_first_heard_of():
    two = scale_in(1, request=Uid("a"))
    job = given(*a_running_job(), scale_out(request=Uid("b")), two, scale_out(request=Uid("b"))).job
    assert list(job.scaling.requests) == ["b", "a"]


def test_a_pending_request_that_goes_leaves_nothing_and_an_open_one_is_kept():
    assert R1 not in given(*a_running_job(), scale_out(), ScaleRequestGone(uid=R1)).job.scaling.requests
    job = given(*a_running_job(), *scaling_out(2), ScaleRequestGone(uid=R1)).job
    assert job.scaling.requests[R1].gone
    assert job.scaling.open == R1


def test_a_request_once_taken_up_does_not_change_its_mind():
    job = given(*a_running_job(), *scaling_out(2)).job
    assert evolve(job, scale_out(9), AT).scaling.requests[R1].spec == job.scaling.requests[R1].spec


def test_the_owner_of_a_request_is_not_forgotten():
    job = given(*a_running_job(), scale_out(owned=True), scale_out(owned=False)).job
    assert job.scaling.requests[R1].owner == KEY.uid


def test_a_release_by_the_end_of_a_request_takes_the_slots_back():
    job = given(*a_running_job(), *scaling_out(2, 3)).job
    assert len(job.attempt.workers) == 4
    failed = evolve(job, ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3),)), AT)
    assert len(failed.attempt.workers) == 2
    assert not failed.scaling.open
    assert len(evolve(job, ScaleSucceeded(request=R1, reason="ScalingOutSucceeded"), AT).attempt.workers) == 4


def test_members_leave_when_the_hosts_say_so_and_are_remembered_until_released():
    job = given(*a_running_job(workers=3), *scaling_in(2)).job
    assert job.leaving == frozenset()
    job = evolve(job, HostsPublished(version=2, members=((0, 1),), request=R1), AT)
    assert (job.listed_workers, job.leaving) == (frozenset({0, 1}), frozenset({2}))


def test_refusals_in_a_row_are_counted_by_effect_and_wait_again_each_time():
    refused = EffectRefused(effect="CreatePod", reason="QuotaExceeded")
    story = [*a_created_job(), refused]
    due = given(*story, TimePassed(anchor=len(story), timer="BackOff:CreatePod")).job
    assert due.efforts.refusals["CreatePod"].due
    again = evolve(due, refused, AT).efforts.refusals["CreatePod"]
    assert (again.count, again.due, again.at) == (2, False, AT)


def test_pods_that_came_after_a_refusal_let_the_next_round_be_larger_and_the_last_of_them_ends_it():
    story = [*a_created_job(workers=4), EffectRefused(effect="CreatePod", reason="QuotaExceeded")]
    due = [*story, TimePassed(anchor=len(story), timer="BackOff:CreatePod")]
    assert given(*due).job.efforts.refusals["CreatePod"].probe == 1
    assert given(*due, pods(worker(0))).job.efforts.refusals["CreatePod"].probe == 2
    assert given(*due, pods(worker(0)), pods(worker(0, version=11))).job.efforts.refusals["CreatePod"].probe == 2, (
        "no news"
    )
    assert given(*story, pods(worker(0))).job.efforts.refusals["CreatePod"].probe == 1, "it was made before the refusal"
    assert "CreatePod" not in given(*due, *(pods(worker(index)) for index in range(4))).job.efforts.refusals


@pytest.mark.parametrize(
    ("effect", "condition"),
    [
        ("CreatePod", "WorkersCreated"),
        ("CreateSecret", "WorkersCreated"),
        ("CreateService", "LauncherCreated"),
        ("WriteHosts", "LauncherCreated"),
        ("NudgeLauncher", "LauncherCreated"),
        ("PatchStatus", ""),
        ("Announce", ""),
        ("OwnRequest", ""),
    ],
)
def test_a_refusal_shows_at_the_milestone_that_it_stands_in_the_way_of(effect: str, condition: str):
    job = given(*a_created_job(), EffectRefused(effect=effect, reason="Forbidden")).job
    false = [known.type for known in conditions(job, milestones=True) if not known.status]
    assert false == ([condition] if condition else [])


def test_a_refused_launcher_is_not_a_refused_worker():
    refused = EffectRefused(effect="CreatePod", reason="Forbidden", slots=(Slots(0, LAUNCHER, ((0, 0),)),))
    launched = SlotsAssigned(slots=refused.slots, reason="WorkersReady")
    job = given(*a_ready_job(), launched, refused).job
    assert [known.type for known in conditions(job, milestones=True) if not known.status] == ["LauncherCreated"]


def test_slots_are_only_ever_in_one_place():
    for stage, job in STAGES.items():
        assert not job.attempt.slots & job.attempt.spent, stage
    assigned = SlotsAssigned(slots=(Slots(0, WORKER, ((5, 6),)),))
    assert {5, 6} <= {slot.index for slot in evolve(STAGES["running"], assigned, AT).attempt.workers}


def test_what_was_nudged_and_what_is_ready_come_from_the_newest_view():
    job = given(*a_running_job(), pods(launcher(version=99, hosts=7))).job
    assert job.launcher is not None
    assert job.launcher.hosts == 7


def test_a_place_that_was_given_up_is_not_vacant_when_its_disruption_is_told_late():
    left = WorkersReleased(request=R1, slots=(workers(2),), reason="Drained")
    late = WorkersReleased(request=Uid(""), slots=(workers(2),), reason="Disrupted")
    assert not given(*a_running_job(workers=3), *scaling_in(2), left, late).job.attempt.vacancies


def test_a_new_attempt_waits_for_no_refusal_of_the_one_before():
    refused = EffectRefused(effect="CreatePod", reason="QuotaExceeded")
    assert not given(*a_created_job(), refused, JobRestarted(attempt=1)).job.efforts.refusals


def test_a_refusal_says_since_when_it_lasts_and_for_which_slots():
    quota = EffectRefused(effect="CreatePod", reason="QuotaExceeded", slots=(workers(2, 3),))
    story = [*a_created_job(workers=4), quota, EffectRefused(effect="CreatePod", reason="QuotaExceeded")]
    known = given(*story).job.efforts.refusals["CreatePod"]
    assert (known.since.sequence, known.at.sequence) == (len(story) - 1, len(story))
    other = given(*story, EffectRefused(effect="CreatePod", reason="Denied")).job.efforts.refusals["CreatePod"]
    assert other.since.sequence == len(story) + 1, "another reason is another refusal"
    assert {slot.index for slot in given(*story[:-1]).job.efforts.refusals["CreatePod"].slots} == {2, 3}


def test_a_name_that_is_held_stands_beside_a_refusal_of_the_others_until_its_own_pod_is_seen():
    held = EffectRefused(effect="CreatePod", reason="NameHeld", slots=(workers(1, 2),), message="resnet-worker-1 waits")
    job = given(*a_created_job(workers=4), held, EffectRefused(effect="CreatePod", reason="QuotaExceeded")).job
    assert {refusal.reason for refusal in job.efforts.refusals.values()} == {"NameHeld", "QuotaExceeded"}
    seen = given(*a_created_job(workers=4), held, pods(worker(0), worker(1))).job.held_names
    assert seen is not None
    assert ([slot.index for slot in seen.slots], seen.probe) == ([2], 2)
    assert not given(*a_created_job(workers=4), held, pods(worker(1), worker(2))).job.efforts.refusals


def test_a_name_that_is_held_is_forgotten_with_its_slot():
    held = EffectRefused(effect="CreatePod", reason="NameHeld", slots=(workers(2, 3),), message="resnet-worker-2 waits")
    growing = [*a_running_job(workers=2), *scaling_out(2, 3, 4), held]
    one = given(*growing, SlotsReleased(slots=(workers(2),))).job.held_names
    assert one is not None
    assert one.slots == {worker(3).slot}
    taken_back = ScaleFailed(request=R1, reason="DeadlineExceeded", released=(workers(2, 3, 4),))
    lost = PodsGone(uids=(Uid("pod-1"),))
    again = SlotsAssigned(slots=(workers(5),), replaces=(workers(1),), reason="WorkersReplaced")
    for story in ([*growing, taken_back], [*growing, lost, again, taken_back]):
        assert not given(*story).job.efforts.refusals
        assert not given(*story, held).job.efforts.refusals, "the API server answered after the release"


@pytest.mark.parametrize(
    ("effect", "fact"),
    [
        pytest.param("DeletePod", PodsGone(uids=(Uid("pod-1"),)), id="a pod is gone"),
        pytest.param("DeletePod", pods(worker(1, version=99, deleting=True)), id="a pod is being deleted"),
        pytest.param("NudgeLauncher", pods(launcher(version=99, hosts=7)), id="the launcher was nudged"),
        pytest.param("DeleteSecret", SecretGone(attempt=0), id="a Secret is gone"),
    ],
)
def test_a_refusal_ends_with_the_fact_that_shows_the_effect_to_have_succeeded(effect: str, fact: AnyEvent):
    story = [*a_running_job(workers=2), EffectRefused(effect=effect, reason="Forbidden")]
    assert effect in given(*story).job.efforts.refusals
    assert effect not in given(*story, fact).job.efforts.refusals


def test_a_memo_asks_once_about_a_state_of_a_job_and_keeps_the_answers_about_the_newest():
    numbers = count(1)
    memo = Memo(lambda _: next(numbers), most=2)
    first, second, third = (Job(key=JobKey("default", name, Uid(name))) for name in ("a", "b", "c"))
    changed = replace(first, spec=first.spec)
    assert [memo(first), memo(first), memo(changed), memo(second), memo(changed)] == [1, 1, 2, 3, 2]
    assert [memo(third), memo(changed), memo(second)] == [4, 2, 5]
