"""What built-in kinds are completed with and refused for; `tests/contract` compares much more with the real server."""

import pytest

NAMESPACE = "/api/v1/namespaces/default"
KINDS = ("pods", "services", "configmaps", "secrets", "events")
PODS, SERVICES, CONFIGS, SECRETS, EVENTS = (f"{NAMESPACE}/{kind}" for kind in KINDS)
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def a_pod(name="p", **spec):
    spec = {"containers": [{"name": "main", "image": "train:1"}], "schedulerName": "nobody"} | spec
    return {"metadata": {"name": name}, "spec": spec}


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


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"containers": []}, "spec.containers", id="no containers"),
        pytest.param({"containers": [{"name": "a"}]}, "spec.containers[0].image", id="no image"),
        pytest.param({"containers": [{"name": "A_", "image": "i"}]}, "spec.containers[0].name", id="a bad name"),
        pytest.param({"containers": [{"name": "a", "image": "i"}] * 2}, "spec.containers[1].name", id="twice one name"),
        pytest.param({"restartPolicy": "Sometimes"}, "spec.restartPolicy", id="an unknown policy"),
        pytest.param({"hostname": "a" * 64}, "spec.hostname", id="a hostname of 64 letters"),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "spec.containers[0].volumeMounts[0].name",
            id="a mount without its volume",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "a lot"}}}]},
            "spec.containers[0].resources.limits[cpu]",
            id="a quantity that is none",
        ),
    ],
)
async def test_a_pod_that_cannot_run_is_refused_with_the_field(api, spec, field):
    answer = await api.create(PODS, a_pod(**spec))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert field in answer.fields
    assert answer.body["message"].startswith('Pod "p" is invalid: ')


async def test_a_pod_name_may_be_longer_than_a_hostname(api):
    assert (await api.create(PODS, a_pod(name="w" * 100))).code == 201
    assert (await api.create(PODS, a_pod(name="w" * 254))).code == 422


async def test_a_secret_is_given_in_plain_text_and_kept_encoded(api):
    secrets = "/api/v1/namespaces/default/secrets"
    made = await api.create(secrets, {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    assert made.body["data"] == {"a": "Yg=="}
    assert made.body["type"] == "Opaque"
    assert "stringData" not in made.body


async def test_metadata_of_the_wrong_type_is_a_bad_request(api):
    for metadata in ([], {"name": 5}, {"name": "x", "labels": []}, {"name": "x", "ownerReferences": [7]}):
        assert (await api.create(CONFIGS, {"metadata": metadata})).code == 400


async def test_unknown_kinds_and_methods_are_refused(api):
    assert (await api.get("/apis/apps/v1/deployments")).code == 404
    assert (await api.get("/api/v1/namespaces/default/pods/a/b/c")).code == 404
    assert (await api.call("PUT", CONFIGS, {})).code == 405
    assert (await api.call("POST", f"{CONFIGS}/c", {})).code == 405
    assert (await api.create("/api/v1/configmaps", {"metadata": {"name": "c"}})).code == 405
    strange = await api.call("PATCH", f"{CONFIGS}/c", {}, media="application/unheard-of")
    assert strange.code == 415


async def test_an_old_style_event_needs_no_more_than_its_object(api):
    about = {"kind": "Pod", "name": "a", "namespace": "default"}
    event = {"metadata": {"name": "a.1"}, "involvedObject": about, "reason": "Started", "message": "m"}
    assert (await api.create(EVENTS, event)).code == 201
    assert (await api.get(f"{NEW_EVENTS}/a.1")).body["note"] == "m"
