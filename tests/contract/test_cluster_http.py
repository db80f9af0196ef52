"""What the embedded API server and the real one say alike over HTTP, beyond what the port asks of them."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

from shared.cluster.answers import read_status, trouble
from shared.cluster.calls import METADATA, METADATA_LIST
from shared.errors import Refused
from shared.job.events.event import PERMANENT
from tests.devcluster.apiserver.client import BOUND, Answer
from tests.kit.clusters import Api

STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def a_config(name: str = "c", *, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


def a_pod(name: str = "p", *, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "train:1"}], "schedulerName": "nobody"}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


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


async def test_a_value_of_another_type_than_its_fields_makes_no_pod(api: Api) -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "THREADS", "value": 1}]
    answer = await api.client.create(api.path("pods"), pod)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    refusal = trouble(read_status(json.dumps(answer.body).encode()), "create it", method="POST")
    assert isinstance(refusal, Refused)
    assert refusal.reason in PERMANENT, refusal


async def test_a_namespace_that_is_missing_takes_nothing(api: Api) -> None:
    answer = await api.client.create(api.path("configmaps", namespace="missing"), a_config())
    details = {"name": "missing", "kind": "namespaces"}
    assert (answer.code, answer.body) == (404, failure(404, "NotFound", 'namespaces "missing" not found', details))


# Writing


async def test_the_options_of_a_deletion_stand_in_its_body_or_else_in_the_query(api: Api) -> None:
    await api.client.create(api.path("configmaps"), a_config())
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    assert (await api.client.delete(api.path("configmaps", "c") + "?dryRun=All", options)).code == 200
    # With a body, the server does not read the query.
    assert (await api.client.get(api.path("configmaps", "c"))).code == 404


async def test_a_strategic_patch_replaces_the_taints_of_a_node(api: Api) -> None:
    nodes, name = "/api/v1/nodes", f"{api.namespace}-node"
    before, after = ({"key": key, "effect": "NoSchedule"} for key in ("test.muster.dev/a", "test.muster.dev/b"))
    await api.client.create(nodes, {"metadata": {"name": name}, "spec": {"taints": [before]}})
    done = await api.client.call("PATCH", f"{nodes}/{name}", {"spec": {"taints": [after]}}, media=STRATEGIC)
    assert done.body["spec"]["taints"] == [after]
    await api.client.delete(f"{nodes}/{name}")


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


# Reading


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
