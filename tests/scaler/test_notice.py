"""Workers of a node that is announced to go are replaced first; without room they leave shortly before its end."""

from msgspec.structs import replace

from services.scheduler.core.effects import CreatePod, DeletePod
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScaleAccepted, ScaleRejected, WorkersReleased
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.watcher import DisruptionNoticed, NodeBack, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.policies import nodes
from shared.job.spec import LAUNCHER
from shared.job.steps import Record
from shared.job.timers import DISRUPTION_DRAIN
from shared.job.timing import next_due
from shared.job.views import ranges
from tests.kit.builders import (
    R1,
    a_ready_job,
    a_running_job,
    a_spec,
    hosts_file,
    launcher,
    observed,
    pods,
    published,
    scale_in,
    scale_out,
    worker,
    workers,
)
from tests.kit.groups import a_running_group
from tests.kit.stories import given, scaler, scheduler

TWO_MINUTES = 120
DRAIN = 10


def announced(*indices: int, seconds: int = TWO_MINUTES) -> DisruptionNoticed:
    uids = tuple(Uid(f"pod-{index}") for index in indices)
    return DisruptionNoticed(node="node-1", uids=uids, reason="SpotInterruption", seconds=seconds)


def replacements(*new: int, of: tuple[int, ...]) -> SlotsAssigned:
    return SlotsAssigned(slots=(workers(*new),), replaces=(workers(*of),), reason="WorkersReplaced")


def without_them(version: int, *indices: int) -> HostsPublished:
    return HostsPublished(version=version, members=ranges(indices), drain=DRAIN)


def soon(events: list[AnyEvent], seconds: int = TWO_MINUTES) -> TimePassed:
    """The node that was announced last goes in a quarter of a minute."""
    anchor = max(at for at, event in enumerate(events, 1) if isinstance(event, DisruptionNoticed))
    return TimePassed(anchor=anchor, timer=nodes.notice_timer(seconds - nodes.LEAVE_BEFORE_SECONDS))


MOVING = [*a_running_job(workers=3), announced(1, 2), replacements(3, 4, of=(1, 2))]


def test_replacements_are_made_first_and_nobody_leaves():
    events = [*a_running_job(workers=3), announced(1, 2)]
    given(*events).then_nothing(scaler)
    given(*events).then(scheduler, Record(replacements(3, 4, of=(1, 2))))


def test_each_worker_is_replaced_once():
    steps = given(*MOVING).steps(scheduler)
    assert [step.slot.index for step in steps if isinstance(step, CreatePod)] == [3, 4]
    assert not [step for step in steps if isinstance(step, Record)]


def test_they_leave_together_when_all_replacements_are_ready():
    given(*MOVING, pods(worker(3))).then_nothing(scaler)
    given(*MOVING, pods(worker(3), worker(4))).then(scaler, Record(without_them(2, 0, 3, 4)))


def test_without_room_they_stay_until_shortly_before_the_end():
    waiting = [*MOVING, pods(worker(3), worker(4, phase="Pending", ready=False, reason="Unschedulable"))]
    given(*waiting).then_nothing(scaler)
    due = [timer for timer in next_due(given(*waiting).job) if timer.name.startswith("Notice")]
    assert [timer.seconds for timer in due] == [TWO_MINUTES - nodes.LEAVE_BEFORE_SECONDS]
    given(*waiting, soon(waiting)).then(scaler, Record(without_them(2, 0, 3)))


BACK = NodeBack(node="node-1", uids=(Uid("pod-1"), Uid("pod-2")), stays=True)


def test_workers_whose_node_stays_after_all_stay_too():
    short = [*a_running_job(workers=3), announced(1, 2, seconds=0)]
    given(*short, BACK).then_nothing(scaler)
    left = [*short, without_them(2, 0), hosts_file(2), pods(launcher(version=60, hosts=2))]
    given(*left, BACK).then(scaler, Record(published(3, 0, 1, 2)))
    again = [*left, BACK, published(3, 0, 1, 2), announced(1, 2, seconds=0)]
    given(*again).then_among_others(scaler, Record(without_them(4, 0)))


def test_those_that_have_replacements_stay_until_these_are_ready_and_no_end_of_their_node_is_awaited():
    waiting = [*MOVING, pods(worker(3), worker(4, phase="Pending", ready=False, reason="Unschedulable"))]
    given(*waiting, BACK, soon(waiting)).then_nothing(scaler)
    assert not [timer for timer in next_due(given(*waiting, BACK).job) if timer.name.startswith("Notice")]
    given(*waiting, BACK, pods(worker(4, version=60))).then(scaler, Record(without_them(2, 0, 3, 4)))
    # The scheduler had not read that the node stays.
    late = [*a_running_job(workers=3), announced(1, 2), BACK, replacements(3, 4, of=(1, 2))]
    given(*late).then_nothing(scaler)
    left = [*late, pods(worker(3), worker(4)), without_them(2, 0, 3, 4), hosts_file(2)]
    drained = [*left, pods(launcher(version=60, hosts=2))]
    over = TimePassed(anchor=len(drained), timer=DISRUPTION_DRAIN)
    released = WorkersReleased(request=Uid(""), slots=(workers(1, 2),), reason="Disrupted")
    given(*drained, over).then(scaler, Record(released))
    given(*drained, over, released).then_among_others(scheduler, DeletePod("resnet-worker-1", Uid("pod-1")))


def test_a_short_notice_leaves_no_time():
    events = [*a_running_job(workers=3), announced(1, seconds=nodes.LEAVE_BEFORE_SECONDS)]
    given(*events).then(scaler, Record(without_them(2, 0, 2)))
    given(*events).then_nothing(scheduler)


def test_a_second_notice_that_is_shorter_ends_the_wait_sooner_and_the_first_one_holds_as_well():
    first = [*MOVING]
    hurried = [*first, announced(1, 2, seconds=30)]
    given(*hurried).then_nothing(scaler)
    due = [timer.seconds for timer in next_due(given(*hurried).job) if timer.name.startswith("Notice")]
    assert due == [TWO_MINUTES - nodes.LEAVE_BEFORE_SECONDS, 30 - nodes.LEAVE_BEFORE_SECONDS]
    given(*hurried, soon(hurried, 30)).then(scaler, Record(without_them(2, 0)))
    given(*hurried, soon(first)).then(scaler, Record(without_them(2, 0)))
    given(*first, announced(1, 2, seconds=0)).then(scaler, Record(without_them(2, 0)))


def test_a_longer_notice_changes_nothing():
    short = [*a_running_job(workers=3), announced(1, seconds=30)]
    assert given(*short, announced(1)).job.pods.notices == given(*short).job.pods.notices


def test_an_eviction_ends_the_wait():
    evicted = worker(1, version=30, disruption="EvictionByEvictionAPI")
    given(*MOVING, pods(evicted, worker(3))).then(scaler, Record(without_them(2, 0, 2, 3)))


def test_a_worker_that_dies_before_its_replacement_is_ready_is_not_replaced_twice():
    steps = given(*MOVING, PodsGone(uids=(Uid("pod-1"),))).steps(scheduler)
    assert not [step for step in steps if isinstance(step, Record)]


def test_a_released_worker_whose_replacement_is_there_is_not_replaced_again():
    left = [pods(worker(3), worker(4)), without_them(2, 0, 3, 4)]
    released = WorkersReleased(request=Uid(""), slots=(workers(1, 2),), reason="Disrupted")
    steps = given(*MOVING, *left, released).steps(scheduler)
    assert not [step for step in steps if isinstance(step, Record)]


def test_another_lost_worker_is_replaced_meanwhile():
    moving = [*a_running_job(workers=3, of_workers="Always"), announced(1), replacements(3, of=(1,))]
    new = replacements(4, of=(2,))
    given(*moving, PodsGone(uids=(Uid("pod-2"),))).then_among_others(scheduler, Record(new))


def test_a_job_that_moves_may_grow_to_its_maximum():
    events = [*a_running_job(workers=3, most=4), announced(1), replacements(3, of=(1,)), scale_out(1)]
    accepted = [step.event for step in given(*events).steps(scaler) if isinstance(step, Record)]
    assert [type(event) for event in accepted] == [ScaleAccepted]


def test_a_scale_in_does_not_name_a_worker_that_its_replacement_makes_leave():
    names = ("resnet-worker-0", "resnet-worker-2")
    told = "podNames names resnet-worker-2, which is being replaced, because its node is about to go; name another of"
    for meanwhile in ([], [pods(worker(3), worker(4))]):
        rejected = ScaleRejected(request=R1, reason="BeingReplaced", message=f"{told} 0,3-4")
        given(*MOVING, *meanwhile, scale_in(names=names)).then_among_others(scaler, Record(rejected))
    other = [step.event for step in given(*MOVING, scale_in(names=names[:1])).steps(scaler) if isinstance(step, Record)]
    assert [event.leaving[0].index for event in other if isinstance(event, ScaleAccepted)] == [0]


def test_a_job_that_has_not_run_is_replaced_at_once_as_before():
    released = WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted")
    given(*a_ready_job(workers=2), announced(1)).then(scaler, Record(released))


def test_no_worker_is_replaced_ahead_whose_role_was_removed_from_the_spec():
    removed = observed(replace(a_spec(3), roles=(a_spec(3).role(LAUNCHER),)), generation=2)
    given(*a_running_job(workers=3), replace(removed, version=99), announced(1)).then_nothing(scheduler)


def test_a_kind_that_replaces_workers_under_their_names_keeps_them_to_the_end():
    events: list[AnyEvent] = [*a_running_group(3), announced(1)]
    story = given(*events)
    story.then_nothing(scaler)
    assert not [step for step in story.steps(scheduler) if isinstance(step, Record)]
    left = [step.event for step in given(*events, soon(events)).steps(scaler) if isinstance(step, Record)]
    assert [event.members for event in left if isinstance(event, HostsPublished)] == [((0, 0), (2, 2))]


def test_a_launcher_on_such_a_node_costs_no_worker_its_place():
    told = DisruptionNoticed(node="node-1", uids=(Uid("pod-launcher"),), reason="SpotInterruption", seconds=TWO_MINUTES)
    given(*a_running_job(workers=2), told).then_nothing(scaler)
    given(*a_running_job(workers=2), told).then_nothing(scheduler)
