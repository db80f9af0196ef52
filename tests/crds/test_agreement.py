"""The API server and the parser judge alike, as far as a schema can say what the parser says."""

from collections.abc import Iterator

import pytest

from shared.frameworks.training_job import TRAINING_JOB, parse_job
from shared.job.spec import JobSpec
from tests.crds.admission import refusals
from tests.frameworks.documents import Document, changed, custom, scale_in, scale_out
from tests.frameworks.full import FULL_IN, FULL_JOB, FULL_OUT


def test_requests_that_are_not_spoilt_are_admitted() -> None:
    for document in (FULL_JOB, FULL_IN, FULL_OUT, scale_in(), scale_out()):
        assert refusals(document) == []


def scalars(schema: Document, path: str) -> Iterator[tuple[str, Document]]:
    """Path and schema of each declared number, text and boolean, without those of the pod templates."""
    for name, part in schema.get("properties", {}).items():
        if name != "template":
            yield from scalars(part, f"{path}.{name}")
    if schema.get("type") in ("integer", "string", "boolean"):
        yield path, schema


def outside(schema: Document) -> Iterator[object]:
    """Values that the schema refuses: one of another type, and those just beyond its bounds."""
    yield 7 if schema["type"] == "string" else "seven"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "enum" in schema:
        yield "Nonsense"


JOB_SPEC = TRAINING_JOB.spec


@pytest.mark.parametrize("path", [path for path, _ in scalars(JOB_SPEC, "spec")])
def test_what_the_schema_refuses_in_a_field_of_a_job_the_parser_refuses_there(path: str) -> None:
    schema = dict(scalars(JOB_SPEC, "spec"))[path]
    for value in outside(schema):
        answer = parse_job(custom(changed(FULL_JOB, path, value)))
        assert not isinstance(answer, JobSpec), f"{path}: {value!r} is parsed"
        assert path in {problem.field for problem in answer}
