"""Rules in the Common Expression Language, apart from HTTP."""

import pytest

from devcluster.apiserver.cel import check, rule_problems, ruled_part
from devcluster.apiserver.schema import ABSENT

NUMBER = {"type": "number"}
COUNT = {"type": "integer"}
TEXT = {"type": "string"}


def an_object(*rules, **properties):
    return {"type": "object", "properties": properties, "x-kubernetes-validations": [*rules]}


def broken(schema, value, old=ABSENT):
    return [f"{cause.field}: {cause.message}" for cause in check(ruled_part(schema), value, old)]


def test_a_schema_without_rules_has_nothing_to_check():
    assert ruled_part({"type": "object", "properties": {"a": TEXT}}) is None


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.low <= self.high", {"low": 1, "high": 2}),
        ("!has(self.absent) || self.absent > 1", {}),
        ("self.share <= 0.5", {"share": 0.5}),
        ("self.share < 1.5", {"share": 1}),
        ("self.list.all(one, one.startsWith('w-'))", {"list": ["w-1", "w-2"]}),
        ("self.list.exists_one(one, one == 'a') && size(self.list) == 2", {"list": ["a", "b"]}),
        ("self.name.matches('^[a-z]+$')", {"name": "abc"}),
        ("'key' in self.map && self.map['key'] == 'v'", {"map": {"key": "v"}}),
        ("type(self.low) == int", {"low": 1}),
    ],
)
def test_rules_that_hold(rule, value):
    texts = {"type": "array", "items": TEXT}
    schema = an_object(
        {"rule": rule},
        low=COUNT,
        high=COUNT,
        absent=COUNT,
        share=NUMBER,
        name=TEXT,
        list=texts,
        map={"type": "object", "additionalProperties": TEXT},
    )
    assert broken(schema, value) == []


def test_a_rule_without_a_message_is_quoted():
    assert broken(an_object({"rule": "self.a > 1"}, a=COUNT), {"a": 1}) == [
        "<nil>: Invalid value: failed rule: self.a > 1"
    ]


def test_what_cannot_be_evaluated_does_not_hold():
    assert broken(an_object({"rule": "self.missing > 1"}, a=COUNT), {"a": 1}) == [
        '<nil>: Invalid value: "object": no such key: missing evaluating rule: self.missing > 1'
    ]


def test_a_rule_names_its_field_and_reason():
    rule = {"rule": "false", "reason": "FieldValueForbidden", "fieldPath": ".a", "message": "no a here"}
    assert broken({"type": "object", "properties": {"spec": an_object(rule, a=COUNT)}}, {"spec": {"a": 1}}) == [
        "spec.a: Forbidden: no a here"
    ]


def test_items_of_a_map_like_list_are_compared_with_themselves():
    item = an_object({"rule": "self.size >= oldSelf.size", "message": "may only grow"}, name=TEXT, size=COUNT)
    schema = {
        "type": "object",
        "properties": {
            "disks": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            }
        },
    }
    old = {"disks": [{"name": "a", "size": 1}, {"name": "b", "size": 5}]}
    new = {"disks": [{"name": "b", "size": 4}, {"name": "a", "size": 2}, {"name": "c", "size": 0}]}
    assert broken(schema, new, old) == ["disks[0]: Invalid value: may only grow"]


def test_a_preserved_subtree_can_be_held_still():
    template = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "template is immutable"}],
    }
    schema = {"type": "object", "properties": {"template": template}}
    old = {"template": {"spec": {"containers": [{"image": "a"}]}}}
    assert broken(schema, old, old) == []
    new = {"template": {"spec": {"containers": [{"image": "b"}]}}}
    assert broken(schema, new, old) == ["template: Invalid value: template is immutable"]


def test_rules_under_additional_properties_are_asked_for_each_value():
    roles = {"type": "object", "additionalProperties": an_object({"rule": "self.replicas > 0"}, replicas=COUNT)}
    schema = {"type": "object", "properties": {"roles": roles}}
    value = {"roles": {"worker": {"replicas": 1}, "ps": {"replicas": 0}}}
    assert broken(schema, value) == ["roles[ps]: Invalid value: failed rule: self.replicas > 0"]


def test_what_an_update_leaves_alone_is_not_asked_again():
    schema = an_object({"rule": "self.a > 1"}, a=COUNT)
    assert broken(schema, {"a": 1}, {"a": 1}) == []
    assert broken(schema, {"a": 0}, {"a": 1}) != []


@pytest.mark.parametrize("rule", ["self.(", ""])
def test_rules_that_cannot_be_used_are_found_in_the_definition(rule):
    assert len(rule_problems(an_object({"rule": rule}), "schema")) == 1
