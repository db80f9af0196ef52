"""TFJob: TensorFlow's environment, and whose end is the job's."""

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from shared.frameworks.tfjob import TFJOB
from shared.job.naming import Slot
from tests.frameworks.documents import Document, changed, custom, reasons_of, spec_of, tf_job, variables
from tests.kit.pods import context_of, pod_for

GOLDEN = Path(__file__).parent.parent / "golden" / "tfjob"
WORKER = "spec.tfReplicaSpecs.Worker"
CONTAINER = f"{WORKER}.template.spec.containers[0]"


parsed = partial(spec_of, TFJOB)
reasons = partial(reasons_of, TFJOB)


def configs(document: Document) -> dict[str, object]:
    """TF_CONFIG by pod; None where it has none."""
    job = custom(document)
    found: dict[str, object] = {}
    for role in parsed(document).roles:
        for index in range(role.replicas):
            slot = Slot(0, role.name, index)
            config = variables(pod_for(job, slot, TFJOB)).get("TF_CONFIG")
            found[context_of(job, slot, TFJOB, sizes={}).name] = json.loads(config) if config else None
    return found


@pytest.mark.parametrize(
    ("name", "job"),
    [
        (
            "chief_servers_workers_evaluator",
            changed(
                tf_job(Chief=1, PS=2, Worker=2, Evaluator=1),
                f"{CONTAINER}.ports",
                [{"name": "tfjob-port", "containerPort": 3333}],
            ),
        ),
        ("master_and_workers", tf_job(Master=1, Worker=1)),
        ("dynamic_workers", changed(tf_job(PS=2, Worker=2), "spec.enableDynamicWorker", True)),
        ("one_task", tf_job(Worker=1)),
    ],
)
def test_every_pod_gets_the_cluster_as_upstream_writes_it(name: str, job: Document):
    assert configs(job) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


class TestPods:
    def test_a_users_own_configuration_stays_where_there_is_one_task(self):
        job = changed(tf_job(Worker=1), f"{CONTAINER}.env", [{"name": "TF_CONFIG", "value": "{}"}])
        assert variables(pod_for(custom(job), Slot(0, "worker", 0), TFJOB)) == {"TF_CONFIG": "{}"}

    def test_of_several_tasks_each_needs_its_own(self):
        job = changed(tf_job(Worker=2), f"{CONTAINER}.env", [{"name": "TF_CONFIG", "value": "{}"}])
        (problem,) = TFJOB.parse(custom(job))
        assert problem.reason == "ReservedVariable"

    def test_side_containers_are_left_as_they_are(self):
        containers = tf_job()["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        side = {"name": "logs", "image": "shipper", "env": [{"name": "A", "value": "b"}]}
        job = changed(tf_job(), f"{WORKER}.template.spec.containers", [side, *containers])
        first, second = pod_for(custom(job), Slot(0, "worker", 1), TFJOB)["spec"]["containers"]
        assert first == side
        assert second["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
        assert [known["name"] for known in second["env"]] == ["TF_CONFIG"]

    def test_the_size_is_that_of_the_attempt_whatever_the_resource_says(self):
        pod = pod_for(custom(tf_job(Worker=2)), Slot(0, "worker", 0), TFJOB, sizes={"worker": 3})
        assert len(json.loads(variables(pod)["TF_CONFIG"])["cluster"]["worker"]) == 3


class TestWhoseEndIsTheJobs:
    @pytest.mark.parametrize(
        ("job", "judge", "succeeds"),
        [
            pytest.param(tf_job(Worker=2), "worker", "First", id="the first worker's"),
            pytest.param(tf_job(PS=1, Worker=2), "worker", "First", id="never a server's"),
            pytest.param(tf_job(Chief=1, Worker=2), "chief", "All", id="the chief's"),
            pytest.param(tf_job(Master=1, Worker=2), "master", "All", id="a master is a chief"),
            pytest.param(
                changed(tf_job(Worker=2), "spec.successPolicy", "AllWorkers"), "worker", "All", id="all workers'"
            ),
            pytest.param(
                changed(tf_job(Chief=1, Worker=2), "spec.successPolicy", "AllWorkers"),
                "chief",
                "All",
                id="a chief's whatever the policy says of workers",
            ),
            pytest.param(tf_job(Evaluator=1), "evaluator", "All", id="all that are there"),
        ],
    )
    def test_it_is(self, job: Document, judge: str, succeeds: str):
        handling = parsed(job).handling
        assert (handling.leader, handling.succeeds) == (judge, succeeds)

    def test_dynamic_workers_come_and_go_and_are_not_missed(self):
        handling = parsed(changed(tf_job(PS=1, Worker=2), "spec.enableDynamicWorker", True)).handling
        assert (handling.elastic, handling.spares) == (True, ("worker",))
        assert parsed(tf_job()).handling.elastic is False

    def test_of_dynamic_workers_one_is_needed_unless_a_chief_ends_the_job(self):
        without = parsed(changed(tf_job(PS=1, Worker=2), "spec.enableDynamicWorker", True))
        assert [role.min_replicas for role in without.roles] == [0, 1]
        chief = parsed(changed(tf_job(Chief=1, Worker=2), "spec.enableDynamicWorker", True))
        assert [role.min_replicas for role in chief.roles] == [0, 0]

    def test_restart_policies_are_each_types_own(self):
        job = changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "ExitCode")
        assert {role.name: role.restart_policy for role in parsed(job).roles} == {"ps": "Never", "worker": "ExitCode"}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param(tf_job(Chief=1, Master=1, Worker=1), "TwoChiefs", id="a chief and a master"),
        pytest.param(tf_job(Worker=0), "NoReplicas", id="no replicas"),
        pytest.param(tf_job(Chief=0, Worker=1), "NoReplicas", id="no chief where there is one"),
        pytest.param(changed(tf_job(), "spec.successPolicy", "Most"), "UnknownSuccessPolicy", id="success policy"),
        pytest.param(changed(tf_job(), f"{CONTAINER}.name", "main"), "NoTrainingContainer", id="container's name"),
        pytest.param(changed(tf_job(), f"{WORKER}.template", {}), "NoContainers", id="empty template"),
        pytest.param(changed(tf_job(), f"{WORKER}.restartPolicy", "Maybe"), "UnknownRestartPolicy", id="restarts"),
        pytest.param(changed(tf_job(), "metadata.name", "9lives"), "InvalidName", id="a name no host can have"),
        pytest.param(changed(tf_job(), "metadata.name", "m" * 55), "InvalidName", id="a name that is too long"),
    ],
)
def test_what_cannot_run_is_refused(job: Document, reason: str):
    assert reason in reasons(job)
