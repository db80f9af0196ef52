"""An etcd restored from an older backup: what came after the backup never was, and versions count again from there."""

import shutil
from pathlib import Path

import pytest

from devcluster.binaries import MissingProgram, find
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import Histories
from shared.job.state import Job
from tests.kit.controlplane import require_control_plane
from tests.kit.world import a_training_job
from tests.perturbation.stage import QUIET_SECONDS, Ground, Stage

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]


async def test_a_restored_store_is_noticed_and_seen_afresh(tmp_path: Path):
    require_control_plane()
    try:
        find("fakenodes")
    except MissingProgram as missing:
        pytest.skip(str(missing))
    async with Ground(tmp_path / "ground") as ground, Stage(ground, "restored", tmp_path / "stage") as stage:
        await _suspended(stage, "edited")
        await _suspended(stage, "deleted")
        await stage.quiet(QUIET_SECONDS)
        _stopped(ground)
        shutil.copytree(ground.cluster.etcd.data, backup := tmp_path / "backup")
        await _runs(ground)
        await _suspended(stage, "after")
        await stage.edit(TRAININGJOBS, "edited", {"spec": {"backoffLimit": 9}})
        await stage.until(lambda: _backoff_limit(stage) == 9, "the edit is seen")
        await stage.delete(TRAININGJOBS, "deleted")
        await stage.until(lambda: _jobs(stage)["deleted"].resource.gone, "the end is seen")
        _stopped(ground)
        shutil.rmtree(ground.cluster.etcd.data)
        shutil.copytree(backup, ground.cluster.etcd.data)
        await _runs(ground)
        await stage.until(lambda: _jobs(stage)["after"].resource.gone, "it never was")
        await stage.until(lambda: not _jobs(stage)["deleted"].resource.gone, "it is there again")
        await stage.until(lambda: _backoff_limit(stage) != 9, "the edit never was")
        # And it goes on from there.
        await _suspended(stage, "later")
        await stage.quiet(QUIET_SECONDS)
        assert not stage.faults()
        resources = [job.resource for job in _jobs(stage).values()]
        assert {each.epoch for each in resources if not each.gone} == {1}, "one restore is one epoch"


async def _suspended(stage: Stage, name: str) -> None:
    """A job without pods, whose nodes hear nothing of the restore."""
    await stage.apply(TRAININGJOBS, a_training_job(name, suspend=True))
    await stage.phase(TRAININGJOBS, name, "Suspended")


def _stopped(ground: Ground) -> None:
    ground.cluster.apiserver.kill()
    ground.cluster.etcd.kill()


async def _runs(ground: Ground) -> None:
    await ground.cluster.etcd.run()
    await ground.cluster.apiserver.run()
    # As the books say: a client with a copy of the old store begins anew.
    await ground.cluster.controllers.restart()
    await ground.sight.anew()


def _jobs(stage: Stage) -> dict[str, Job]:
    """The newest life of each name, as the log has it."""
    histories = Histories()
    for stored in stage.journal.events:
        histories.fold(stored)
    return {history.job.key.name: history.job for history in histories if history.job.resource.generation}


def _backoff_limit(stage: Stage) -> int:
    spec = _jobs(stage)["edited"].spec
    assert spec is not None
    return spec.backoff_limit
