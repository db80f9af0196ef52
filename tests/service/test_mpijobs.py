"""MPIJobs of both versions from their creation to their end, with all four services."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from tests.frameworks.documents import changed, mpi_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, World

WORKERS = ["pi-worker-0", "pi-worker-1"]
ALL = ["pi-launcher", *WORKERS]


def an_mpi_job(*, v2beta1: bool = True, policy: dict[str, Any] | None = None, worker: str = "", **replicas: int) -> Any:
    """`worker` is the restartPolicy of the workers."""
    job = changed(mpi_job(v2beta1=v2beta1, **replicas), "spec.runPolicy", policy or {})
    job["metadata"] = {"name": "pi"}
    if "Worker" in job["spec"]["mpiReplicaSpecs"]:
        job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = worker
    return job


class Theatre(World):
    """A world on which the MPIJob `pi` plays."""

    def __init__(self, kinds: Kinds = BUILT_IN) -> None:
        super().__init__(kinds=kinds)
        self.jobs = kinds.resource("kubeflow.org/v1", "MPIJob")

    def play(self, job: Any) -> str:
        return str(self.apply(self.jobs, job).metadata["uid"])

    def conditions(self) -> list[dict[str, str]]:
        return self.status(self.jobs, "pi").get("conditions") or [{}]

    def state(self) -> str:
        """What the column State shows."""
        return str(self.conditions()[-1].get("type", ""))

    def why(self) -> str:
        return str(self.conditions()[-1]["message"])

    async def comes_to(self, state: str) -> None:
        await self.until(lambda: self.state() == state, f"pi is {state} and not {self.status(self.jobs, 'pi')}")

    def counts(self, kind: str) -> tuple[int, int, int]:
        found = self.status(self.jobs, "pi")["replicaStatuses"][kind]
        return found["active"], found["succeeded"], found["failed"]

    def uid(self, pod: str) -> str:
        return str(self.pods()[pod].metadata["uid"])

    def edit(self, patch: dict[str, Any]) -> None:
        self.store.patch(self.jobs, NAMESPACE, "pi", {"spec": patch})

    def scale(self, workers: int) -> None:
        self.edit({"mpiReplicaSpecs": {"Worker": {"replicas": workers}}})

    def hosts(self) -> list[str]:
        """The lines of the hosts file that the launcher has."""
        found = self.store.get(CONFIGMAPS, NAMESPACE, "pi-config")
        return str(found.manifest["data"]["hostfile"]).splitlines() if found is not None else []


@pytest.mark.parametrize("kind", [MPIJOB, MPIJOB_V2BETA1], ids=lambda kind: kind.resource.version)
@in_virtual_time
async def test_the_launcher_starts_when_all_workers_are_ready_and_its_end_is_the_jobs(kind):
    async with Theatre(BUILT_IN.served({kind.resource})) as world:
        world.stuck.add("pi-worker-1")
        uid = world.play(an_mpi_job())
        await world.until(lambda: sorted(world.pods()) == WORKERS)
        await world.quiet()
        assert (sorted(world.pods()), world.state()) == (WORKERS, "Created")
        world.stuck.clear()
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        assert world.counts("Launcher") == (1, 0, 0)
        assert sorted(world.pods()) == ALL
        assert world.hosts() == [f"{name}.pi.{NAMESPACE}.svc slots=1" for name in WORKERS]
        children = [held for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS) for held in world.store.find(resource)]
        assert {held.metadata["ownerReferences"][0]["apiVersion"] for held in children} == {kind.resource.api_version}
        assert len(children) == len(world.owned_by(uid)) == 6
        world.exit_codes["pi-launcher"] = 0
        await world.comes_to("Succeeded")
        await world.quiet()
        assert sorted(world.pods()) == ALL
        assert world.status(world.jobs, "pi")["completionTime"]
        told = [reason for reason, name in world.kubernetes_events() if name == "pi"]
        assert {"MPIJobRunning", "MPIJobSucceeded"} <= {*told}


@pytest.mark.parametrize(("policy", "left"), [("None", ALL), ("Running", ["pi-launcher"]), ("All", [])])
@pytest.mark.parametrize("at", ["spec", "spec.runPolicy"])
@in_virtual_time
async def test_workers_never_end_by_themselves_and_go_by_the_clean_up(policy: str, left: list[str], at: str):
    async with Theatre() as world:
        world.play(changed(an_mpi_job(), f"{at}.cleanPodPolicy", policy))
        await world.comes_to("Running")
        world.exit_codes["pi-launcher"] = 0
        await world.comes_to("Succeeded")
        await world.quiet()
        assert sorted(world.pods()) == left
        assert world.counts("Launcher") == (0, 1, 0)


@in_virtual_time
async def test_workers_follow_the_wanted_size_and_so_does_the_hosts_file():
    async with Theatre() as world:
        world.play(an_mpi_job(v2beta1=False))
        await world.comes_to("Running")
        launcher = world.uid("pi-launcher")
        world.scale(4)
        await world.until(lambda: world.hosts() == [f"pi-worker-{index} slots=1" for index in range(4)])
        await world.until(lambda: world.counts("Worker") == (4, 0, 0))
        world.scale(1)
        await world.until(lambda: world.hosts() == ["pi-worker-0 slots=1"])
        await world.until(lambda: sorted(world.pods()) == ["pi-launcher", "pi-worker-0"])
        world.scale(2)
        await world.until(lambda: world.hosts() == ["pi-worker-0 slots=1", "pi-worker-1 slots=1"])
        await world.quiet()
        assert world.uid("pi-launcher") == launcher
        assert world.state() == "Running"


@in_virtual_time
async def test_a_launcher_of_v2beta1_that_fails_is_followed_by_a_new_attempt_of_all():
    async with Theatre() as world:
        world.play(an_mpi_job(policy={"backoffLimit": 1}))
        await world.comes_to("Running")
        before = {name: world.uid(name) for name in ALL}
        world.exit_codes["pi-launcher"] = 1
        await world.comes_to("Restarting")
        await world.comes_to("Running")
        assert sorted(world.pods()) == ALL
        assert not {world.uid(name) for name in ALL} & {*before.values()}
        world.exit_codes["pi-launcher"] = 1
        await world.comes_to("Failed")
        assert world.condition(world.jobs, "pi", "Failed") == ("True", "MPIJobFailed")


@in_virtual_time
async def test_a_launcher_of_v1_that_fails_ends_the_job():
    async with Theatre() as world:
        world.play(an_mpi_job(v2beta1=False))
        await world.comes_to("Running")
        world.exit_codes["pi-launcher"] = 1
        await world.comes_to("Failed")
        await world.quiet()
        assert world.count("JobRestarted") == 0
        assert "the launcher exited with 1" in world.why()


@in_virtual_time
async def test_a_worker_that_is_lost_comes_back_in_its_place_and_into_the_hosts_file():
    async with Theatre() as world:
        world.play(an_mpi_job(v2beta1=False, worker="OnFailure"))
        await world.comes_to("Running")
        lost, launcher = world.uid("pi-worker-0"), world.uid("pi-launcher")
        world.exit_codes["pi-worker-0"] = 137
        await world.until(lambda: world.hosts() == ["pi-worker-1 slots=1"])
        await world.until(lambda: world.hosts() == ["pi-worker-0 slots=1", "pi-worker-1 slots=1"])
        assert world.uid("pi-worker-0") != lost
        assert world.uid("pi-launcher") == launcher
        await world.comes_to("Running")


@in_virtual_time
async def test_a_worker_that_ends_leaves_the_hosts_file_and_the_job_goes_on():
    async with Theatre() as world:
        world.play(an_mpi_job(v2beta1=False))
        await world.comes_to("Running")
        world.exit_codes["pi-worker-0"] = 1
        await world.until(lambda: world.hosts() == ["pi-worker-1 slots=1"])
        await world.pass_seconds(3600)
        assert world.state() == "Running"
        assert world.counts("Worker") == (1, 0, 1)


@in_virtual_time
async def test_a_launcher_does_not_begin_with_fewer_workers_than_were_asked_for():
    async with Theatre() as world:
        world.stuck.add("pi-worker-1")
        world.play(an_mpi_job(v2beta1=False))
        await world.until(lambda: sorted(world.pods()) == WORKERS)
        world.exit_codes["pi-worker-0"] = 127
        await world.comes_to("Failed")
        assert "pi-worker-0 ended with 127 before the launcher was made" in world.why()
        await world.quiet()
        assert "pi-launcher" not in world.pods()


@pytest.mark.parametrize("works", [True, False])
@in_virtual_time
async def test_a_launcher_alone_runs(works: bool):
    async with Theatre() as world:
        world.play(changed(an_mpi_job(Launcher=1), "spec.runLauncherAsWorker", works))
        await world.comes_to("Running")
        assert [*world.pods()] == ["pi-launcher"]
        assert world.hosts() == [f"pi-launcher.pi.{NAMESPACE}.svc slots=1"] * works
        world.exit_codes["pi-launcher"] = 0
        await world.comes_to("Succeeded")


@in_virtual_time
async def test_a_job_that_takes_too_long_fails_when_its_time_is_over_and_not_before():
    async with Theatre() as world:
        world.play(an_mpi_job(policy={"activeDeadlineSeconds": 60}))
        await world.comes_to("Running")
        await world.pass_seconds(55)
        assert world.state() == "Running"
        await world.pass_seconds(10)
        await world.comes_to("Failed")
        assert world.why().startswith("DeadlineExceeded")
        assert world.count("JobRestarted") == 0


@in_virtual_time
async def test_a_job_that_is_over_goes_with_all_that_it_had_and_does_not_come_back():
    async with Theatre() as world:
        uid = world.play(an_mpi_job(policy={"ttlSecondsAfterFinished": 30}))
        await world.comes_to("Running")
        world.exit_codes["pi-launcher"] = 0
        await world.comes_to("Succeeded")
        await world.pass_seconds(20)
        assert world.state() == "Succeeded"
        await world.pass_seconds(20)
        await world.until(lambda: world.store.get(world.jobs, NAMESPACE, "pi") is None)
        await world.until(lambda: world.owned_by(uid) == [])
        await world.quiet()
        assert not world.pods()


@in_virtual_time
async def test_a_pause_takes_the_pods_and_brings_them_back():
    async with Theatre() as world:
        world.play(an_mpi_job(policy={"suspend": True}))
        await world.comes_to("Suspended")
        await world.quiet()
        assert not world.pods()
        world.edit({"runPolicy": {"suspend": False}})
        await world.comes_to("Running")
        world.scale(3)
        await world.until(lambda: world.counts("Worker") == (3, 0, 0))
        world.edit({"runPolicy": {"suspend": True}})
        await world.comes_to("Suspended")
        await world.until(lambda: not world.pods() and world.counts("Worker")[0] == 0)
        assert world.condition(world.jobs, "pi", "Running") == ("False", "MPIJobSuspended")
        world.edit({"runPolicy": {"suspend": False}})
        await world.comes_to("Running")
        await world.until(lambda: len(world.pods()) == 4)
        assert world.condition(world.jobs, "pi", "Suspended") == ("False", "MPIJobResumed")


@in_virtual_time
async def test_a_job_that_cannot_run_says_why_and_runs_once_it_is_corrected():
    async with Theatre() as world:
        world.play(changed(an_mpi_job(), "spec.mpiImplementation", "LAM"))
        await world.comes_to("Failed")
        assert world.condition(world.jobs, "pi", "Failed") == ("True", "MPIJobFailedValidation")
        assert world.why().startswith("UnknownImplementation: ")
        await world.quiet()
        assert not world.pods()
        world.edit({"mpiImplementation": "Intel"})
        await world.comes_to("Running")
        assert world.condition(world.jobs, "pi", "Failed") is None
