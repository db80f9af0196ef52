"""PyTorch: a group of fixed size, and an elastic one that loses a worker and gets another."""

import re
import time

import pytest

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("pytorch"), pytest.mark.asyncio(loop_scope="session")]


FAILS_SECONDS = 20
"""From the beginning of a job: longer than its first pods need to meet."""


async def test_the_master_and_the_worker_of_a_pytorchjob_learn_together(training: Training):
    job = await training.start("pytorch/master_worker.yaml")
    await training.succeeds(job)
    await training.learnt("fixed-master-0", processes="workers=2")
    await training.end(job)


async def test_the_agents_of_torchrun_meet_at_the_master_of_a_pytorchjob(training: Training):
    changes = {
        "name: fixed": "name: agents",
        "  pytorchReplicaSpecs": '  nprocPerNode: "1"\n  pytorchReplicaSpecs',
        '["python", "train.py"]': '["torchrun", "train.py"]',
    }
    job = await training.start("pytorch/master_worker.yaml", changes)
    await training.succeeds(job)
    await training.learnt("agents-master-0", processes="workers=2")
    await training.end(job)


async def test_an_elastic_pytorchjob_loses_a_worker_gets_another_grows_and_loses_nothing_that_was_learnt(
    training: Training,
):
    job = await training.start("pytorch/elastic.yaml")
    await training.says("torch-elastic-worker-0", r"^epoch=5 .* workers=2$")
    await training.lose("torch-elastic-worker-1")
    # The new one has learnt nothing: it is told by the one that stayed.
    joined = await training.says("torch-elastic-worker-1", r"^group workers=2 rank=\d epochs=(\d+)$")
    assert int(joined[1]) >= 5
    await training.operator.kubectl("scale", job, "--replicas=3")
    grown = await training.says("torch-elastic-worker-2", r"^group workers=3 rank=\d epochs=(\d+)$")
    assert int(grown[1]) >= int(joined[1])
    # The first worker is one like the others: the rendezvous is not in it.
    await training.lose("torch-elastic-worker-0")
    joined = await training.says("torch-elastic-worker-0", r"^group workers=3 rank=\d epochs=(\d+)$")
    assert int(joined[1]) >= int(grown[1])
    await training.operator.kubectl("scale", job, "--replicas=2")
    shrunk = await training.says("torch-elastic-worker-1", r"workers=3\b(?s:.*)^group workers=2 rank=\d epochs=(\d+)$")
    assert int(shrunk[1]) >= int(joined[1])
    await training.succeeds(job)
    await training.learnt("torch-elastic-worker-1", processes="workers=2")
    epochs = re.findall(r"^epoch=(\d+) ", await training.log("torch-elastic-worker-1"), re.MULTILINE)
    # One that broke in the middle was not told, and none was learnt twice.
    assert [int(epoch) for epoch in epochs] == sorted({int(epoch) for epoch in epochs})
    assert epochs[-1] == "60"
    await training.end(job)


async def test_an_elastic_group_whose_training_failed_meets_again(training: Training):
    # The agent of a training that failed closes the group for ever, in the store that outlives it.
    fails = f"if [ $(date +%s) -lt {int(time.time()) + FAILS_SECONDS} ]; then sleep 2; exit 1; fi; exec python train.py"
    changes = {
        "name: torch-elastic": "name: torch-fails",
        "maxRestarts: 20": "maxRestarts: 0",
        '["torchrun", "train.py"]': f'["torchrun", "--rdzv_id=$(JOB_ID)", "--no_python", "sh", "-c", "{fails}"]',
        'EPOCHS, value: "60"}': 'EPOCHS, value: "12"}\n                - {name: JOB_ID, value: torch-fails}',
    }
    job = await training.start("pytorch/elastic.yaml", changes)
    await training.says("torch-fails-rdzv-0", "may meet again$")
    await training.succeeds(job)
    await training.learnt("torch-fails-worker-0", processes="workers=2")
    await training.end(job)
