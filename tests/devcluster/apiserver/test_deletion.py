"""What goes, when it goes, and what goes with it."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NAMESPACES = "/api/v1/namespaces"
BACKGROUND, FOREGROUND, ORPHAN = ({"propagationPolicy": one} for one in ("Background", "Foreground", "Orphan"))


def gone(answer):
    return answer.code == 404


async def a_config(api, name, *owners, namespace="default", **metadata):
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True}
        | {field: owner["metadata"][field] for field in ("name", "uid")}
        for owner in owners
    ]
    body = {"metadata": {"name": name, "ownerReferences": references} | metadata}
    answer = await api.create(f"{NAMESPACES}/{namespace}/configmaps", body)
    assert answer.code == 201, answer.body
    return answer.body


async def a_pod(api, name="worker", node="node-0", **metadata):
    spec = {"containers": [{"name": "main", "image": "trainer:1"}], "terminationGracePeriodSeconds": 20}
    spec |= {"nodeName": node} if node else {}
    answer = await api.create(PODS, {"metadata": {"name": name} | metadata, "spec": spec})
    assert answer.code == 201, answer.body
    return answer.body


async def test_a_deletion_is_answered_with_what_it_deleted(api):
    config = await a_config(api, "a")
    answer = await api.delete(f"{CONFIGS}/a")
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": config["metadata"]["uid"]}
    assert (await api.delete(f"{CONFIGS}/a")).code == 404


async def test_a_deletion_for_another_uid_is_a_conflict(api):
    config = await a_config(api, "a")
    answer = await api.delete(f"{CONFIGS}/a", {"preconditions": {"uid": "another"}})
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    uid = config["metadata"]["uid"]
    assert f"the UID in the precondition (another) does not match the UID in record ({uid})" in answer.body["message"]
    assert (await api.delete(f"{CONFIGS}/a", {"preconditions": {"uid": uid}})).code == 200


async def test_a_deletion_of_an_older_version_is_a_conflict(api):
    config = await a_config(api, "a")
    await api.merge(f"{CONFIGS}/a", {"data": {"b": "c"}})
    version = config["metadata"]["resourceVersion"]
    assert (await api.delete(f"{CONFIGS}/a", {"preconditions": {"resourceVersion": version}})).code == 409


async def test_finalizers_hold_what_is_deleted(api):
    await a_config(api, "a", finalizers=["example.dev/hold"])
    held = (await api.delete(f"{CONFIGS}/a")).body
    assert held["metadata"]["deletionTimestamp"]
    added = await api.merge(f"{CONFIGS}/a", {"metadata": {"finalizers": ["example.dev/hold", "example.dev/more"]}})
    assert (added.code, added.fields) == (422, ["metadata.finalizers"])
    await api.merge(f"{CONFIGS}/a", {"metadata": {"finalizers": []}})
    assert (await api.get(f"{CONFIGS}/a")).code == 404


async def test_a_bound_pod_is_given_time_to_end(api):
    await a_pod(api)
    ending = (await api.delete(f"{PODS}/worker")).body
    assert ending["metadata"]["deletionGracePeriodSeconds"] == 20
    again = (await api.delete(f"{PODS}/worker")).body
    assert again == ending
    shorter = (await api.delete(f"{PODS}/worker", {"gracePeriodSeconds": 5})).body
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    # The node agent has ended the containers.
    last = await api.delete(f"{PODS}/worker", {"gracePeriodSeconds": 0})
    assert last.body["kind"] == "Pod"
    assert (await api.get(f"{PODS}/worker")).code == 404


async def test_a_pod_without_a_node_goes_at_once(api):
    await a_pod(api, node="")
    assert (await api.delete(f"{PODS}/worker")).body["kind"] == "Pod"
    assert (await api.get(f"{PODS}/worker")).code == 404


async def test_a_pod_that_is_over_goes_at_once(api):
    await a_pod(api)
    await api.merge(f"{PODS}/worker/status", {"status": {"phase": "Failed"}})
    await api.delete(f"{PODS}/worker")
    assert (await api.get(f"{PODS}/worker")).code == 404


async def test_a_pod_with_a_finalizer_outlives_its_node_agents_deletion(api):
    await a_pod(api, finalizers=["example.dev/hold"])
    await api.delete(f"{PODS}/worker", {"gracePeriodSeconds": 0})
    await api.merge(f"{PODS}/worker", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{PODS}/worker")).code == 404


async def test_dependents_go_with_their_last_owner(api):
    one, two = await a_config(api, "one"), await a_config(api, "two")
    await a_config(api, "dependent", one, two)
    await a_config(api, "grandchild", (await api.get(f"{CONFIGS}/dependent")).body)
    await api.delete(f"{CONFIGS}/one", BACKGROUND)
    left = await api.until(f"{CONFIGS}/dependent", lambda a: len(a.body["metadata"]["ownerReferences"]) == 1)
    assert left.body["metadata"]["ownerReferences"][0]["name"] == "two"
    await api.delete(f"{CONFIGS}/two", BACKGROUND)
    await api.until(f"{CONFIGS}/dependent", gone)
    await api.until(f"{CONFIGS}/grandchild", gone)


async def test_a_child_of_an_owner_that_never_existed_is_deleted_too(api):
    missing = {"metadata": {"name": "missing", "uid": "11111111-1111-1111-1111-111111111111"}}
    await a_config(api, "dependent", missing)
    await api.until(f"{CONFIGS}/dependent", gone)


async def test_orphans_stay_without_their_owner(api):
    owner = await a_config(api, "owner")
    await a_config(api, "dependent", owner)
    version = (await api.get(CONFIGS)).body["metadata"]["resourceVersion"]
    orphaned = (await api.delete(f"{CONFIGS}/owner", ORPHAN)).body
    assert orphaned["metadata"]["finalizers"] == ["orphan"]
    await api.until(f"{CONFIGS}/owner", gone)
    assert "ownerReferences" not in (await api.get(f"{CONFIGS}/dependent")).body["metadata"]
    events = await api.first(f"{CONFIGS}?watch=1&resourceVersion={version}", 3)
    assert [(kind, obj["metadata"]["name"]) for kind, obj in events] == [
        ("MODIFIED", "owner"),
        ("MODIFIED", "dependent"),
        ("DELETED", "owner"),
    ]


async def test_an_owner_deleted_in_the_foreground_goes_last(api):
    owner = await a_config(api, "owner")
    await a_config(api, "dependent", owner, finalizers=["example.dev/hold"])
    held = (await api.delete(f"{CONFIGS}/owner", FOREGROUND)).body
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.until(f"{CONFIGS}/dependent", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    assert (await api.get(f"{CONFIGS}/owner")).code == 200
    await api.merge(f"{CONFIGS}/dependent", {"metadata": {"finalizers": None}})
    await api.until(f"{CONFIGS}/owner", gone)


async def test_a_namespace_takes_its_contents_along(api):
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})
    await a_config(api, "held", namespace="team", finalizers=["example.dev/hold"])
    await a_config(api, "free", namespace="team")
    ending = (await api.delete(f"{NAMESPACES}/team")).body
    assert ending["status"]["phase"] == "Terminating"
    await api.until(f"{NAMESPACES}/team/configmaps/free", gone)
    refused = await api.create(f"{NAMESPACES}/team/configmaps", {"metadata": {"name": "late"}})
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]
    await api.merge(f"{NAMESPACES}/team/configmaps/held", {"metadata": {"finalizers": None}})
    await api.until(f"{NAMESPACES}/team", gone)


async def test_a_collection_is_deleted_by_selection(api):
    await a_config(api, "one", labels={"team": "a"})
    await a_config(api, "two")
    deleted = await api.delete(f"{CONFIGS}?labelSelector=team=a")
    assert [item["metadata"]["name"] for item in deleted.body["items"]] == ["one"]
    assert [item["metadata"]["name"] for item in (await api.get(CONFIGS)).body["items"]] == ["two"]


@pytest.mark.parametrize(
    "options", [[], {"gracePeriodSeconds": "soon"}, {"preconditions": 5}, {"propagationPolicy": "Sideways"}]
)
async def test_options_that_are_none_delete_nothing(api, options):
    await a_config(api, "a")
    assert (await api.delete(f"{CONFIGS}/a", options)).code in (400, 422)
    assert (await api.get(f"{CONFIGS}/a")).code == 200
