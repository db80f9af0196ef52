"""The API server and the parser judge alike, as far as a schema can say what the parser says."""

from hypothesis import given, settings

from shared.frameworks.scale_requests import parse_scale
from shared.frameworks.training_job import parse_job
from shared.job.spec import JobSpec, ScaleSpec
from tests.crds.admission import refusals
from tests.frameworks.documents import Document, custom, scale_in, scale_out
from tests.frameworks.strategies import FULL_IN, FULL_JOB, FULL_OUT, KEPT_JSON, spoilt


@given(spoilt(FULL_JOB, KEPT_JSON))
@settings(max_examples=400, deadline=None)
def test_an_admitted_job_is_refused_for_its_pod_templates_alone(document: Document) -> None:
    if refusals(document) == []:
        answer = parse_job(custom(document))
        # Pod templates are open, so that no field is pruned.
        assert isinstance(answer, JobSpec) or all(".template." in problem.field for problem in answer)


@given(spoilt(FULL_IN, KEPT_JSON))
@settings(max_examples=400, deadline=None)
def test_an_admitted_scale_in_is_accepted(document: Document) -> None:
    if refusals(document) == []:
        assert isinstance(parse_scale("ScaleIn", custom(document)), ScaleSpec)


@given(spoilt(FULL_OUT, KEPT_JSON))
@settings(max_examples=400, deadline=None)
def test_an_admitted_scale_out_is_accepted(document: Document) -> None:
    if refusals(document) == []:
        assert isinstance(parse_scale("ScaleOut", custom(document)), ScaleSpec)


def test_requests_that_are_not_spoilt_are_admitted() -> None:
    for document in (FULL_JOB, FULL_IN, FULL_OUT, scale_in(), scale_out()):
        assert refusals(document) == []
