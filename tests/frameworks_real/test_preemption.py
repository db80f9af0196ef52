"""A group of PyTorch that loses a place to a pod of higher priority, on the real kube-scheduler."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.controlplane import ControlPlane
from tests.e2e.test_capacity import PLACE, give, of_priority
from tests.frameworks_real.training import Training
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import an_operator

pytestmark = [pytest.mark.frameworks("pytorch", "newest"), pytest.mark.asyncio(loop_scope="session")]

NAME = "torch-elastic"
WORKERS = [f"{NAME}-worker-{index}" for index in range(3)]
OF_IMAGE = "imagePullPolicy: IfNotPresent"
CHANGES = {
    "replicas: 2": "replicas: 3",
    'value: "60"': 'value: "100000"',
    OF_IMAGE: f'{OF_IMAGE}\n              resources: {{limits: {{{PLACE}: "1"}}}}',
}


@pytest_asyncio.fixture(loop_scope="session")
async def crowded(
    training: Training, image_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Training]:
    """The same on the real control plane."""
    require_control_plane()

    def make(data: Path, *, images: Mapping[str, Path], **more: Any) -> ControlPlane:
        # The kind that is installed for these tests is in no role.
        return ControlPlane(data, images={**images, **image_folders}, **more)

    async with an_operator(tmp_path_factory.mktemp("crowded"), make) as operator:
        crowded = Training(operator, tmp_path_factory.mktemp("crowded-manifests"))
        crowded.images = training.images
        yield crowded


async def test_a_preempted_worker_of_a_group_costs_no_epoch_and_comes_back_with_its_place(crowded: Training):
    operator = crowded.operator
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    await operator.apply(urgent | {"value": 1000})
    await give(operator, len(WORKERS))
    await crowded.start("pytorch/elastic.yaml", CHANGES)
    for worker in WORKERS:
        await crowded.says(worker, r"^epoch=\d+ .* workers=3$")
    before = {await crowded.uid(worker) for worker in WORKERS}
    await operator.apply(of_priority("first"))

    async def is_preempted() -> bool:
        return not before <= {await crowded.uid(worker) for worker in WORKERS}

    await operator.until(is_preempted, lambda: "no worker is preempted")
    stays, *_ = [worker for worker in WORKERS if await crowded.uid(worker) in before]
    await crowded.says(stays, r"workers=3$(?s:.*)^epoch=\d+ .* workers=2$")
    assert "the kube-scheduler finds no node for 1" in await operator.muster("why", f"pytorchjob/{NAME}")
    await operator.kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    await crowded.says(stays, r"workers=2$(?s:.*)^epoch=\d+ .* workers=3$")
    job = await operator.job(NAME)
    assert (job.attempt.number, job.attempt.replaced, job.retries.restarts) == (0, 0, 0), "it counts against no limit"
    told = [line for line in (await crowded.log(stays)).splitlines() if line.startswith("epoch=")]
    epochs = [int(line.split()[0].partition("=")[2]) for line in told]
    assert epochs == sorted({*epochs}), "each epoch is learnt once"
    await crowded.end(f"pytorchjob/{NAME}")
    await crowded.has_no_pods(NAME)
