"""MPICH and Intel MPI: their mpirun, which is hydra, reaches the workers with the job's own ssh keys and hosts file."""

import pytest

from tests.frameworks_real.training import Training, require_ssh

pytestmark = pytest.mark.asyncio(loop_scope="session")

OF_OPEN_MPI = '["mpirun", "--allow-run-as-root", "-np", "{ranks}", "-x", "PATH", "python", "train.py"]'
OF_HYDRA = '["mpirun", "-n", "{ranks}", "python", "train.py"]'


@pytest.fixture(autouse=True)
def programs() -> None:
    require_ssh()


def implementation(name: str, *, ranks: int) -> dict[str, str]:
    """What an example for Open MPI needs for another implementation."""
    return {
        "slotsPerWorker: 2": f"slotsPerWorker: 2\n  mpiImplementation: {name}",
        OF_OPEN_MPI.format(ranks=ranks): OF_HYDRA.format(ranks=ranks),
    }


async def trains(training: Training, name: str) -> None:
    job = await training.start("mpi/mpi_job_v2beta1.yaml", implementation(name, ranks=4))
    await training.succeeds(job)
    await says_its_hosts(training, "mpi-v2beta1", ["worker-0", "worker-1"])
    await training.end(job)
    job = await training.start("mpi/launcher_works.yaml", implementation(name, ranks=6))
    await training.succeeds(job)
    await says_its_hosts(training, "launcher-works", ["launcher", "worker-0", "worker-1"])
    await training.end(job)
    await training.has_no_pods("mpi-v2beta1", "launcher-works")


async def says_its_hosts(training: Training, job: str, hosts: list[str]) -> None:
    """Assert that each host in turn has as many ranks as it has slots."""
    log = (await training.log(f"{job}-launcher")).splitlines()
    ranks = 2 * len(hosts)
    assert sorted(line for line in log if line.startswith("rank ")) == [
        f"rank {rank} of {ranks} on {job}-{hosts[rank // 2]}" for rank in range(ranks)
    ]
    await training.learnt(f"{job}-launcher", processes=f"ranks={ranks}")


@pytest.mark.frameworks("mpich")
async def test_mpich_trains_on_the_workers_of_its_job_and_on_a_launcher_that_works(training: Training):
    await trains(training, "MPICH")


@pytest.mark.frameworks("intelmpi")
async def test_intel_mpi_trains_on_the_workers_of_its_job_and_on_a_launcher_that_works(training: Training):
    await trains(training, "Intel")
