"""An etcd restored from an older backup: what came after the backup never was, and versions count again from there."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from devcluster.controlplane import ControlPlane
from shared.cluster.kinds import PODS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.spec import WORKER
from tests.perturbation.arena import Arena, an_arena

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


async def test_a_restored_store_is_noticed_and_seen_afresh(plane: ControlPlane, tmp_path: Path):
    async with an_arena(plane, tmp_path) as arena:
        await arena.drive(60)
        kept, changed, deleted = await arena.jobs(3)
        await arena.admin.create(PODS, arena.namespace, arena.driver.pod_of(kept, WORKER, 0))
        await arena.agree()
        backup = tmp_path / "backup"
        plane.apiserver.kill()
        plane.etcd.kill()
        shutil.copytree(plane.etcd.data, backup)
        await plane.etcd.run()
        await plane.apiserver.run()
        # Else the first changes after the restart could escape the witness, and the truth look like a lie.
        await arena.witness.anew()
        after: Any = await arena.driver.create_job("job-after")
        await arena.admin.create(PODS, arena.namespace, arena.driver.pod_of(kept, WORKER, 1))
        await arena.admin.patch(TRAININGJOBS, arena.namespace, changed.metadata.name, {"spec": {"backoffLimit": 9}})
        await arena.driver.delete(TRAININGJOBS, deleted)
        await arena.drive(40)
        await arena.agree()
        await _restore(arena, backup)
        await arena.agree()
        assert after.metadata.uid in await arena.ended()
        epochs = {
            job.resource.epoch
            for job in await arena.disturbed.jobs()
            if job.resource.generation and not job.resource.gone
        }
        assert epochs == {1}, "one restore is one epoch"
        # And it goes on from there.
        await arena.drive(40)
        await arena.agree()


async def _restore(arena: Arena, backup: Path) -> None:
    plane, witness = arena.plane, arena.witness
    plane.apiserver.kill()
    plane.etcd.kill()
    before, when = _uids(arena), time.time()
    shutil.rmtree(plane.etcd.data)
    shutil.copytree(backup, plane.etcd.data)
    await plane.etcd.run()
    await plane.apiserver.run()
    # As the books say: a client with a copy of the old store begins anew.
    await plane.controllers.restart()
    await witness.anew()
    witness.ended.update(dict.fromkeys(before - _uids(arena), when))


def _uids(arena: Arena) -> set[str]:
    return {uid for things in arena.witness.there.values() for uid in things}
