"""What MPIJobs promise beside what all kinds of the training operator do: a launcher, and its hosts file."""

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from tests.frameworks.documents import Document, changed, mpi_job
from tests.kit.world import NAMESPACE
from tests.service.kubeflow import Play, applied

WORKERS = ["pi-worker-0", "pi-worker-1"]
ALL = ["pi-launcher", *WORKERS]


def a_job(*, v2beta1: bool = True, policy: Document | None = None, **replicas: int) -> Document:
    return applied(mpi_job(v2beta1=v2beta1, **replicas), run=policy)


class Launched(Play):
    """A world with one MPIJob, `pi`."""

    def __init__(self, framework: KubeflowJob = MPIJOB) -> None:
        super().__init__(framework, kinds=BUILT_IN.served({framework.resource}))

    def lines(self) -> list[str]:
        """The lines of the hosts file that the launcher has."""
        found = self.store.get(CONFIGMAPS, NAMESPACE, "pi-config")
        return str(found.manifest["data"]["hostfile"]).splitlines() if found is not None else []


@pytest.mark.parametrize("kind", [MPIJOB, MPIJOB_V2BETA1], ids=lambda kind: kind.resource.version)
async def test_the_launcher_starts_when_all_workers_are_ready(kind: KubeflowJob):
    async with Launched(kind) as world:
        world.stuck.add("pi-worker-1")
        uid = world.play(a_job())
        await world.until(lambda: sorted(world.pods()) == WORKERS)
        await world.quiet()
        assert (sorted(world.pods()), world.state()) == (WORKERS, "Created")
        world.stuck.clear()
        await world.runs()
        assert world.counts("Launcher") == (1, 0, 0)
        assert sorted(world.pods()) == ALL
        assert world.lines() == [f"{name}.pi.{NAMESPACE}.svc slots=1" for name in WORKERS]
        children = [held for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS) for held in world.store.find(resource)]
        assert {held.metadata["ownerReferences"][0]["apiVersion"] for held in children} == {kind.resource.api_version}
        assert len(children) == len(world.owned_by(uid)) == 6


async def test_workers_follow_the_wanted_size_and_so_does_the_hosts_file():
    async with Launched() as world:
        world.play(a_job(v2beta1=False))
        await world.comes_to("Running")
        launcher = world.uid("pi-launcher")
        world.scale(4)
        await world.until(lambda: world.lines() == [f"pi-worker-{index} slots=1" for index in range(4)])
        await world.until(lambda: world.counts("Worker") == (4, 0, 0))
        world.scale(1)
        await world.until(lambda: world.lines() == ["pi-worker-0 slots=1"])
        await world.until(lambda: sorted(world.pods()) == ["pi-launcher", "pi-worker-0"])
        world.scale(2)
        await world.until(lambda: world.lines() == ["pi-worker-0 slots=1", "pi-worker-1 slots=1"])
        await world.quiet()
        assert world.uid("pi-launcher") == launcher
        assert world.state() == "Running"


async def test_a_launcher_of_v2beta1_that_fails_is_followed_by_a_new_attempt_of_all():
    async with Launched() as world:
        world.play(a_job(policy={"backoffLimit": 1}))
        await world.comes_to("Running")
        before = {name: world.uid(name) for name in ALL}
        world.exit_codes["pi-launcher"] = 1
        await world.comes_to("Restarting")
        await world.comes_to("Running")
        assert sorted(world.pods()) == ALL
        assert not {world.uid(name) for name in ALL} & {*before.values()}
        world.exit_codes["pi-launcher"] = 1
        await world.comes_to("Failed")
        assert world.known("Failed") == ("True", "MPIJobFailed")


@pytest.mark.parametrize("works", [True, False])
async def test_a_launcher_alone_runs(works: bool):
    async with Launched() as world:
        world.play(changed(a_job(Launcher=1), "spec.runLauncherAsWorker", works))
        await world.comes_to("Running")
        assert [*world.pods()] == ["pi-launcher"]
        assert world.lines() == [f"pi-launcher.pi.{NAMESPACE}.svc slots=1"] * works
        world.exit_codes["pi-launcher"] = 0
        await world.comes_to("Succeeded")
