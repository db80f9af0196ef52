"""Building blocks of the models: names in camelCase, numbers with bounds, rules that the API server asks."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from shared.frameworks.reading import GREATEST
from shared.frameworks.schemas import TEMPLATE

INT32 = {"format": "int32"}

Count = Annotated[int, Field(ge=0, le=GREATEST, json_schema_extra={**INT32})]
"""From 0."""
Number = Annotated[int, Field(ge=1, le=GREATEST, json_schema_extra={**INT32})]
"""From 1."""
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
PodTemplate = Annotated[dict[str, Any], WithJsonSchema(TEMPLATE)]


class Model(BaseModel):
    """The docstring below an attribute is what `kubectl explain` says of it; None is absent."""

    model_config = ConfigDict(alias_generator=to_camel, use_attribute_docstrings=True)


def rules(*each: dict[str, str]) -> dict[str, Any]:
    """For `json_schema_extra`."""
    return {"x-kubernetes-validations": [*each]}
