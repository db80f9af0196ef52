"""MXNet: dist_sync over a scheduler, two servers and two workers, in each of the four kinds of MXNet jobs."""

import asyncio

import pytest

from tests.frameworks_real.training import Training, assert_learnt

pytestmark = [pytest.mark.frameworks("mxnet"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("kind", ["fioravanzo", "mpba", "mlkube", "kubeflow"])
async def test_two_workers_learn_on_two_servers(training: Training, kind: str):
    job = await training.start(f"mxnet/{kind}.yaml")
    workers = await training.appear(2, f"mx-{kind}", "worker")
    # A worker that has not quite ended when the scheduler has is taken down with its log.
    logs = asyncio.gather(*(training.heard(worker) for worker in workers))
    await training.succeeds(job)
    for log in await logs:
        assert_learnt(log, processes="workers=2")
    await training.end(job)
