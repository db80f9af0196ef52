"""Scaling a job whose workers find each other by name: no launcher, no hosts files, places that are used again."""

import msgspec
import pytest

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import (
    HostsPublished,
    ScaleAccepted,
    ScaleFailed,
    ScaleSucceeded,
    WorkersReleased,
)
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRunning, JobScaling
from shared.job.events.watcher import DisruptionNoticed, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.steps import Record
from shared.job.views import Member, ranges
from tests.kit.builders import exited, pods, published, worker, workers
from tests.kit.groups import E2, E3, a_running_group, growing, sized
from tests.kit.stories import given, scaler, scheduler, status

replace = msgspec.structs.replace


def grows(*indices: int, request: Uid = E2) -> Record:
    added = (workers(*indices),)
    return Record(ScaleAccepted(request=request, kind="ScaleOut", added=added, deadline=600, drain=0))


def shrinks(*members: Member, request: Uid = E2) -> Record:
    return Record(ScaleAccepted(request=request, kind="ScaleIn", leaving=members, deadline=600, drain=10))


def there(index: int) -> Member:
    return Member(index, Uid(f"pod-{index}"))


def shrinking(*leaving: Member, size: int = 3) -> list[AnyEvent]:
    """An edit to fewer, accepted and in phase Scaling."""
    accepted = shrinks(*leaving).event
    return [*a_running_group(size), sized(size - len(leaving)), accepted, JobScaling(reason="ScalingStart")]


def shrunk(*indices: int, size: int = 3) -> list[AnyEvent]:
    """That edit to its end: the highest `indices` are gone."""
    return [
        *shrinking(*(there(index) for index in reversed(indices)), size=size),
        published(2, *(index for index in range(size) if index not in indices), request=E2),
        WorkersReleased(request=E2, slots=(workers(*indices),), reason="Drained"),
        PodsGone(uids=tuple(Uid(f"pod-{index}") for index in indices)),
        ScaleSucceeded(request=E2, reason="ScalingInSucceeded"),
        JobRunning(reason="TrainingJobRunning"),
    ]


def lost(index: int) -> AnyEvent:
    return pods(worker(index, version=30, phase="Failed", exits=exited(1)))


def test_more_workers_get_the_lowest_free_places():
    given(*a_running_group(2), sized(4)).then(scaler, grows(2, 3))


def test_places_that_were_given_up_are_used_again():
    """Names stay those that people know: a job of three has the workers 0, 1 and 2 however often it was scaled."""
    given(*shrunk(1, 2), sized(3, generation=3)).then(scaler, grows(1, 2, request=E3))


def test_a_place_whose_old_pod_still_goes_waits_for_another_time():
    story = shrunk(1, 2)
    going = next(event for event in story if isinstance(event, PodsGone))
    story[story.index(going)] = PodsGone(uids=(Uid("pod-2"),))
    given(*story, sized(2, generation=3)).then(scaler, grows(2, request=E3))


def test_a_place_that_is_about_to_be_filled_again_is_not_free():
    """Worker 1 waits for its back-off; the new one is the third, and comes beside it."""
    again = [lost(1), SlotsAssigned(slots=(workers(1),), replaces=(workers(1),), reason="PodsReplaced")]
    crashed = pods(replace(worker(1, version=40, phase="Failed", exits=exited(1)), uid=Uid("pod-1b")))
    given(*a_running_group(2), *again, PodsGone(uids=(Uid("pod-1"),)), crashed, sized(3)).then_among_others(
        scaler, grows(2)
    )


def test_a_place_that_was_released_for_its_node_and_waits_for_its_back_off_is_not_free():
    """It belongs to the size that the job has: a job of three would have two workers for ever."""

    def leaves(uid: str, version: int) -> list[AnyEvent]:
        notice = DisruptionNoticed(node="node-1", uids=(Uid(uid),), reason="SpotInterruption")
        released = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
        return [notice, published(version, 0), released, PodsGone(uids=(Uid(uid),))]

    again = SlotsAssigned(slots=(workers(1),), replaces=(workers(1),), reason="PodsReplaced")
    made = pods(replace(worker(1, version=40), uid=Uid("pod-1b")))
    twice = [*leaves("pod-1", 2), again, made, published(3, 0, 1), *leaves("pod-1b", 4)]
    given(*a_running_group(2), *twice, sized(3)).then(scaler, grows(2))


def test_what_comes_is_known_at_once_and_the_scaling_ends():
    """There is no file and no launcher to wait for: Ready is enough."""
    story = [*growing(2, 3), pods(worker(2), worker(3))]
    everyone = HostsPublished(version=2, members=ranges(range(4)), request=E2)
    given(*story).then(scaler, Record(everyone))
    given(*story, everyone).then(scaler, Record(ScaleSucceeded(request=E2, reason="ScalingOutSucceeded")))
    assert given(*story, everyone).job.scaling.size == 4


def test_a_scale_out_waits_for_all_that_it_brings():
    given(*growing(2, 3), pods(worker(2))).then_nothing(scaler)


def test_a_scale_out_that_is_late_takes_back_what_it_brought():
    story = given(*growing(2, 3), pods(worker(2)))
    request = story.job.scaling.open_request
    assert request is not None
    late = TimePassed(anchor=request.accepted, timer="ScalingDeadline")
    words = "resnet-worker-3 was not created"
    failed = ScaleFailed(request=E2, reason="DeadlineExceeded", released=(workers(2, 3),), awaited=words)
    given(*growing(2, 3), pods(worker(2)), late).then(scaler, Record(failed))
    after = given(*growing(2, 3), pods(worker(2)), late, failed)
    assert after.job.scaling.size == 2
    assert [step.name for step in after.steps(scheduler) if hasattr(step, "name")] == ["resnet-worker-2"]
    after.then_among_others(status, Record(JobRunning(reason="TrainingJobRunning")))


def test_a_new_worker_that_fails_is_made_again_under_its_name():
    story = [*growing(2, 3), pods(worker(2)), pods(worker(3, phase="Failed", exits=exited(1)))]
    given(*story).then_nothing(scaler)
    made = SlotsAssigned(slots=(workers(3),), replaces=(workers(3),), reason="PodsReplaced")
    given(*story, PodsGone(uids=(Uid("pod-3"),))).then_among_others(scheduler, Record(made))
    job = given(*story, PodsGone(uids=(Uid("pod-3"),)), made).job
    assert job.scaling.open_request is not None
    assert job.scaling.open_request.added == {slot for slot in job.attempt.workers if slot.index in (2, 3)}


def test_a_worker_lost_during_a_scale_out_is_replaced_beside_it():
    story = [*growing(2), lost(0)]
    given(*story).then(scaler, Record(HostsPublished(version=2, members=((1, 1),))))
    made = SlotsAssigned(slots=(workers(0),), replaces=(workers(0),), reason="PodsReplaced")
    given(*story, PodsGone(uids=(Uid("pod-0"),))).then_among_others(scheduler, Record(made))
    come = pods(worker(2))
    given(*story, PodsGone(uids=(Uid("pod-0"),)), made, published(2, 1), come).then(
        scaler, Record(HostsPublished(version=3, members=((1, 2),), request=E2))
    )


def test_the_highest_places_leave():
    given(*a_running_group(3), sized(1)).then(scaler, shrinks(there(2), there(1)))


def test_those_that_leave_are_released_at_once_and_deleted():
    story = shrinking(there(2))
    without = HostsPublished(version=2, members=((0, 1),), request=E2)
    given(*story).then(scaler, Record(without))
    released = WorkersReleased(request=E2, slots=(workers(2),), reason="Drained")
    given(*story, without).then(scaler, Record(released))
    after = given(*story, without, released)
    assert [step.name for step in after.steps(scheduler) if hasattr(step, "name")] == ["resnet-worker-2"]
    after.then_nothing(scaler)
    given(*story, without, released, PodsGone(uids=(Uid("pod-2"),))).then(
        scaler, Record(ScaleSucceeded(request=E2, reason="ScalingInSucceeded"))
    )


def test_a_lower_place_that_is_empty_for_a_while_is_not_the_one_to_go():
    """Worker 0 hosts the rendezvous and is about to come back: a scale-in takes the last place all the same."""
    given(*a_running_group(3), lost(0), published(2, 1, 2), sized(2)).then(scaler, shrinks(there(2)))


def test_the_last_place_leaves_even_when_it_is_empty():
    story = [*a_running_group(3), lost(2), published(2, 0, 1), sized(2)]
    given(*story).then(scaler, shrinks(there(2)))
    gone = [*story, PodsGone(uids=(Uid("pod-2"),))]
    given(*gone).then(scaler, shrinks(Member(2, Uid(""))))
    after = given(*gone, shrinks(Member(2, Uid(""))).event, JobScaling(reason="ScalingStart"))
    after.then(scaler, Record(HostsPublished(version=3, members=((0, 1),), request=E2)))
    assert after.steps(scheduler)[:1] != [
        Record(SlotsAssigned(slots=(workers(2),), replaces=(workers(2),), reason="PodsReplaced"))
    ]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([published(2, 0, 1, request=E2), lost(2)], id="after it left"),
        pytest.param([lost(2), published(2, 0, 1, request=E2)], id="before it left"),
    ],
)
def test_one_that_leaves_may_end_as_it_likes(before: list[AnyEvent]):
    """A worker that is told to go exits somehow; that is no loss, and no reason to fail a job that needs all others."""
    steps = given(*shrinking(there(2)), *before).steps(status)
    assert not [step for step in steps if isinstance(step, Record)]


def test_a_worker_whose_node_is_about_to_go_is_replaced_before_that():
    """No launcher reads the members, so no worker needs drain time."""
    story = [*a_running_group(3), DisruptionNoticed(node="node-1", uids=(Uid("pod-1"),), reason="SpotInterruption")]
    without = HostsPublished(version=2, members=((0, 0), (2, 2)))
    given(*story).then(scaler, Record(without))
    released = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
    given(*story, without).then(scaler, Record(released))
    after = given(*story, without, released)
    assert [step.name for step in after.steps(scheduler) if hasattr(step, "name")] == ["resnet-worker-1"]
    made = SlotsAssigned(slots=(workers(1),), replaces=(workers(1),), reason="PodsReplaced")
    given(*story, without, released, PodsGone(uids=(Uid("pod-1"),))).then_among_others(scheduler, Record(made))
    assert given(*story, without, released).job.attempt.replaced == 0
