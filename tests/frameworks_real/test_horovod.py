"""Horovod Elastic, with et-operator's own command line: a group that grows, shrinks and loses a worker."""

import re

import pytest

from tests.frameworks_real.training import Training, require_ssh

pytestmark = [pytest.mark.frameworks("horovod"), pytest.mark.asyncio(loop_scope="session")]

LAUNCHER = "horovod-launcher"


@pytest.fixture(autouse=True)
def programs() -> None:
    require_ssh()


async def test_horovodrun_grows_replaces_a_lost_worker_shrinks_and_learns_each_epoch_once(training: Training):
    job = await training.start("horovod/elastic.yaml")
    await training.says(LAUNCHER, r"epoch=3 .* workers=2$")
    await training.operator.kubectl("scale", job, "--replicas=3")
    # The new one has learnt nothing: the others tell it.
    grown = await training.says(LAUNCHER, r"group workers=3 rank=\d host=horovod-worker-2 epochs=(\d+)$")
    assert int(grown[1]) >= 3
    await training.operator.kubectl("delete", "pod", "horovod-worker-2", "--grace-period=0", "--force", "--wait=false")
    # Under a new name: Horovod starts nothing on a host that failed.
    replaced = await training.says(LAUNCHER, r"group workers=3 rank=\d host=horovod-worker-3 epochs=(\d+)$")
    assert int(replaced[1]) >= int(grown[1])
    await training.operator.kubectl("scale", job, "--replicas=2")
    left = r"host=horovod-worker-3 epochs=\d+$(?s:.*)group workers=2 rank=\d host=horovod-worker-0 epochs=(\d+)$"
    shrunk = await training.says(LAUNCHER, left)
    assert int(shrunk[1]) >= int(replaced[1])
    await training.has_no_pods("horovod-worker-2", "horovod-worker-3")
    await training.succeeds(job)
    await training.learnt(LAUNCHER, processes="workers=2")
    epochs = [int(epoch) for epoch in re.findall(r"epoch=(\d+) ", await training.log(LAUNCHER))]
    assert epochs == list(range(1, 41))
    await training.end(job)
