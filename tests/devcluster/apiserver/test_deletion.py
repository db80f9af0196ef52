"""What is deleted and when, besides what `tests/contract` compares with the real server."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def a_config(api, name, **metadata):
    answer = await api.create(CONFIGS, {"metadata": {"name": name} | metadata})
    assert answer.code == 201, answer.body


async def a_pod(api, name="worker", **metadata):
    spec = {"containers": [{"name": "main", "image": "trainer:1"}], "terminationGracePeriodSeconds": 20}
    answer = await api.create(PODS, {"metadata": {"name": name} | metadata, "spec": spec | {"nodeName": "node-0"}})
    assert answer.code == 201, answer.body


async def test_a_pod_with_a_finalizer_outlives_its_node_agents_deletion(api):
    await a_pod(api, finalizers=["example.dev/hold"])
    await api.delete(f"{PODS}/worker", {"gracePeriodSeconds": 0})
    await api.merge(f"{PODS}/worker", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{PODS}/worker")).code == 404


@pytest.mark.parametrize(
    "options", [[], {"gracePeriodSeconds": "soon"}, {"preconditions": 5}, {"propagationPolicy": "Sideways"}]
)
async def test_options_that_are_none_delete_nothing(api, options):
    await a_config(api, "a")
    assert (await api.delete(f"{CONFIGS}/a", options)).code in (400, 422)
    assert (await api.get(f"{CONFIGS}/a")).code == 200
