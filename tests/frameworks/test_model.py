"""The definition of a kind and the reader of its resources judge alike, because both follow from one model."""

from collections.abc import Iterator
from typing import Any

import pytest

from shared.frameworks import kinds
from shared.frameworks.model import Field, Written, flag, items, number, part, text
from shared.frameworks.reading import Fields
from shared.job.spec import Problem

assert kinds.BUILT_IN, "all models are loaded"


def models(known: type[Written] = Written) -> Iterator[type[Written]]:
    for model in known.__subclasses__():
        yield model
        yield from models(model)


def outside(schema: dict[str, Any]) -> Iterator[object]:
    """Values that the schema refuses: one of another type, and those just beyond its bounds."""
    yield 7 if schema["type"] == "string" else "seven"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "enum" in schema:
        yield "Nonsense"


# A list of metrics is kept for other programs, whatever it has.
FIELDS = {
    f"{model.__name__}.{field.name}": field for model in models() for field in model.declared if field.name != "metrics"
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_what_the_schema_refuses_in_a_field_the_reader_refuses_there(field: Field[Any]):
    for value in outside(field.schema):
        problems: list[Problem] = []
        field.read(Fields({field.name: value}, "spec", problems), field.name)
        assert {problem.field for problem in problems} == {f"spec.{field.name}"}, value


def test_all_errors_of_an_object_are_found_at_their_places():
    class Inner(Written):
        """Inside."""

        size = number("How large.", 1, 9)

    class Outer(Written):
        """Outside."""

        first_name = text(required=True)
        ready = flag()
        inner = part(Inner)
        many = items(Inner)

    problems: list[Problem] = []
    wrong = {"firstName": 1, "ready": "yes", "inner": {"size": 0}, "many": [{"size": 3}, {"size": 10}, 5]}
    read = Outer(Fields(wrong, "spec", problems))
    places = {"spec.firstName", "spec.ready", "spec.inner.size", "spec.many[1].size", "spec.many[2]"}
    assert {problem.field for problem in problems} == places
    assert len(problems) == len(places)
    assert [each.size for each in read.many] == [3, None, None]
    assert Outer.schema()["required"] == ["firstName", "inner"]
    assert Outer.schema()["properties"]["inner"] == {
        "type": "object",
        "description": "Inside.",
        "properties": {
            "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "description": "How large."}
        },
    }


def test_an_older_place_counts_for_a_field_that_is_absent_in_the_newer():
    class Limits(Written):
        """Limits."""

        least = number()
        most = number()

    problems: list[Problem] = []
    spec = Fields({"least": -1, "most": 7, "policy": {"most": 3}}, "spec", problems)
    assert Limits(spec.part("policy"), older=spec).most == 3
    assert [problem.field for problem in problems] == ["spec.least"]
