"""The paths of the API, what kube-apiserver is asked about each, and the documents from which it learns the fields."""

import json
import re
from typing import Any

import msgspec
import pytest

from services.history.documents import described
from shared.history_api import PARTS, Question, parse, path_of, words_of
from shared.telling.shown import Shown

ROOT = "/apis/history.muster.dev/v1"
NAMED = f"{ROOT}/namespaces/team-a/jobhistories/trainingjob.resnet"


@pytest.mark.parametrize(
    ("path", "question", "verb"),
    [
        pytest.param(f"{ROOT}/jobhistories", Question(), "list", id="all namespaces"),
        pytest.param(f"{ROOT}/namespaces/team-a/jobhistories", Question("team-a"), "list", id="a namespace"),
        pytest.param(NAMED, Question("team-a", "trainingjob.resnet"), "get", id="a job"),
        pytest.param(f"{NAMED}/why", Question("team-a", "trainingjob.resnet", "why"), "get", id="why"),
        pytest.param(f"{NAMED}/events", Question("team-a", "trainingjob.resnet", "events"), "get", id="events"),
        pytest.param(f"{NAMED}/report", Question("team-a", "trainingjob.resnet", "report"), "get", id="a report"),
        pytest.param(f"{NAMED}/at/4", Question("team-a", "trainingjob.resnet", "at", "4"), "get", id="a sequence"),
    ],
)
def test_a_path_is_a_question_and_back(path: str, question: Question, verb: str):
    assert parse(path) == question
    assert path_of(question) == path
    assert question.verb == verb


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(ROOT, id="the API"),
        pytest.param(f"{ROOT}/pods", id="another resource"),
        pytest.param(f"{NAMED}/at", id="no moment"),
        pytest.param(f"{NAMED}/log", id="another subresource"),
        pytest.param(f"{NAMED}/why/more", id="more than a subresource"),
        pytest.param(f"{ROOT}/namespaces//jobhistories", id="no namespace"),
        pytest.param("/apis/history.muster.dev/v2/jobhistories", id="another version"),
    ],
)
def test_any_other_path_is_none(path: str):
    assert parse(path) is None


def test_of_a_name_with_dots_the_longest_kind_comes_first():
    assert words_of("mxjob.kubeflow.org.vgg") == [
        "mxjob.kubeflow.org/vgg",
        "mxjob.kubeflow/org.vgg",
        "mxjob/kubeflow.org.vgg",
    ]
    assert words_of("resnet") == []


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


def test_the_resources_of_the_version_are_all_that_discovery_is_told():
    listed = found("/apis/history.muster.dev/v1")
    assert [each["name"] for each in listed["resources"]] == [
        "jobhistories",
        *(f"jobhistories/{part}" for part in PARTS),
    ]
    assert described("/apis/history.muster.dev") is None


@pytest.mark.parametrize("path", [V3, "/openapi/v2"])
def test_every_reference_is_there_and_every_field_is_described(path: str):
    whole = found(path)
    schemas = whole["definitions"] if path.endswith("v2") else whole["components"]["schemas"]
    where = "#/definitions/" if path.endswith("v2") else "#/components/schemas/"
    assert {*re.findall(r'"\$ref": "([^"]+)"', json.dumps(whole))} == {f"{where}{name}" for name in schemas}
    (job,) = (schema for name, schema in schemas.items() if name.endswith(".Job"))
    assert job["properties"].keys() == {field.encode_name for field in msgspec.structs.fields(Shown)}
    assert all(field["description"] for field in job["properties"].values())
