"""Whatever stands in a resource of the training operator's kinds is answered, and what is accepted can be rendered."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cluster.objects import Custom, Metadata
from shared.frameworks.framework import Framework
from shared.frameworks.tfjob import TFJOB
from shared.job.naming import Slot
from shared.job.spec import JobSpec
from tests.frameworks.documents import Document, changed, custom, tf_job
from tests.frameworks.strategies import JSON, SECRET, spoilt
from tests.frameworks.test_any_json import check_problems
from tests.kit.pods import pod_for, service_for


def full(document: Document, replica_specs: str) -> Document:
    """With every field that the kinds share, in one of its types."""
    policy = {
        "cleanPodPolicy": "All",
        "backoffLimit": 3,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 60,
        "suspend": False,
        "schedulingPolicy": {"minAvailable": 2},
        "managedBy": "",
    }
    document = changed(document, "spec.runPolicy", policy)
    for role in document["spec"][replica_specs].values():
        role["restartPolicy"] = "OnFailure"
        (container,) = role["template"]["spec"]["containers"]
        container["env"] = [{"name": "TOKEN", "value": SECRET}]
        container["ports"] = [{"name": "board", "containerPort": 6006}]
        container["resources"] = {"limits": {"cpu": "1"}}
    return document


FULL_TF_JOB = changed(
    changed(full(tf_job(Chief=1, PS=1, worker=2, Evaluator=1), "tfReplicaSpecs"), "spec.successPolicy", "AllWorkers"),
    "spec.enableDynamicWorker",
    True,
)
JOBS = [(TFJOB, FULL_TF_JOB)]


def check(framework: Framework, job: Custom) -> None:
    framework.ours(job)
    answer = framework.parse(job)
    if not isinstance(answer, JobSpec):
        check_problems(answer)
        return
    msgspec.json.encode(answer)
    assert any(role.replicas for role in answer.roles)
    for role in answer.roles:
        for index in {0, role.replicas - 1} if role.replicas else ():
            slot = Slot(0, role.name, index)
            pod = pod_for(job, slot, framework)
            assert pod["spec"]["restartPolicy"] == "Never"
            assert len(pod["metadata"]["name"]) <= 63
            msgspec.json.encode([pod, service_for(job, slot, framework)])


@given(st.sampled_from([framework for framework, _ in JOBS]), JSON, JSON)
@settings(max_examples=700, deadline=None)
def test_any_spec_is_answered(framework: Framework, spec: object, status: object) -> None:
    check(framework, Custom(metadata=Metadata(name="resnet"), spec=spec, status=status))


@given(st.data())
@settings(max_examples=1000, deadline=None)
def test_a_spoilt_job_is_answered_and_an_accepted_one_rendered(data: st.DataObject) -> None:
    framework, document = data.draw(st.sampled_from(JOBS), label="kind")
    check(framework, custom(data.draw(spoilt(document), label="job")))
