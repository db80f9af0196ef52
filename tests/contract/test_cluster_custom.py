"""What the embedded API server and the real one make of custom resources: schemas, rules, subresources, tables."""

from typing import Any

import pytest

from tests.kit.clusters import Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"


def a_gadget(name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "test.muster.dev/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


async def test_defaults_are_filled_in(api: Api) -> None:
    made = await api.client.create(api.path("gadgets"), a_gadget(parts=[{"name": "a"}]))
    assert made.body["spec"] == {"size": 3, "parts": [{"name": "a", "count": 1}]}
    bare = a_gadget("bare")
    del bare["spec"]
    assert (await api.client.create(api.path("gadgets"), bare)).body["spec"] == {"size": 3}


async def test_a_default_returns_when_its_field_is_removed(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget(size=7))
    assert (await api.client.merge(api.path("gadgets", "g"), {"spec": {"size": None}})).body["spec"] == {"size": 3}


async def test_unknown_fields_are_dropped_with_a_warning(api: Api) -> None:
    nested = {"deep": True, "unknown": 1, "free": {"anything": [1]}}
    made = await api.client.create(api.path("gadgets"), a_gadget(colours=["red"], nested=nested))
    assert made.body["spec"]["nested"] == {"deep": True, "free": {"anything": [1]}}
    warnings = sorted(made.headers.getall("Warning"))
    assert warnings == [rf'299 - "unknown field \"spec.{name}\""' for name in ("colours", "nested.unknown")]


async def test_strictly_unknown_fields_are_refused(api: Api) -> None:
    path = api.path("gadgets") + "?fieldValidation=Strict"
    refused = await api.client.create(path, a_gadget(colours=["red"]))
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.colours"' in refused.body["message"]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"size": 0}, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 101}, "spec.size", "Invalid value: 101: spec.size in body should be less than or equal to 100"),
        (
            {"colour": "puce"},
            "spec.colour",
            'Unsupported value: "puce": supported values: "red", "green", "blue"',
        ),
        ({"note": "n" * 11}, "spec.note", "Too long: may not be more than 10 bytes"),
        ({"code": "A"}, "spec.code", "Invalid value: \"A\": spec.code in body should match '^[a-z]+$'"),
        ({"tags": ["x", "x"]}, "spec.tags[1]", 'Duplicate value: "x"'),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]", 'Duplicate value: {"name":"a"}'),
        ({"parts": [{}]}, "spec.parts[0].name", "Required value"),
        (
            {"marks": {"a": 1}},
            "spec.marks.a",
            'Invalid value: "integer": spec.marks.a in body must be of type string: "integer"',
        ),
        ({"low": 6, "high": 5}, "spec.low", "Invalid value: low is above high"),
        ({"forbidden": "word"}, "spec.forbidden", "Forbidden: failed rule: self != 'word'"),
    ],
)
async def test_the_schema_speaks_alike(api: Api, spec: dict[str, Any], field: str, said: str) -> None:
    answer = await api.client.create(api.path("gadgets"), a_gadget(**spec))
    assert (answer.code, answer.body["reason"]) == (422, "Invalid")
    assert (field, said) in [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


async def test_rules_wait_until_the_object_has_its_form(api: Api) -> None:
    answer = await api.client.create(api.path("gadgets"), a_gadget(colour="puce", low=6, high=5))
    skipped = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the"
    said = {cause["field"]: cause["message"] for cause in answer.body["details"]["causes"]}
    assert set(said) == {"spec.colour", "<nil>"}
    assert said["<nil>"] == f"{skipped} existing errors to complete validation"


async def test_a_transition_rule_compares_with_before(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget(fixed="one"))
    refused = await api.client.merge(api.path("gadgets", "g"), {"spec": {"fixed": "two"}})
    assert (refused.code, refused.fields) == (422, ["spec.fixed"])
    assert refused.body["message"].endswith('spec.fixed: Invalid value: "two": fixed cannot be changed')
    assert (await api.client.merge(api.path("gadgets", "g"), {"spec": {"fixed": None}})).code == 200


async def test_a_transition_rule_holds_in_a_status_too(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget())
    status = api.path("gadgets", "g") + "/status"
    assert (await api.client.merge(status, {"status": {"sequence": 5}})).code == 200
    refused = await api.client.merge(status, {"status": {"sequence": 4}})
    assert (refused.code, refused.fields) == (422, ["status.sequence"])


async def test_the_status_subresource_writes_the_status_alone(api: Api) -> None:
    made = await api.client.create(api.path("gadgets"), a_gadget() | {"status": {"phase": "Forged"}})
    assert "status" not in made.body
    both = made.body | {"spec": {"size": 9}, "status": {"phase": "Running"}}
    put = await api.client.replace(api.path("gadgets", "g") + "/status", both)
    assert (put.body["spec"], put.body["status"], put.body["metadata"]["generation"]) == (
        {"size": 3},
        {"phase": "Running"},
        1,
    )
    # The version is a precondition here; the uid of a patch, strange as it is, is passed over.
    stale = {"metadata": {"resourceVersion": made.body["metadata"]["resourceVersion"]}, "status": {"phase": "Late"}}
    assert (await api.client.merge(api.path("gadgets", "g") + "/status", stale)).code == 409
    other = {"metadata": {"uid": "another"}, "status": {"phase": "Other"}}
    assert (await api.client.merge(api.path("gadgets", "g") + "/status", other)).code == 200


async def test_a_body_says_what_it_is(api: Api) -> None:
    nameless = {"metadata": {"name": "g"}, "spec": {}}
    assert (await api.client.create(api.path("gadgets"), nameless)).code == 400
    other = await api.client.create(api.path("gadgets"), a_gadget() | {"kind": "Widget"})
    assert (other.code, other.fields) == (422, ["kind"])


async def test_an_update_says_which_version_it_replaces(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget())
    refused = await api.client.replace(api.path("gadgets", "g"), a_gadget(size=4))
    assert (refused.code, refused.fields) == (422, ["metadata.resourceVersion"])
    assert refused.body["details"]["kind"] == "gadgets"


async def test_nulls(api: Api) -> None:
    made = await api.client.create(api.path("gadgets"), a_gadget(note=None, size=None, colour="red"))
    assert made.body["spec"] == {"note": None, "size": 3, "colour": "red"}
    patched = await api.client.merge(api.path("gadgets", "g"), {"spec": {"nested": {"free": {"a": [{"b": None}]}}}})
    assert patched.body["spec"]["nested"] == {"free": {"a": [{}]}}


async def test_a_strategic_patch_is_not_for_custom_resources(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget())
    media = "application/strategic-merge-patch+json"
    assert (await api.client.call("PATCH", api.path("gadgets", "g"), {}, media=media)).code == 415


async def test_replicas_are_scaled_without_knowing_the_kind(api: Api) -> None:
    made = await api.client.create(api.path("gadgets"), a_gadget(size=2))
    scale = api.path("gadgets", "g") + "/scale"
    shown = (await api.client.get(scale)).body
    assert (shown["apiVersion"], shown["kind"], shown["spec"], shown["status"]) == (
        "autoscaling/v1",
        "Scale",
        {"replicas": 2},
        {"replicas": 0},
    )
    assert shown["metadata"]["uid"] == made.body["metadata"]["uid"]
    assert (await api.client.merge(scale, {"spec": {"replicas": 5}})).body["spec"] == {"replicas": 5}
    shown["spec"]["replicas"] = 6
    assert (await api.client.replace(scale, shown)).code == 409
    assert (await api.client.get(api.path("gadgets", "g"))).body["spec"] == {"size": 5}
    assert (await api.client.merge(scale, {"spec": {"replicas": 1000}})).code == 422


async def test_a_table_shows_the_columns_of_the_definition(api: Api) -> None:
    await api.client.create(api.path("gadgets"), a_gadget(colour="red"))
    await api.client.merge(api.path("gadgets", "g") + "/status", {"status": {"phase": "Running"}})
    answer = await api.client.get(api.path("gadgets"), Accept=TABLE)
    columns = [(one["name"], one["type"], one["format"], one["priority"]) for one in answer.body["columnDefinitions"]]
    assert columns == [
        ("Name", "string", "name", 0),
        ("Size", "integer", "", 0),
        ("Phase", "string", "", 0),
        ("Colour", "string", "", 1),
        ("Age", "date", "", 0),
    ]
    [row] = answer.body["rows"]
    assert row["cells"][:4] == ["g", 3, "Running", "red"]


async def test_apply_creates_and_then_changes(api: Api) -> None:
    path = api.path("gadgets", "g") + "?fieldManager=tester"
    made = await api.client.call("PATCH", path, a_gadget(size=4, colour="red"), media=APPLY)
    assert (made.code, made.body["spec"]) == (201, {"size": 4, "colour": "red"})
    again = await api.client.call("PATCH", path, a_gadget(size=5, colour="red"), media=APPLY)
    assert (again.code, again.body["spec"]) == (200, {"size": 5, "colour": "red"})
    unmanaged = await api.client.call("PATCH", api.path("gadgets", "g"), a_gadget(size=6), media=APPLY)
    assert (unmanaged.code, unmanaged.fields) == (422, ["fieldManager"])
