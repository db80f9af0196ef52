"""Nodes that are not Ready or unreachable: which signs count, whom they concern, what is recorded of them."""

from typing import Any

import msgspec
import pytest

from services.watcher.core.disruption import loss, lost_by_pod, observed_node
from services.watcher.core.observed import ObservedNode
from services.watcher.core.views import observed_job
from shared.cluster.objects import Custom, Node, Pod
from shared.frameworks.training_job import TRAININGJOB
from shared.job.events.scheduler import SlotsReleased
from shared.job.events.status import JobSucceeded
from shared.job.events.watcher import NodeBack, NodeLost, PodsObserved
from shared.job.naming import FORCE_DELETE_AFTER, Uid
from shared.job.views import PodView
from tests.kit.builders import a_running_job, launcher, pods, worker, workers
from tests.kit.world import a_training_job
from tests.watcher.objects import read
from tests.watcher.watching import Watching, a_resource

SINCE = "2030-01-01T00:00:00Z"
READY = ObservedNode()
SILENT = ObservedNode(lost="NodeUnreachable", since=SINCE)
NOT_READY = ObservedNode(lost="NodeNotReady", since=SINCE)


def a_node(ready: str = "", *taints: str) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": SINCE}]} if ready else {}
    spec = {"taints": [{"key": f"node.kubernetes.io/{name}", "effect": "NoExecute"} for name in taints]}
    return read({"metadata": {"name": "node-1"}, "spec": spec, "status": status}, Node)


@pytest.mark.parametrize(
    ("node", "lost"),
    [
        pytest.param(a_node(), ("", ""), id="a node that just registered"),
        pytest.param(a_node("True"), ("", ""), id="a Ready node"),
        pytest.param(a_node("True", "unschedulable"), ("", ""), id="a cordon"),
        pytest.param(a_node("Unknown"), ("NodeUnreachable", SINCE), id="its kubelet is silent"),
        pytest.param(a_node("Unknown", "unreachable"), ("NodeUnreachable", SINCE), id="silent, with the taint"),
        pytest.param(a_node("False"), ("NodeNotReady", SINCE), id="its kubelet says that it is not ready"),
        pytest.param(a_node("False", "not-ready"), ("NodeNotReady", SINCE), id="not ready, with the taint"),
        pytest.param(a_node("True", "unreachable"), ("NodeUnreachable", SINCE), id="the taint goes a moment later"),
    ],
)
def test_signs_of_a_lost_node(node: Node, lost: tuple[str, str]):
    assert loss(node) == lost
    assert observed_node(node) == ObservedNode(lost=lost[0], since=lost[1])


def a_pod(*conditions: tuple[str, str, str], reason: str = "") -> Pod:
    found = [{"type": kind, "status": status, "reason": why or None} for kind, status, why in conditions]
    return read({"metadata": {"name": "w"}, "status": {"conditions": found, "reason": reason or None}}, Pod)


@pytest.mark.parametrize(
    ("pod", "lost"),
    [
        pytest.param(a_pod(("Ready", "True", ""), ("ContainersReady", "True", "")), "", id="a Ready pod"),
        pytest.param(
            a_pod(("Ready", "False", "ContainersNotReady"), ("ContainersReady", "False", "")), "", id="a failed probe"
        ),
        pytest.param(
            a_pod(("Ready", "False", "ReadinessGatesNotReady"), ("ContainersReady", "True", "")), "", id="a gate"
        ),
        pytest.param(
            a_pod(("Ready", "False", ""), ("ContainersReady", "True", "")),
            "NodeUnreachable",
            id="not Ready without a reason, which no kubelet says",
        ),
        pytest.param(a_pod(("Ready", "False", "NodeNotReady")), "NodeUnreachable", id="the reason names the node"),
        pytest.param(a_pod(reason="NodeLost"), "NodeUnreachable", id="the reason of older clusters"),
        pytest.param(a_pod(), "", id="a pod without conditions"),
    ],
)
def test_signs_by_which_a_pod_shows_that_its_node_is_lost(pod: Pod, lost: str):
    assert lost_by_pod(pod) == lost


def on(node: str, pod: PodView) -> PodView:
    return msgspec.structs.replace(pod, node=node)


HERE = (on("node-1", worker(0, version=30)), on("node-2", worker(1, version=30)), on("node-1", launcher(version=30)))
ON_NODE_1 = (Uid("pod-0"), Uid("pod-launcher"))
LOST = NodeLost(node="node-1", uids=ON_NODE_1, reason="NodeUnreachable", since=SINCE)


def a_watched_job() -> Watching:
    """A running job with pods on two nodes, which the cluster shows as the log knows them."""
    watching = Watching(*a_running_job(workers=2), pods(*HERE))
    watching.show(a_resource(version=1))
    watching.show_pods(*HERE)
    for name in ("node-1", "node-2"):
        watching.cache.set_node(name, READY)
    watching.settle()
    return watching


def test_a_lost_node_is_recorded_once_with_its_pods():
    watching = a_watched_job()
    assert watching.cache.set_node("node-1", SILENT)
    assert watching.settle() == [LOST]
    assert not watching.cache.set_node("node-1", SILENT), "a heartbeat is no news"
    watching.restarted()
    watching.show(a_resource(version=1))
    watching.show_pods(*HERE)
    watching.cache.set_node("node-1", SILENT)
    assert watching.settle() == [], "another process reads it in the log"


def test_a_node_that_comes_back_is_recorded():
    watching = a_watched_job()
    watching.cache.set_node("node-1", SILENT)
    watching.settle()
    assert watching.cache.set_node("node-1", READY)
    assert watching.settle() == [NodeBack(node="node-1", uids=ON_NODE_1)]
    assert not watching.job().pods.lost


def test_a_node_that_becomes_unreachable_after_it_was_not_ready_is_recorded_again():
    watching = a_watched_job()
    watching.cache.set_node("node-1", NOT_READY)
    watching.settle()
    watching.cache.set_node("node-1", SILENT)
    assert watching.settle() == [LOST]


def test_a_deleted_node_is_not_back():
    watching = a_watched_job()
    watching.cache.set_node("node-1", SILENT)
    watching.settle()
    watching.cache.set_node("node-1", None)
    assert not [fact for fact in watching.settle() if isinstance(fact, NodeBack)]


def test_nodes_that_are_not_listed_yet_are_not_back():
    watching = a_watched_job()
    watching.cache.set_node("node-1", SILENT)
    watching.settle()
    watching.restarted()
    watching.cache.nodes.version = 0
    watching.show(a_resource(version=1))
    watching.show_pods(*HERE)
    assert watching.settle() == []


def test_a_released_pod_on_a_lost_node_is_recorded_too():
    watching = a_watched_job()
    watching.fold(watching.job().key, SlotsReleased(slots=(workers(1),)))
    watching.cache.set_node("node-2", SILENT)
    assert [fact.uids for fact in watching.settle() if isinstance(fact, NodeLost)] == [(Uid("pod-1"),)]


def test_an_ended_pod_waits_for_no_node():
    watching = a_watched_job()
    watching.fold(watching.job().key, JobSucceeded(reason="TrainingJobSucceeded"))
    watching.show_pods(on("node-1", worker(0, version=40, phase="Succeeded")))
    watching.settle()
    watching.cache.set_node("node-1", SILENT)
    assert [fact.uids for fact in watching.settle() if isinstance(fact, NodeLost)] == [(Uid("pod-launcher"),)]


def test_where_nodes_may_not_be_seen_pods_tell_of_the_loss():
    watching = a_watched_job()
    watching.cache.nodes.version, watching.cache.without_nodes = 0, True
    gone_silent = on("node-1", worker(0, version=40, ready=False))
    watching.cache.set_pod(
        (watching.job().key.namespace, gone_silent.name), (watching.job().key, gone_silent), (), "NodeUnreachable"
    )
    told = watching.settle()
    assert [type(fact) for fact in told] == [NodeLost, PodsObserved]
    watching.show_pods(on("node-1", worker(0, version=50)))
    assert NodeBack(node="node-1", uids=(Uid("pod-0"),)) in watching.settle()


@pytest.mark.parametrize(
    ("written", "seconds", "ignored"),
    [
        pytest.param("60", 60, 0, id="seconds"),
        pytest.param("0", 0, 0, id="at once"),
        pytest.param("never", -1, 0, id="never"),
        pytest.param(None, None, 0, id="nothing: the setting counts"),
        pytest.param("1m", None, 1, id="a wrong value is told"),
    ],
)
def test_a_job_says_when_its_stuck_pods_are_deleted_by_force(written: str | None, seconds: int | None, ignored: int):
    manifest: dict[str, Any] = a_training_job()
    if written is not None:
        manifest["metadata"]["annotations"] = {FORCE_DELETE_AFTER: written}
    spec = observed_job(TRAININGJOB, read(manifest, Custom)).observed.spec
    assert spec is not None
    assert (spec.force_delete_after, len(spec.ignored)) == (seconds, ignored)
