"""JAXJob, PaddleJob and XGBoostJob: the environment as upstream writes it, whose end is the job's, what is refused."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.framework import Framework
from shared.frameworks.jaxjob import JAXJOB
from shared.frameworks.kubeflow import JOB_ROLE
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from shared.job.naming import Slot
from tests.frameworks.documents import (
    ABSENT,
    Document,
    changed,
    custom,
    jax_job,
    paddle_job,
    pytorch_job,
    reasons_of,
    spec_of,
    tf_job,
    xgboost_job,
)
from tests.kit.pods import context_of, pod_for

GOLDEN = Path(__file__).parent.parent / "golden"

CONTAINER = "template.spec.containers[0]"


def pods(framework: Framework, document: Document) -> dict[str, Document]:
    job = custom(document)
    slots = [Slot(0, role.name, index) for role in spec_of(framework, document).roles for index in range(role.replicas)]
    return {context_of(job, slot, framework, sizes={}).name: pod_for(job, slot, framework) for slot in slots}


def environments(framework: Framework, document: Document) -> dict[str, Any]:
    """The variables of each pod in their order; what Kubernetes fills in as the path of the field."""
    return {
        name: [
            {known["name"]: known.get("value") or known["valueFrom"]["fieldRef"]["fieldPath"]}
            for known in pod["spec"]["containers"][0]["env"]
        ]
        for name, pod in pods(framework, document).items()
    }


@pytest.mark.parametrize(
    ("framework", "job", "role", "gone"),
    [
        pytest.param(XGBOOSTJOB, xgboost_job(Master=1), "master", "worker", id="XGBoostJob"),
        pytest.param(PADDLEJOB, paddle_job(Worker=2), "worker", "master", id="PaddleJob"),
        pytest.param(PYTORCHJOB, pytorch_job(Master=1), "master", "worker", id="PyTorchJob"),
        pytest.param(TFJOB, tf_job(Worker=2), "worker", "ps", id="TFJob"),
    ],
)
def test_a_role_that_an_edit_took_away_has_no_pods_for_those_that_are_made_again(
    framework: Framework, job: Document, role: str, gone: str
):
    slot = Slot(0, role, 0)
    assert pod_for(custom(job), slot, framework, sizes={gone: 2}) == pod_for(custom(job), slot, framework)


def port(number: int, name: str) -> list[Document]:
    return [{"name": name, "containerPort": number}]


@pytest.mark.parametrize(
    ("name", "framework", "job"),
    [
        ("jaxjob/workers", JAXJOB, jax_job()),
        (
            "jaxjob/another_port",
            JAXJOB,
            changed(jax_job(Worker=1), f"spec.jaxReplicaSpecs.Worker.{CONTAINER}.ports", port(1234, "jaxjob-port")),
        ),
        ("paddlejob/collective", PADDLEJOB, paddle_job(Worker=2)),
        ("paddlejob/parameter_servers", PADDLEJOB, paddle_job(Master=2, Worker=2)),
        ("xgboostjob/master_and_workers", XGBOOSTJOB, xgboost_job()),
        ("xgboostjob/master_alone", XGBOOSTJOB, xgboost_job(Master=1)),
        (
            "xgboostjob/other_ports",
            XGBOOSTJOB,
            changed(xgboost_job(), f"spec.xgbReplicaSpecs.Worker.{CONTAINER}.ports", port(9991, "xgboostjob-port")),
        ),
    ],
)
def test_every_pod_gets_the_environment_as_upstream_writes_it(name: str, framework: Framework, job: Document):
    assert environments(framework, job) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


@pytest.mark.parametrize(
    ("framework", "job", "leader", "succeeds"),
    [
        pytest.param(JAXJOB, jax_job(), "worker", "All", id="of JAX all workers"),
        pytest.param(PADDLEJOB, paddle_job(), "worker", "All", id="of Paddle all trainers"),
        pytest.param(PADDLEJOB, paddle_job(Master=1, Worker=2), "master", "All", id="or all parameter servers"),
        pytest.param(XGBOOSTJOB, xgboost_job(), "master", "First", id="of XGBoost the master"),
    ],
)
def test_whose_end_is_the_jobs(framework: Framework, job: Document, leader: str, succeeds: str):
    handling = spec_of(framework, job).handling
    assert (handling.leader, handling.succeeds) == (leader, succeeds)


@pytest.mark.parametrize(
    ("framework", "job", "leading"),
    [
        pytest.param(JAXJOB, jax_job(), ["mnist-worker-0"], id="JAX: the coordinator"),
        pytest.param(PADDLEJOB, paddle_job(), [], id="Paddle: no trainer"),
        pytest.param(
            PADDLEJOB, paddle_job(Master=2, Worker=1), ["mnist-master-0", "mnist-master-1"], id="Paddle: each server"
        ),
        pytest.param(XGBOOSTJOB, xgboost_job(), ["mnist-master-0"], id="XGBoost: the master"),
    ],
)
def test_who_is_labelled_as_the_master(framework: Framework, job: Document, leading: list[str]):
    labelled = [name for name, pod in pods(framework, job).items() if JOB_ROLE in pod["metadata"]["labels"]]
    assert labelled == leading


@pytest.mark.parametrize(
    ("framework", "job", "path", "default"),
    [
        (JAXJOB, jax_job(), "spec.jaxReplicaSpecs.Worker", "Never"),
        (PADDLEJOB, paddle_job(), "spec.paddleReplicaSpecs.Worker", "OnFailure"),
        (XGBOOSTJOB, xgboost_job(), "spec.xgbReplicaSpecs.Worker", "Never"),
    ],
)
def test_the_default_restart_policy_is_upstreams(framework: Framework, job: Document, path: str, default: str):
    assert spec_of(framework, job).policy("worker") == default
    assert spec_of(framework, changed(job, f"{path}.restartPolicy", "ExitCode")).policy("worker") == "ExitCode"
    assert spec_of(framework, changed(job, f"{path}.replicas", ABSENT)).role("worker").replicas == 1


@pytest.mark.parametrize(
    ("framework", "job", "reason"),
    [
        pytest.param(JAXJOB, jax_job(Worker=0), "InvalidValue", id="JAX without a worker"),
        pytest.param(PADDLEJOB, paddle_job(Worker=0), "NoReplicas", id="Paddle without a trainer"),
        pytest.param(PADDLEJOB, paddle_job(Master=0, Worker=2), "NoReplicas", id="Paddle with no parameter server"),
        pytest.param(XGBOOSTJOB, xgboost_job(Worker=2), "NoReplicas", id="XGBoost without a master"),
        pytest.param(XGBOOSTJOB, xgboost_job(Master=2, Worker=2), "InvalidValue", id="XGBoost with two"),
    ],
)
def test_what_cannot_run_is_refused(framework: Framework, job: Document, reason: str):
    assert reason in reasons_of(framework, job)


def test_an_elastic_policy_of_paddle_has_no_effect_and_the_job_says_so():
    parsed = partial(spec_of, PADDLEJOB)
    ignored = parsed(changed(paddle_job(), "spec.elasticPolicy", {"minReplicas": 1, "metrics": []})).ignored
    assert [known.field for known in ignored] == ["spec.elasticPolicy"]
    assert not parsed(paddle_job()).ignored


@pytest.mark.parametrize("container", [0, 1])
def test_side_containers_of_paddle_rendezvous_at_the_pods_address_too(container: int):
    at = "spec.paddleReplicaSpecs.Worker.template.spec.containers"
    job = changed(paddle_job(), at, [{"name": "paddle", "image": "train"}, {"name": "side", "image": "side"}])
    first, second = (
        pods(PADDLEJOB, job)[f"mnist-worker-{index}"]["spec"]["containers"][container]["env"] for index in (0, 1)
    )
    assert first[0] == {"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert {"name": "PADDLE_MASTER", "value": "$(POD_IP_DUMMY):36543"} in first
    assert {"name": "PADDLE_MASTER", "value": "mnist-worker-0:36543"} in second
