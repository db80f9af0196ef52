"""The life of a TrainJob, with all four services: its runtime comes, changes and goes."""

import copy
from typing import Any

import pytest

from shared.cluster.kinds import AUTOSCALERS, CONFIGMAPS, PODS, SERVICES
from shared.cluster.objects import Custom
from shared.errors import Refused, Transient
from shared.frameworks.kinds import Kinds
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES, RUNTIMES
from shared.frameworks.trainjob import TRAINJOB, TRAINJOBS, TrainJob
from shared.job.naming import ACCEPT_HISTORY
from shared.job.spec import JobSpec, Problem
from tests.frameworks.documents import variables
from tests.kit.trainer import jax_runtime, mpi_runtime, torch_runtime, train_job
from tests.kit.weather import Failing, met_by
from tests.kit.world import NAMESPACE, Document, World


class Play(World):
    """A world with a TrainJob called `mnist`."""

    def runtime(self, document: Document) -> None:
        self.apply(CLUSTER_RUNTIMES, document, namespace="")

    def change_runtime(self, image: str, name: str = "torch-distributed") -> None:
        held = self.store.get(CLUSTER_RUNTIMES, "", name)
        assert held is not None
        jobs = copy.deepcopy(held.manifest["spec"]["template"]["spec"]["replicatedJobs"])
        for job in jobs:
            job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
        self.store.patch(CLUSTER_RUNTIMES, "", name, {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}})

    def play(self, **spec: Any) -> str:
        return str(self.apply(TRAINJOBS, train_job(**spec)).metadata["uid"])

    def edit(self, spec: Document) -> None:
        self.store.patch(TRAINJOBS, NAMESPACE, "mnist", {"spec": spec})

    def shown(self) -> Document:
        return self.status(TRAINJOBS, "mnist")

    def state(self) -> str:
        return str(self.shown().get("phase", ""))

    async def comes_to(self, state: str) -> None:
        await self.until(lambda: self.state() == state, f"it is {state} and not {self.shown()}")

    def known(self, kind: str) -> tuple[str, str] | None:
        return self.condition(TRAINJOBS, "mnist", kind)

    def images(self) -> set[str]:
        return {held.manifest["spec"]["containers"][0]["image"] for held in self.pods().values()}

    def jobs_status(self) -> dict[str, Document]:
        return {each["name"]: each for each in self.shown()["jobsStatus"]}


async def test_nodes_of_torch_find_each_other_and_the_job_completes_with_all_of_them():
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(
            trainer={"numNodes": 2, "numProcPerNode": 3, "command": ["torchrun"], "env": [{"name": "A", "value": "b"}]}
        )
        await world.comes_to("Running")
        assert sorted(world.pods()) == ["mnist-node-0-0", "mnist-node-0-1"]
        assert variables(world.pods()["mnist-node-0-1"].manifest) == {
            "PET_NNODES": "2",
            "PET_NPROC_PER_NODE": "3",
            "PET_NODE_RANK": "1",
            "PET_MASTER_ADDR": "mnist-node-0-0.mnist",
            "PET_MASTER_PORT": "29500",
            "A": "b",
        }
        assert [held.at[1] for held in world.store.find(SERVICES, NAMESPACE)] == ["mnist"]
        assert world.jobs_status() == {
            "node": {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
        }
        world.exit_codes["mnist-node-0-0"] = 0
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-node-0-1"] = 0
        await world.comes_to("Complete")
        assert world.known("Complete") == ("True", "AllJobsCompleted")
        await world.until(lambda: world.jobs_status()["node"]["succeeded"] == 1)
        assert world.jobs_status()["node"]["ready"] == 0


async def test_a_job_that_runs_and_lacks_nothing_has_no_condition_as_clients_of_trainer_read_it():
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        assert world.shown()["conditions"] == []
        # With upstream's definition the API server keeps no other field of ours.
        assert TRAINJOB.phase({"jobsStatus": world.shown()["jobsStatus"]}) == "Running"
        # What it lacks is told by one.
        full = True

        def quota(before: object, after: object) -> None:
            if full and before is None:
                raise Refused("create Pod: exceeded quota", reason="QuotaExceeded")

        world.store.admit(PODS, quota)
        world.exit_codes["mnist-node-0-1"] = 1
        await world.until(lambda: "QuotaExceeded" in str(world.shown()["conditions"]))
        full = False
        world.exit_codes.clear()
        await world.until(lambda: world.state() == "Running" and world.shown()["conditions"] == [])
        # The condition of a pause stays, as upstream.
        world.edit({"suspend": True})
        await world.comes_to("Suspended")
        world.edit({"suspend": False})
        await world.comes_to("Running")
        assert [known["type"] for known in world.shown()["conditions"]] == ["Suspended"]


async def test_nodes_count_as_active_until_the_last_pod_of_a_suspended_job_is_gone():
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        lingering = world.pods()["mnist-node-0-0"].metadata["uid"]
        world.lingering.add(lingering)
        world.edit({"suspend": True})
        await world.until(lambda: list(world.pods()) == ["mnist-node-0-0"])
        await world.quiet(1.0)
        assert world.jobs_status()["node"]["active"] == 1
        world.lingering.clear()
        await world.comes_to("Suspended")
        assert world.jobs_status()["node"]["active"] == 0


async def test_a_refused_job_is_failed_as_a_queue_reads_it_until_it_is_corrected():
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(initializer={"dataset": {}})
        await world.comes_to("Failed")
        assert world.known("Failed") == ("True", "InitializerNotSupported")
        assert world.known("Created") == ("False", "InitializerNotSupported")
        world.edit({"initializer": None})
        await world.comes_to("Running")
        assert world.known("Failed") is None


async def test_a_job_whose_runtime_is_wrong_is_not_failed_and_begins_when_that_is_corrected():
    async with Play() as world:
        world.runtime(torch_runtime(numProcPerNode="bogus"))
        world.play()
        await world.until(lambda: bool(world.job("mnist").resource.problems))
        await world.quiet()
        assert world.known("Failed") is None
        right = {"spec": {"mlPolicy": {"torch": {"numProcPerNode": "auto"}}}}
        world.store.patch(CLUSTER_RUNTIMES, "", "torch-distributed", right)
        await world.comes_to("Running")


async def test_a_refused_job_may_be_corrected_after_its_lost_log_was_accepted():
    async with Play() as lost:
        lost.runtime(torch_runtime())
        lost.play(initializer={"dataset": {}})
        await lost.comes_to("Failed")
        await lost.quiet()
        head = lost.shown()["history"]
    async with Play(of=lost, log="another") as world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        accept = {"metadata": {"annotations": {ACCEPT_HISTORY: f"{head['sequence']}:{head['hash']}"}}}
        world.store.patch(TRAINJOBS, NAMESPACE, "mnist", accept)
        await world.until(lambda: world.count("HistoryAccepted") == 1)
        world.edit({"initializer": None})
        await world.comes_to("Running")


async def test_a_job_waits_for_its_runtime_and_begins_when_that_comes():
    async with Play() as world:
        world.play()
        await world.until(lambda: world.known("Created") == ("False", "TrainingRuntimeNotFound"))
        await world.quiet()
        assert not world.pods()
        (created,) = (each for each in world.shown()["conditions"] if each["type"] == "Created")
        assert "create the ClusterTrainingRuntime torch-distributed, or name one of another kind" in created["message"]
        world.runtime(torch_runtime())
        await world.comes_to("Running")
        assert world.known("Created") is None


async def test_a_runtime_that_cannot_be_listed_does_not_count_as_missing():
    unlisted = Failing(lambda call: call.plural == CLUSTER_RUNTIMES.plural, Transient("no answer"), seconds=0.2)
    async with Play(weather=met_by("watcher", unlisted)) as world:
        world.runtime(torch_runtime())
        world.play()
        await world.until(lambda: world.known("Created") == ("False", "TrainingRuntimesNotListed"))
        unlisted.on = False
        await world.comes_to("Running")


async def test_an_installation_for_one_namespace_refuses_a_runtime_of_the_cluster():
    async with Play(namespace=NAMESPACE) as world:
        world.runtime(torch_runtime())
        world.play()
        await world.until(lambda: world.known("Created") == ("False", "TrainingRuntimeNotSupported"))


async def test_a_job_that_is_nested_too_deep_stops_no_other():
    async with Play() as world:
        world.runtime(torch_runtime())
        deep: Any = "x"
        for _ in range(500):
            deep = {"x": deep}
        one = {"manager": "a.com/b", "trainingRuntimeSpec": {"template": {"spec": deep}}}
        patches = [one, one | {"manager": "a.com/c"}]
        world.apply(TRAINJOBS, train_job("deep", runtimePatches=patches))
        world.play()
        await world.comes_to("Running")
        await world.until(lambda: (world.condition(TRAINJOBS, "deep", "Created") or ("",))[0] == "False")


class Counting(TrainJob):
    """Notes which jobs are read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        self.read.append(manifest.metadata.name)
        return super().parse(manifest)


async def test_only_a_change_of_the_spec_of_a_runtime_has_its_jobs_read_anew():
    kind = Counting()
    async with Play(kinds=Kinds((kind,))) as world:
        world.runtime(torch_runtime())
        for number in range(20):
            world.apply(TRAINJOBS, train_job(f"mnist-{number}", suspend=True))
        await world.quiet()
        kind.read.clear()
        world.store.patch(CLUSTER_RUNTIMES, "", "torch-distributed", {"metadata": {"labels": {"a": "b"}}})
        await world.quiet()
        assert kind.read == []
        world.change_runtime("newer")
        await world.quiet()
        assert sorted(kind.read) == sorted(f"mnist-{number}" for number in range(20))


async def test_a_runtime_of_the_namespace_is_found_there_alone():
    async with Play() as world:
        kind = RUNTIMES.kind
        world.apply(RUNTIMES, torch_runtime() | {"kind": kind}, namespace="team-b")
        world.play(runtimeRef={"name": "torch-distributed", "kind": kind})
        await world.until(lambda: world.known("Created") == ("False", "TrainingRuntimeNotFound"))
        world.apply(RUNTIMES, torch_runtime() | {"kind": kind})
        await world.comes_to("Running")


@pytest.mark.parametrize("restarted", [False, True], ids=["", "and all services restart"])
async def test_a_job_keeps_the_runtime_that_it_began_with(restarted: bool):
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        world.change_runtime("newer")
        if restarted:
            await world.restart()
        await world.quiet()
        # A pod that fails is replaced by one like it.
        world.exit_codes["mnist-node-0-1"] = 1
        await world.until(lambda: world.job("mnist").attempt.refilled != {})
        world.exit_codes.clear()
        await world.comes_to("Running")
        assert world.images() == {"train"}
        # So are the pods after a pause, even without the runtime.
        world.delete(CLUSTER_RUNTIMES, "torch-distributed", namespace="")
        world.edit({"suspend": True})
        await world.comes_to("Suspended")
        assert world.known("Suspended") == ("True", "Suspended")
        await world.until(lambda: not world.pods())
        world.edit({"suspend": False})
        await world.comes_to("Running")
        assert world.known("Suspended") == ("False", "Resumed")
        assert world.images() == {"train"}


async def test_a_copy_that_somebody_else_wrote_is_not_used():
    async with Play() as world:
        world.runtime(torch_runtime())
        uid = world.play()
        await world.comes_to("Running")
        (kept,) = [held for held in world.owned_by(uid) if held.manifest.get("kind", "") == "ConfigMap"]
        text = kept.manifest["data"]["runtime"].replace("train", "forged")
        await world.kill("scheduler")
        world.store.patch(CONFIGMAPS, NAMESPACE, kept.at[1], {"data": {"runtime": text}})
        await world.start("scheduler")
        world.exit_codes["mnist-node-0-0"] = 1
        await world.until(lambda: "EffectRefused" in world.types())
        assert world.images() <= {"train"}
        world.exit_codes.clear()
        world.delete(CONFIGMAPS, kept.at[1])
        await world.until(lambda: world.images() == {"train"})


async def test_a_launcher_of_mpi_starts_when_its_nodes_are_ready_and_is_one_of_the_hosts():
    async with Play() as world:
        world.runtime(mpi_runtime(runLauncherAsNode=True, sshAuthMountPath="/home/mpiuser/.ssh"))
        world.play(runtime="mpi-distributed", trainer={"numNodes": 3, "numProcPerNode": 2, "command": ["mpirun"]})
        await world.comes_to("Running")
        assert sorted(world.pods()) == ["mnist-launcher", "mnist-node-0-0", "mnist-node-0-1"]
        held = world.store.get(CONFIGMAPS, NAMESPACE, "mnist-config")
        assert held is not None
        assert held.manifest["data"] == {
            "hostfile": "mnist-node-0-0.mnist slots=2\nmnist-node-0-1.mnist slots=2\nmnist-launcher.mnist slots=2\n"
        }
        (launcher,) = world.pods()["mnist-launcher"].manifest["spec"]["containers"]
        assert launcher["command"] == ["mpirun"]
        paths = {mount["mountPath"] for mount in launcher["volumeMounts"]}
        assert {"/etc/mpi", "/home/mpiuser/.ssh/id_rsa"} <= paths
        world.exit_codes["mnist-launcher"] = 0
        await world.comes_to("Complete")
        await world.until(lambda: sorted(world.pods()) == ["mnist-launcher"])


async def test_processes_of_jax_meet_at_the_first_one():
    async with Play() as world:
        world.runtime(jax_runtime())
        world.play(runtime="jax-distributed", trainer={"numNodes": 2})
        await world.comes_to("Running")
        assert variables(world.pods()["mnist-node-0-1"].manifest) == {
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": "1",
            "JAX_COORDINATOR_ADDRESS": "mnist-node-0-0.mnist:29500",
        }


async def test_an_elastic_job_of_torch_grows_and_shrinks_by_its_number_of_nodes():
    async with Play() as world:
        cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
        elastic = {"minNodes": 1, "maxNodes": 3, "maxRestarts": 5, "metrics": [cpu]}
        world.runtime(torch_runtime(elasticPolicy=elastic))
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        env = variables(world.pods()["mnist-node-0-0"].manifest)
        assert (env["PET_NNODES"], env["PET_RDZV_ENDPOINT"]) == ("1:3", "mnist-rdzv-0.mnist:29500")
        (scaler,) = [held.manifest for held in world.store.find(AUTOSCALERS)]
        target = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "mnist"}
        assert scaler["spec"] == {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [cpu]}
        world.edit({"trainer": {"numNodes": 3}})
        await world.until(lambda: len(world.pods()) == 4)
        world.change_runtime("newer")
        world.edit({"trainer": {"numNodes": 1}})
        await world.until(lambda: sorted(world.pods()) == ["mnist-node-0-0", "mnist-rdzv-0"])
        assert [*world.jobs_status()] == ["node"]
        await world.until(lambda: world.shown()["replicas"] == 1)


async def test_a_node_that_fails_too_often_fails_the_job():
    async with Play() as world:
        document = torch_runtime()
        document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 1
        world.runtime(document)
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        world.exit_codes["mnist-node-0-1"] = 1
        await world.until(lambda: bool(world.job("mnist").attempt.refilled))
        await world.until(lambda: len(world.pods()) == 2)
        world.exit_codes["mnist-node-0-1"] = 1
        await world.comes_to("Failed")
        assert world.known("Failed") == ("True", "FailedJobs")
        assert world.jobs_status()["node"]["failed"] == 1


async def test_a_patch_that_does_not_fit_the_kept_runtime_is_refused_and_can_be_mended():
    async with Play() as world:
        world.runtime(torch_runtime())
        world.play(trainer={"numNodes": 2})
        await world.comes_to("Running")
        world.change_runtime("newer")
        world.edit({"suspend": True})
        await world.until(lambda: not world.pods())
        patch = {
            "manager": "a",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {
                        "replicatedJobs": [
                            {"name": "node", "template": {"spec": {"template": {"spec": {"containers": "x"}}}}}
                        ]
                    }
                }
            },
        }
        world.edit({"runtimePatches": [patch], "suspend": False})
        await world.until(lambda: "EffectRefused" in world.types())
        assert world.job("mnist").integrity.doubt is None
        world.edit({"runtimePatches": []})
        await world.comes_to("Running")
        assert world.images() == {"train"}
