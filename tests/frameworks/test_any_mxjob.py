"""Whatever stands in an MXNet job is answered, and what is accepted can be rendered."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.objects import Custom, Metadata
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxjob import MXJOB
from shared.job.naming import Slot
from shared.job.spec import JobSpec, Problem
from tests.frameworks.documents import (
    Document,
    changed,
    custom,
    fioravanzo_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
)
from tests.frameworks.strategies import JSON, SECRET, spoilt
from tests.kit.pods import pod_for, service_for

TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"tuner-server-key": "d"}},
    "spec": {
        "initContainers": [{"name": "init", "image": "init", "resources": {}}],
        "containers": [
            {
                "name": "mxnet",
                "image": "train",
                "env": [{"name": "TOKEN", "value": SECRET}],
                "ports": [{"name": "mx-port", "containerPort": 9}],
                "resources": {"limits": {"memory": "1Gi"}},
            }
        ],
        "restartPolicy": "Always",
    },
}
FULL = {
    FIORAVANZO_MXJOB: changed(
        changed(fioravanzo_job(), "spec.replicaSpecs[0].template", TEMPLATE),
        "spec.terminationPolicy",
        {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}},
    ),
    MPBA_MXJOB: changed(mpba_job(), "spec[0].template", TEMPLATE),
    MLKUBE_MXJOB: changed(
        changed(mlkube_job(), "spec.replicaSpecs[0].template", TEMPLATE), "spec.replicaSpecs[0].PsRootPort", 9092
    ),
    MXJOB: changed(kubeflow_mx_job(), "spec.mxReplicaSpecs.Scheduler.template", TEMPLATE),
}


def check(framework: Framework, job: Custom) -> None:
    answer = framework.parse(job)
    if isinstance(answer, JobSpec):
        msgspec.json.encode(answer)
        for role in answer.roles:
            slot = Slot(0, role.name, 0)
            pod = pod_for(job, slot, framework)
            msgspec.json.encode(pod)
            assert pod["spec"]["restartPolicy"] == "Never"
            assert pod["metadata"]["labels"]["muster.dev/job-uid"] == job.metadata.uid
            service_for(job, slot, framework)
        return
    assert answer
    for problem in answer:
        assert isinstance(problem, Problem)
        assert problem.reason.isalpha()
        assert problem.field
        assert problem.message
    assert SECRET not in msgspec.json.encode(answer).decode()


@pytest.mark.parametrize("framework", FULL, ids=lambda known: known.name)
@given(spec=JSON)
@settings(max_examples=300, deadline=None)
def test_any_spec_is_answered(framework: Framework, spec: object) -> None:
    check(framework, Custom(metadata=Metadata(name="mnist", uid="uid-1"), spec=spec))


@pytest.mark.parametrize("framework", FULL, ids=lambda known: known.name)
@given(data=st.data())
@settings(max_examples=600, deadline=None)
def test_a_spoilt_job_is_answered_and_an_accepted_one_rendered(framework: Framework, data: st.DataObject) -> None:
    document: Document = data.draw(spoilt(FULL[framework]))
    check(framework, custom(document))
