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
