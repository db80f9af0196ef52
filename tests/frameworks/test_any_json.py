"""Older CRDs let anything through: whatever stands in a resource is answered, and what is accepted can be rendered."""

import re
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.objects import Custom, Metadata
from shared.frameworks.scale_requests import parse_scale
from shared.frameworks.training_job import parse_job
from shared.job.naming import Slot
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, ScaleSpec
from tests.frameworks.documents import Document, custom, training_job
from tests.frameworks.strategies import FULL_JOB, JSON, REQUEST_SPECS, SECRET, spoilt
from tests.kit.pods import pod_for, service_for


def check_problems(answer: object) -> None:
    assert isinstance(answer, tuple)
    assert answer
    for problem in answer:
        assert isinstance(problem, Problem)
        assert problem.reason.isalpha()
        assert problem.reason[0].isupper()
        assert problem.field
        assert problem.message
    assert SECRET not in msgspec.json.encode(answer).decode()


def check_job(job: Custom) -> None:
    answer = parse_job(job)
    if not isinstance(answer, JobSpec):
        check_problems(answer)
        return
    msgspec.json.encode(answer)
    workers = answer.role(WORKER)
    assert workers.min_replicas <= workers.replicas <= (workers.max_replicas or workers.replicas)
    for pod in (
        pod_for(job, Slot(0, WORKER, 1), scaleout="more"),
        pod_for(job, Slot(0, LAUNCHER, 0)),
    ):
        assert pod["spec"]["restartPolicy"] == "Never"
        assert pod["metadata"]["labels"]["muster.dev/job-uid"] == "uid-1"
    service_for(job)


@given(JSON)
@settings(max_examples=1000, deadline=None)
def test_any_spec_of_a_job_is_answered(spec: object) -> None:
    check_job(Custom(metadata=Metadata(name="resnet"), spec=spec))


@given(spoilt(FULL_JOB))
@settings(max_examples=1500, deadline=None)
def test_a_spoilt_job_is_answered_and_an_accepted_one_rendered(document: Document) -> None:
    check_job(custom(document))


@given(st.sampled_from(["ScaleIn", "ScaleOut"]), REQUEST_SPECS)
@settings(max_examples=1500, deadline=None)
def test_any_scale_request_is_answered(kind: Any, spec: object) -> None:
    answer = parse_scale(kind, Custom(metadata=Metadata(name="request"), spec=spec))
    if isinstance(answer, ScaleSpec):
        msgspec.json.encode(answer)
        assert (answer.count is None) != (answer.pod_names == ())
    else:
        check_problems(answer)


@given(st.one_of(st.text(max_size=70), st.text("ab-9.A_", min_size=1, max_size=60)))
@settings(max_examples=500, deadline=None)
def test_a_name_that_is_accepted_makes_valid_pod_names(name: str) -> None:
    answer = parse_job(custom(training_job(name=name)))
    if isinstance(answer, JobSpec):
        assert len(f"{name}-worker-99999") <= 63
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
