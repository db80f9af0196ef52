"""Workers of lost nodes: out of the hosts files at once, and back in them with their node."""

from shared.job.events.scaler import HostsPublished
from shared.job.events.watcher import NodeBack, NodeLost
from shared.job.naming import Uid
from shared.job.steps import Record
from tests.kit.builders import a_running_job, hosts_file, launcher, pods, published, worker
from tests.kit.replicas import a_replicated_spec, a_running_replicated_job
from tests.kit.stories import given, scaler


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


def test_if_all_members_are_lost_they_stay():
    given(*a_running_job(workers=2), lost(0, 1)).then_nothing(scaler)


def test_a_job_that_needs_every_worker_keeps_its_list():
    events = a_running_replicated_job(a_replicated_spec())
    steps = given(*events, lost(0)).steps(scaler)
    assert not [step for step in steps if isinstance(step, Record) and isinstance(step.event, HostsPublished)]
