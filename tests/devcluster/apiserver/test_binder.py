"""Pending pods find a node, or say why not."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


async def a_node(api, name="node-0", *, ready="True", labels=None, **allocatable):
    await api.create(NODES, {"metadata": {"name": name, "labels": labels or {}}})
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": allocatable}
    assert (await api.merge(f"{NODES}/{name}/status", {"status": status})).code == 200


async def a_pod(api, name="worker", requests=None, **spec):
    container = {"name": "main", "image": "trainer:1", "resources": {"requests": requests or {}}}
    answer = await api.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]} | spec})
    assert answer.code == 201, answer.body


def scheduled(answer):
    conditions = answer.body.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodScheduled"), None)


async def test_a_pod_waits_until_a_node_is_ready(api):
    await a_pod(api)
    waiting = await api.until(f"{PODS}/worker", scheduled)
    assert scheduled(waiting)["reason"] == "Unschedulable"
    await a_node(api, ready="False")
    await api.merge(f"{NODES}/node-0/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    bound = await api.until(f"{PODS}/worker", lambda answer: answer.body["spec"].get("nodeName"))
    assert bound.body["spec"]["nodeName"] == "node-0"
    assert scheduled(bound)["status"] == "True"


async def test_pods_spread_over_nodes(api):
    await a_node(api, "node-0")
    await a_node(api, "node-1")
    for number in range(4):
        await a_pod(api, f"worker-{number}")
        await api.until(f"{PODS}/worker-{number}", lambda answer: answer.body["spec"].get("nodeName"))
    pods = (await api.get(PODS)).body["items"]
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["node-0", "node-0", "node-1", "node-1"]


async def test_a_pod_waits_for_room(api):
    await a_node(api, cpu="2", **{"nvidia.com/gpu": "1"})
    await a_pod(api, "one", {"cpu": "500m", "nvidia.com/gpu": "1"})
    await api.until(f"{PODS}/one", lambda answer: answer.body["spec"].get("nodeName"))
    await a_pod(api, "two", {"nvidia.com/gpu": "1"})
    waiting = await api.until(f"{PODS}/two", scheduled)
    assert scheduled(waiting)["message"] == "0/1 nodes are available: Insufficient nvidia.com/gpu."
    await api.delete(f"{PODS}/one", {"gracePeriodSeconds": 0})
    await api.until(f"{PODS}/two", lambda answer: answer.body["spec"].get("nodeName"))


async def test_a_gated_pod_is_bound_when_its_gates_are_gone(api):
    await a_node(api)
    await a_pod(api, schedulingGates=[{"name": "example.dev/quota"}])
    await a_pod(api, "other")
    await api.until(f"{PODS}/other", lambda answer: answer.body["spec"].get("nodeName"))
    assert "nodeName" not in (await api.get(f"{PODS}/worker")).body["spec"]
    await api.merge(f"{PODS}/worker", {"spec": {"schedulingGates": None}})
    await api.until(f"{PODS}/worker", lambda answer: answer.body["spec"].get("nodeName"))


async def test_a_node_selector_is_followed_also_by_a_node_that_gets_the_label_later(api):
    await a_node(api, "plain")
    await a_node(api, "special")
    await a_pod(api, nodeSelector={"accelerator": "yes"})
    await api.until(f"{PODS}/worker", scheduled)
    await api.merge(f"{NODES}/special", {"metadata": {"labels": {"accelerator": "yes"}}})
    bound = await api.until(f"{PODS}/worker", lambda answer: answer.body["spec"].get("nodeName"))
    assert bound.body["spec"]["nodeName"] == "special"


SPOT = {"key": "spot", "value": "going", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("effect", "tolerations", "bound"),
    [
        pytest.param("NoSchedule", [], False, id="nothing tolerated"),
        pytest.param("NoExecute", [], False, id="what evicts keeps off too"),
        pytest.param("PreferNoSchedule", [], True, id="a wish"),
        pytest.param("NoSchedule", [{"key": "spot", "operator": "Exists"}], True, id="whatever its value and effect"),
        pytest.param("NoSchedule", [{"key": "spot", "value": "going"}], True, id="this value"),
        pytest.param("NoSchedule", [{"key": "spot", "value": "staying"}], False, id="another value"),
        pytest.param("NoSchedule", [{"key": "spot"}], False, id="no value"),
        pytest.param(
            "NoSchedule", [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], False, id="another effect"
        ),
        pytest.param("NoSchedule", [{"operator": "Exists"}], True, id="everything"),
        pytest.param("NoSchedule", [{"key": "gpu", "operator": "Exists"}], False, id="another taint"),
    ],
)
async def test_a_taint_keeps_off_a_pod_that_does_not_tolerate_it(api, effect, tolerations, bound):
    await a_node(api)
    await api.merge(f"{NODES}/node-0", {"spec": {"taints": [SPOT | {"effect": effect}]}})
    await a_pod(api, tolerations=tolerations)
    decided = await api.until(f"{PODS}/worker", scheduled)
    assert (scheduled(decided)["status"] == "True") is bound
    assert bool(decided.body["spec"].get("nodeName")) is bound


async def test_a_pod_is_tried_again_when_a_taint_is_taken_back(api):
    await a_node(api)
    await api.merge(f"{NODES}/node-0", {"spec": {"taints": [SPOT]}})
    await a_pod(api)
    waiting = await api.until(f"{PODS}/worker", scheduled)
    assert scheduled(waiting)["message"] == "0/1 nodes are available: node(s) had untolerated taint."
    await api.merge(f"{NODES}/node-0", {"spec": {"taints": None}})
    await api.until(f"{PODS}/worker", lambda answer: answer.body["spec"].get("nodeName"))
