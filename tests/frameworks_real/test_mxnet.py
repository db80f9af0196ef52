"""MXNet: dist_sync over a scheduler, two servers and two workers, in each of the four kinds of MXNet jobs."""

import pytest

from tests.frameworks_real.training import Training

pytestmark = [pytest.mark.frameworks("mxnet"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("kind", ["fioravanzo", "mpba", "mlkube", "kubeflow"])
async def test_two_workers_learn_on_two_servers(training: Training, kind: str):
    job = await training.start(f"mxnet/{kind}.yaml")
    await training.succeeds(job)
    workers = await training.pods(f"mx-{kind}", "worker")
    assert len(workers) == 2
    for worker in workers:
        await training.learnt(worker, processes="workers=2")
    await training.end(job)
