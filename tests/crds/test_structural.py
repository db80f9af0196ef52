from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field

from muster.crds.fields import Model, rules
from muster.crds.structural import structural
from shared.frameworks.schemas import rule


class Inner(Model):
    model_config = ConfigDict(json_schema_extra=rules(rule("self.least > 0", "more")))

    least: Annotated[int, Field(ge=1, json_schema_extra={"format": "int32"})]


class Outer(Model):
    some_thing: Annotated[Inner, Field(json_schema_extra=rules(rule("self == oldSelf", "stay")))] | None = None
    policy: Literal["None", "All"] | None = None
    by_name: dict[str, Inner] | None = None


def test_references_nulls_and_titles_are_written_out() -> None:
    inner = {
        "type": "object",
        "properties": {"least": {"type": "integer", "format": "int32", "minimum": 1}},
        "required": ["least"],
    }
    one, two = rule("self.least > 0", "more"), rule("self == oldSelf", "stay")
    assert structural(Outer) == {
        "type": "object",
        "properties": {
            "someThing": inner | rules(one, two),
            "policy": {"type": "string", "enum": ["None", "All"]},
            "byName": {"type": "object", "additionalProperties": inner | rules(one)},
        },
    }


class Anything(Model):
    field: Any


class Choice(Model):
    field: int | str


class Bag(Model):
    field: dict[str, Any]


@pytest.mark.parametrize("model", [Anything, Choice, Bag], ids=["any type", "a choice of types", "an undeclared bag"])
def test_what_is_not_structural_is_refused(model: type[Model]) -> None:
    with pytest.raises(TypeError, match=r"\.field"):
        structural(model)
