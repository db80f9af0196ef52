"""What the embedded API server and the real one say alike over HTTP, beyond what the port asks of them."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from shared.cluster.answers import read_status, trouble
from shared.cluster.calls import METADATA, METADATA_LIST
from shared.errors import Refused
from shared.job.events.event import PERMANENT
from tests.devcluster.apiserver.client import BOUND, Answer
from tests.kit.clusters import Api

NO_SUCH_PATH = "the server could not find the requested resource"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def a_config(name: str = "c", *, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def a_pod(name: str = "p", *, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "train:1"}], "schedulerName": "nobody"}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def names(answer: Answer) -> list[str]:
    """Those of a list, without what controllers make in every namespace."""
    found = [item["metadata"]["name"] for item in answer.body["items"]]
    return [name for name in found if name != "kube-root-ca.crt"]


def failure(code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """The whole body of a refusal."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return body | {"reason": reason, "message": message} | ({} if details is None else {"details": details})


# Refusals, word for word: kubectl prints them and clients sort by them.


async def test_what_is_not_there(api: Api) -> None:
    answer = await api.client.get(api.path("configmaps", "nobody"))
    details = {"name": "nobody", "kind": "configmaps"}
    assert (answer.code, answer.body) == (404, failure(404, "NotFound", 'configmaps "nobody" not found', details))
    assert answer.headers["Content-Type"] == "application/json"
    answer = await api.client.get(api.path("gadgets", "nobody"))
    details = {"name": "nobody", "group": "test.muster.dev", "kind": "gadgets"}
    message = 'gadgets.test.muster.dev "nobody" not found'
    assert (answer.code, answer.body) == (404, failure(404, "NotFound", message, details))


async def test_a_kind_that_is_not_served_is_no_path(api: Api) -> None:
    answer = await api.client.get(f"/api/v1/namespaces/{api.namespace}/nonsense")
    # Kubernetes answers this one in plain text where not even the group is known.
    assert answer.code == 404


async def test_a_name_that_is_taken(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    answer = await api.client.create(api.path("configmaps"), a_config())
    details = {"name": "c", "kind": "configmaps"}
    assert (answer.code, answer.body) == (409, failure(409, "AlreadyExists", 'configmaps "c" already exists', details))


async def test_a_stale_write_is_a_conflict(api: Api) -> None:
    made = await api.client.create(api.path("configmaps"), a_config(a="1"))
    await api.client.merge(api.path("configmaps", "c"), {"data": {"a": "2"}})
    message = (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; please apply your changes to'
        " the latest version and try again"
    )
    conflict = failure(409, "Conflict", message, {"name": "c", "kind": "configmaps"})
    assert (await api.client.replace(api.path("configmaps", "c"), made.body)).body == conflict
    stale = {"metadata": {"resourceVersion": made.body["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    assert (await api.client.merge(api.path("configmaps", "c"), stale)).body == conflict


async def test_what_is_invalid_names_each_field(api: Api) -> None:
    pod = a_pod()
    pod["metadata"]["labels"], pod["spec"]["containers"][0]["name"] = {"team": "not a label"}, "Not A Name"
    answer = await api.client.create(api.path("pods"), pod)
    assert (answer.code, answer.body["reason"], answer.body["details"]["kind"]) == (422, "Invalid", "Pod")
    assert sorted(answer.fields) == ["metadata.labels", "spec.containers[0].name"]
    assert {cause["reason"] for cause in answer.body["details"]["causes"]} == {"FieldValueInvalid"}


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"text"', b'{"metadata": 5}', b'{"data": {"a": 1}}', b'{"kind": "Pod"}']
)
async def test_what_cannot_be_read_is_a_bad_request(api: Api, body: bytes) -> None:
    answer = await api.client.call("POST", api.path("configmaps"), body)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_a_value_of_another_type_than_its_fields_makes_no_pod(api: Api) -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "THREADS", "value": 1}]
    answer = await api.client.create(api.path("pods"), pod)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    refusal = trouble(read_status(json.dumps(answer.body).encode()), "create it", method="POST")
    assert isinstance(refusal, Refused)
    assert refusal.reason in PERMANENT, refusal


async def test_the_namespace_of_the_body_has_to_be_that_of_the_path(api: Api) -> None:
    config = a_config()
    config["metadata"]["namespace"] = "elsewhere"
    message = "the namespace of the provided object does not match the namespace sent on the request"
    answer = await api.client.create(api.path("configmaps"), config)
    assert (answer.code, answer.body) == (400, failure(400, "BadRequest", message))


async def test_a_namespace_that_is_missing_takes_nothing(api: Api) -> None:
    answer = await api.client.create(api.path("configmaps", namespace="missing"), a_config())
    details = {"name": "missing", "kind": "namespaces"}
    assert (answer.code, answer.body) == (404, failure(404, "NotFound", 'namespaces "missing" not found', details))


async def test_a_method_that_is_not_offered(api: Api) -> None:
    answer = await api.client.call("PUT", api.path("configmaps"), {})
    assert (answer.code, answer.body["reason"]) == (405, "MethodNotAllowed")


async def test_a_patch_of_an_unknown_kind_of_patch(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    answer = await api.client.call("PATCH", api.path("configmaps", "c"), {}, media="text/plain")
    assert (answer.code, answer.body["reason"]) == (415, "UnsupportedMediaType")


async def test_a_client_without_a_token_is_refused(api: Api) -> None:
    answer = await api.client.get(api.path("configmaps"), Authorization="Bearer wrong")
    assert (answer.code, answer.body["reason"], answer.body["message"]) == (401, "Unauthorized", "Unauthorized")


# Writing


async def test_an_update_without_a_version_is_unconditional_for_a_config_map(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config(a="1"))
    assert (await api.client.replace(api.path("configmaps", "c"), a_config(a="2"))).code == 200
    other = a_config(a="3")
    other["metadata"]["uid"] = "another"
    assert (await api.client.replace(api.path("configmaps", "c"), other)).code == 409
    misnamed = await api.client.replace(api.path("configmaps", "c"), a_config("d"))
    assert (misnamed.code, misnamed.body["reason"]) == (400, "BadRequest")


async def test_a_wrong_uid_in_a_patch_is_a_change_of_what_cannot_change(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    answer = await api.client.merge(api.path("configmaps", "c"), {"metadata": {"uid": "another"}})
    assert (answer.code, set(answer.fields)) == (422, {"metadata.uid"})


async def test_names_can_be_drawn(api: Api) -> None:
    drawn = [
        (await api.client.create(api.path("configmaps"), {"metadata": {"generateName": "made-"}})).body["metadata"]
        for _ in range(2)
    ]
    assert len({metadata["name"] for metadata in drawn}) == 2
    assert all(len(metadata["name"]) == len("made-") + 5 for metadata in drawn)
    assert drawn[0]["generateName"] == "made-"


async def test_a_dry_run_shows_and_does_nothing(api: Api) -> None:
    path = api.path("configmaps")
    tried = await api.client.create(f"{path}?dryRun=All", a_config(a="1"))
    assert (tried.code, tried.body["data"]) == (201, {"a": "1"})
    assert "resourceVersion" not in tried.body["metadata"]
    assert (await api.client.get(f"{path}/c")).code == 404
    made = await api.client.create(path, a_config(a="1"))
    assert (await api.client.merge(f"{path}/c?dryRun=All", {"data": {"a": "2"}})).body["data"] == {"a": "2"}
    assert (await api.client.delete(f"{path}/c?dryRun=All")).code == 200
    assert (await api.client.get(f"{path}/c")).body == made.body
    refused = await api.client.create(f"{path}?dryRun=Perhaps", a_config("d"))
    assert (refused.code, refused.fields) == (422, ["dryRun"])


async def test_the_options_of_a_deletion_stand_in_its_body_or_else_in_the_query(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    assert (await api.client.delete(api.path("configmaps", "c") + "?dryRun=All", options)).code == 200
    # With a body, the server does not read the query.
    assert (await api.client.get(api.path("configmaps", "c"))).code == 404


async def test_a_json_patch_is_done_whole_or_not_at_all(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config(a="1"))
    path = api.path("configmaps", "c")
    operations = [{"op": "test", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/a"}]
    refused = await api.client.call("PATCH", path, operations, media=JSON_PATCH)
    message = "the server rejected our request due to an error in our request"
    assert (refused.code, refused.body) == (422, failure(422, "Invalid", message, {}))
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "move", "from": "/data/a", "path": "/data/b"},
        {"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}},
    ]
    done = await api.client.call("PATCH", path, operations, media=JSON_PATCH)
    assert (done.body["data"], done.body["metadata"]["annotations"]) == ({"b": "1"}, {"x": "y"})


async def test_a_strategic_patch_merges_lists_by_their_keys(api: Api) -> None:
    await api.client.create(api.path("pods"), a_pod())
    patch = {"spec": {"containers": [{"name": "main", "image": "train:2"}]}}
    done = await api.client.call("PATCH", api.path("pods", "p"), patch, media=STRATEGIC)
    [container] = done.body["spec"]["containers"]
    assert (container["name"], container["image"], done.body["metadata"]["generation"]) == ("main", "train:2", 2)


async def test_a_strategic_patch_replaces_the_taints_of_a_node(api: Api) -> None:
    nodes, name = "/api/v1/nodes", f"{api.namespace}-node"
    before, after = ({"key": key, "effect": "NoSchedule"} for key in ("test.muster.dev/a", "test.muster.dev/b"))
    await api.client.create(nodes, {"metadata": {"name": name}, "spec": {"taints": [before]}})
    done = await api.client.call("PATCH", f"{nodes}/{name}", {"spec": {"taints": [after]}}, media=STRATEGIC)
    assert done.body["spec"]["taints"] == [after]
    await api.client.delete(f"{nodes}/{name}")


async def test_most_of_a_pod_cannot_be_changed(api: Api) -> None:
    await api.client.create(api.path("pods"), a_pod())
    answer = await api.client.merge(api.path("pods", "p"), {"spec": {"nodeName": "node-1"}})
    assert (answer.code, answer.fields) == (422, ["spec"])
    assert "pod updates may not change fields other than" in answer.body["message"]


async def test_a_pod_can_be_evicted(api: Api) -> None:
    known = (await api.client.get("/api/v1")).body["resources"]
    evictions = [(one["group"], one["version"], one["kind"]) for one in known if one["name"] == "pods/eviction"]
    assert evictions == [("policy", "v1", "Eviction")]
    await api.client.create(api.path("pods"), a_pod(node="node-1"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api.client.create(api.path("pods", "p") + "/eviction", body)).code == 201
    pod = (await api.client.get(api.path("pods", "p"))).body
    assert "deletionTimestamp" in pod["metadata"]
    says = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert [(one["status"], one["reason"]) for one in says] == [("True", "EvictionByEvictionAPI")]


async def test_a_lease_is_made_by_its_first_update(api: Api) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}
    made = await api.client.replace(api.path("leases", "l"), lease)
    assert made.code == 201
    unguarded = await api.client.replace(api.path("leases", "l"), lease)
    assert (unguarded.code, unguarded.fields) == (422, ["metadata.resourceVersion"])


async def test_an_event_is_one_in_both_groups(api: Api) -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "test.dev/tester",
        "reportingInstance": "tester-0",
        "action": "Run",
        "reason": "Started",
        "type": "Normal",
        "note": "It began.",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": api.namespace},
    }
    assert (await api.client.create(api.path("events"), event)).code == 201
    old = await api.client.get(f"/api/v1/namespaces/{api.namespace}/events/e")
    assert (old.body["message"], old.body["involvedObject"]["name"]) == ("It began.", "p")


# Reading


async def test_a_list_comes_in_pages_of_one_version(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.client.create(api.path("pods"), a_pod(name))
    first = await api.client.get(api.path("pods") + "?limit=2")
    assert (names(first), first.body["metadata"]["remainingItemCount"]) == (["a", "b"], 1)
    await api.client.create(api.path("pods"), a_pod("d"))
    rest = await api.client.get(api.path("pods") + f"?limit=2&continue={first.body['metadata']['continue']}")
    assert names(rest) == ["c"]
    assert not rest.body["metadata"].get("continue")
    assert rest.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    assert (await api.client.get(api.path("pods") + "?continue=nonsense")).code == 400


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("labelSelector=team%3Dx", ["a", "b"]),
        ("labelSelector=team%20in%20(x),tier", ["b"]),
        ("labelSelector=!team", ["c"]),
        ("fieldSelector=metadata.name%3Db", ["b"]),
        ("fieldSelector=metadata.name!%3Db", ["a", "c"]),
        ("fieldSelector=metadata.name%3Db&labelSelector=tier", ["b"]),
    ],
)
async def test_selectors(api: Api, query: str, shown: list[str]) -> None:
    for name, labels in (("a", {"team": "x"}), ("b", {"team": "x", "tier": "1"}), ("c", {})):
        await api.client.create(api.path("configmaps"), a_config(name, labels=labels))
    assert names(await api.client.get(f"{api.path('configmaps')}?{query}")) == shown


@pytest.mark.parametrize(
    "query", ["labelSelector=a%3Db%3Dc", "fieldSelector=nonsense%3D1", "resourceVersion=x", "limit=x"]
)
async def test_what_cannot_be_asked(api: Api, query: str) -> None:
    answer = await api.client.get(f"{api.path('configmaps')}?{query}")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_many_are_deleted_at_once(api: Api) -> None:
    for name, labels in (("a", {"team": "x"}), ("b", {"team": "x"}), ("c", {})):
        await api.client.create(api.path("configmaps"), a_config(name, labels=labels))
    deleted = await api.client.delete(api.path("configmaps") + "?labelSelector=team%3Dx")
    assert names(deleted) == ["a", "b"]
    assert names(await api.client.get(api.path("configmaps"))) == ["c"]


async def test_a_table_of_pods_is_what_kubectl_prints(api: Api) -> None:
    await api.client.create(api.path("pods"), a_pod())
    answer = await api.client.get(api.path("pods"), Accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [(one["name"], one["type"], one["format"], one["priority"]) for one in answer.body["columnDefinitions"]]
    assert columns == [
        ("Name", "string", "name", 0),
        ("Ready", "string", "", 0),
        ("Status", "string", "", 0),
        ("Restarts", "string", "", 0),
        ("Age", "string", "", 0),
        ("IP", "string", "", 1),
        ("Node", "string", "", 1),
        ("Nominated Node", "string", "", 1),
        ("Readiness Gates", "string", "", 1),
    ]
    [row] = answer.body["rows"]
    assert row["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>", "<none>", "<none>", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_metadata_can_be_asked_for_alone(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config(a="1"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    one = (await api.client.get(api.path("configmaps", "c"), Accept=accept)).body
    assert (one["kind"], one["metadata"]["name"], "data" in one) == ("PartialObjectMetadata", "c", False)


# Watching


async def test_a_watch_from_now_begins_with_what_there_is(api: Api) -> None:
    await api.client.create(api.path("pods"), a_pod())
    [(kind, pod)] = await api.client.first(api.path("pods") + "?watch=1", 1)
    assert (kind, pod["metadata"]["name"], pod["kind"]) == ("ADDED", "p", "Pod")


async def test_what_leaves_a_selector_is_deleted_for_its_watch(api: Api) -> None:
    made = await api.client.create(api.path("configmaps"), a_config(labels={"team": "x"}))
    await api.client.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"team": "y"}}})
    await api.client.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"team": "x"}}})
    since = made.body["metadata"]["resourceVersion"]
    query = f"?watch=1&labelSelector=team%3Dx&resourceVersion={since}"
    seen = await api.client.first(api.path("configmaps") + query, 2)
    assert [kind for kind, _ in seen] == ["DELETED", "ADDED"]
    # What has left is shown as it was, at the version at which it left.
    assert seen[0][1]["metadata"]["labels"] == {"team": "x"}
    assert int(seen[0][1]["metadata"]["resourceVersion"]) > int(since)


async def test_a_watch_that_is_about_to_end_brings_a_bookmark(api: Api) -> None:
    await api.client.create(api.path("pods"), a_pod())
    query = "?watch=1&allowWatchBookmarks=true&timeoutSeconds=8"
    async with asyncio.timeout(BOUND), aclosing(api.client.watch(api.path("pods") + query)) as events:
        assert (await anext(events))[0] == "ADDED"
        # The watch runs; the bookmark says that what happens from now on is elsewhere.
        other = a_pod() | {"metadata": {"generateName": "elsewhere-"}}
        beyond = await api.client.create(api.path("pods", namespace="default"), other)
        rest = [event async for event in events]
    assert {(kind, found["kind"]) for kind, found in rest} == {("BOOKMARK", "Pod")}
    last = rest[-1][1]
    assert "name" not in last["metadata"]
    assert int(last["metadata"]["resourceVersion"]) >= int(beyond.body["metadata"]["resourceVersion"])


async def test_a_watch_ends_when_its_time_is_over(api: Api) -> None:
    made = await api.client.create(api.path("pods"), a_pod())
    query = f"?watch=1&timeoutSeconds=1&resourceVersion={made.body['metadata']['resourceVersion']}"
    assert [kind async for kind, _ in api.client.watch(api.path("pods") + query)] == []


# What follows from a deletion


async def gone(api: Api, plural: str, name: str) -> None:
    await api.client.until(api.path(plural, name), lambda answer: answer.code == 404, bound=api.patience)


def owned_by(owner: Answer, *, blocks: bool = False) -> dict[str, Any]:
    metadata = owner.body["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    return {"metadata": {"name": "child", "ownerReferences": [reference | {"blockOwnerDeletion": blocks}]}}


async def test_orphans_stay(api: Api) -> None:
    owner = await api.client.create(api.path("configmaps"), a_config("owner"))
    await api.client.create(api.path("configmaps"), owned_by(owner))
    await api.client.delete(api.path("configmaps", "owner"), {"propagationPolicy": "Orphan"})
    await gone(api, "configmaps", "owner")
    child = await api.client.get(api.path("configmaps", "child"))
    assert (child.code, "ownerReferences" in child.body["metadata"]) == (200, False)


async def test_in_the_foreground_the_owner_goes_last(api: Api) -> None:
    owner = await api.client.create(api.path("configmaps"), a_config("owner"))
    child = owned_by(owner, blocks=True)
    child["metadata"]["finalizers"] = ["test.dev/hold"]
    await api.client.create(api.path("configmaps"), child)
    ending = await api.client.delete(api.path("configmaps", "owner"), {"propagationPolicy": "Foreground"})
    assert ending.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    marked = api.path("configmaps", "child")
    await api.client.until(marked, lambda one: "deletionTimestamp" in one.body["metadata"], bound=api.patience)
    assert (await api.client.get(api.path("configmaps", "owner"))).code == 200
    await api.client.merge(marked, {"metadata": {"finalizers": None}})
    await gone(api, "configmaps", "owner")


async def test_a_deletion_is_answered_with_what_it_deleted(api: Api) -> None:
    config = await api.client.create(api.path("configmaps"), a_config())
    answer = await api.client.delete(api.path("configmaps", "c"))
    details = {"name": "c", "kind": "configmaps", "uid": config.body["metadata"]["uid"]}
    assert (answer.code, answer.body["status"], answer.body["details"]) == (200, "Success", details)
    pod = await api.client.create(api.path("pods"), a_pod())
    answer = await api.client.delete(api.path("pods", "p"))
    assert (answer.body["kind"], answer.body["metadata"]["uid"]) == ("Pod", pod.body["metadata"]["uid"])


@pytest.mark.parametrize(("field", "named"), [("uid", "UID"), ("resourceVersion", "ResourceVersion")])
async def test_a_deletion_may_be_of_this_very_object(api: Api, field: str, named: str) -> None:
    config = await api.client.create(api.path("configmaps"), a_config())
    refused = await api.client.delete(api.path("configmaps", "c"), {"preconditions": {field: "12345"}})
    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert f"the {named} in the precondition (12345) does not match" in refused.body["message"]
    right = {"preconditions": {field: config.body["metadata"][field]}}
    assert (await api.client.delete(api.path("configmaps", "c"), right)).code == 200


async def test_a_namespace_goes_with_all_it_holds(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    await api.client.create(api.path("pods"), a_pod(node="node-1"))
    namespace = f"/api/v1/namespaces/{api.namespace}"
    assert (await api.client.delete(namespace)).body["status"]["phase"] == "Terminating"
    refused = await api.client.create(api.path("configmaps"), a_config("late"))
    why = f"unable to create new content in namespace {api.namespace} because it is being terminated"
    details = {
        "name": "late",
        "kind": "configmaps",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {api.namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }
    message = f'configmaps "late" is forbidden: {why}'
    assert (refused.code, refused.body) == (403, failure(403, "Forbidden", message, details))
    marked = api.path("pods", "p")
    await api.client.until(marked, lambda one: "deletionTimestamp" in one.body["metadata"], bound=api.patience)
    await api.client.delete(f"{marked}?gracePeriodSeconds=0")
    await api.client.until(namespace, lambda answer: answer.code == 404, bound=api.patience)


# Metadata alone: the content of a Secret never leaves the server in such an answer.

HIDDEN = "dGhlIHByaXZhdGUgaGFsZg=="


async def test_of_secrets_a_get_and_a_list_show_metadata_alone(api: Api) -> None:
    made = await api.client.create(api.path("secrets"), {"metadata": {"name": "s"}, "data": {"id_rsa": HIDDEN}})
    assert (made.code, made.body["type"], made.body["data"]) == (201, "Opaque", {"id_rsa": HIDDEN})
    one = await api.client.get(api.path("secrets", "s"), **METADATA)
    assert (one.body["kind"], one.body["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one.body["metadata"] == made.body["metadata"]
    assert HIDDEN not in str(one.body)
    query = f"{api.path('secrets')}?limit=500&fieldSelector=metadata.name%3Ds"
    listed = await api.client.get(query, **METADATA_LIST)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert int(listed.body["metadata"]["resourceVersion"]) >= int(made.body["metadata"]["resourceVersion"])
    (item,) = listed.body["items"]
    assert item["metadata"] == made.body["metadata"]
    assert HIDDEN not in str(listed.body)
    missing = await api.client.get(api.path("secrets", "nobody"), **METADATA)
    assert (missing.code, missing.body["kind"], missing.body["reason"]) == (404, "Status", "NotFound")


async def test_of_secrets_a_watch_shows_metadata_alone(api: Api) -> None:
    made = await api.client.create(api.path("secrets"), {"metadata": {"name": "s"}, "data": {"id_rsa": HIDDEN}})
    before = int(made.body["metadata"]["resourceVersion"]) - 1
    query = f"?watch=true&resourceVersion={before}&fieldSelector=metadata.name%3Ds"
    await api.client.delete(api.path("secrets", "s"))
    async with (
        asyncio.timeout(BOUND),
        api.client.session.get(api.client.url + api.path("secrets") + query, headers=METADATA) as response,
    ):
        assert (response.status, response.content_type) == (200, "application/json")
        lines = [await response.content.readline() for _ in range(2)]
    assert HIDDEN.encode() not in b"".join(lines)
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]
    assert {event["object"]["kind"] for event in events} == {"PartialObjectMetadata"}
    assert {event["object"]["metadata"]["uid"] for event in events} == {made.body["metadata"]["uid"]}
