"""Older definitions let anything through: any resource is answered, and what is accepted can be rendered."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.objects import Custom, Metadata
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import parse_scale
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.job.naming import JobKey, Slot, WorkerName
from shared.job.spec import JobSpec, Problem, ScaleSpec
from tests.frameworks.documents import (
    Document,
    changed,
    custom,
    fioravanzo_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    pytorch_job,
    tf_job,
    training_job,
)
from tests.frameworks.strategies import FULL_JOB, JSON, REQUEST_SPECS, SECRET, spoilt
from tests.frameworks.test_pytorchjob import IN_FULL
from tests.kit.pods import pod_for, service_for

POLICY = {
    "cleanPodPolicy": "All",
    "backoffLimit": 3,
    "activeDeadlineSeconds": 60,
    "ttlSecondsAfterFinished": 60,
    "suspend": False,
    "schedulingPolicy": {"minAvailable": 2},
    "managedBy": "",
}


def template(container: str) -> Document:
    """With one of everything that is read in a template, in one of its types."""
    training = {
        "name": container,
        "image": "train",
        "env": [{"name": "TOKEN", "value": SECRET}],
        "ports": [{"name": "board", "containerPort": 6006}],
        "resources": {"limits": {"memory": "1Gi"}},
    }
    side = {"name": "logs", "image": "shipper", "env": [{"name": "A", "value": SECRET}]}
    return {
        "metadata": {"labels": {"a": "b"}, "annotations": {"tuner-server-key": "d"}},
        "spec": {
            "initContainers": [{"name": "init", "image": "init", "resources": {}}],
            "containers": [training, side],
            "restartPolicy": "Always",
        },
    }


def of_kubeflow(document: Document, worker: str, container: str, **fields: object) -> Document:
    """With every field that the training operator's kinds share, and these of its own."""
    for field, value in {"runPolicy": POLICY, **fields}.items():
        document = changed(document, f"spec.{field}", value)
    document = changed(document, f"spec.{worker}.restartPolicy", "OnFailure")
    return changed(document, f"spec.{worker}.template", template(container))


CHIEF = {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}}
FULL: dict[Framework, Document] = {
    TRAININGJOB: FULL_JOB,
    TFJOB: of_kubeflow(
        tf_job(Chief=1, PS=1, worker=2, Evaluator=1),
        "tfReplicaSpecs.worker",
        "tensorflow",
        successPolicy="AllWorkers",
        enableDynamicWorker=True,
    ),
    PYTORCHJOB: of_kubeflow(pytorch_job(policy=IN_FULL | {"rdzvId": SECRET}), "pytorchReplicaSpecs.Worker", "pytorch"),
    MPIJOB: of_kubeflow(mpi_job(v2beta1=True), "mpiReplicaSpecs.Worker", "mpi"),
    MXJOB: of_kubeflow(kubeflow_mx_job(), "mxReplicaSpecs.Scheduler", "mxnet"),
    FIORAVANZO_MXJOB: changed(
        changed(fioravanzo_job(), "spec.replicaSpecs[0].template", template("mxnet")), "spec.terminationPolicy", CHIEF
    ),
    MPBA_MXJOB: changed(mpba_job(), "spec[0].template", template("mxnet")),
    MLKUBE_MXJOB: changed(
        changed(mlkube_job(), "spec.replicaSpecs[0].template", template("mxnet")), "spec.replicaSpecs[0].PsRootPort", 9
    ),
}
each_kind = pytest.mark.parametrize("framework", FULL, ids=lambda known: known.name)


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


def check(framework: Framework, job: Custom) -> None:
    framework.ours(job)
    answer = framework.parse(job)
    if not isinstance(answer, JobSpec):
        check_problems(answer)
        return
    msgspec.json.encode(answer)
    assert any(role.replicas for role in answer.roles)
    for role in answer.roles:
        assert role.min_replicas <= role.replicas <= (role.max_replicas or role.replicas)
        # A role of none may grow.
        for index in {0, max(role.replicas - 1, 0)}:
            slot = Slot(0, role.name, index)
            pod = pod_for(job, slot, framework, scaleout="more")
            assert pod["spec"]["restartPolicy"] == "Never"
            assert pod["metadata"]["labels"]["muster.dev/job-uid"] == job.metadata.uid
            assert len(pod["metadata"]["name"]) <= 63
            if framework is PYTORCHJOB:
                told = {known.get("name"): known.get("value") for known in pod["spec"]["containers"][0]["env"]}
                assert "PET_NNODES" in told
                assert all(isinstance(value, str) for name, value in told.items() if str(name).startswith("PET_"))
            service = service_for(job, slot if answer.handling.services == "Pods" else None, framework)
            msgspec.json.encode([pod, service])
    if answer.handling.hosts_files:
        key = JobKey("team-a", "resnet", "uid-1")  # type: ignore[arg-type]
        framework.hosts_files(key, answer, (WorkerName("resnet-worker-0"),))


def test_every_kind_is_asked_for():
    assert {kind.name for kind in FULL} == {kind.name for kind in BUILT_IN}


@each_kind
def test_the_full_job_is_accepted(framework: Framework):
    assert isinstance(framework.parse(custom(FULL[framework])), JobSpec), framework.parse(custom(FULL[framework]))


@each_kind
@given(anything=JSON)
@settings(max_examples=300, deadline=None)
def test_any_spec_and_status_of_a_job_are_answered(framework: Framework, anything: object):
    check(framework, Custom(metadata=Metadata(name="resnet", uid="uid-1"), spec=anything, status=anything))


@each_kind
@given(data=st.data())
@settings(max_examples=800, deadline=None)
def test_a_spoilt_job_is_answered_and_an_accepted_one_rendered(framework: Framework, data: st.DataObject):
    check(framework, custom(data.draw(spoilt(FULL[framework]))))


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
    answer = TRAININGJOB.parse(custom(training_job(name=name)))
    if isinstance(answer, JobSpec):
        assert len(f"{name}-worker-99999") <= 63
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
