"""PyTorch: a group of fixed size, and an elastic one that loses a worker and gets another."""

import re

import pytest

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("pytorch"), pytest.mark.asyncio(loop_scope="session")]


async def test_the_master_and_the_worker_of_a_pytorchjob_learn_together(training: Training):
    job = await training.start("pytorch/master_worker.yaml")
    await training.succeeds(job)
    await training.learnt("fixed-master-0", processes="workers=2")
    await training.end(job)


async def test_an_elastic_pytorchjob_that_loses_a_worker_forms_its_group_again_and_goes_on(training: Training):
    job = await training.start("pytorch/elastic.yaml")
    await training.says("elastic-worker-0", r"^epoch=5 .* workers=2$")
    await training.lose("elastic-worker-1")
    # The new one has learnt nothing: it is told by the one that stayed.
    joined = await training.says("elastic-worker-1", r"^group workers=2 rank=\d epochs=(\d+)$")
    assert int(joined[1]) >= 5
    await training.succeeds(job)
    await training.learnt("elastic-worker-0", processes="workers=2")
    epochs = re.findall(r"^epoch=(\d+) ", await training.log("elastic-worker-0"), re.MULTILINE)
    # An epoch that broke in the middle was not told, so each is there once: nothing was learnt twice, or lost.
    assert [int(epoch) for epoch in epochs] == [*range(1, 41)]
    await training.end(job)
