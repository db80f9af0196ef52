"""`managedFields` of custom resources, as the real server keeps them."""

from typing import Any

import pytest

from devcluster.apiserver.ownership import Writer, owned

EDIT, ROBOT = Writer(manager="kubectl-edit"), Writer(manager="robot", operation="Apply")
STATUS = Writer(manager="muster", subresource="status")
NOW, LATER = "2030-01-01T00:00:01Z", "2030-01-01T00:00:02Z"

Json = dict[str, Any]


def an_object(**spec: Any) -> Json:
    return {"apiVersion": "test/v1", "kind": "Widget", "metadata": {"name": "a", "uid": "1"}, "spec": spec}


def written(old: Json | None, new: Json, writer: Writer, time: str = NOW) -> Json:
    return new | {"metadata": new["metadata"] | {"managedFields": owned(old, new, writer, time)}}


def told(obj: Json) -> list[tuple[str, str, Json]]:
    return [(each["manager"], each["time"], each["fieldsV1"]) for each in obj["metadata"]["managedFields"]]


CREATED = written(None, an_object(size=1, colour="red", parts=[1, 2]), EDIT)


def test_the_creator_has_all_fields_but_those_that_identify_the_object():
    assert told(CREATED) == [("kubectl-edit", NOW, {"f:spec": {"f:colour": {}, "f:parts": {}, "f:size": {}}})]
    [entry] = CREATED["metadata"]["managedFields"]
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Update", "test/v1", "FieldsV1")


def test_who_changes_a_field_takes_it_and_has_the_time():
    after = written(CREATED, an_object(size=2, colour="red", parts=[1, 2]), ROBOT, LATER)
    assert told(after) == [
        ("kubectl-edit", NOW, {"f:spec": {"f:colour": {}, "f:parts": {}}}),
        ("robot", LATER, {"f:spec": {"f:size": {}}}),
    ]


def test_who_only_removes_a_field_leaves_no_trace():
    after = written(CREATED, an_object(size=1, colour="red"), ROBOT, LATER)
    assert told(after) == [("kubectl-edit", NOW, {"f:spec": {"f:colour": {}, "f:size": {}}})]


def test_a_manager_without_fields_is_gone_and_subresources_are_apart():
    after = written(CREATED, an_object(size=2, colour="blue", parts=[]) | {"status": {"phase": "on"}}, ROBOT)
    assert [manager for manager, _, _ in told(after)] == ["robot"]
    status = after | {"status": {"phase": "off"}}
    [robot, muster] = written(after, status, STATUS, LATER)["metadata"]["managedFields"]
    assert (robot["operation"], muster["subresource"], muster["fieldsV1"]) == (
        "Apply",
        "status",
        {"f:status": {"f:phase": {}}},
    )


@pytest.mark.parametrize(
    ("given", "agent", "manager"),
    [("me", "kubectl/v1.36", "me"), ("", "kubectl/v1.36 (linux)", "kubectl"), ("", "x" * 200, "x" * 128), ("", "", "")],
)
def test_a_manager_is_named_by_the_request_or_by_its_program(given: str, agent: str, manager: str):
    assert Writer.named(given, agent, "Update", "").manager == manager
