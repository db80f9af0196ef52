"""Pods of lost nodes: the status and a Kubernetes Event say which pods wait for which node since when."""

from typing import Any

import msgspec
import pytest

from services.status.core.announce import announcements
from services.status.core.effects import Announce
from shared.frameworks.kinds import BUILT_IN
from shared.job import waiting
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobRestarting, JobSucceeded
from shared.job.events.watcher import DisruptionNoticed, NodeBack, NodeLost
from shared.job.naming import Uid
from shared.job.spec import LAUNCHED_TOGETHER
from tests.kit.builders import a_created_job, a_running_job, launcher, pods, worker
from tests.kit.groups import a_running_group
from tests.kit.replicas import a_replicated_spec, a_running_replicated_job
from tests.kit.stories import given

SINCE = "2030-01-01T00:00:07Z"
LOST = NodeLost(node="gpu-3", uids=(Uid("pod-1"),), reason="NodeUnreachable", since=SINCE)
WAITS = f"NodeUnreachable: node gpu-3 is unreachable since {SINCE}; resnet-worker-1 waits for it"
GOES = pods(worker(1, version=50, ready=False, deleting=True, grace=30))


def conditions(*events: AnyEvent) -> dict[str, str]:
    """The messages of the true conditions in the status."""
    job = given(*events).job
    found: list[dict[str, Any]] = BUILT_IN.of(job).status(job)["conditions"]
    return {known["type"]: known["message"] for known in found if known["status"] == "True"}


def warnings(*events: AnyEvent) -> list[tuple[str, str]]:
    steps = announcements(given(*events).job)
    return [(step.reason, step.message) for step in steps if isinstance(step, Announce) and "node" in step.message]


@pytest.mark.parametrize("job", [a_running_job(workers=2), a_running_group(3)], ids=["TrainingJob", "PyTorchJob"])
def test_the_condition_running_names_the_node_and_its_pods(job: list[AnyEvent]):
    assert WAITS in conditions(*job, LOST)["Running"]
    assert WAITS not in conditions(*job, LOST, NodeBack(node="gpu-3", uids=(Uid("pod-1"),)))["Running"]


def test_a_restart_that_waits_for_a_name_says_so():
    events = [*a_running_job(workers=2), LOST, GOES, JobRestarting(reason="Disrupted", counted=False)]
    told = conditions(*events)["Restarting"]
    assert told.startswith(WAITS)
    assert "kubectl delete pod -n team-a resnet-worker-1 --force --grace-period=0" in told


def test_an_attempt_that_starts_says_so_in_its_milestone():
    starting = [*a_created_job(workers=2), pods(worker(0), worker(1, ready=False)), LOST]
    shown = waiting.conditions(given(*starting).job, milestones=True)
    known = next(each for each in shown if each.type == "WorkersReady")
    assert (known.status, known.reason) == (False, "NodeUnreachable")
    assert WAITS in known.message


def test_the_end_of_a_job_is_not_explained_by_a_node():
    over = [*a_running_job(workers=2), LOST, JobSucceeded(reason="TrainingJobSucceeded")]
    assert "gpu-3" not in conditions(*over)["Succeeded"]
    assert warnings(*over) == []


def test_there_is_an_event_when_a_node_is_lost_and_one_when_its_pods_are_given_up():
    job = a_running_job(workers=2)
    assert warnings(*job) == []
    assert warnings(*job, LOST) == [("NodeUnreachable", WAITS)]
    first, second = warnings(*job, LOST, GOES)
    assert first == ("NodeUnreachable", WAITS)
    assert second[1].startswith(WAITS)
    assert "--force" in second[1]


def test_a_node_that_becomes_unreachable_while_its_pods_are_deleted_is_told_once_with_the_way_out():
    not_ready = msgspec.structs.replace(LOST, reason="NodeNotReady")
    events = [*a_running_job(workers=2), not_ready, GOES]
    assert [reason for reason, _ in warnings(*events)] == ["NodeNotReady", "NodeNotReady"]
    ((reason, told),) = warnings(*events, LOST)
    assert (reason, "--force" in told) == ("NodeUnreachable", True)


def test_a_pod_that_finalizers_keep_has_a_way_out_that_no_forced_deletion_is():
    kept = [worker(index, version=50, ready=False, deleting=True, finalizers=("a/b", "c")) for index in (0, 1)]
    lost = msgspec.structs.replace(LOST, uids=(Uid("pod-0"), Uid("pod-1")))
    ((_, told),) = warnings(*a_running_job(workers=2), pods(*kept), lost)
    assert "--force --grace-period=0; resnet-worker-0 stays even then: its finalizers keep it (a/b, c), and `" in told
    assert told.endswith("takes them off, and 1 more")
    by_force = msgspec.structs.replace(lost, force_after=60)
    ((_, told),) = warnings(*a_running_job(workers=2), pods(*kept), by_force)
    assert "at the earliest; resnet-worker-0 stays even then: its finalizers keep it" in told


def test_a_pod_that_was_being_deleted_when_its_node_was_lost_is_named_once():
    ((reason, told),) = warnings(*a_running_job(workers=2), GOES, LOST)
    assert (reason, told.count(WAITS), "--force" in told) == ("NodeUnreachable", 1, True)


@pytest.mark.parametrize(
    ("job", "seconds", "rest"),
    [
        pytest.param(a_running_group(3), 120, "; it leaves the members 15 s before", id="elastic"),
        pytest.param(a_running_group(3), 10, "; it leaves the members at once", id="elastic, and there is no time"),
        pytest.param(a_running_replicated_job(a_replicated_spec()), 120, "", id="every worker is needed"),
    ],
)
def test_a_worker_whose_replacement_has_its_name_is_told_when_it_goes_and_comes_back(
    job: list[AnyEvent], seconds: int, rest: str
):
    going = DisruptionNoticed(node="gpu-3", uids=(Uid("pod-1"),), reason="SpotInterruption", seconds=seconds)
    events = [*job, pods(worker(1, version=30, node="gpu-3")), going]
    told = [step.message for step in announcements(given(*events).job) if isinstance(step, Announce)]
    (said,) = [message for message in told if "gpu-3" in message]
    replaced = "a replacement has its name, and is made once it is gone"
    assert said.startswith(f"SpotInterruption: node gpu-3 goes {seconds} s after ")
    assert said.endswith(f", and resnet-worker-1 with it; {replaced}{rest}")
    assert said in conditions(*events)["Running"]


def test_workers_that_are_replaced_ahead_need_no_sentence_of_their_own():
    going = DisruptionNoticed(node="gpu-3", uids=(Uid("pod-1"),), reason="SpotInterruption", seconds=120)
    assert "SpotInterruption" not in conditions(*a_running_job(workers=2), going)["Running"]


def test_a_launcher_whose_node_goes_is_told_with_the_time():
    notice = DisruptionNoticed(node="gpu-3", uids=(Uid("pod-launcher"),), reason="SpotInterruption", seconds=120)
    events = [*a_running_job(workers=2), pods(launcher(version=30, node="gpu-3")), notice]
    goes = "SpotInterruption: node gpu-3 goes 120 s after 00:00:12 UTC, and resnet-launcher with it"
    assert conditions(*events)["Running"].startswith(goes)
    told = [step for step in announcements(given(*events).job) if isinstance(step, Announce)]
    assert [step.reason for step in told if step.message.startswith(goes)] == ["SpotInterruption"]


def test_a_launcher_and_a_worker_that_go_with_one_node_are_told_in_one_event():
    job = a_running_job(workers=2, handling=LAUNCHED_TOGETHER)
    uids = (Uid("pod-launcher"), Uid("pod-0"))
    notice = DisruptionNoticed(node="gpu-3", uids=uids, reason="SpotInterruption", seconds=120)
    on_it = pods(launcher(version=30, node="gpu-3"), worker(0, version=30, node="gpu-3"))
    ((_, told),) = warnings(*job, on_it, notice)
    assert "resnet-launcher with it; " in told
    assert "resnet-worker-0 with it; " in told
