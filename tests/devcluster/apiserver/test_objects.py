"""Creating, replacing and patching objects, as any client meets it."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def a_config(name="settings", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def a_pod(name="worker", **spec):
    containers = [{"name": "main", "image": "trainer:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers} | spec,
    }


async def test_a_new_object_gets_identity_and_version(api):
    answer = await api.create(CONFIGS, a_config(a="1"))
    assert answer.code == 201
    metadata = answer.body["metadata"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["namespace"] == "default"
    assert (await api.get(f"{CONFIGS}/settings")).body == answer.body


async def test_a_name_is_given_once(api):
    await api.create(CONFIGS, a_config())
    answer = await api.create(CONFIGS, a_config())
    assert (answer.code, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "settings" already exists'
    assert answer.body["details"] == {"name": "settings", "kind": "configmaps"}


async def test_generated_names_differ(api):
    names = set()
    for _ in range(3):
        answer = await api.create(CONFIGS, {"metadata": {"generateName": "settings-"}})
        names.add(answer.body["metadata"]["name"])
    assert len(names) == 3


async def test_what_is_missing_is_not_found(api):
    answer = await api.get(f"{CONFIGS}/nothing")
    assert (answer.code, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["message"] == 'configmaps "nothing" not found'


async def test_nothing_is_created_in_a_missing_namespace(api):
    answer = await api.create("/api/v1/namespaces/nowhere/configmaps", a_config())
    assert answer.code == 404
    assert answer.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_a_write_that_changes_nothing_takes_no_version(api):
    made = (await api.create(CONFIGS, a_config(a="1"))).body
    again = await api.replace(f"{CONFIGS}/settings", made)
    merged = await api.merge(f"{CONFIGS}/settings", {"data": {"a": "1"}})
    assert made == again.body == merged.body


async def test_a_replacement_of_an_older_version_is_a_conflict(api):
    made = (await api.create(CONFIGS, a_config(a="1"))).body
    await api.merge(f"{CONFIGS}/settings", {"data": {"a": "2"}})
    answer = await api.replace(f"{CONFIGS}/settings", made)
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer.body["message"]


@pytest.mark.parametrize(("field", "refusal"), [("resourceVersion", (409, "Conflict")), ("uid", (422, "Invalid"))])
async def test_a_patch_names_the_object_it_is_for(api, field, refusal):
    made = (await api.create(CONFIGS, a_config(a="1"))).body
    held = await api.merge(f"{CONFIGS}/settings", {"metadata": {field: made["metadata"][field]}, "data": {"a": "2"}})
    assert held.code == 200
    answer = await api.merge(f"{CONFIGS}/settings", {"metadata": {field: "12345"}, "data": {"a": "3"}})
    assert (answer.code, answer.body["reason"]) == refusal
    assert (await api.get(f"{CONFIGS}/settings")).body["data"] == {"a": "2"}


async def test_identity_is_not_for_clients_to_change(api):
    made = (await api.create(CONFIGS, a_config())).body
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}}
    assert (await api.merge(f"{CONFIGS}/settings", patch)).body == made
    ending = await api.merge(f"{CONFIGS}/settings", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}})
    assert (ending.code, ending.fields) == (422, ["metadata.deletionTimestamp"])
    assert (await api.merge(f"{CONFIGS}/settings", {"metadata": {"name": "other"}})).code == 400


async def test_a_json_patch_can_test_first(api):
    await api.create(CONFIGS, a_config(a="1"))
    patch = [{"op": "test", "path": "/data/a", "value": "2"}, {"op": "remove", "path": "/data/a"}]
    answer = await api.call("PATCH", f"{CONFIGS}/settings", patch, media="application/json-patch+json")
    assert answer.code == 422
    patch[0]["value"] = "1"
    answer = await api.call("PATCH", f"{CONFIGS}/settings", patch, media="application/json-patch+json")
    assert answer.code == 200
    assert "data" not in answer.body


async def test_a_dry_run_shows_and_stores_nothing(api):
    answer = await api.create(f"{CONFIGS}?dryRun=All", a_config())
    assert answer.code == 201
    assert (await api.get(f"{CONFIGS}/settings")).code == 404
    made = (await api.create(CONFIGS, a_config(a="1"))).body
    patched = await api.merge(f"{CONFIGS}/settings?dryRun=All", {"data": {"a": "2"}})
    assert patched.body["data"] == {"a": "2"}
    assert (await api.get(f"{CONFIGS}/settings")).body == made
    await api.delete(f"{CONFIGS}/settings?dryRun=All")
    assert (await api.get(f"{CONFIGS}/settings")).body == made


async def test_a_pod_is_completed_as_the_real_server_does(api):
    pod = (await api.create(PODS, a_pod())).body
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["qosClass"] == "BestEffort"


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
    assert answer.body["message"].startswith('Pod "worker" is invalid: ')


async def test_a_pod_name_may_be_longer_than_a_hostname(api):
    assert (await api.create(PODS, a_pod("w" * 100))).code == 201
    assert (await api.create(PODS, a_pod("w" * 254))).code == 422


async def test_a_running_pod_keeps_its_spec(api):
    await api.create(PODS, a_pod())
    answer = await api.merge(f"{PODS}/worker", {"spec": {"hostname": "other"}})
    assert (answer.code, answer.fields) == (422, ["spec"])


async def test_status_is_written_through_its_subresource_alone(api):
    await api.create(PODS, a_pod() | {"status": {"phase": "Running"}})
    assert (await api.get(f"{PODS}/worker")).body["status"]["phase"] == "Pending"
    await api.merge(f"{PODS}/worker", {"status": {"phase": "Running"}})
    assert (await api.get(f"{PODS}/worker")).body["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "spec": {"nodeName": "ignored"}}
    running = (await api.merge(f"{PODS}/worker/status", patch)).body
    assert running["status"]["phase"] == "Running"
    assert "nodeName" not in running["spec"]


async def test_a_secret_is_given_in_plain_text_and_kept_encoded(api):
    secrets = "/api/v1/namespaces/default/secrets"
    made = await api.create(secrets, {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    assert made.body["data"] == {"a": "Yg=="}
    assert made.body["type"] == "Opaque"
    assert "stringData" not in made.body


async def test_labels_are_checked(api):
    config = a_config()
    config["metadata"]["labels"] = {"team": "not a label"}
    answer = await api.create(CONFIGS, config)
    assert (answer.code, answer.fields) == (422, ["metadata.labels"])


async def test_metadata_of_the_wrong_type_is_a_bad_request(api):
    for metadata in ([], {"name": 5}, {"name": "x", "labels": []}, {"name": "x", "ownerReferences": [7]}):
        assert (await api.create(CONFIGS, {"metadata": metadata})).code == 400


async def test_a_body_of_another_kind_is_a_bad_request(api):
    answer = await api.create(CONFIGS, a_config() | {"kind": "Secret"})
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_unknown_kinds_and_methods_are_refused(api):
    assert (await api.get("/apis/apps/v1/deployments")).code == 404
    assert (await api.get("/api/v1/namespaces/default/pods/a/b/c")).code == 404
    assert (await api.call("PUT", CONFIGS, {})).code == 405
    assert (await api.call("POST", f"{CONFIGS}/settings", {})).code == 405
    assert (await api.create("/api/v1/configmaps", a_config())).code == 405
    strange = await api.call("PATCH", f"{CONFIGS}/settings", {}, media="application/unheard-of")
    assert strange.code == 415
