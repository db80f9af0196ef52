"""DeepSpeed: its own launcher reads the hosts file, and reaches the workers with the job's ssh keys."""

import re

import pytest

from tests.frameworks_real.training import Training, require_ssh

pytestmark = [pytest.mark.frameworks("deepspeed"), pytest.mark.asyncio(loop_scope="session")]

LAUNCHER = "deepspeed-launcher"
WORKERS = ["deepspeed-worker-0", "deepspeed-worker-1", "deepspeed-worker-2"]


@pytest.fixture(autouse=True)
def programs() -> None:
    require_ssh("pdsh")


async def test_the_launcher_of_deepspeed_trains_on_the_workers_that_the_hosts_file_names(training: Training):
    job = await training.start("deepspeed/training_job.yaml")
    await training.says(LAUNCHER, f"Running on the following workers: {','.join(WORKERS[:2])}$")
    await training.says(LAUNCHER, r"^deepspeed-worker-0: epoch=3 .* workers=2$")
    await training.operator.kubectl("scale", job, "--replicas=3")
    await training.operator.members("deepspeed", *WORKERS)
    # Its launcher reads the file when it starts.
    await training.operator.muster("restart", "trainingjob/deepspeed")
    await training.says(LAUNCHER, f"Running on the following workers: {','.join(WORKERS)}$")
    await training.succeeds(job)
    said = await training.log(LAUNCHER)
    assert sorted(re.findall(r"^\S+: (group .*)$", said, re.MULTILINE)) == [
        f"group workers=3 rank={rank} host={worker}" for rank, worker in enumerate(WORKERS)
    ]
    await training.learnt(LAUNCHER, processes="workers=3")
    await training.end(job)
