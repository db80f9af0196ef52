"""Nodes that are about to go: which signs count, whom they concern, what is told of them, and life without them."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.watcher.core.cache import Cache
from services.watcher.core.disruption import CORDON, GONE, WELL_KNOWN, leaves, notice, observed_node, tolerations
from services.watcher.core.nodes import UIDS_PER_EVENT
from services.watcher.core.observe import Unrecorded, observe
from services.watcher.core.observed import ObservedNode
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster.kinds import NODES
from shared.cluster.objects import Node, Pod, Taint, Toleration
from shared.errors import Transient
from shared.eventlog.account import HEADS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.scaler import WorkersReleased
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobSucceeded
from shared.job.events.watcher import DisruptionNoticed, NodeBack, PodsGone, PodsObserved
from shared.job.naming import JobKey, Uid
from shared.job.policies.verdict import verdict
from shared.job.views import PodView
from shared.runtime.run import Runtime
from tests.kit.builders import a_created_job, a_running_job, a_spec, exited, launcher, pods, worker, workers
from tests.kit.histories import KEY
from tests.kit.virtual_time import until
from tests.kit.weather import Failing
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.watcher.objects import read
from tests.watcher.test_shell import running
from tests.watcher.watching import Watching, a_resource

SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "i-1", "effect": "NoSchedule"}
OTHER = JobKey("team-b", "bert", Uid("uid-9"))


def a_node(*taints: dict[str, str], **more: Any) -> Node:
    meta = {"name": "node-1", "resourceVersion": "7", **more.pop("metadata", {})}
    return read({"metadata": meta, "spec": {"taints": [*taints] or None, **more}}, Node)


@pytest.mark.parametrize(("key", "reason"), WELL_KNOWN.items())
def test_a_well_known_taint_is_a_notice_whatever_its_value(key: str, reason: str):
    assert notice(a_node({"key": "nvidia.com/gpu"}, {"key": key, "value": "x", "effect": "NoExecute"})) == reason


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        pytest.param(a_node(), "", id="nothing"),
        pytest.param(a_node(unschedulable=True), "", id="a cordon alone"),
        pytest.param(
            a_node({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, unschedulable=True),
            "",
            id="a cordon and its own taint",
        ),
        pytest.param(a_node(SPOT, unschedulable=True), "SpotInterruption", id="a cordon with a termination notice"),
        pytest.param(a_node({"key": "DeletionCandidateOfClusterAutoscaler"}), "", id="a mere candidate"),
        pytest.param(
            a_node({"key": "aws-node-termination-handler/rebalance-recommendation"}), "", id="a recommendation"
        ),
        pytest.param(
            a_node({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}), "", id="a node that is not ready"
        ),
        pytest.param(a_node({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}), "", id="a silent node"),
        pytest.param(
            a_node(metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}), "NodeDeleted", id="it is being deleted"
        ),
        pytest.param(
            a_node(SPOT, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}),
            "NodeDeleted",
            id="the end itself comes before what leads there",
        ),
    ],
)
def test_signs(node: Node, reason: str):
    assert notice(node) == reason


def test_an_administrator_may_name_more_taints():
    ours = a_node({"key": "example.com/leaving"})
    assert notice(ours) == ""
    assert notice(ours, ("example.com/leaving", "example.com/other")) == "NodeTainted"
    assert notice(a_node({"key": "example.com/leaving"}, SPOT), ("example.com/leaving",)) == "SpotInterruption"


FENCE = Taint(key="spot", value="going", effect="NoSchedule")
GOING = ObservedNode(reason="SpotInterruption", taints=(FENCE,))
STAYING = ObservedNode()
SCALED_DOWN = ObservedNode(reason="NodeScaledDown", taints=(FENCE,))


def test_of_a_node_that_stays_nothing_matters():
    assert observed_node(a_node({"key": "nvidia.com/gpu", "effect": "NoSchedule"}, unschedulable=True)) == STAYING


def test_of_one_that_goes_it_matters_what_keeps_pods_off_it():
    wish = {"key": "wish", "effect": "PreferNoSchedule"}
    spot = Taint(key=SPOT["key"], value="i-1", effect="NoSchedule")
    assert observed_node(a_node(SPOT, wish)) == ObservedNode(reason="SpotInterruption", taints=(spot,), notice=120)
    assert observed_node(a_node(SPOT, unschedulable=True)).taints == (spot, CORDON)


@pytest.mark.parametrize(
    ("tolerated", "leaving"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([{"key": "nvidia.com/gpu", "operator": "Exists"}], True, id="another taint"),
        pytest.param([{"key": "spot", "value": "staying"}], True, id="another value"),
        pytest.param([{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], True, id="another effect"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 300}], True, id="everything, for five minutes"),
        pytest.param([{"key": "spot", "value": "going"}], False, id="exactly this"),
        pytest.param([{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}], False, id="whatever its value"),
        pytest.param([{"operator": "Exists"}], False, id="everything"),
    ],
)
def test_a_pod_leaves_a_node_to_which_it_could_not_come_back(tolerated: list[dict[str, Any]], leaving: bool):
    pod = read({"metadata": {"name": "w"}, "spec": {"tolerations": tolerated}}, Pod)
    assert leaves(GOING, tolerations(pod)) is leaving
    assert leaves(ObservedNode(reason="NodeDeleted", gone=True), tolerations(pod)), (
        "no pod tolerates a node that is gone"
    )
    assert not leaves(ObservedNode(reason="NodeDeleted"), tolerations(pod)), "it takes new pods still"


def test_one_fence_that_is_not_tolerated_is_enough():
    spot = (Toleration(key="spot", operator="Exists"),)
    assert not leaves(GOING, spot)
    assert leaves(ObservedNode(reason="SpotInterruption", taints=(FENCE, CORDON)), spot)


def on(node: str, pod: PodView) -> PodView:
    return msgspec.structs.replace(pod, node=node)


def test_a_node_that_is_about_to_go_concerns_the_jobs_with_pods_on_it():
    cache = Cache()
    cache.set_pod((KEY.namespace, "w0"), (KEY, on("node-1", worker(0))))
    cache.set_pod((OTHER.namespace, "w1"), (OTHER, on("node-2", worker(1))))
    assert not cache.set_node("node-1", STAYING)
    assert cache.set_node("node-1", GOING) == (KEY,)
    assert not cache.set_node("node-1", GOING), "a heartbeat is no news"
    assert cache.ending_nodes == {"node-1": GOING}
    assert cache.set_node("node-1", STAYING) == (KEY,), "a notice that is taken back is"
    assert cache.ending_nodes == {}


def test_a_node_that_was_deleted_is_remembered_as_long_as_pods_are_on_it():
    cache = Cache()
    cache.set_node("node-1", STAYING)
    cache.set_node("node-2", STAYING)
    cache.set_pod((KEY.namespace, "w0"), (KEY, on("node-1", worker(0))))
    assert cache.set_node("node-1", None) == (KEY,)
    assert not cache.set_node("node-2", None)
    assert cache.notice(on("node-1", worker(0))) == GONE
    cache.set_pod((KEY.namespace, "w0"), None)
    assert cache.ending_nodes == {}


def test_timers_run_where_nodes_may_not_be_seen():
    watching = Watching()
    assert watching.cache.sees(TRAININGJOBS)
    watching.cache.nodes.blind = True
    watching.cache.nodes.version = 0
    assert watching.cache.sees(TRAININGJOBS)


def a_watched_job(*pods_on: PodView) -> Watching:
    """A running job as the log knows it, and its pods on nodes."""
    watching = Watching(*a_running_job(workers=2), pods(*pods_on))
    watching.show(a_resource(version=1))
    watching.show_pods(*pods_on)
    watching.settle()
    return watching


HERE = (on("node-1", worker(0, version=30)), on("node-2", worker(1, version=30)))
LAUNCHER = on("node-1", launcher(version=30))


def test_each_pod_on_such_a_node_is_told_of_once():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    told = watching.settle()
    uids = (Uid("pod-0"), Uid("pod-launcher"))
    assert told == [DisruptionNoticed(node="node-1", uids=uids, reason="SpotInterruption")]
    watching.cache.set_node("node-1", SCALED_DOWN)
    assert watching.settle() == []
    watching.restarted()
    watching.show(a_resource(version=1))
    watching.show_pods(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    assert watching.settle() == [], "another process reads in the log that it was told"


def test_a_notice_is_told_of_again_if_it_is_shorter_than_the_one_before():
    watching = a_watched_job(*HERE, LAUNCHER)
    node = {"reason": "SpotInterruption", "taints": (FENCE,)}
    told = []
    for seconds in (120, 150, 30, 60, 0):
        watching.cache.set_node("node-2", ObservedNode(**node, notice=seconds))
        told += [fact.seconds for fact in watching.settle() if isinstance(fact, DisruptionNoticed)]
    assert told == [120, 30, 0]


@pytest.mark.parametrize("goes", [GOING, None], ids=["its notice is withdrawn", "it was deleted, and registers again"])
def test_a_pod_whose_node_stays_after_all_is_no_longer_about_to_go(goes: ObservedNode | None):
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", STAYING)
    watching.cache.set_node("node-1", goes)
    watching.settle()
    assert watching.job().pods.notices.keys() == {Uid("pod-0"), Uid("pod-launcher")}
    watching.cache.set_node("node-1", STAYING)
    back = NodeBack(node="node-1", uids=(Uid("pod-0"), Uid("pod-launcher")), stays=True)
    assert watching.settle() == [back]
    failed = msgspec.structs.replace(LAUNCHER, version=90, phase="Failed", exits=exited(1))
    watching.show_pods(*HERE, failed)
    watching.settle()
    end = verdict(watching.job())
    assert end is not None
    assert (end.reason, end.disrupted) == ("TrainingJobFailed", False), "it fails for its own fault"


def test_a_node_that_was_deleted_while_no_watcher_looked_does_not_stay():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    watching.settle()
    watching.restarted()
    watching.show(a_resource(version=1))
    watching.show_pods(*HERE, LAUNCHER)
    assert watching.cache.nodes.listed
    assert watching.settle() == []


def test_a_pod_that_is_being_deleted_goes_whether_its_node_stays_or_not():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    watching.settle()
    deleted = msgspec.structs.replace(LAUNCHER, version=40, deleting=True)
    watching.show_pods(deleted)
    watching.cache.set_node("node-1", STAYING)
    assert watching.settle() == [NodeBack(node="node-1", uids=(HERE[0].uid,), stays=True), pods(deleted)]
    assert LAUNCHER.uid in watching.job().pods.notices


def test_a_node_that_stays_brings_no_worker_back_that_was_released():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-2", GOING)
    watching.settle()
    watching.fold(KEY, WorkersReleased(request=Uid(""), slots=(workers(1),), reason="Disrupted"))
    watching.cache.set_node("node-2", STAYING)
    assert watching.settle() == []


def test_a_node_stays_for_a_pod_once_the_log_knows_that_its_eviction_is_off():
    watching = a_watched_job(HERE[1], LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    watching.settle()
    watching.show_pods(msgspec.structs.replace(LAUNCHER, version=40, disruption="EvictionByEvictionAPI"))
    watching.settle()
    watching.cache.set_node("node-1", STAYING)
    off = msgspec.structs.replace(LAUNCHER, version=50)
    watching.show_pods(off)
    seen = observe(watching.job(), watching.cache, watching.answers, watching.histories, Unrecorded(pods=True))
    assert [*seen.facts] == [], "the fold keeps the notice of a pod that it knows as evicted"
    assert watching.settle() == [pods(off), NodeBack(node="node-1", uids=(LAUNCHER.uid,), stays=True)]
    assert LAUNCHER.uid not in watching.job().pods.notices


def test_an_evicted_pod_is_told_of_by_its_own_condition_alone():
    evicted = on("node-2", worker(1, version=40, disruption="EvictionByEvictionAPI"))
    watching = a_watched_job(HERE[0], evicted, LAUNCHER)
    watching.cache.set_node("node-2", GOING)
    assert watching.settle() == []


def test_of_several_notices_of_a_node_the_shortest_counts_whose_length_is_known():
    scaled_down = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    shutdown = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    assert notice(a_node(scaled_down)) == "NodeScaledDown"
    assert notice(a_node(scaled_down, SPOT)) == "SpotInterruption"
    assert notice(a_node(scaled_down, SPOT, shutdown)) == "NodeShutdown"


def test_each_node_is_told_of_by_itself():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-2", SCALED_DOWN)
    watching.cache.set_node("node-1", GOING)
    assert [fact.node for fact in watching.settle() if isinstance(fact, DisruptionNoticed)] == ["node-1", "node-2"]


def test_a_pod_that_tolerates_it_is_left_to_say_so_itself():
    watching = a_watched_job(*HERE, LAUNCHER)
    spot = (Toleration(key="spot", operator="Exists"),)
    watching.cache.set_pod((KEY.namespace, HERE[0].name), (KEY, HERE[0]), spot)
    watching.cache.set_node("node-1", GOING)
    assert watching.settle() == [DisruptionNoticed(node="node-1", uids=(LAUNCHER.uid,), reason="SpotInterruption")]
    watching.cache.set_node("node-1", None)
    assert watching.settle() == [DisruptionNoticed(node="node-1", uids=(HERE[0].uid,), reason="NodeDeleted")]


def test_what_a_pod_tolerates_is_known_as_long_as_it_is_there():
    cache, at = Cache(), (KEY.namespace, HERE[0].name)
    cache.set_node("node-1", GOING)
    cache.set_pod(at, (KEY, HERE[0]), (Toleration(operator="Exists"),))
    assert cache.notice(HERE[0]) is None
    cache.set_pod(at, (KEY, HERE[0]))
    assert cache.notice(HERE[0]) == GOING


def test_it_comes_before_what_else_is_seen_of_pods():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-2", SCALED_DOWN)
    watching.show_pods(on("node-1", worker(0, version=40, ready=False)))
    assert [type(fact) for fact in watching.settle()] == [DisruptionNoticed, PodsObserved]


def test_a_pod_that_the_log_has_not_seen_is_told_of_first():
    watching = Watching(*a_created_job(workers=1))
    watching.show(a_resource(a_spec(1), version=1))
    watching.cache.set_node("node-1", GOING)
    watching.show_pods(on("node-1", worker(0)))
    told = watching.settle()
    assert [type(fact) for fact in told] == [PodsObserved, DisruptionNoticed]
    assert watching.job().pods.disrupted == {Uid("pod-0"): "SpotInterruption"}


def test_a_pod_that_leaves_anyway_is_not_told_of():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.fold(KEY, SlotsReleased(slots=(workers(0, 1),)))
    watching.cache.set_node("node-2", GOING)
    assert watching.settle() == []


def test_nor_is_any_pod_of_a_job_that_is_over():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.fold(KEY, JobSucceeded(reason="TrainingJobSucceeded"))
    watching.cache.set_node("node-1", GOING)
    assert watching.settle() == []


def test_what_a_store_showed_that_has_gone_is_no_notice():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-1", GOING)
    watching.cache.nodes.outdated = True
    assert watching.settle() == []


def test_a_notice_of_very_many_pods_is_told_in_parts():
    count = UIDS_PER_EVENT + 1
    views = [on("node-1", worker(index, version=30)) for index in range(count)]
    watching = Watching(*a_created_job(workers=1), SlotsAssigned(slots=(workers(*range(count)),)), pods(*views))
    watching.show(a_resource(a_spec(1), version=1))
    watching.show_pods(*views)
    watching.cache.set_node("node-1", GOING)
    told = [fact for fact in watching.seen() if isinstance(fact, DisruptionNoticed)]
    assert [len(fact.uids) for fact in told] == [UIDS_PER_EVENT, 1]
    assert not watching.settle()[2:]


def test_what_is_gone_is_forgotten():
    watching = a_watched_job(*HERE, LAUNCHER)
    watching.cache.set_node("node-2", GOING)
    watching.settle()
    watching.take_pods("resnet-worker-1")
    assert PodsGone(uids=(Uid("pod-1"),)) in watching.settle()
    assert watching.job().pods.disrupted == {}


def a_guarded_cluster() -> Failing:
    """A cluster whose nodes this client may not see."""
    return Failing(lambda call: call.plural == NODES.plural, Transient("Forbidden"), seconds=30.0)


async def test_without_the_right_to_see_nodes_everything_else_is_seen():
    journal, store, weather = MemoryJournal(), MemoryStore(), a_guarded_cluster()
    eventlog = MemoryEventLog(journal, user="watcher")
    watcher = Watcher(MemoryCluster(store, weather=weather), eventlog, await eventlog.bucket(HEADS))
    async with running(Runtime(watcher, eventlog)):
        await asyncio.sleep(100)
        store.create(TRAININGJOBS, NAMESPACE, a_training_job())
        await until(lambda: journal.events[-1].subject.endswith("JobObserved"), "the job is seen")
    assert weather.count("watch", "nodes")


async def test_in_one_namespace_no_service_asks_for_nodes():
    journal, store, weather = MemoryJournal(), MemoryStore(), a_guarded_cluster()
    eventlog = MemoryEventLog(journal, user="watcher")
    cluster = MemoryCluster(store, weather=weather)
    watcher = Watcher(cluster, eventlog, await eventlog.bucket(HEADS), options=Options(namespace=NAMESPACE))
    async with running(Runtime(watcher, eventlog, namespace=NAMESPACE)):
        await asyncio.sleep(100)
    assert {call.namespace for call in weather.calls} == {NAMESPACE}
    assert "nodes" not in {call.plural for call in weather.calls}
