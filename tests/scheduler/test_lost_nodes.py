"""Terminating pods of unreachable nodes: they count as gone, hold their names, and are deleted by force if asked."""

import msgspec
import pytest

from services.scheduler.core.effects import CreatePod, DeletePod
from services.status.core.decide import decide as status
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import JobObserved, NodeBack, NodeLost, PodsGone, TimePassed
from shared.job.naming import Slot, Uid
from shared.job.policies import nodes
from shared.job.spec import LAUNCHER
from shared.job.steps import Record
from shared.job.timing import next_due
from shared.job.views import Slots
from tests.kit.builders import a_running_job, a_spec, launcher, observed, pods, worker, workers
from tests.kit.groups import a_running_group
from tests.kit.stories import Story, given, scheduler

EVICTED = "DeletionByTaintManager"


def lost(*uids: str, reason: str = "NodeUnreachable", after: int | None = None) -> NodeLost:
    return NodeLost(node="node-1", uids=tuple(map(Uid, uids)), reason=reason, force_after=after)


def terminating(index: int, grace: int = 30) -> AnyEvent:
    return pods(worker(index, version=50, ready=False, deleting=True, grace=grace, disruption=EVICTED))


A_LAUNCHER_GOES = pods(launcher(version=50, deleting=True, grace=30, disruption=EVICTED))


def forced_at(events: list[AnyEvent], seconds: int) -> TimePassed:
    return TimePassed(anchor=len(events), timer=nodes.forced_deletion_timer(seconds))


def decided(*events: AnyEvent) -> list[type]:
    return [type(step.event) for step in given(*events).steps(status) if isinstance(step, Record)]


def test_a_lost_node_alone_destroys_nothing():
    events = [*a_running_job(workers=2, restart="OnFailure"), lost("pod-1", "pod-launcher")]
    given(*events).then_nothing(scheduler)
    assert decided(*events) == []


def test_a_worker_that_kubernetes_gives_up_is_replaced_under_a_new_index():
    events = [*a_running_job(workers=2), lost("pod-1"), terminating(1)]
    new = SlotsAssigned(slots=(workers(2),), replaces=(workers(1),), reason="WorkersReplaced")
    given(*events).then(scheduler, Record(new))
    either = [*a_running_job(workers=2), terminating(1), lost("pod-1")]
    given(*either).then(scheduler, Record(new))


def test_a_terminating_pod_of_a_node_with_a_kubelet_is_waited_for_and_does_not_count_as_gone():
    events = [*a_running_job(workers=2), lost("pod-1", reason="NodeNotReady"), terminating(1)]
    given(*events).then_nothing(scheduler)
    (told,) = nodes.of_lost(given(*events).job)
    assert told.endswith("if it stays: kubectl delete pod -n team-a resnet-worker-1 --force --grace-period=0")


def test_where_a_kubelet_cannot_end_its_containers_their_pod_is_deleted_by_force_too():
    events = [*a_running_job(workers=2), lost("pod-1", reason="NodeNotReady", after=5), terminating(1)]
    assert "ForcedDeletion:35" in timers(given(*events))
    by_force = DeletePod(worker(1).name, Uid("pod-1"), force=True)
    given(*events, forced_at(events, 35)).then(scheduler, by_force)


def test_a_pod_that_is_replaced_under_its_name_waits_for_the_name():
    events = [*a_running_group(3), lost("pod-1"), terminating(1)]
    story = given(*events)
    assert not [step for step in story.steps(scheduler) if isinstance(step, Record | DeletePod)]
    told = nodes.of_lost(story.job)
    assert len(told) == 1
    assert told[0].endswith("kubectl delete pod -n team-a resnet-worker-1 --force --grace-period=0")
    gone = given(*events, PodsGone(uids=(Uid("pod-1"),)))
    again = SlotsAssigned(slots=(workers(1),), replaces=(workers(1),), reason="PodsReplaced")
    gone.then_among_others(scheduler, Record(again))


def test_a_launcher_that_kubernetes_gives_up_ends_the_attempt_and_counts_against_no_limit():
    events = [*a_running_job(workers=2), lost("pod-launcher"), A_LAUNCHER_GOES]
    (step,) = [step for step in given(*events).steps(status) if isinstance(step, Record)]
    assert isinstance(step.event, JobRestarting)
    assert (step.event.reason, step.event.counted) == ("Disrupted", False)


def test_the_next_attempt_waits_for_the_names_and_says_so():
    events: list[AnyEvent] = [*a_running_job(workers=1), lost("pod-launcher"), A_LAUNCHER_GOES]
    events += [JobRestarting(reason="Disrupted", counted=False)]
    events += [SlotsReleased(slots=(workers(0), Slots(0, LAUNCHER, ((0, 0),))))]
    events += [JobRestarted(attempt=1, counted=False), PodsGone(uids=(Uid("pod-0"),))]
    story = given(*events)
    assert not [step for step in story.steps(scheduler) if isinstance(step, CreatePod | Record)]
    assert "resnet-launcher --force" in nodes.of_lost(story.job)[0]
    given(*events, PodsGone(uids=(Uid("pod-launcher"),))).then_among_others(
        scheduler, Record(SlotsAssigned(slots=(Slots(1, "worker", ((0, 0),)),), reason="JobRestarted"))
    )


def timers(story: Story) -> set[str]:
    return {timer.name for timer in next_due(story.job)}


def test_without_a_setting_no_pod_is_deleted_by_force():
    story = given(*a_running_group(3), lost("pod-1"), terminating(1))
    assert not [name for name in timers(story) if name.startswith("ForcedDeletion")]


@pytest.mark.parametrize(
    ("setting", "annotation", "seconds"),
    [
        pytest.param(60, None, 90, id="the setting"),
        pytest.param(None, 10, 40, id="the job's annotation"),
        pytest.param(60, 0, 30, id="the annotation has precedence"),
        pytest.param(60, -1, None, id="never"),
    ],
)
def test_a_stuck_pod_is_deleted_by_force_after_its_grace_and_the_time(
    setting: int | None, annotation: int | None, seconds: int | None
):
    events = [*a_running_job(workers=2, force_delete_after=annotation), lost("pod-1", after=setting), terminating(1)]
    story = given(*events)
    found = [timer for timer in next_due(story.job) if timer.name.startswith("ForcedDeletion")]
    assert [timer.seconds for timer in found] == ([seconds] if seconds is not None else [])
    if seconds is None:
        return
    by_force = DeletePod(worker(1).name, Uid("pod-1"), force=True)
    assert by_force not in story.steps(scheduler)
    given(*events, forced_at(events, seconds)).then_among_others(scheduler, by_force)


def test_a_node_that_falls_silent_after_it_was_not_ready_does_not_begin_the_time_anew():
    events: list[AnyEvent] = [*a_running_job(workers=2), lost("pod-1", reason="NodeNotReady", after=5), terminating(1)]
    by_force = DeletePod(worker(1).name, Uid("pod-1"), force=True)
    given(*events, lost("pod-1", after=5), forced_at(events, 35)).then_among_others(scheduler, by_force)


def test_a_forced_deletion_is_judged_by_nodes_that_are_seen():
    story = given(*a_running_job(workers=2), lost("pod-1", after=60), terminating(1))
    (found,) = [timer for timer in next_due(story.job) if timer.name.startswith("ForcedDeletion")]
    assert (found.since, found.of_nodes) == ("", True)


def test_no_pod_of_a_node_that_is_back_is_deleted_by_force():
    events = [*a_running_job(workers=2), lost("pod-1", after=5), terminating(1)]
    back = NodeBack(node="node-1", uids=(Uid("pod-1"),))
    steps = given(*events, forced_at(events, 35), back).steps(scheduler)
    assert not [step for step in steps if isinstance(step, DeletePod)]


def test_a_job_that_is_edited_while_it_waits_follows_the_new_annotation():
    events: list[AnyEvent] = [*a_running_job(workers=2), lost("pod-1"), terminating(1)]
    edited: JobObserved = msgspec.structs.replace(observed(a_spec(2, force_delete_after=5)), version=99)
    story = given(*events, edited)
    assert "ForcedDeletion:35" in timers(story)
    assert " s after " in nodes.of_lost(story.job)[0]
    assert Slot(0, "worker", 1) in story.job.attempt.spent
