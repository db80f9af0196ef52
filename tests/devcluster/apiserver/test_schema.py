"""Pruning, defaulting and validation by a structural schema, apart from HTTP."""

import pytest

from devcluster.apiserver.schema import apply_defaults, prune, validate

TEXT = {"type": "string"}


def an_object(**properties):
    return {"type": "object", "properties": properties}


def wrong(schema, value):
    return [f"{cause.field}: {cause.message}" for cause in validate(schema, value)]


def test_pruning_keeps_what_is_declared_at_every_level():
    schema = an_object(
        spec=an_object(
            roles={"type": "object", "additionalProperties": an_object(image=TEXT)},
            list={"type": "array", "items": an_object(name=TEXT)},
            free={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": an_object()}},
        )
    )
    value = {
        "apiVersion": "v1",
        "kind": "A",
        "metadata": {"anything": 1},
        "more": 1,
        "spec": {
            "roles": {"worker": {"image": "a", "colour": "red"}},
            "list": [{"name": "a", "size": 1}],
            "free": {"this": {"that": 1}, "known": {"unknown": 1}},
        },
    }
    dropped = prune(schema, value)
    assert dropped == ["more", "spec.roles.worker.colour", "spec.list[0].size", "spec.free.known.unknown"]
    assert value["spec"] == {
        "roles": {"worker": {"image": "a"}},
        "list": [{"name": "a"}],
        "free": {"this": {"that": 1}, "known": {}},
    }
    assert value["metadata"] == {"anything": 1}


def test_defaults_reach_into_defaults_but_not_into_what_is_absent():
    inner = an_object(size=TEXT | {"default": "small"})
    schema = an_object(present=inner | {"default": {}}, absent=inner, none=TEXT | {"default": "x"})
    value = {"none": None}
    apply_defaults(schema, value)
    assert value == {"present": {"size": "small"}, "none": "x"}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, True, 'must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'must be of type string: "null"'),
        ({"type": "string", "pattern": "^a$"}, "a\n", "should match '^a$'"),
        ({"type": "string", "minLength": 1}, "", "should be at least 1 chars long"),
        ({"type": "string", "maxLength": 1}, "ab", "Too long: may not be more than 1 bytes"),
        ({"type": "string", "format": "date-time"}, "soon", "must be of type date-time"),
        ({"type": "array", "items": TEXT, "maxItems": 1}, ["a", "b"], "Too many: 2: must have at most 1 items"),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, ["a", "a"], 'Duplicate value: "a"'),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "Too many: 1"),
    ],
)
def test_values_that_do_not_fit(schema, value, message):
    [said] = wrong(an_object(field=schema), {"field": value})
    assert said.startswith("field")
    assert message in said


def test_a_number_beyond_its_format_is_told_without_its_field():
    schema = an_object(field={"type": "integer", "format": "int32"})
    wanted = "Checked value must be of type integer with format int32 in field"
    assert wrong(schema, {"field": 2**31}) == [f'<nil>: Invalid value: "": {wanted}']


def test_a_fraction_is_no_integer():
    assert wrong(an_object(field={"type": "integer"}), {"field": 1.5}) == [
        'field: Invalid value: "number": field in body must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in field',
    ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "80%"),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [None]}),
    ],
)
def test_values_that_fit(schema, value):
    assert wrong(an_object(field=schema), {"field": value}) == []
