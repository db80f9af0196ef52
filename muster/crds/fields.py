"""Building blocks of the models: names in camelCase, numbers with bounds, rules that the API server asks."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from shared.frameworks.reading import GREATEST

INT32 = {"format": "int32"}

Count = Annotated[int, Field(ge=0, le=GREATEST, json_schema_extra={**INT32})]
"""From 0."""
Number = Annotated[int, Field(ge=1, le=GREATEST, json_schema_extra={**INT32})]
"""From 1."""
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Model(BaseModel):
    """The docstring below an attribute is what `kubectl explain` says of it; None is absent."""

    model_config = ConfigDict(alias_generator=to_camel, use_attribute_docstrings=True)


def rule(expression: str, message: str, *, field: str = "") -> dict[str, str]:
    """A rule in the Common Expression Language; with `oldSelf` in it, it is asked on updates only.

    `field` is the path, from where the rule stands, that the message is about.
    """
    return {"rule": expression, "message": message} | ({"fieldPath": field} if field else {})


def rules(*each: dict[str, str]) -> dict[str, Any]:
    """For `json_schema_extra`."""
    return {"x-kubernetes-validations": [*each]}
