"""What built-in kinds are completed with and refused for, as the real server does it."""

import pytest

NAMESPACE = "/api/v1/namespaces/default"
PODS, SERVICES, CONFIGS, SECRETS = (f"{NAMESPACE}/{kind}" for kind in ("pods", "services", "configmaps", "secrets"))


def a_pod(**spec):
    spec = {"containers": [{"name": "main", "image": "train:1"}], "schedulerName": "nobody"} | spec
    return {"metadata": {"name": "p"}, "spec": spec}


def a_service(**spec):
    return {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"app": "x"}} | spec}


async def test_a_pod_gets_what_admission_gives_it(api):
    pod = (await api.create(PODS, a_pod(terminationGracePeriodSeconds=-1))).body
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [one["tolerationSeconds"] for one in pod["spec"]["tolerations"]] == [300, 300]
    assert (pod["spec"]["terminationGracePeriodSeconds"], pod["metadata"]["generation"]) == (1, 1)


async def test_a_gated_pod_says_so_and_has_no_node(api):
    gates = [{"name": "test.dev/gate"}]
    [condition] = (await api.create(PODS, a_pod(schedulingGates=gates))).body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        pytest.param({"nodeName": "node-1"}, ["spec"], id="a node"),
        pytest.param({"containers": []}, ["spec.containers", "spec.containers"], id="no containers"),
        pytest.param({"restartPolicy": "Sometimes"}, ["spec.restartPolicy", "spec"], id="what was never right"),
    ],
)
async def test_changes_that_a_pod_refuses(api, change, fields):
    await api.create(PODS, a_pod())
    assert (await api.merge(f"{PODS}/p", {"spec": change})).fields == fields


async def test_a_headless_service_says_which_addresses_it_has(api):
    spec = (await api.create(SERVICES, a_service())).body["spec"]
    assert (spec["clusterIPs"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["None"], ["IPv4"], "SingleStack")
    other = a_service(selector=None) | {"metadata": {"name": "any"}}
    assert (await api.create(SERVICES, other)).body["spec"]["ipFamilyPolicy"] == "RequireDualStack"


async def test_what_is_empty_is_left_out(api):
    config = {"metadata": {"name": "c", "labels": {}, "finalizers": []}, "data": {}}
    made = (await api.create(CONFIGS, config)).body
    assert not {"data"} & set(made)
    assert not {"labels", "finalizers"} & set(made["metadata"])


async def test_secrets_are_in_base64(api):
    assert (await api.create(SECRETS, {"metadata": {"name": "s"}, "data": {"key": "!"}})).code == 400


@pytest.mark.parametrize("kind", [CONFIGS, SECRETS])
async def test_what_is_immutable_keeps_its_data(api, kind):
    await api.create(kind, {"metadata": {"name": "c"}, "data": {"a": "MQ=="}, "immutable": True})
    for change in ({"data": {"a": "Mg=="}}, {"immutable": False}):
        assert (await api.merge(f"{kind}/c", change)).code == 422
    assert (await api.merge(f"{kind}/c", {"metadata": {"labels": {"a": "b"}}})).code == 200


async def test_items_of_a_built_in_list_do_not_repeat_their_kind(api):
    await api.create(CONFIGS, {"metadata": {"name": "c"}})
    [item] = (await api.get(CONFIGS)).body["items"]
    assert not {"kind", "apiVersion"} & set(item)


async def test_a_creation_brings_no_version(api):
    refused = await api.create(CONFIGS, {"metadata": {"name": "c", "resourceVersion": "7"}})
    assert (refused.code, "reason" in refused.body) == (500, False)
