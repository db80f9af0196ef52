"""Whatever stands in a PyTorchJob is answered, and what is accepted can be rendered."""

import msgspec
from hypothesis import given, settings

from shared.cluster.objects import Custom, Metadata
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.naming import Slot
from shared.job.spec import JobSpec
from tests.frameworks.documents import Document, changed, custom, pytorch_job
from tests.frameworks.strategies import JSON, SECRET, spoilt
from tests.frameworks.test_any_json import check_problems
from tests.frameworks.test_pytorchjob import IN_FULL
from tests.kit.pods import pod_for, service_for

FULL = changed(
    changed(
        changed(
            pytorch_job(policy=IN_FULL, Master=1, Worker=2), "spec.runPolicy", {"backoffLimit": 3, "suspend": True}
        ),
        "spec.elasticPolicy.rdzvId",
        SECRET,
    ),
    "spec.pytorchReplicaSpecs.Worker.template.spec.containers",
    [
        {
            "name": "pytorch",
            "image": "train",
            "env": [{"name": "TOKEN", "value": SECRET}],
            "ports": [{"name": "pytorchjob-port", "containerPort": 29500}],
        },
        {"name": "logs", "image": "shipper", "env": [{"name": "A", "value": SECRET}]},
    ],
)


def check(job: Custom) -> None:
    answer = PYTORCHJOB.parse(job)
    if not isinstance(answer, JobSpec):
        check_problems(answer)
        return
    msgspec.json.encode(answer)
    for role in answer.roles:
        assert role.min_replicas <= role.replicas <= (role.max_replicas or role.replicas)
        for index in range(min(role.replicas, 2)):
            pod = pod_for(job, Slot(0, role.name, index), PYTORCHJOB)
            assert pod["spec"]["restartPolicy"] == "Never"
            names = {known.get("name"): known.get("value") for known in pod["spec"]["containers"][0]["env"]}
            assert "PET_NNODES" in names
            assert all(isinstance(value, str) for name, value in names.items() if str(name).startswith("PET_"))
            service_for(job, Slot(0, role.name, index), PYTORCHJOB)


@given(JSON)
@settings(max_examples=500, deadline=None)
def test_any_spec_is_answered(spec: object):
    check(Custom(metadata=Metadata(name="mnist", namespace="team-a", uid="uid-1"), spec=spec))


@given(spoilt(FULL))
@settings(max_examples=1000, deadline=None)
def test_a_spoilt_job_is_answered_and_an_accepted_one_rendered(document: Document):
    check(custom(document))


def test_the_full_job_is_accepted():
    fine = changed(FULL, "spec.nprocPerNode", None)
    assert isinstance(PYTORCHJOB.parse(custom(fine)), JobSpec), PYTORCHJOB.parse(custom(fine))
