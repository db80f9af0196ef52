"""PyTorchJob: torch.distributed's environment, elastic groups, and whose end is the job's."""

from functools import partial
from pathlib import Path

import pytest
import yaml

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.job.naming import Slot
from shared.job.spec import RENDEZVOUS
from tests.frameworks.documents import ABSENT, Document, changed, custom, pytorch_job, reasons_of, spec_of, variables
from tests.kit.pods import context_of, pod_for

GOLDEN = Path(__file__).parent.parent / "golden" / "pytorchjob"
MASTER, WORKER = ("spec.pytorchReplicaSpecs.Master", "spec.pytorchReplicaSpecs.Worker")
CONTAINER = f"{WORKER}.template.spec.containers[0]"
ELASTIC = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 100}
IN_FULL = {
    "minReplicas": 1,
    "maxReplicas": 3,
    "rdzvBackend": "etcd-v2",
    "rdzvHost": "etcd.team-a",
    "rdzvPort": 2379,
    "rdzvId": "run-7",
    "rdzvConf": [{"key": "join_timeout", "value": "60"}, {"key": "last_call_timeout", "value": "5"}],
    "standalone": True,
    "nProcPerNode": 2,
    "maxRestarts": 3,
    "metrics": [{"type": "Resource", "resource": {"name": "cpu"}}],
}


def port(number: int) -> list[Document]:
    return [{"name": "pytorchjob-port", "containerPort": number}]


parsed = partial(spec_of, PYTORCHJOB)
reasons = partial(reasons_of, PYTORCHJOB)


def environments(document: Document) -> dict[str, dict[str, str]]:
    job = custom(document)
    roles = [role for role in parsed(document).roles if role.name != RENDEZVOUS]
    slots = [Slot(0, role.name, index) for role in roles for index in range(role.replicas)]
    return {
        context_of(job, slot, PYTORCHJOB, sizes={}).name: variables(pod_for(job, slot, PYTORCHJOB)) for slot in slots
    }


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("master_and_workers", pytorch_job(Master=1, Worker=2)),
        (
            "processes_and_a_port",
            changed(
                changed(pytorch_job(Master=1, Worker=1), "spec.nprocPerNode", "4"),
                f"{MASTER}.template.spec.containers[0].ports",
                port(29500),
            ),
        ),
        ("workers_alone", pytorch_job(Worker=2)),
        ("master_alone", pytorch_job(Master=1)),
        ("elastic", pytorch_job(policy=ELASTIC, Worker=2)),
        ("elastic_in_full", pytorch_job(policy=IN_FULL, Worker=1)),
        ("elastic_without_numbers", changed(pytorch_job(policy={}, Worker=2), f"{CONTAINER}.ports", port(29400))),
        ("elastic_with_a_master", pytorch_job(policy={"minReplicas": 1, "maxReplicas": 2}, Master=1, Worker=1)),
    ],
)
def test_every_pod_gets_the_environment_as_upstream_writes_it(name: str, job: Document):
    assert environments(job) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


class TestPods:
    def test_a_number_of_processes_may_be_a_number(self):
        one, other = (changed(pytorch_job(), "spec.nprocPerNode", value) for value in (4, "4"))
        assert environments(one) == environments(other)

    @pytest.mark.parametrize(
        ("name", "value"), [("PYTHONUNBUFFERED", ""), ("MASTER_PORT", "1"), ("PET_NPROC_PER_NODE", "8")]
    )
    def test_a_users_own_value_wins_where_the_pods_still_find_each_other(self, name: str, value: str):
        job = changed(pytorch_job(), f"{CONTAINER}.env", [{"name": name, "value": value}])
        assert environments(job)["mnist-worker-0"][name] == value

    def test_without_a_master_a_user_may_tell_of_one(self):
        own = [{"name": "MASTER_ADDR", "value": "mnist-worker-0"}, {"name": "RANK", "value": "0"}]
        job = changed(pytorch_job(Worker=1), f"{CONTAINER}.env", own)
        assert environments(job)["mnist-worker-0"]["MASTER_ADDR"] == "mnist-worker-0"

    @pytest.mark.parametrize("name", ["MASTER_ADDR", "WORLD_SIZE", "RANK", "PET_NODE_RANK", "PET_NNODES"])
    def test_what_is_every_pods_own_is_not_a_users_to_set(self, name: str):
        job = changed(pytorch_job(), f"{CONTAINER}.env", [{"name": name, "value": "s3cr3t"}])
        assert reasons(job) == ["ReservedVariable"]

    def test_side_containers_are_told_too_and_keep_what_they_have(self):
        """A program that ships the logs needs the rank."""
        containers = pytorch_job()["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        side = {"name": "logs", "image": "shipper", "env": [{"name": "RANK", "value": "none"}]}
        job = changed(pytorch_job(), f"{WORKER}.template.spec.containers", [side, *containers])
        pod = pod_for(custom(job), Slot(0, "worker", 1), PYTORCHJOB)
        assert variables(pod, 0)["RANK"] == "none"
        assert variables(pod, 0)["WORLD_SIZE"] == variables(pod, 1)["WORLD_SIZE"] == "3"
        assert "ports" not in pod["spec"]["containers"][0]
        assert pod["spec"]["containers"][1]["ports"] == port(23456)

    def test_a_worker_that_comes_later_is_told_the_same_as_the_first(self):
        job = pytorch_job(policy=ELASTIC, Worker=2)
        later = variables(pod_for(custom(job), Slot(0, "worker", 2), PYTORCHJOB, sizes={"worker": 3}))
        assert later == environments(job)["mnist-worker-0"]


class TestHandling:
    @pytest.mark.parametrize(
        ("job", "judge", "succeeds", "elastic"),
        [
            pytest.param(pytorch_job(), "master", "All", False, id="the master's"),
            pytest.param(pytorch_job(Worker=2), "worker", "All", False, id="all workers'"),
            pytest.param(pytorch_job(policy=ELASTIC, Worker=2), "worker", "Any", True, id="the first worker's"),
            pytest.param(pytorch_job(policy=ELASTIC, Master=1, Worker=2), "master", "All", True, id="elastic, led"),
            pytest.param(pytorch_job(policy={}, Worker=2), "worker", "Any", False, id="no size but one"),
        ],
    )
    def test_whose_end_is_the_jobs(self, job: Document, judge: str, succeeds: str, *, elastic: bool):
        handling = parsed(job).handling
        assert (handling.leader, handling.succeeds, handling.elastic) == (judge, succeeds, elastic)
        assert (handling.in_place, handling.strict, handling.hosts_files) == (True, True, False)

    def test_workers_come_and_go_between_the_two_numbers(self):
        worker = parsed(pytorch_job(policy=ELASTIC, Worker=2)).worker
        assert (worker.replicas, worker.min_replicas, worker.max_replicas) == (2, 1, 3)

    @pytest.mark.parametrize("policy", [{"minReplicas": 2}, {"maxReplicas": 2}, {"minReplicas": 2, "maxReplicas": 2}])
    def test_one_number_stands_for_both(self, policy: Document):
        spec = parsed(pytorch_job(policy=policy, Worker=2))
        assert not spec.handling.elastic
        assert environments(pytorch_job(policy=policy, Worker=2))["mnist-worker-0"]["PET_NNODES"] == "2:2"

    def test_without_a_number_the_group_is_of_all_pods(self):
        """Upstream leaves the master out: the agent that comes last waits for a round that never begins."""
        assert environments(pytorch_job(policy={}, Master=1, Worker=2))["mnist-master-0"]["PET_NNODES"] == "3:3"

    def test_replicas_that_fail_come_back_unless_the_job_says_otherwise(self):
        job = changed(pytorch_job(), f"{WORKER}.restartPolicy", "Never")
        assert {role.name: role.restart_policy for role in parsed(job).roles} == {
            "master": "OnFailure",
            "worker": "Never",
        }


def elastic(field: str, value: object) -> Document:
    return changed(pytorch_job(policy=ELASTIC, Worker=2), f"spec.elasticPolicy.{field}", value)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", "gpu"), id="a process per GPU"),
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", ""), id="nothing said, as Go writes it"),
        pytest.param(changed(elastic("nProcPerNode", 2), "spec.nprocPerNode", ""), id="said once, as Go writes it"),
        pytest.param(changed(pytorch_job(), f"{MASTER}.replicas", ABSENT), id="a master without a number"),
        pytest.param(pytorch_job(Master=1, Worker=0), id="a master without workers"),
        pytest.param(changed(pytorch_job(), "spec.elasticPolicy", None), id="a null policy is none"),
        pytest.param(elastic("rdzvConf", []), id="an empty list, at which upstream crashes"),
        pytest.param(elastic("rdzvHost", "$(STORE_HOST)"), id="a host from a variable"),
        pytest.param(elastic("rdzvHost", "[fd00::1]"), id="an IPv6 address"),
        pytest.param(elastic("rdzvBackend", ""), id="an empty backend"),
        pytest.param(elastic("maxRestarts", 0), id="no restarts within a pod"),
        pytest.param(elastic("minReplicas", 2), id="as few as it begins with"),
    ],
)
def test_accepted(job: Document):
    assert environments(job)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param(pytorch_job(Master=2, Worker=1), "InvalidValue", id="two masters"),
        pytest.param(pytorch_job(Master=0, Worker=1), "NoReplicas", id="no master where there is one"),
        pytest.param(pytorch_job(Worker=0), "NoReplicas", id="no replicas"),
        pytest.param(pytorch_job(Chief=1, Worker=1), "UnknownReplicaType", id="a type of another kind"),
        pytest.param(changed(pytorch_job(), f"{CONTAINER}.name", "main"), "NoTrainingContainer", id="container's name"),
        pytest.param(changed(pytorch_job(), f"{CONTAINER}.env", "A=b"), "InvalidValue", id="environment as a text"),
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", "many"), "InvalidValue", id="so many processes"),
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", 0), "InvalidValue", id="no processes"),
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", True), "InvalidValue", id="true processes"),
        pytest.param(pytorch_job(policy=ELASTIC, Worker=4), "AboveMaximum", id="more than the most"),
        pytest.param(pytorch_job(policy={"minReplicas": 2, "maxReplicas": 3}, Worker=1), "BelowMinimum", id="too few"),
        pytest.param(pytorch_job(policy={"maxReplicas": 3}, Worker=2), "BelowMinimum", id="a maximum alone"),
        pytest.param(
            pytorch_job(policy={"minReplicas": 3, "maxReplicas": 2}, Worker=2), "MinimumAboveMaximum", id="turned round"
        ),
        pytest.param(pytorch_job(policy=ELASTIC, Master=1), "NoWorker", id="elastic without workers"),
        pytest.param(elastic("rdzvBackend", "zookeeper"), "UnknownRendezvousBackend", id="no such backend"),
        pytest.param(elastic("rdzvHost", "etcd:2379"), "InvalidRendezvous", id="a host with its port"),
        pytest.param(elastic("rdzvHost", "http://etcd"), "InvalidRendezvous", id="an address of the web"),
        pytest.param(elastic("rdzvConf", [{"value": "1"}]), "InvalidRendezvous", id="a value for nothing"),
        pytest.param(elastic("rdzvConf", [{"key": "a", "value": "1,b=2"}]), "InvalidRendezvous", id="two in one"),
        pytest.param(elastic("rdzvConf", {"a": "1"}), "InvalidValue", id="settings that are no list"),
        pytest.param(elastic("metrics", "cpu"), "InvalidValue", id="metrics that are no list"),
        pytest.param(changed(pytorch_job(), "spec.elasticPolicy", [1]), "InvalidValue", id="a policy that is a list"),
        pytest.param(
            changed(elastic("nProcPerNode", 2), "spec.nprocPerNode", "2"), "ContradictoryProcesses", id="said twice"
        ),
        pytest.param(
            changed(pytorch_job(policy={"minReplicas": 1, "maxReplicas": 1000}, Worker=1), "metadata.name", "m" * 53),
            "InvalidName",
            id="a name that is too long once there are as many as there may be",
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(job: Document, reason: str):
    problems = PYTORCHJOB.parse(custom(job))
    assert isinstance(problems, tuple), problems
    assert reason in [problem.reason for problem in problems]
    assert all(problem.message and problem.field for problem in problems)


EXAMPLES = Path(__file__).parents[2] / "examples" / "pytorch"


def example(name: str) -> Document:
    found: Document = yaml.safe_load((EXAMPLES / name).read_text())
    return found


def test_the_autoscaler_keeps_to_the_bounds_of_its_job():
    scaler, policy = example("autoscaler.yaml")["spec"], example("group.yaml")["spec"]["elasticPolicy"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "group"}
    assert {name: scaler[name] for name in ("minReplicas", "maxReplicas")} == {
        name: policy[name] for name in ("minReplicas", "maxReplicas")
    }
