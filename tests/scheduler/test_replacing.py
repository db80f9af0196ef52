"""Workers that ended or vanished by themselves: which are replaced, when, and how often."""

import pytest

from services.scheduler.core.decide import decide as scheduler
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import HostsPublished, ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.watcher import DisruptionNoticed, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.policies import replacement
from shared.job.spec import RestartPolicy
from shared.job.steps import Record, Step
from shared.job.timers import REPLACEMENT, STEADY
from shared.job.timing import next_due
from shared.job.views import Exit, PodView
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    a_spec,
    exited,
    observed,
    pods,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given

KILLED = worker(1, version=40, phase="Failed", exits=exited(137))
BROKEN = worker(1, version=40, phase="Failed", exits=exited(1))
LEAST = worker(1, version=40, phase="Failed", exits=exited(128))
MOST = worker(1, version=40, phase="Failed", exits=exited(127))
DONE = worker(1, version=40, phase="Succeeded", exits=exited(0))
DELETED = worker(1, version=40, deleting=True, phase="Succeeded", exits=exited(0))
EVICTED = worker(1, version=40, phase="Failed", reason="Evicted", disruption="TerminationByKubelet")
SIDECAR = worker(1, version=40, phase="Failed", exits=(Exit("proxy", 137, "Error"), Exit("main", 1, "Error")))
NOT_ITS_OWN = worker(1, version=40, phase="Failed", exits=(Exit("proxy", 1, "Error"), Exit("main", 0, "Completed")))


def assigned(*slots: int, replaces: tuple[int, ...]) -> Record:
    event = SlotsAssigned(slots=(workers(*slots),), replaces=(workers(*replaces),), reason="WorkersReplaced")
    return Record(event)


def records(*story: AnyEvent) -> list[Step]:
    return [step for step in given(*story).steps(scheduler) if isinstance(step, Record)]


@pytest.mark.parametrize(
    ("policy", "end", "replaced"),
    [
        pytest.param("Never", KILLED, False, id="Never: a crash is reported"),
        pytest.param("Never", DELETED, False, id="Never: a deleted one too"),
        pytest.param("Never", EVICTED, True, id="Never: but what its node did is not the worker's end"),
        pytest.param("Always", DONE, False, id="Always: one that did its work waits first"),
        pytest.param("Always", BROKEN, True, id="Always: one that failed"),
        pytest.param("OnFailure", BROKEN, True, id="OnFailure: one that failed"),
        pytest.param("OnFailure", DONE, False, id="OnFailure: one that did its work is done"),
        pytest.param("OnFailure", DELETED, True, id="OnFailure: one that was deleted, however it left"),
        pytest.param("OnFailure", NOT_ITS_OWN, False, id="OnFailure: a failed sidecar is no failed worker"),
        pytest.param("ExitCode", KILLED, True, id="13. ExitCode: a signal"),
        pytest.param("ExitCode", BROKEN, False, id="13. ExitCode: a failure of its own is for good"),
        pytest.param("ExitCode", SIDECAR, False, id="13. ExitCode: judged by the training container"),
        pytest.param("ExitCode", DELETED, True, id="14. ExitCode: one that was deleted"),
        pytest.param(
            "ExitCode", worker(1, version=40, phase="Failed", exits=exited(128)), True, id="13. 128 is retryable"
        ),
        pytest.param("ExitCode", MOST, False, id="13. ExitCode: 127 is not"),
        pytest.param("ExitCode", DONE, False, id="ExitCode: one that did its work is done"),
        pytest.param("ExitCode", worker(1, version=40, phase="Succeeded"), False, id="ExitCode: whatever it tells"),
    ],
)
def test_the_policy_says_who_is_replaced(policy: RestartPolicy, end: PodView, replaced: bool):
    story = [*a_running_job(of_workers=policy), pods(end)]
    assert records(*story) == ([assigned(2, replaces=(1,))] if replaced else [])


def test_one_that_did_its_work_restarts_under_always_after_the_first_wait():
    story = [*a_running_job(of_workers="Always"), pods(DONE)]
    (timer,) = (timer for timer in next_due(given(*story).job) if timer.name.startswith(REPLACEMENT))
    assert timer.seconds == 10
    passed = TimePassed(anchor=timer.anchor, timer=timer.name)
    assert records(*story, passed) == [assigned(2, replaces=(1,))]


def test_14_a_worker_that_vanished_is_replaced():
    story = [*a_running_job(of_workers="OnFailure"), PodsGone(uids=(Uid("pod-1"),))]
    assert records(*story) == [assigned(2, replaces=(1,))]


def test_one_that_ends_before_the_launcher_was_made_is_replaced_as_well():
    story = [*a_created_job(of_workers="OnFailure"), pods(worker(0), BROKEN)]
    assert records(*story) == [assigned(2, replaces=(1,))]


def test_a_place_is_filled_once():
    story = [*a_running_job(of_workers="Always"), pods(BROKEN)]
    [owed] = records(*story)
    assert isinstance(owed, Record)
    assert records(*story, owed.event) == []


def test_what_a_scale_in_let_go_is_not_replaced():
    leaving = [*a_running_job(workers=3, of_workers="Always"), *scaling_in(2)]
    released = WorkersReleased(request=Uid("request-1"), slots=(workers(2),), reason="Drained")
    assert records(*leaving, released, PodsGone(uids=(Uid("pod-2"),))) == []


def test_a_disrupted_worker_that_was_released_is_replaced_and_counts_for_nothing():
    noticed = DisruptionNoticed(node="node-1", uids=(Uid("pod-1"),), reason="SpotTermination")
    released = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
    story = [*a_running_job(backoff_limit=0), noticed, released]
    [owed] = records(*story)
    assert owed == assigned(2, replaces=(1,))
    assert isinstance(owed, Record)
    assert given(*story, owed.event).job.attempt.replaced == 0


def crashed(times: int, *, limit: int) -> list[AnyEvent]:
    """A worker that crashes as soon as it was replaced, so often."""
    story: list[AnyEvent] = [*a_running_job(workers=1, of_workers="Always", backoff_limit=limit)]
    for index in range(times):
        story.append(pods(worker(index, version=100 + index, phase="Failed", exits=exited(1))))
        story += [
            TimePassed(anchor=timer.anchor, timer=timer.name)
            for timer in next_due(given(*story).job)
            if timer.name.startswith(REPLACEMENT)
        ]
        story += [step.event for step in records(*story) if isinstance(step, Record)]
    return story


def test_22_a_worker_that_crashes_for_ever_is_not_replaced_for_ever():
    assert given(*crashed(3, limit=3)).job.attempt.replaced == 3
    assert given(*crashed(9, limit=3)).job.attempt.replaced == 3


def test_each_crash_waits_longer_than_the_one_before():
    waits = []
    for times in range(5):
        story = [*crashed(times, limit=9), pods(worker(times, version=200, phase="Failed", exits=exited(1)))]
        waits.append([timer.seconds for timer in next_due(given(*story).job) if timer.name.startswith(REPLACEMENT)])
    assert waits == [[], [10], [20], [40], [80]]


def waits(*story: AnyEvent) -> list[tuple[int, int]]:
    """The anchors and seconds of the back-offs that run."""
    timers = next_due(given(*story).job)
    return [(timer.anchor, timer.seconds) for timer in timers if timer.name.startswith(REPLACEMENT)]


def test_workers_that_crash_one_after_another_do_not_wait_for_each_other():
    story = a_running_job(workers=4, of_workers="Always", backoff_limit=9)
    first, *others = (pods(worker(index, version=40, phase="Failed", exits=exited(1))) for index in range(4))
    story = [*story, first, assigned(4, replaces=(0,)).event, *others]
    at = len(story) - 2
    assert waits(*story) == [(at, 10), (at + 1, 10), (at + 2, 10)]
    story += [TimePassed(anchor=at, timer=replacement.timer_name(10))]
    assert records(*story) == [assigned(5, replaces=(1,))]
    story += [assigned(5, replaces=(1,)).event]
    assert waits(*story) == [(at + 1, 10), (at + 2, 10)], "a replacement makes none of the others wait longer"


def lost(times: int) -> list[AnyEvent]:
    """A worker that a person deletes as soon as it was replaced, so often."""
    story: list[AnyEvent] = [*a_running_job(workers=1, of_workers="OnFailure", backoff_limit=0)]
    for index in range(times):
        if index:
            story.append(pods(worker(index, version=100 + index)))
        story.append(PodsGone(uids=(Uid(f"pod-{index}"),)))
        story += [
            TimePassed(anchor=timer.anchor, timer=timer.name)
            for timer in next_due(given(*story).job)
            if timer.name.startswith(REPLACEMENT)
        ]
        story += [step.event for step in records(*story) if isinstance(step, Record)]
    return story


def waits_of(*story: AnyEvent) -> list[int]:
    return [timer.seconds for timer in next_due(given(*story).job) if timer.name.startswith(REPLACEMENT)]


def test_one_that_is_taken_again_and_again_comes_back_ever_later_and_for_ever():
    waits = []
    for times in range(8):
        story = [*lost(times), pods(worker(times, version=200)), PodsGone(uids=(Uid(f"pod-{times}"),))]
        waits.append(waits_of(*story))
    assert waits == [[], [10], [20], [40], [80], [160], [300], [300]]
    assert given(*lost(8)).job.attempt.replaced == 0


def test_one_that_stood_for_two_minutes_is_replaced_at_once():
    story = [*lost(3), pods(worker(3, version=200))]
    (steady,) = [timer for timer in next_due(given(*story).job) if timer.name == STEADY]
    assert steady.seconds == 120
    gone = PodsGone(uids=(Uid("pod-3"),))
    assert waits_of(*story, gone) == [40]
    passed = TimePassed(anchor=steady.anchor, timer=steady.name)
    assert records(*story, passed, gone) == [assigned(4, replaces=(3,))]


def test_workers_that_end_in_one_event_each_wait_for_their_own_back_off():
    story = [*lost(2), pods(worker(2, version=200))]
    # Worker 2 was lost twice before, worker 3 never: of one event, one waits and the other does not.
    story += [*scaling_out(3), pods(worker(3)), HostsPublished(version=9, members=((2, 3),), request=R1)]
    story += [ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")]
    story.append(PodsGone(uids=(Uid("pod-2"), Uid("pod-3"))))
    assert waits_of(*story) == [20]
    assert records(*story) == [assigned(4, replaces=(3,))]
    other = TimePassed(anchor=len(story), timer=replacement.timer_name(10))
    assert records(*story, assigned(4, replaces=(3,)).event, other) == []


def test_each_place_has_a_row_of_its_own():
    both = [*a_running_job(of_workers="OnFailure"), PodsGone(uids=(Uid("pod-1"),))]
    both += [step.event for step in records(*both) if isinstance(step, Record)]
    assert records(*both, PodsGone(uids=(Uid("pod-0"),))) == [assigned(3, replaces=(0,))]


def test_a_row_goes_on_where_the_request_has_the_lowest_of_the_new_places():
    once = [*a_running_job(workers=2, of_workers="OnFailure"), PodsGone(uids=(Uid("pod-0"),))]
    once += [assigned(2, replaces=(0,)).event, pods(worker(2)), *scaling_out(3), pods(worker(3))]
    both = [*once, PodsGone(uids=(Uid("pod-2"), Uid("pod-3"))), assigned(4, 5, replaces=(2, 3)).event]
    job = given(*both).job
    assert {slot.index for slot in job.scaling.arriving} == {4}
    assert {slot.index: filled.losses for slot, filled in job.attempt.refilled.items()} == {4: 1, 5: 2}


def test_while_it_waits_the_place_stays_empty():
    story = [*crashed(1, limit=9), pods(worker(1, version=200, phase="Failed", exits=exited(1)))]
    assert records(*story) == []


def test_15_a_hosts_file_that_cannot_be_written_stops_no_replacement():
    refused = EffectRefused(effect="WriteHosts", reason="Forbidden")
    assert records(*a_running_job(of_workers="Always"), refused, pods(BROKEN)) == [assigned(2, replaces=(1,))]


def test_one_that_a_scale_in_takes_is_not_missed_when_it_dies_before_its_turn():
    leaving = [*a_running_job(workers=3, of_workers="Always"), *scaling_in(2)]
    assert records(*leaving, pods(worker(2, version=40, phase="Failed", exits=exited(1)))) == []


def test_22_a_limit_that_was_lowered_holds():
    story = crashed(2, limit=9)
    lowered = observed(a_spec(1, of_workers="Always", backoff_limit=0), generation=2)
    dead = pods(worker(2, version=200, phase="Failed", exits=exited(1)))
    assert records(*story, lowered, dead) == []
    assert not [timer for timer in next_due(given(*story, lowered, dead).job) if timer.name.startswith(REPLACEMENT)]


def done_and_one_lost(*scaling: AnyEvent, lost: int) -> list[AnyEvent]:
    """Worker 0 did its work and leaves a place that is not filled; then this one fails while its request is open."""
    done = worker(0, version=30, phase="Succeeded", exits=exited(0))
    failed = worker(lost, version=40, phase="Failed", exits=exited(1))
    return [*a_running_job(workers=3, of_workers="OnFailure"), pods(done), *scaling, pods(failed)]


def test_one_that_a_scale_in_takes_fills_no_place_that_another_left():
    assert records(*done_and_one_lost(*scaling_in(2), lost=2)) == []


def test_one_that_a_scale_out_brings_fills_no_place_that_another_left():
    assert records(*done_and_one_lost(*scaling_out(3, limit=0), lost=3)) == []


def test_the_first_loss_of_a_scale_out_waits_for_nothing_whatever_the_job_lost_before():
    story = [*crashed(1, limit=9), pods(worker(1, version=200)), *scaling_out(2)]
    assert waits_of(*story, pods(worker(2, version=201, phase="Failed", exits=exited(1)))) == []
