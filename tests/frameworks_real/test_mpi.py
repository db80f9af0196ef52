"""Open MPI: mpirun reaches the workers with the job's own ssh keys and hosts file."""

import pytest

from tests.frameworks_real.training import Training, require_ssh

pytestmark = [pytest.mark.frameworks("mpi"), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(autouse=True)
def programs() -> None:
    require_ssh("mpirun")


@pytest.mark.parametrize("kind", ["training_job", "mpi_job_v1", "mpi_job_v2beta1"])
async def test_mpirun_trains_on_the_workers_of_its_job(training: Training, kind: str):
    job = await training.start(f"mpi/{kind}.yaml")
    await training.succeeds(job)
    name = job.partition("/")[2]
    log = (await training.log(f"{name}-launcher")).splitlines()
    assert sorted(line for line in log if line.startswith("rank ")) == [
        f"rank {rank} of 4 on {name}-worker-{rank // 2}" for rank in range(4)
    ]
    await training.learnt(f"{name}-launcher", processes="ranks=4")
    await training.end(job)


async def test_a_launcher_that_works_too_has_the_first_ranks(training: Training):
    job = await training.start("mpi/launcher_works.yaml")
    await training.succeeds(job)
    log = (await training.log("launcher-works-launcher")).splitlines()
    hosts = ["launcher-works-launcher", "launcher-works-worker-0", "launcher-works-worker-1"]
    assert sorted(line for line in log if line.startswith("rank ")) == [
        f"rank {rank} of 6 on {hosts[rank // 2]}" for rank in range(6)
    ]
    await training.learnt("launcher-works-launcher", processes="ranks=6")
    await training.end(job)


async def test_of_the_hosts_in_the_file_those_are_taken_that_the_command_names(training: Training):
    some = {'"-np", "4"': '"-np", "2", "--host", "mpi-v1-worker-1:2"'}
    job = await training.start("mpi/mpi_job_v1.yaml", some)
    await training.succeeds(job)
    log = (await training.log("mpi-v1-launcher")).splitlines()
    assert sorted(line for line in log if line.startswith("rank ")) == [
        f"rank {rank} of 2 on mpi-v1-worker-1" for rank in range(2)
    ]
    await training.end(job)
    await training.has_no_pods("mpi-v1")
