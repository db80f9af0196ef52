"""Workers of lost nodes: out of the hosts files at once, and back in them with their node."""

from msgspec.structs import replace

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.watcher import NodeBack, NodeLost, TimePassed
from shared.job.naming import Uid
from shared.job.spec import GROW_SECONDS
from shared.job.steps import Record
from shared.job.timing import next_due
from tests.kit.builders import a_running_job, hosts_file, launcher, pods, published, worker, workers
from tests.kit.replicas import a_replicated_spec, a_running_replicated_job
from tests.kit.stories import Story, given, scaler


def lost(*indices: int, reason: str = "NodeUnreachable") -> NodeLost:
    return NodeLost(node="node-1", uids=tuple(Uid(f"pod-{index}") for index in indices), reason=reason)


def back(*indices: int) -> NodeBack:
    return NodeBack(node="node-1", uids=tuple(Uid(f"pod-{index}") for index in indices))


def test_workers_of_a_lost_node_leave_the_hosts_files_at_once_and_keep_their_places():
    events = [*a_running_job(workers=3), lost(1, 2)]
    given(*events).then(scaler, Record(published(2, 0)))
    seen = [*events, published(2, 0), hosts_file(2), pods(launcher(version=60, hosts=2))]
    given(*seen).then_nothing(scaler)


def test_workers_of_a_node_that_is_back_are_members_again():
    left = [published(2, 0), hosts_file(2), pods(launcher(version=60, hosts=2), worker(1, version=50, ready=False))]
    events = [*a_running_job(workers=2), lost(1), *left]
    given(*events, pods(worker(1, version=70))).then_nothing(scaler)
    given(*events, back(1), pods(worker(1, version=70))).then(scaler, Record(published(3, 0, 1)))


def flapped(workers: int = 2) -> list[AnyEvent]:
    """Worker 1 left with its node, joined when that was back, and has left again."""
    once = [lost(1), published(2, *(index for index in range(workers) if index != 1)), back(1)]
    return [
        *a_running_job(workers=workers),
        *once,
        published(3, *range(workers)),
        *once[:1],
        replace(once[1], version=4),
    ]


def test_a_worker_whose_node_comes_and_goes_joins_again_at_most_once_in_the_time_of_growth():
    events = [*flapped(), back(1)]
    given(*events[:-4]).then_among_others(scaler, Record(published(3, 0, 1)))
    story = given(*events)
    assert not published_by(story)
    (timer,) = (due for due in next_due(story.job) if due.name == "Grow")
    assert timer.seconds == GROW_SECONDS
    over = TimePassed(anchor=timer.anchor, timer="Grow")
    given(*events, over).then_among_others(scaler, Record(published(5, 0, 1)))


def test_while_one_waits_to_join_again_a_replacement_joins_and_no_list_is_left_empty():
    ended = [pods(worker(2, version=90, phase="Failed", ready=False)), published(5, 0)]
    replaced = [*ended, SlotsAssigned(slots=(workers(3),), reason="Replacement"), back(1), pods(worker(3))]
    assert published_by(given(*flapped(3), *replaced)) == [published(6, 0, 3)]
    gone = pods(worker(0, version=90, phase="Failed", ready=False))
    assert published_by(given(*flapped(), back(1), gone)) == [published(5, 1)]


def published_by(story: Story) -> list[HostsPublished]:
    steps = [step.event for step in story.steps(scaler) if isinstance(step, Record)]
    return [event for event in steps if isinstance(event, HostsPublished)]


def test_if_all_members_are_lost_they_stay():
    given(*a_running_job(workers=2), lost(0, 1)).then_nothing(scaler)


def test_a_job_that_needs_every_worker_keeps_its_list():
    events = a_running_replicated_job(a_replicated_spec())
    assert not published_by(given(*events, lost(0)))
