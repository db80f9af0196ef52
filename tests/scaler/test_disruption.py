"""Workers whose node is about to go: replaced first where there is time, out of the hosts files, drained, released."""

import pytest

from services.scaler.core.effects import WriteHosts
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScaleFailed, ScaleSucceeded, WorkersReleased
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobRestarting, JobSucceeded
from shared.job.events.watcher import DisruptionNoticed, PodsGone, TimePassed
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, Elasticity
from shared.job.steps import Record
from shared.job.timers import DISRUPTION_DRAIN, SETTLE, Timer
from shared.job.timing import next_due
from shared.job.views import Slots, ranges
from tests.kit.builders import (
    R1,
    a_ready_job,
    a_running_job,
    hosts_file,
    launcher,
    pods,
    published,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.stories import given, scaler, scheduler

DRAIN = 10


def noticed(*indices: int) -> DisruptionNoticed:
    """The node of these workers is about to go."""
    return DisruptionNoticed(
        node="node-1", uids=tuple(Uid(f"pod-{index}") for index in indices), reason="SpotInterruption"
    )


def without_them(version: int, *indices: int, drain: int = DRAIN) -> HostsPublished:
    """The hosts files of those that stay, with the time that those who leave them get."""
    return HostsPublished(version=version, members=ranges(indices), drain=drain)


def a_job_that_drains(workers: int = 3, *leaving: int) -> list[AnyEvent]:
    """The hosts files without those that leave are in place."""
    staying = [index for index in range(workers) if index not in leaving]
    told = [noticed(*leaving), without_them(2, *staying), hosts_file(2), pods(launcher(version=60, hosts=2))]
    return [*a_running_job(workers=workers), *told]


def released(*indices: int) -> Record:
    return Record(WorkersReleased(request=Uid(""), slots=(workers(*indices),), reason="Disrupted"))


def drained(events: list[AnyEvent]) -> list[AnyEvent]:
    """And their time is up."""
    return [*events, TimePassed(anchor=len(events), timer=DISRUPTION_DRAIN)]


def test_workers_of_a_node_that_is_about_to_go_leave_the_hosts_files_at_once():
    given(*a_running_job(workers=3), noticed(1, 2)).then(scaler, Record(without_them(2, 0)))


def test_so_does_one_that_says_itself_that_it_will_be_evicted():
    evicted = worker(1, version=30, disruption="EvictionByEvictionAPI")
    given(*a_running_job(workers=2), pods(evicted)).then(scaler, Record(without_them(2, 0)))


def test_one_whose_eviction_was_called_off_before_its_release_stays_or_comes_back():
    evicted, off = worker(1, version=30, disruption="EvictionByEvictionAPI"), worker(1, version=40)
    given(*a_running_job(workers=2), pods(evicted), pods(off)).then_nothing(scaler)
    left = [without_them(2, 0), hosts_file(2), pods(launcher(version=60, hosts=2))]
    back = Record(published(3, 0, 1))
    given(*drained([*a_running_job(workers=2), pods(evicted), *left]), pods(off)).then(scaler, back)


def test_they_are_not_released_before_the_files_without_them_are_seen():
    files = WriteHosts(2, (0,))
    given(*a_running_job(workers=2), noticed(1), without_them(2, 0)).then(scaler, files)
    # The launcher has not been told to load them.
    told = [*a_running_job(workers=2), noticed(1), without_them(2, 0), hosts_file(2)]
    assert all(not isinstance(step, Record) for step in given(*told).steps(scaler))


def test_then_they_drain():
    events = a_job_that_drains(3, 1)
    story = given(*events)
    story.then_nothing(scaler)
    assert Timer(len(events), DISRUPTION_DRAIN, DRAIN) in next_due(story.job)


def test_all_of_a_node_are_released_together():
    given(*drained(a_job_that_drains(4, 2, 3))).then(scaler, released(2, 3))


def test_there_is_no_wait_where_no_time_is_given():
    told = [noticed(1), without_them(2, 0, drain=0), hosts_file(2), pods(launcher(version=60, hosts=2))]
    story = given(*a_running_job(workers=2), *told)
    story.then(scaler, released(1))
    assert all(timer.name != DISRUPTION_DRAIN for timer in next_due(story.job))


def test_a_launcher_that_ended_uses_no_worker_that_could_drain():
    events = [*a_running_job(workers=2), noticed(1), without_them(2, 0), hosts_file(2)]
    ended = [*events, pods(launcher(version=70, phase="Failed"))]
    assert Timer(len(ended), DISRUPTION_DRAIN, DRAIN) in next_due(given(*ended).job)


def test_a_second_notice_meanwhile_does_not_make_the_first_wait_longer():
    events = a_job_that_drains(3, 2)
    later = [*events, noticed(1), without_them(3, 0)]
    given(*later).then(scaler, WriteHosts(3, (0,)))
    given(*later, TimePassed(anchor=len(events), timer=DISRUPTION_DRAIN)).then_among_others(scaler, released(2))


def test_what_was_released_is_released_once():
    events = [*drained(a_job_that_drains(2, 1)), released(1).event]
    story = given(*events)
    story.then_nothing(scaler)
    assert all(timer.name != DISRUPTION_DRAIN for timer in next_due(story.job))


def test_its_place_is_filled_again_under_a_new_index_while_the_old_pod_may_still_run():
    events = [*drained(a_job_that_drains(2, 1)), released(1).event]
    new = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    given(*events).then_among_others(scheduler, Record(new))
    # Its node is silent: the pod is asked to go, and stays for ever.
    lost = [*events, new, pods(worker(1, version=80, deleting=True))]
    steps = [str(step) for step in given(*lost).steps(scheduler)]
    assert [step for step in steps if "CreatePod" in step and "index=1)" in step] == []
    assert any("CreatePod" in step and "index=2)" in step for step in steps)


def test_its_replacement_becomes_a_member_when_it_is_ready():
    replaced = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    events = [*drained(a_job_that_drains(2, 1)), released(1).event, replaced]
    given(*events, pods(worker(2, ready=False))).then_nothing(scaler)
    given(*events, pods(worker(2))).then(scaler, Record(published(3, 0, 2)))


def test_it_is_never_listed_again():
    given(*a_job_that_drains(2, 1), pods(worker(1, version=90))).then_nothing(scaler)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(PodsGone(uids=(Uid("pod-1"),)), id="it vanishes"),
        pytest.param(pods(worker(1, version=95, phase="Failed")), id="it ends"),
    ],
)
def test_a_node_that_does_not_wait_for_the_drain_needs_no_release(end: AnyEvent):
    given(*a_job_that_drains(3, 1), end).then_nothing(scaler)


def test_a_pod_that_never_goes_is_released_all_the_same():
    gone_silent = worker(1, version=30, deleting=True, disruption="DeletionByTaintManager")
    told = [pods(gone_silent), without_them(2, 0), hosts_file(2), pods(launcher(version=60, hosts=2))]
    given(*drained([*a_running_job(workers=2), *told])).then(scaler, released(1))


def test_a_worker_that_never_was_listed_is_released_at_once():
    replaced = SlotsAssigned(slots=(workers(2),), reason="WorkersReplaced")
    events = [*a_running_job(workers=2), replaced, pods(worker(2, ready=False))]
    given(*events, noticed(2)).then(scaler, released(2))


def test_before_the_launcher_the_place_is_filled_again_before_anybody_is_listed():
    events = [*a_ready_job(workers=2), noticed(1)]
    given(*events).then(scaler, released(1))
    given(*events, released(1).event).then_nothing(scaler)
    replaced = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    given(*events, released(1).event, replaced).then_nothing(scaler)
    given(*events, released(1).event, replaced, pods(worker(2))).then(scaler, Record(published(1, 0, 2)))


def test_those_that_a_scale_in_takes_are_released_by_it():
    events = [*a_running_job(workers=3), *scaling_in(2), published(2, 0, 1, request=R1), hosts_file(2)]
    told = [*events, pods(launcher(version=60, hosts=2)), noticed(2)]
    assert released(2) not in given(*told).steps(scaler)


def test_a_scale_out_whose_new_worker_is_about_to_go_takes_all_of_them_back():
    events = [*a_running_job(workers=2), *scaling_out(2, 3), pods(worker(2), worker(3, ready=False)), noticed(2)]
    failed = ScaleFailed(request=R1, reason="WorkerFailed", released=(workers(2, 3),))
    given(*events).then(scaler, Record(failed))


def test_a_scale_out_of_others_goes_on():
    events = [*a_running_job(workers=2), *scaling_out(2), noticed(1), without_them(2, 0), pods(worker(2))]
    given(*events).then_among_others(scaler, Record(published(3, 0, 2, request=R1)))
    seen = [published(3, 0, 2, request=R1), hosts_file(3), pods(launcher(version=60, hosts=3))]
    succeeded = ScaleSucceeded(request=R1, reason="ScalingOutSucceeded")
    given(*events, *seen).then_among_others(scaler, Record(succeeded))


def test_between_attempts_no_worker_is_released_or_listed():
    given(*drained(a_job_that_drains(2, 1)), JobRestarting(reason="TrainingJobFailed")).then_nothing(scaler)


def test_no_timer_runs_for_the_drain_of_a_released_worker():
    released = WorkersReleased(request=Uid(""), slots=(workers(2),), reason="Disrupted")
    story = given(*a_job_that_drains(3, 2), released)
    assert all(timer.name != DISRUPTION_DRAIN for timer in next_due(story.job))


def test_no_timer_runs_for_the_drain_of_a_job_that_is_over():
    over = [*a_job_that_drains(3, 2), JobSucceeded(reason="TrainingJobSucceeded")]
    assert all(timer.name != DISRUPTION_DRAIN for timer in next_due(given(*over).job))


def test_one_that_makes_room_for_its_launcher_keeps_its_place_until_the_files_without_it_are_there():
    story = [
        *a_ready_job(workers=3, elasticity=Elasticity(settle_seconds=20)),
        published(1, 0, 1, 2),
        hosts_file(1),
        TimePassed(anchor=7, timer=SETTLE),
        SlotsAssigned(slots=(Slots(0, LAUNCHER, ((0, 0),)),), reason="WorkersReady"),
        pods(launcher(phase="Pending", hosts=1, reason="Unschedulable")),
    ]
    given(*story).then(scaler, Record(published(2, 0, 1)))
    given(*story, published(2, 0, 1)).then(scaler, WriteHosts(2, (0, 1)))
    gone = WorkersReleased(request=Uid(""), slots=(workers(2),), reason="LauncherUnschedulable")
    seen = [hosts_file(2), pods(launcher(phase="Pending", version=40, hosts=2, reason="Unschedulable"))]
    given(*story, published(2, 0, 1), *seen).then(scaler, Record(gone))
    # Its deletion is seen late; from then on the pod has its grace period, and the kube-scheduler the time to settle.
    placed, deleted = (pods(worker(2, version=at, node="node-1", deleting=at > 40, grace=at - 40)) for at in (40, 70))
    late = [*story, published(2, 0, 1), *seen, placed, gone, TimePassed(anchor=len(story) + 2, timer=SETTLE)]
    given(*late).then_nothing(scaler)
    given(*late, deleted).then_nothing(scaler)
    assert Timer(len(late) + 1, SETTLE, 20 + 30) in next_due(given(*late, deleted).job)
