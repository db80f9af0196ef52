"""Open MPI: mpirun reaches the workers with the job's own ssh keys and hosts file."""

import os
import shutil

import pytest

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("mpi"), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(autouse=True)
def programs() -> None:
    lacking = [program for program in ("mpirun", "ssh", "/usr/sbin/sshd") if shutil.which(program) is None]
    if lacking:
        pytest.skip(
            f"{', '.join(lacking)} must be installed: apt-get install openmpi-bin openssh-client openssh-server"
        )
    if os.geteuid() != 0:
        pytest.skip("sshd lets others in as itself only where it is root")


async def test_mpirun_of_a_training_job_trains_on_its_workers(training: Training):
    job = await training.start("mpi/training_job.yaml")
    await training.succeeds(job)
    log = (await training.log("mpi-launcher")).splitlines()
    assert sorted(line for line in log if line.startswith("rank ")) == [
        f"rank {rank} of 4 on mpi-worker-{rank // 2}" for rank in range(4)
    ]
    await training.learnt("mpi-launcher", processes="ranks=4")
    await training.end(job)
