"""What the servers, and clusters as the port shows them, make of a custom resource that is served in two versions."""

import functools
import json
from typing import Any

import pytest

from shared.cluster import Deleted, Resource
from shared.cluster.kinds import CONFIGMAPS
from shared.cluster.objects import Custom
from tests.contract.widgets import news, watching
from tests.kit.clusters import Api, ClusterUnderTest, eventually
from tests.kit.gizmos import BOTH, GIZMOS, GROUP, NEW_GIZMOS, a_gizmo
from tests.kit.watching import next_of

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
NO_OWNER = "11111111-1111-1111-1111-111111111111"
"""The uid of nothing that ever lived."""
SAME = {"size": 6, "colour": "red", "replicas": 2}
"""A spec that both versions know, and to which neither adds what the other would show."""


def path(api: Api, resource: Resource[Custom], name: str = "") -> str:
    root = f"/apis/{resource.api_version}/namespaces/{api.namespace}/{resource.plural}"
    return root + (f"/{name}" if name else "")


async def made(api: Api, resource: Resource[Custom], name: str = "g", **spec: Any) -> dict[str, Any]:
    answer = await api.client.create(path(api, resource), a_gizmo(resource, name, **spec))
    assert answer.code == 201, answer.body
    return dict(answer.body)


async def shown(api: Api, resource: Resource[Custom], name: str = "g") -> dict[str, Any]:
    answer = await api.client.get(path(api, resource, name))
    assert (answer.code, answer.body["apiVersion"]) == (200, resource.api_version)
    return dict(answer.body)


async def described(api: Api, group_version: str) -> Any:
    """OpenAPI of a group version, as soon as there is any; the real server gives it without a type."""

    async def ask() -> dict[str, Any]:
        index = await api.client.get("/openapi/v3", Accept=JSON)
        return dict(json.loads(index.body) if isinstance(index.body, bytes) else index.body)["paths"]

    paths = await eventually(ask, lambda found: group_version in found, patience=api.patience)
    document = await api.client.get(paths[group_version]["serverRelativeURL"], Accept=JSON)
    return json.loads(document.body) if isinstance(document.body, bytes) else document.body


def version(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


# Discovery.


async def test_the_group_prefers_what_is_stable_over_what_is_newer(api: Api) -> None:
    group = (await api.client.get(f"/apis/{GROUP}")).body
    assert [one["version"] for one in group["versions"]] == ["v1", "v2beta1"]
    assert group["preferredVersion"] == {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    listed = (await api.client.get("/apis")).body["groups"]
    assert [one["versions"] for one in listed if one["name"] == GROUP] == [group["versions"]]


async def test_each_version_is_discovered(api: Api) -> None:
    for resource in BOTH:
        listed = (await api.client.get(f"/apis/{resource.api_version}")).body
        assert sorted(one["name"] for one in listed["resources"]) == ["gizmos", "gizmos/scale", "gizmos/status"]
        assert next(one["shortNames"] for one in listed["resources"] if one["name"] == "gizmos") == ["gz"]
        document = await described(api, f"apis/{resource.api_version}")
        schemas = document["components"]["schemas"]
        spec = schemas[f"dev.muster.versions.{resource.version}.Gizmo"]["properties"]["spec"]["properties"]
        assert ("added" in spec) == (resource is NEW_GIZMOS)


async def test_what_is_not_served_is_not_there(api: Api) -> None:
    assert (await api.client.get(f"/apis/{GROUP}/v1alpha1/namespaces/{api.namespace}/gizmos")).code == 404


# One object, two faces.


async def test_what_one_version_makes_the_other_shows(api: Api) -> None:
    for resource, other in (BOTH, BOTH[::-1]):
        name = f"from-{resource.version}"
        one = await made(api, resource, name, size=6)
        two = await shown(api, other, name)
        assert one["metadata"] == two["metadata"]
        assert (await shown(api, resource, name)) == one


async def test_each_version_prunes_what_it_does_not_know(api: Api) -> None:
    # Of what the new version knows, only that is kept which the stored version knows too.
    new = await made(api, NEW_GIZMOS, "new", size=6, added="a")
    assert new["spec"] == {"size": 6, "colour": "blue"}
    assert (await shown(api, GIZMOS, "new"))["spec"] == {"size": 6, "colour": "blue", "slots": 1}
    old = await made(api, GIZMOS, "old", replicas=2)
    assert old["spec"] == {"size": 3, "replicas": 2, "slots": 1}
    # The new version fills in its defaults when it is written to, and not when it is read.
    assert (await shown(api, NEW_GIZMOS, "old"))["spec"] == {"size": 3, "replicas": 2}


async def test_unknown_is_what_the_version_of_the_call_does_not_know(api: Api) -> None:
    answer = await api.client.create(path(api, NEW_GIZMOS), a_gizmo(NEW_GIZMOS, size=6, slots=2, added="a"))
    assert answer.headers.getall("Warning") == ['299 - "unknown field \\"spec.slots\\""']
    strict = path(api, GIZMOS) + "?fieldValidation=Strict"
    refused = await api.client.create(strict, a_gizmo(GIZMOS, "other", added="a"))
    assert refused.code == 400
    assert 'Gizmo in version "v1" cannot be handled as a Gizmo: strict decoding error' in refused.body["message"]


async def test_each_version_judges_by_its_own_schema(api: Api) -> None:
    assert (await api.client.create(path(api, GIZMOS), a_gizmo(size=12))).fields == ["spec.size"]
    await made(api, NEW_GIZMOS, size=12, colour="green")
    # What was wrong before may stay; what is written anew is judged.
    assert (await api.client.merge(path(api, GIZMOS, "g"), {"spec": {"slots": 2}})).code == 200
    assert (await api.client.merge(path(api, GIZMOS, "g"), {"spec": {"size": 13}})).fields == ["spec.size"]
    assert (await api.client.merge(path(api, NEW_GIZMOS, "g"), {"spec": {"size": 4}})).fields == ["spec.size"]
    assert (await shown(api, GIZMOS))["spec"] == {"size": 12, "colour": "green", "slots": 2}


async def test_generation_and_version_are_shared(api: Api) -> None:
    first = await made(api, GIZMOS, size=6, colour="red")
    second = (await api.client.merge(path(api, NEW_GIZMOS, "g"), {"spec": {"size": 7}})).body
    assert (second["metadata"]["generation"], second["apiVersion"]) == (2, NEW_GIZMOS.api_version)
    stale = {"metadata": {"resourceVersion": version(first)}, "spec": {"size": 8}}
    assert (await api.client.merge(path(api, GIZMOS, "g"), stale)).code == 409
    third = await shown(api, GIZMOS)
    assert third["metadata"] == second["metadata"]
    replaced = await api.client.replace(path(api, GIZMOS, "g"), third | {"spec": {"size": 8}})
    assert (replaced.code, replaced.body["metadata"]["generation"]) == (200, 3)


async def test_a_write_that_changes_nothing_is_none_in_either_version(api: Api) -> None:
    one = await made(api, GIZMOS, size=6, colour="red")
    # The field `slots`, which the new version does not know, is taken out by any write of it, and comes back as a
    # default: what is stored is another object, although no answer shows that.
    for _ in range(2):
        seen = await shown(api, NEW_GIZMOS)
        two = (await api.client.replace(path(api, NEW_GIZMOS, "g"), seen)).body
        assert two["metadata"]["generation"] == 1
    again = (await api.client.merge(path(api, NEW_GIZMOS, "g"), {"spec": {"size": 6}})).body
    assert version(again) == version(two)
    assert version(two) != version(one)
    assert (await shown(api, GIZMOS))["spec"] == one["spec"]


async def test_a_patch_starts_from_the_version_of_its_path(api: Api) -> None:
    await made(api, GIZMOS, size=6, slots=4)
    operation = [{"op": "test", "path": "/apiVersion", "value": NEW_GIZMOS.api_version}]
    operation += [{"op": "replace", "path": "/spec/size", "value": 9}]
    media = "application/json-patch+json"
    answer = await api.client.call("PATCH", path(api, NEW_GIZMOS, "g"), operation, media=media)
    assert (answer.code, answer.body["spec"]) == (200, {"size": 9, "colour": "blue"})
    # What the new version does not know it takes away.
    assert (await shown(api, GIZMOS))["spec"] == {"size": 9, "colour": "blue", "slots": 1}


async def test_apply_in_the_version_of_its_path(api: Api) -> None:
    for resource in BOTH:
        at = path(api, resource, resource.version) + "?fieldManager=tester"
        for size in (6, 7):
            gizmo = a_gizmo(resource, resource.version, size=size, colour="red")
            answer = await api.client.call("PATCH", at, gizmo, media=APPLY)
            assert (answer.body["apiVersion"], answer.body["spec"]["size"]) == (resource.api_version, size)
        other = a_gizmo(NEW_GIZMOS if resource is GIZMOS else GIZMOS, resource.version)
        refused = await api.client.call("PATCH", at, other, media=APPLY)
        assert refused.code == 400


async def test_a_body_of_the_other_version_is_refused(api: Api) -> None:
    refused = await api.client.create(path(api, GIZMOS), a_gizmo(NEW_GIZMOS))
    said = f"the API version in the data ({NEW_GIZMOS.api_version}) does not match the expected API version"
    assert (refused.code, refused.body["message"]) == (400, f"{said} ({GIZMOS.api_version})")
    one = await made(api, GIZMOS)
    other = one | {"apiVersion": NEW_GIZMOS.api_version}
    refused = await api.client.replace(path(api, GIZMOS, "g"), other)
    assert (refused.code, refused.body["message"]) == (400, f"{said} ({GIZMOS.api_version})")


async def test_a_patch_cannot_change_the_version(api: Api) -> None:
    await made(api, GIZMOS)
    answer = await api.client.merge(path(api, GIZMOS, "g"), {"apiVersion": NEW_GIZMOS.api_version})
    assert (answer.code, answer.fields) == (422, ["apiVersion"])


async def test_lists_and_watches_of_either_version_see_writes_through_the_other(api: Api) -> None:
    start = version((await api.client.get(path(api, GIZMOS))).body)
    await made(api, GIZMOS, "old", size=6)
    await made(api, NEW_GIZMOS, "new", size=7)
    await api.client.merge(path(api, GIZMOS, "new"), {"spec": {"size": 8}})
    await api.client.merge(path(api, NEW_GIZMOS, "old") + "/status", {"status": {"phase": "Running"}})
    await api.client.delete(path(api, GIZMOS, "new"))
    told = {}
    for resource in BOTH:
        found = (await api.client.get(path(api, resource))).body
        assert (found["kind"], found["apiVersion"]) == ("GizmoList", resource.api_version)
        [item] = found["items"]
        assert (item["apiVersion"], item["metadata"]["name"]) == (resource.api_version, "old")
        events = await api.client.first(path(api, resource) + f"?watch=1&resourceVersion={start}", 5)
        assert {obj["apiVersion"] for _, obj in events} == {resource.api_version}
        told[resource] = [(kind, obj["metadata"]["name"], version(obj), obj.get("status")) for kind, obj in events]
        sizes = [obj["spec"]["size"] for _, obj in events]
        assert sizes == [6, 7, 8, 6, 8]
    assert told[GIZMOS] == told[NEW_GIZMOS]
    assert [kind for kind, *_ in told[GIZMOS]] == ["ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_the_status_is_one(api: Api) -> None:
    await made(api, GIZMOS)
    answer = await api.client.merge(path(api, NEW_GIZMOS, "g") + "/status", {"status": {"phase": "Running"}})
    assert (answer.body["status"], answer.body["metadata"]["generation"]) == ({"phase": "Running"}, 1)
    assert (await shown(api, GIZMOS))["status"] == {"phase": "Running"}
    # A status that is written alone through the new version takes away what that does not know, too.
    assert (await api.client.merge(path(api, GIZMOS, "g"), {"spec": {"slots": 5}})).code == 200
    await api.client.merge(path(api, NEW_GIZMOS, "g") + "/status", {"status": {"phase": "Done"}})
    assert (await shown(api, GIZMOS))["spec"] == {"size": 3, "slots": 1}


async def test_each_version_scales_what_it_says(api: Api) -> None:
    await made(api, GIZMOS, replicas=7, slots=2)
    replicas = {}
    for resource in BOTH:
        scale = (await api.client.get(path(api, resource, "g") + "/scale")).body
        replicas[resource.version] = scale["spec"]["replicas"]
    assert replicas == {"v1": 2, "v2beta1": 7}
    answer = await api.client.merge(path(api, NEW_GIZMOS, "g") + "/scale", {"spec": {"replicas": 8}})
    assert answer.body["spec"] == {"replicas": 8}
    # Scaling fills in nothing: there is no colour.
    assert (await shown(api, GIZMOS))["spec"] == {"size": 3, "replicas": 8, "slots": 1}
    none = await api.client.merge(path(api, NEW_GIZMOS, "g") + "/scale", {"spec": {"replicas": 0}})
    assert (none.code, none.body["spec"]) == (200, {})
    assert (await shown(api, GIZMOS))["spec"]["replicas"] == 0


async def test_each_version_has_its_columns(api: Api) -> None:
    await made(api, GIZMOS, size=6, colour="red")
    shown = {}
    for resource in BOTH:
        table = (await api.client.get(path(api, resource) + "?includeObject=Object", Accept=TABLE)).body
        [row] = table["rows"]
        assert row["object"]["apiVersion"] == resource.api_version
        shown[resource.version] = ([one["name"] for one in table["columnDefinitions"]], row["cells"])
    assert shown == {"v1": (["Name", "Size"], ["g", 6]), "v2beta1": (["Name", "Added", "Colour"], ["g", None, "red"])}


async def test_a_deletion_in_one_version_is_one_in_the_other(api: Api) -> None:
    one = await made(api, GIZMOS)
    answer = await api.client.delete(path(api, NEW_GIZMOS, "g"), {"preconditions": {"uid": one["metadata"]["uid"]}})
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert (await api.client.get(path(api, GIZMOS, "g"))).code == 404
    await made(api, GIZMOS)
    gone = await api.client.delete(path(api, NEW_GIZMOS))
    assert [one["apiVersion"] for one in gone.body["items"]] == [NEW_GIZMOS.api_version]


async def test_an_owner_in_a_version_that_is_not_served_is_not_looked_for(api: Api) -> None:
    configs = api.path("configmaps")
    for name in ("v1", "v1alpha1", "v7"):
        reference = {"apiVersion": f"{GROUP}/{name}", "kind": "Gizmo", "name": "g", "uid": NO_OWNER}
        await api.client.create(configs, {"metadata": {"name": name, "ownerReferences": [reference]}})
    await api.client.until(f"{configs}/v1", lambda answer: answer.code == 404, bound=api.patience)
    for name in ("v1alpha1", "v7"):
        assert (await api.client.get(f"{configs}/{name}")).code == 200


# Through the port.


async def test_a_client_of_one_version_works_with_those_of_the_other(under_test: ClusterUnderTest) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    async with (
        watching(under_test, GIZMOS) as old,
        watching(under_test, NEW_GIZMOS) as new,
    ):
        assert (await next_of(old)).objects == (await next_of(new)).objects == ()
        made = await cluster.create(NEW_GIZMOS, namespace, {"metadata": {"name": "g"}, "spec": SAME})
        assert (await news(old)).object.metadata == (await news(new)).object.metadata == made.metadata
        changed = await cluster.patch(GIZMOS, namespace, "g", {"spec": {"size": 8}})
        assert changed.metadata.generation == 2
        assert (await news(old)).object.metadata == (await news(new)).object.metadata == changed.metadata
        await cluster.delete(GIZMOS, namespace, "g", uid=made.metadata.uid)
        gone = await news(new)
        assert isinstance(gone, Deleted)
        assert gone.object.metadata.uid == made.metadata.uid


@pytest.mark.parametrize(("first", "second"), [BOTH, BOTH[::-1]])
async def test_a_patch_that_changes_nothing_makes_no_version(
    under_test: ClusterUnderTest, first: Resource[Custom], second: Resource[Custom]
) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    await cluster.create(first, namespace, {"metadata": {"name": "g"}, "spec": SAME})
    # What the new version does not know is taken away by its first write, and nothing by the next.
    changed = await cluster.patch(NEW_GIZMOS, namespace, "g", {"spec": {"size": 8}})
    assert changed.metadata.generation == 2
    again = await cluster.patch(NEW_GIZMOS, namespace, "g", {"spec": {"size": 8}})
    assert again.metadata == changed.metadata
    status = await cluster.patch(second, namespace, "g", {"status": {"phase": "Running"}}, subresource="status")
    repeated = await cluster.patch(second, namespace, "g", {"status": {"phase": "Running"}}, subresource="status")
    assert repeated.metadata == status.metadata
    assert status.metadata.generation == 2


@pytest.mark.parametrize("resource", BOTH)
async def test_an_owner_is_found_by_either_version(under_test: ClusterUnderTest, resource: Resource[Custom]) -> None:
    cluster, namespace = under_test.cluster, under_test.namespace
    owner = await cluster.create(GIZMOS, namespace, {"metadata": {"name": "g"}, "spec": SAME})
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "controller": True}
    reference |= {"name": "g", "uid": owner.metadata.uid}
    # Of the second one the owner never lived.
    lost = reference | {"uid": NO_OWNER}
    for name, one in (("child", reference), ("lost", lost)):
        await cluster.create(CONFIGMAPS, namespace, {"metadata": {"name": name, "ownerReferences": [one]}})

    async def collected(name: str) -> None:
        await under_test.collect()
        ask = functools.partial(cluster.get, CONFIGMAPS, namespace, name)
        await eventually(ask, lambda found: found is None, patience=under_test.patience)

    await collected("lost")
    assert await cluster.get(CONFIGMAPS, namespace, "child") is not None
    await cluster.delete(NEW_GIZMOS, namespace, "g", uid=owner.metadata.uid)
    await collected("child")
