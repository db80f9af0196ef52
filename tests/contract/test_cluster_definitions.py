"""What the embedded API server and the real one make of definitions and their versions."""

import asyncio
import copy
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest

from shared.cluster import Resource
from shared.cluster.objects import Custom
from tests.devcluster.apiserver.client import BOUND, Answer
from tests.kit import definitions
from tests.kit.clusters import Api, eventually
from tests.kit.definitions import STRING, a_version, an_object
from tests.kit.gizmos import NEW_SPEC, OLD_SPEC

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

V1, V2 = a_version("v1", an_object(OLD_SPEC), storage=True), a_version("v2", an_object(NEW_SPEC))
TURNED = [V1 | {"storage": False}, V2 | {"storage": True}]


def a_group() -> str:
    """One that no other test knows."""
    return f"g{uuid4().hex[:8]}.muster.dev"


def a_definition(*versions: dict[str, Any]) -> dict[str, Any]:
    """In a group of its own."""
    resource = Resource(a_group(), "v1", "things", "Thing", Custom)
    return copy.deepcopy(definitions.a_definition(resource, *versions, listKind="ThingList"))


def at(definition: dict[str, Any]) -> str:
    return f"{DEFINITIONS}/{definition['metadata']['name']}"


def conditions(answer: Answer) -> dict[str, tuple[str, str, str]]:
    found = answer.body.get("status", {}).get("conditions") or ()
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


async def defined(api: Api, definition: dict[str, Any]) -> Answer:
    """The definition, once it is served."""
    answer = await api.client.create(DEFINITIONS, definition)
    assert answer.code == 201, answer.body
    return await api.client.until(
        at(definition), lambda found: conditions(found).get("Established", ("", "", ""))[1] == "InitialNamesAccepted"
    )


async def served(api: Api, definition: dict[str, Any], version: str = "v1") -> str:
    """Where the definition's objects are, once they can be asked for."""
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    path = f"/apis/{group}/{version}/namespaces/{api.namespace}/{plural}"
    await api.client.until(path, lambda answer: answer.code == 200)
    return path


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        pytest.param([V1 | {"storage": False}, V2], ["exactly one version marked as storage"], id="none is stored"),
        pytest.param([V1, V2 | {"storage": True}], ["exactly one version marked as storage"], id="two are stored"),
        pytest.param([V1, V2, V2], ["unique version names"], id="one twice"),
        pytest.param([], ["exactly one version marked as storage"], id="none at all"),
    ],
)
async def test_a_definition_has_one_version_to_store(api: Api, versions: list[dict[str, Any]], said: list[str]) -> None:
    answer = await api.client.create(DEFINITIONS, a_definition(*versions))
    assert answer.code == 422
    found = [one["message"] for one in answer.body["details"]["causes"] if one["field"] == "spec.versions"]
    assert len(found) == len(said)
    assert all(part in message for part, message in zip(said, found, strict=True))


async def test_what_was_stored_is_read_on_when_another_version_is_stored(api: Api) -> None:
    definition = a_definition(V1, V2)
    assert (await defined(api, definition)).body["status"]["storedVersions"] == ["v1"]
    path = await served(api, definition)
    thing = {"apiVersion": f"{definition['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "t"}}
    made = (await api.client.create(path, thing | {"spec": {"size": 6, "slots": 2}})).body
    turned = await api.client.merge(at(definition), {"spec": {"versions": TURNED}})
    assert turned.body["status"]["storedVersions"] == ["v1", "v2"]
    await api.client.until(f"{path}/t", lambda answer: answer.code == 200)
    assert (await api.client.get(f"{path}/t")).body["spec"] == {"size": 6, "slots": 2}
    newer = (await api.client.get(path.replace("/v1/", "/v2/") + "/t")).body
    assert (newer["spec"], newer["metadata"]) == ({"size": 6}, made["metadata"])


async def test_a_write_that_changes_nothing_brings_what_is_stored_to_the_new_version(api: Api) -> None:
    definition = a_definition(V1, V2)
    await defined(api, definition)
    path = await served(api, definition)
    newer = path.replace("/v1/", "/v2/")
    thing = {"apiVersion": f"{definition['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "t"}}
    await api.client.create(path, thing | {"spec": {"size": 6, "slots": 2}})
    await api.client.merge(at(definition), {"spec": {"versions": TURNED}})

    async def rewrite() -> dict[str, Any]:
        assert (await api.client.merge(f"{newer}/t", {"spec": {"size": 6}})).code == 200
        return dict((await api.client.get(f"{path}/t")).body)

    # The real server takes a moment to learn of the change.  What the new version does not know is lost with the
    # write, and no default brings it back: those are of the version that is stored.
    moved = await eventually(rewrite, lambda seen: seen["spec"] == {"size": 6, "colour": "blue"})
    assert await rewrite() == moved


async def test_a_version_that_is_not_served_may_be_the_one_that_is_stored(api: Api) -> None:
    definition = a_definition(V1 | {"served": False}, V2)
    await defined(api, definition)
    path = await served(api, definition, "v2")
    thing = {"apiVersion": f"{definition['spec']['group']}/v2", "kind": "Thing", "metadata": {"name": "t"}}
    made = await api.client.create(path, thing | {"spec": {"size": 6, "added": "a"}})
    assert made.body["spec"] == {"size": 6, "colour": "blue"}
    assert (await api.client.get(path.replace("/v2/", "/v1/"))).code == 404


async def test_a_default_that_comes_later_shows_on_what_is_there(api: Api) -> None:
    definition = a_definition(V2 | {"storage": True})
    await defined(api, definition)
    path = await served(api, definition, "v2")
    thing = {"apiVersion": f"{definition['spec']['group']}/v2", "kind": "Thing", "metadata": {"name": "t"}}
    made = (await api.client.create(path, thing | {"spec": {"size": 6, "added": "a"}})).body
    shape = an_object({"size": {"type": "integer"}, "shape": {"type": "string", "default": "round"}})
    later = a_version("v2", shape, storage=True)
    await api.client.merge(at(definition), {"spec": {"versions": [later]}})
    shown = await api.client.until(f"{path}/t", lambda answer: "shape" in answer.body.get("spec", {}))
    assert shown.body["spec"] == {"size": 6, "shape": "round"}
    assert shown.body["metadata"] == made["metadata"]


async def test_a_watch_ends_when_its_kind_is_not_what_it_was(api: Api) -> None:
    definition = a_definition(V1, V2)
    await defined(api, definition)
    path = await served(api, definition)
    thing = {"apiVersion": f"{definition['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "t"}}
    await api.client.create(path, thing | {"spec": {}})
    async with asyncio.timeout(BOUND), aclosing(api.client.watch(f"{path}?watch=1")) as events:
        assert (await anext(events))[0] == "ADDED"
        # What only the server says of a definition changes nothing.
        await api.client.merge(f"{at(definition)}/status", {"status": {"storedVersions": ["v1", "v2"]}})
        await api.client.merge(f"{path}/t", {"spec": {"size": 5}})
        assert (await anext(events))[0] == "MODIFIED"
        more = a_version("v1", an_object(OLD_SPEC | {"more": STRING}), storage=True)
        await api.client.merge(at(definition), {"spec": {"versions": [more, V2]}})
        assert [event async for event in events] == []


async def test_kind_and_scope_are_fixed_once_they_are_served(api: Api) -> None:
    definition = a_definition(V1)
    await defined(api, definition)
    refused = await api.client.merge(at(definition), {"spec": {"scope": "Cluster", "names": {"kind": "Item"}}})
    assert (refused.code, refused.fields) == (422, ["spec.scope", "spec.names.kind"])
