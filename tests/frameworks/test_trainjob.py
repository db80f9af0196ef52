"""TrainJobs: how a job and its runtime are put together, what is refused and what has no effect."""

import sys
from random import Random
from typing import Any

import msgspec
import pytest

from shared.cluster.objects import Custom
from shared.frameworks.runtimes import JobRuntime, joined, read
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES
from shared.frameworks.trainjob import TRAINJOB
from shared.job.naming import Slot
from shared.job.spec import JobSpec, Problem
from tests.crds.admission import pruned, refusals
from tests.frameworks.documents import ABSENT, Document, changed, custom, variables
from tests.fuzz.mutation import with_odd_json
from tests.kit import published_trainer
from tests.kit.pods import pod_for
from tests.kit.published_trainer import JOBS
from tests.kit.trainer import as_read, jax_runtime, mpi_runtime, replicated_job, runtime, torch_runtime, train_job

RUNTIMES = {each["metadata"]["name"]: as_read(each) for each in published_trainer.RUNTIMES}
NODE = "spec.template.spec.replicatedJobs[0]"
POD = f"{NODE}.template.spec.template"


def parsed(job: Document, of: Document | JobRuntime) -> JobSpec | tuple[Problem, ...]:
    known = of if isinstance(of, JobRuntime) else as_read(of)
    return TRAINJOB.parse(joined(custom(_named(job)), known))


def _named(job: Document) -> Document:
    meta = {"namespace": "team-a", "uid": "uid-1", "generation": 1, "resourceVersion": "7"}
    return job | {"metadata": meta | job["metadata"]}


def reasons(job: Document, of: Document | JobRuntime) -> set[str]:
    found = parsed(job, of)
    assert isinstance(found, tuple), found
    return {problem.reason for problem in found}


def spec(job: Document, of: Document | JobRuntime) -> JobSpec:
    found = parsed(job, of)
    assert isinstance(found, JobSpec), found
    return found


def pod(job: Document, of: Document, index: int = 0, role: str = "worker", **sizes: int) -> Document:
    return pod_for(joined(custom(_named(job)), as_read(of)), Slot(0, role, index), TRAINJOB, sizes=sizes)


def patch(pods: Document, name: str = "node") -> list[Document]:
    template = {"spec": {"replicatedJobs": [{"name": name, "template": {"spec": {"template": pods}}}]}}
    return [{"manager": "example.com/team", "trainingRuntimeSpec": {"template": template}}]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("torch-distributed", None),
        ("torch-distributed-volcano", None),
        ("jax-distributed", None),
        ("deepspeed-distributed", None),
        ("mlx-distributed", None),
        ("xgboost-distributed", None),
        ("torchtune-qwen2.5-1.5b", {"ReplicatedJobNotSupported", "VolumeClaimNotSupported"}),
        ("torch-distributed-with-cache", {"ReplicatedJobNotSupported"}),
        ("torch-with-dataset-init", {"ReplicatedJobNotSupported"}),
        ("flux-distributed", {"PolicyNotSupported"}),
    ],
)
def test_a_published_runtime_runs_or_is_refused_for_a_reason(name: str, why: set[str] | None):
    job = train_job(runtime=name)
    assert reasons(job, RUNTIMES[name]) == why if why else spec(job, RUNTIMES[name]).roles


def test_every_published_runtime_is_looked_at():
    assert len(RUNTIMES) == 10


@pytest.mark.parametrize("document", [*published_trainer.RUNTIMES, *JOBS], ids=lambda each: each["metadata"]["name"])
def test_a_published_example_is_admitted_whole(document: Document):
    assert refusals(document) == []
    assert pruned(document) == []


@pytest.mark.parametrize("job", JOBS, ids=lambda each: each["metadata"]["name"])
def test_a_published_job_has_its_pods_or_is_refused_for_a_reason(job: Document):
    known = RUNTIMES[job["spec"]["runtimeRef"]["name"]]
    if job["metadata"]["name"] == "multi-step-example":
        assert reasons(job, known) == {"InitializerNotSupported", "ReplicatedJobNotSupported"}
        return
    worker = spec(job, known).worker
    assert worker.replicas == job["spec"]["trainer"]["numNodes"]
    made = pod_for(joined(custom(_named(job)), known), Slot(0, "worker", 1), TRAINJOB)
    (container,) = made["spec"]["containers"]
    assert container["command"] == job["spec"]["trainer"]["command"]
    assert {"name": "PET_NODE_RANK", "value": "1"} in container["env"]


def test_patches_are_merged_as_kubernetes_merges_them():
    document = changed(torch_runtime(), f"{POD}.spec.tolerations", [{"key": "a"}])
    document = changed(document, f"{POD}.spec.nodeSelector", {"a": "b"})
    document = changed(document, f"{POD}.spec.volumes", [{"name": "data", "emptyDir": {}}])
    change = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "tolerations": [{"key": "b"}],
            "nodeSelector": {"c": "d"},
            "volumes": [{"name": "more", "emptyDir": {}}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}],
        },
    }
    made = pod(train_job(runtimePatches=patch(change)), document)
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["spec"]["tolerations"] == [{"key": "b"}]
    assert made["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["data", "more"]
    (container,) = made["spec"]["containers"]
    assert (container["image"], container["volumeMounts"][0]["mountPath"]) == ("train", "/more")


def test_the_trainer_wins_over_the_container_of_the_runtime_and_adds_to_its_variables():
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    document = changed(torch_runtime(), f"{POD}.spec.containers[0].env", env)
    trainer = {"image": "mine", "command": ["run"], "args": ["-v"], "env": [{"name": "B", "value": "2"}]}
    (container,) = pod(train_job(trainer=trainer), document)["spec"]["containers"]
    assert (container["image"], container["command"], container["args"]) == ("mine", ["run"], ["-v"])
    assert {"A": "1", "B": "2"}.items() <= variables({"spec": {"containers": [container]}}).items()


@pytest.mark.parametrize(
    ("resources", "processes"),
    [
        pytest.param({}, "1", id="nothing said"),
        pytest.param({"requests": {"cpu": "2500m"}}, "3", id="as many as processors, rounded up"),
        pytest.param({"limits": {"cpu": 4}}, "4", id="limits where there are no requests"),
        pytest.param({"limits": {"cpu": 4, "nvidia.com/gpu": 2}}, "auto", id="torchrun counts GPUs"),
    ],
)
def test_how_many_processes_a_node_of_torch_has(resources: Document, processes: str):
    made = pod(train_job(trainer={"resourcesPerNode": resources}), torch_runtime())
    assert variables(made)["PET_NPROC_PER_NODE"] == processes


def test_the_policy_of_older_releases_says_how_many_processes_a_node_has():
    made = pod(train_job(), torch_runtime(numProcPerNode="gpu"))
    assert variables(made)["PET_NPROC_PER_NODE"] == "gpu"
    assert reasons(train_job(), torch_runtime(numProcPerNode="many")) == {"InvalidValue"}


def test_other_containers_get_the_variables_where_the_policy_says_so():
    target = {"targets": [{"jobName": "node", "containerNames": ["check"]}]}
    document = changed(
        torch_runtime(envInjection=target), f"{POD}.spec.initContainers", [{"name": "check", "image": "a"}]
    )
    (check,) = pod(train_job(), document)["spec"]["initContainers"]
    assert "PET_MASTER_ADDR" in variables({"spec": {"containers": [check]}})


@pytest.mark.parametrize(
    ("slots", "gpus", "expected"), [(1, 0, 1), (1, 4, 4), (2, 4, 2)], ids=["one", "its GPUs", "as the runtime says"]
)
def test_how_many_processes_a_node_of_mpi_has(slots: int, gpus: int, expected: int):
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    found = spec(train_job(trainer={"resourcesPerNode": resources}), mpi_runtime(numProcPerNode=slots))
    assert found.slots_per_worker == expected
    assert spec(train_job(trainer={"numProcPerNode": 7}), mpi_runtime()).slots_per_worker == 7


@pytest.mark.parametrize(("computes", "nodes", "workers"), [(False, 3, 3), (True, 3, 2), (True, 1, 1)])
def test_a_launcher_that_computes_is_one_of_the_nodes(computes: bool, nodes: int, workers: int):
    found = spec(train_job(trainer={"numNodes": nodes}), mpi_runtime(runLauncherAsNode=computes))
    assert (found.worker.replicas, found.launcher_works) == (workers, computes)
    assert not found.handling.elastic


def test_an_elastic_job_has_the_bounds_of_its_policy_and_begins_with_the_fewest_nodes():
    found = spec(
        train_job(),
        changed(torch_runtime(elasticPolicy={"minNodes": 2, "maxNodes": 4}), "spec.mlPolicy.numNodes", ABSENT),
    )
    assert (found.worker.replicas, found.worker.min_replicas, found.worker.max_replicas) == (2, 2, 4)
    assert (found.handling.elastic, found.handling.succeeds) == (True, "Any")


@pytest.mark.parametrize(
    ("job", "of", "why"),
    [
        pytest.param({"initializer": {}}, torch_runtime(), "InitializerNotSupported", id="an initializer"),
        pytest.param({"trainer": {"env": [{"name": "PET_NNODES"}]}}, torch_runtime(), "ReservedVariable", id="torch's"),
        pytest.param(
            {"trainer": {"env": [{"name": "OMPI_MCA_plm_rsh_args"}]}},
            mpi_runtime(),
            "ReservedVariable",
            id="Open MPI's",
        ),
        pytest.param(
            {"trainer": {"command": ["tune", "run"]}}, torch_runtime(), "TorchTuneNotSupported", id="torchtune"
        ),
        pytest.param(
            {"runtimePatches": patch({}, "other")}, torch_runtime(), "ReplicatedJobNotFound", id="no such job"
        ),
        pytest.param({"trainer": {"numNodes": 0}}, torch_runtime(), "InvalidValue", id="no node"),
        pytest.param(
            {"trainer": {"numNodes": 5}},
            torch_runtime(elasticPolicy={"minNodes": 1, "maxNodes": 4}),
            "AboveMaximum",
            id="too many nodes",
        ),
        pytest.param(
            {"trainer": {"numNodes": 1}},
            torch_runtime(elasticPolicy={"minNodes": 2, "maxNodes": 4}),
            "BelowMinimum",
            id="too few nodes",
        ),
        pytest.param(
            {}, torch_runtime(elasticPolicy={"minNodes": 5, "maxNodes": 4}), "MinimumAboveMaximum", id="bounds"
        ),
        pytest.param({}, mpi_runtime(mpiImplementation="Intel"), "UnknownImplementation", id="Intel MPI, as upstream"),
        pytest.param({}, mpi_runtime(sshAuthMountPath="here"), "InvalidPath", id="no folder"),
        pytest.param({}, mpi_runtime(sshAuthMountPath="/etc/mpi"), "InvalidPath", id="the folder of the hosts"),
        pytest.param({}, runtime("a", {"mpi": {}}), "NoReplicatedJob", id="MPI without a launcher"),
        pytest.param(
            {},
            runtime("a", {"torch": {}}, replicated_job("node"), replicated_job("eval")),
            "ReplicatedJobNotSupported",
            id="another step",
        ),
        pytest.param({}, changed(torch_runtime(), f"{NODE}.replicas", 2), "NotOneReplica", id="two replicas"),
        pytest.param({}, changed(torch_runtime(), f"{NODE}.name", "Node"), "InvalidName", id="a name with capitals"),
        pytest.param(
            {}, changed(torch_runtime(), f"{POD}.spec.containers[0].name", "main"), "NoTrainingContainer", id="no node"
        ),
        pytest.param({}, changed(torch_runtime(), f"{POD}.spec.containers[0].image", ABSENT), "NoImage", id="no image"),
        pytest.param(
            {"runtimeRef": {"name": "a", "kind": "Runtime"}},
            torch_runtime(),
            "TrainingRuntimeNotSupported",
            id="a kind",
        ),
        pytest.param({"trainer": {"env": [{"name": "JAX_PROCESS_ID"}]}}, jax_runtime(), "ReservedVariable", id="JAX's"),
        *(
            pytest.param(
                {"trainer": {"env": [{"name": name}]}},
                torch_runtime(elasticPolicy={"minNodes": 1, "maxNodes": 4, "maxRestarts": 2}),
                "ReservedVariable",
                id=f"elastic torch's {name}",
            )
            for name in ("PET_RDZV_ID", "PET_MAX_RESTARTS")
        ),
        pytest.param({}, changed(torch_runtime(), f"{POD}.spec.initContainers", [None]), "InvalidValue", id="a null"),
        pytest.param(
            {}, changed(torch_runtime(), f"{POD}.spec.containers[0].ports", [None]), "InvalidValue", id="no port"
        ),
        pytest.param(
            {},
            changed(torch_runtime(), f"{POD}.spec.initContainers", [{"name": "a", "image": "b", "env": [None]}]),
            "InvalidValue",
            id="no variable",
        ),
        pytest.param({"managedBy": "a.com/b"}, torch_runtime(), "ManagedByAnother", id="another controller"),
    ],
)
def test_what_cannot_run_is_refused(job: Document, of: Document, why: str):
    assert why in reasons(train_job(**job), of)


def test_an_image_of_the_trainer_is_enough():
    document = changed(torch_runtime(), f"{POD}.spec.containers[0].image", ABSENT)
    assert spec(train_job(trainer={"image": "mine"}), document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("podGroupPolicy", {"volcano": {}}),
        ("template.metadata", {"labels": {"a": "b"}}),
        ("template.spec.failurePolicy", {"maxRestarts": 3}),
        ("template.spec.ttlSecondsAfterFinished", 60),
        ("template.spec.successPolicy", {"operator": "Any"}),
    ],
)
def test_a_field_without_effect_is_told(path: str, value: Any):
    found = spec(train_job(), changed(torch_runtime(), f"spec.{path}", value))
    assert [known.field for known in found.ignored] == [f"runtime.spec.{path}"]


def deep(levels: int, value: Any = "x") -> Any:
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize("levels", [100, 500, 900])
def test_deep_patches_are_refused_and_raise_nothing(levels: int):
    one = {"manager": "a.com/b", "trainingRuntimeSpec": {"template": {"spec": deep(levels)}}}
    assert reasons(train_job(runtimePatches=[one, one | {"manager": "a.com/c"}]), torch_runtime()) == {"InvalidValue"}


def test_jobs_of_a_runtime_that_is_nested_too_deep_are_refused():
    whole = read(CLUSTER_RUNTIMES, Custom(spec=deep(sys.getrecursionlimit())))
    assert "InvalidValue" in reasons(train_job(), whole)


@pytest.mark.parametrize("name", ["A" * 1_000_000, "a" * 1_000_000])
def test_a_long_name_of_a_replicated_job_is_repeated_nowhere(name: str):
    document = changed(torch_runtime(), f"{NODE}.name", name)
    found = parsed(train_job(), changed(document, f"{POD}.spec.containers[0].image", ABSENT))
    assert isinstance(found, tuple)
    assert "InvalidName" in {problem.reason for problem in found}
    assert len(msgspec.json.encode(found)) < 2_000


def test_the_trainers_variables_and_resources_stand_in_the_place_of_the_runtimes():
    env = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "1"}]
    document = changed(torch_runtime(), f"{POD}.spec.containers[0].env", env)
    resources = {"requests": {"cpu": 8}, "limits": {"nvidia.com/gpu": 2}}
    document = changed(document, f"{POD}.spec.containers[0].resources", resources)
    trainer = {"env": [{"name": "A", "value": "2"}], "resourcesPerNode": {"limits": {"cpu": 3}}}
    made = pod(train_job(trainer=trainer), document)
    (container,) = made["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": 3}}
    assert [each for each in container["env"] if each["name"] in "AB"] == [{"name": "A", "value": "2"}, env[1]]
    assert variables(made)["PET_NPROC_PER_NODE"] == "3"


def test_resources_that_no_pod_gets_count_for_nothing():
    document = runtime("a", {"torch": {}}, replicated_job("node", trains=False))
    made = pod(train_job(trainer={"resourcesPerNode": {"limits": {"cpu": 3}}}), document)
    assert "resources" not in made["spec"]["containers"][0]
    assert variables(made)["PET_NPROC_PER_NODE"] == "1"


def test_a_long_name_is_refused_by_the_longest_pod_name():
    longest = "a" * (63 - len("-node-0-9"))
    assert spec(train_job(longest, trainer={"numNodes": 10}), torch_runtime())
    assert reasons(train_job(longest, trainer={"numNodes": 11}), torch_runtime()) == {"InvalidName"}


def test_a_launcher_of_mpi_is_told_of_its_hosts_by_the_names_of_open_mpi_4_and_5():
    told = variables(pod(train_job(trainer={"numProcPerNode": 2}), mpi_runtime(), role="launcher"))
    assert told == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
        "PRTE_MCA_prte_set_default_slots": "2",
        "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }


@pytest.mark.parametrize("policy", ["torch", "mpi"])
def test_a_runtime_with_any_json_is_refused_or_gives_pods(policy: str):
    document = torch_runtime(elasticPolicy={"minNodes": 1, "maxNodes": 2}) if policy == "torch" else mpi_runtime()
    runs = 0
    for seed in range(300):
        chance = Random(seed)
        line = msgspec.json.encode(document["spec"])
        for _ in range(chance.randint(1, 3)):
            line = with_odd_json(line, chance)
        try:
            odd = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        found = parsed(train_job(), as_read({"metadata": {"name": "a"}, "spec": odd}))
        if isinstance(found, JobSpec):
            runs += 1
            for role in found.roles:
                assert pod(train_job(), {"metadata": {"name": "a"}, "spec": odd}, role=role.name)["spec"]["containers"]
    assert runs


def test_what_breaks_a_promise_is_refused_or_said_with_its_path_in_the_runtime() -> None:
    own = {"volumes": [{"name": "own", "emptyDir": {}}], "hostname": "own", "subdomain": "own"}
    of = mpi_runtime()
    for name, field in (*own.items(), ("containers[0].volumeMounts", [{"name": "own", "mountPath": "/etc/mpi"}])):
        of = changed(of, f"spec.template.spec.replicatedJobs[1].template.spec.template.spec.{name}", field)
    found = parsed(train_job(), of)
    path = "runtime.spec.template.spec.replicatedJobs[launcher].template.spec.template.spec"
    assert isinstance(found, tuple)
    assert [(problem.reason, problem.field) for problem in found] == [
        ("InvalidPath", f"{path}.containers[0].volumeMounts[0].mountPath")
    ]
    of = changed(of, "spec.template.spec.replicatedJobs[1].template.spec.template.spec.containers[0].volumeMounts", [])
    assert [known.field for known in spec(train_job(), of).ignored] == [f"{path}.hostname", f"{path}.subdomain"]


@pytest.mark.parametrize("field", ["podTemplateOverrides", "podSpecOverrides"])
def test_overrides_of_earlier_releases_are_kept_and_refused(field: str) -> None:
    selected = {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"gpu": "a100"}}}
    job = train_job(**{field: [selected]})
    assert pruned(job) == []
    found = parsed(job, torch_runtime())
    assert isinstance(found, tuple)
    assert [(problem.reason, problem.field) for problem in found] == [("FieldNotSupported", f"spec.{field}")]
    assert isinstance(parsed(train_job(**{field: []}), torch_runtime()), JobSpec)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_earlier_releases_gave_a_job_set_has_no_effect(field: str) -> None:
    job = train_job(**{field: {"team": "vision"}})
    assert pruned(job) == []
    assert [known.field for known in spec(job, torch_runtime()).ignored] == [f"spec.{field}"]


@pytest.mark.parametrize(
    ("status", "taken"),
    [
        pytest.param({}, True, id="not seen yet"),
        pytest.param({"phase": "Running", "conditions": []}, False, id="runs and lacks nothing"),
        pytest.param({"phase": "Created", "conditions": [{"type": "Created", "status": "True"}]}, False, id="starts"),
        pytest.param({"phase": "Failed", "conditions": [{"type": "Created", "status": "False"}]}, True, id="refused"),
        pytest.param(
            {"phase": "Suspended", "conditions": [{"type": "Suspended", "status": "True"}]}, True, id="suspended"
        ),
        pytest.param(
            {"conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]},
            False,
            id="runs, as earlier releases wrote it",
        ),
    ],
)
def test_the_trainer_may_change_while_no_pod_depends_on_it(status: Document, taken: bool):
    before = _named(train_job(trainer={"image": "old"})) | {"status": status}
    assert (refusals(changed(before, "spec.trainer.image", "new"), before) == []) is taken
    assert refusals(changed(changed(before, "spec.trainer.image", "new"), "spec.suspend", True), before) == []
