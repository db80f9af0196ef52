"""What the embedded API server and the real one make of definitions: their versions, and the names they may have."""

import asyncio
import copy
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest

from tests.devcluster.apiserver.client import BOUND, Answer
from tests.kit.clusters import Api, eventually
from tests.kit.gizmos import NEW_SPEC, OLD_SPEC, a_version

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

V1, V2 = a_version("v1", OLD_SPEC, storage=True), a_version("v2", NEW_SPEC)
TURNED = [V1 | {"storage": False}, V2 | {"storage": True}]


def a_group() -> str:
    """One that no other test knows."""
    return f"g{uuid4().hex[:8]}.muster.dev"


def a_definition(*versions: dict[str, Any], group: str = "", **names: Any) -> dict[str, Any]:
    """In a group of its own, if none is given."""
    group = group or a_group()
    given = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"} | names
    spec = {"group": group, "scope": "Namespaced", "names": given, "versions": [*versions]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{given['plural']}.{group}"},
        "spec": copy.deepcopy(spec),
    }


def others(group: str, **names: Any) -> dict[str, Any]:
    """Another kind of the group, which asks for these names."""
    own = {"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"}
    return a_definition(V1, group=group, **own | names)


def at(definition: dict[str, Any]) -> str:
    return f"{DEFINITIONS}/{definition['metadata']['name']}"


def conditions(answer: Answer) -> dict[str, tuple[str, str, str]]:
    found = answer.body.get("status", {}).get("conditions") or ()
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found}


async def judged(api: Api, definition: dict[str, Any], reason: str) -> Answer:
    """The definition, once this is what is said of its names."""
    return await api.client.until(
        at(definition),
        lambda found: (
            conditions(found).get("NamesAccepted", ("", "", ""))[1] == reason
            and ("Established" in conditions(found) and conditions(found)["Established"][1] != "Installing")
        ),
    )


async def defined(api: Api, definition: dict[str, Any], reason: str = "NoConflicts") -> Answer:
    answer = await api.client.create(DEFINITIONS, definition)
    assert answer.code == 201, answer.body
    return await judged(api, definition, reason)


async def served(api: Api, definition: dict[str, Any], version: str = "v1") -> str:
    """Where the definition's objects are, once they can be asked for."""
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    path = f"/apis/{group}/{version}/namespaces/{api.namespace}/{plural}"
    await api.client.until(path, lambda answer: answer.code == 200)
    return path


# Versions.


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


async def test_a_version_in_which_something_may_be_stored_stays(api: Api) -> None:
    definition = a_definition(V1, V2)
    await defined(api, definition)
    path = await served(api, definition)
    await api.client.merge(at(definition), {"spec": {"versions": TURNED}})
    without = {"spec": {"versions": TURNED[1:]}}
    refused = await api.client.merge(at(definition), without)
    assert (refused.code, refused.fields) == (422, ["status.storedVersions[0]"])
    assert "missing from spec.versions; v1 was previously a storage version" in refused.body["message"]
    # Whoever has moved all objects says so.
    assert (await api.client.merge(f"{at(definition)}/status", {"status": {"storedVersions": ["v2"]}})).code == 200
    assert (await api.client.merge(at(definition), without)).code == 200
    await api.client.until(path, lambda answer: answer.code == 404)


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
    later = a_version(
        "v2", {"size": {"type": "integer"}, "shape": {"type": "string", "default": "round"}}, storage=True
    )
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
        more = a_version("v1", OLD_SPEC | {"more": {"type": "string"}}, storage=True)
        await api.client.merge(at(definition), {"spec": {"versions": [more, V2]}})
        assert [event async for event in events] == []


# Names.


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"singular": "thing"}, "SingularConflict", '"thing" is already in use'),
        ({"plural": "th"}, "PluralConflict", '"th" is already in use'),
        ({"kind": "Thing"}, "KindConflict", '"Thing" is already in use'),
        ({"listKind": "ThingList"}, "ListKindConflict", '"ThingList" is already in use'),
        (
            {"shortNames": ["o", "th", "things"]},
            "ShortNamesConflict",
            '["th" is already in use, "things" is already in use]',
        ),
        ({"singular": "thing", "kind": "Thing"}, "KindConflict", '"Thing" is already in use'),
    ],
)
async def test_within_a_group_a_name_means_one_kind(api: Api, names: dict[str, Any], reason: str, message: str) -> None:
    first = a_definition(V1, shortNames=["th"])
    await defined(api, first)
    second = others(first["spec"]["group"], **names)
    answer = await defined(api, second, reason)
    assert conditions(answer) == {
        "NamesAccepted": ("False", reason, message),
        "Established": ("False", "NotAccepted", "not all names are accepted"),
    }
    wanted = second["spec"]["names"]
    kept = dict.fromkeys(("plural", "kind"), "") | {f: n for f, n in wanted.items() if f not in names}
    assert answer.body["status"]["acceptedNames"] == kept
    group, plural = first["spec"]["group"], wanted["plural"]
    assert (await api.client.get(f"/apis/{group}/v1/namespaces/{api.namespace}/{plural}")).code == 404
    # In another group they are free.
    await defined(api, others(a_group(), **names))


async def test_who_waits_for_a_name_gets_it_when_it_is_given_up(api: Api) -> None:
    first = a_definition(V1, shortNames=["th"])
    await defined(api, first)
    second, third = (
        others(first["spec"]["group"], shortNames=["th"]),
        others(first["spec"]["group"], plural="thirds", singular="third", kind="Thing", listKind="Thirds"),
    )
    await defined(api, second, "ShortNamesConflict")
    await defined(api, third, "KindConflict")
    assert (await api.client.merge(at(first), {"spec": {"names": {"shortNames": ["t"]}}})).code == 200
    assert (await judged(api, second, "NoConflicts")).body["status"]["acceptedNames"]["shortNames"] == ["th"]
    await served(api, second)
    await api.client.delete(at(first))
    await judged(api, third, "NoConflicts")
    await served(api, third)


async def test_what_is_served_keeps_its_names_when_it_asks_for_others_in_vain(api: Api) -> None:
    first = a_definition(V1, shortNames=["th"])
    await defined(api, first)
    await defined(api, others(first["spec"]["group"]))
    await api.client.merge(at(first), {"spec": {"names": {"shortNames": ["other"], "singular": "sing"}}})
    answer = await judged(api, first, "ShortNamesConflict")
    assert conditions(answer)["Established"][0] == "True"
    accepted = answer.body["status"]["acceptedNames"]
    assert (accepted["shortNames"], accepted["singular"]) == (["th"], "sing")
    await served(api, first)
    listed = await api.client.until(
        f"/apis/{first['spec']['group']}/v1",
        lambda found: "sing" in {one["singularName"] for one in found.body["resources"]},
    )
    names = {one["name"]: one.get("shortNames") for one in listed.body["resources"]}
    assert names["things"] == ["th"]


async def test_kind_and_scope_are_fixed_once_they_are_served(api: Api) -> None:
    first = a_definition(V1)
    await defined(api, first)
    second = others(first["spec"]["group"], kind="Thing")
    await defined(api, second, "KindConflict")
    change = {"spec": {"scope": "Cluster", "names": {"kind": "Item"}}}
    refused = await api.client.merge(at(first), change)
    assert (refused.code, refused.fields) == (422, ["spec.scope", "spec.names.kind"])
    assert (await api.client.merge(at(second), change)).code == 200
    await judged(api, second, "NoConflicts")


async def test_a_kind_is_not_named_as_its_lists(api: Api) -> None:
    refused = await api.client.create(DEFINITIONS, a_definition(V1, listKind="Thing"))
    assert (refused.code, refused.fields) == (422, ["spec.names.listKind"])
