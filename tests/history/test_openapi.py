"""The OpenAPI documents, from which `kubectl explain` and kube-apiserver learn the fields."""

import json
import re
from typing import Any

import msgspec
import pytest

from services.history.documents import FIELDS, described
from shared.telling.shown import Shown

V3 = "/openapi/v3/apis/history.muster.dev/v1"


def found(path: str) -> dict[str, Any]:
    known = described(path)
    assert known is not None
    return known


def test_the_index_names_the_document_of_the_version():
    ((path, where),) = found("/openapi/v3")["paths"].items()
    assert (path, where["serverRelativeURL"]) == ("apis/history.muster.dev/v1", V3)
    assert described("/openapi/v3/apis/other.dev/v1") is None
    assert described("/apis") is None


@pytest.mark.parametrize("path", [V3, "/openapi/v2"])
def test_every_reference_is_there_and_every_field_is_described(path: str):
    whole = found(path)
    schemas = whole["definitions"] if path.endswith("v2") else whole["components"]["schemas"]
    where = "#/definitions/" if path.endswith("v2") else "#/components/schemas/"
    assert {*re.findall(r'"\$ref": "([^"]+)"', json.dumps(whole))} == {f"{where}{name}" for name in schemas}
    (job,) = (schema for name, schema in schemas.items() if name.endswith(".Job"))
    assert all(field["description"] for field in job["properties"].values())


def test_the_words_are_about_the_fields_that_there_are():
    assert FIELDS.keys() == {field.encode_name for field in msgspec.structs.fields(Shown)}
