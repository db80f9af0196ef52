"""Some plans of `make perturb`, a service that takes an error for success, which the comparison sees, and an old store.

An etcd is restored from an older backup: what came after that never was, and versions count again from there.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.cluster import Manifest, Resource
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.errors import Transient
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.state import Job
from tests.kit.controlplane import require_control_plane
from tests.kit.histories import folded
from tests.kit.world import a_training_job
from tests.perturbation.calls import WAYS
from tests.perturbation.run import Plan, Rig, play_all
from tests.perturbation.stage import QUIET_SECONDS, Ground, Stage

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

SCENARIO = "scale-in"
"""It creates, patches and deletes, and three services take turns in it."""
OF_EACH_WAY = 2
AT_REST_SECONDS = 20.0
"""Without a change, after which a run that ended otherwise is believed to have ended: it tries nothing again."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ground]:
    require_control_plane("fakenodes")
    async with Ground(tmp_path_factory.mktemp("ground")) as ground:
        yield ground


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def rig(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """It knows what the scenario does when nothing is in its way."""
    rig = Rig(ground, tmp_path_factory.mktemp("runs"))
    await rig.learn([SCENARIO])
    return rig


async def test_a_call_in_trouble_does_not_change_the_end(rig: Rig):
    plans = rig.plans()
    chosen = [plan for way in WAYS for plan in [it for it in plans if it.strike.way == way][:OF_EACH_WAY]]
    outcomes = await play_all(rig, chosen, at_once=8)
    diverged = [f"make perturb PLAN='{outcome.plan}'\n{outcome.faults}" for outcome in outcomes if outcome.faults]
    assert not diverged, "\n".join(diverged)
    assert {outcome.plan.strike.way for outcome in outcomes if outcome.struck} == {*WAYS}


class Careless(KubeCluster):
    """Takes an error of the API server for success."""

    async def create(self, resource: Resource[Any], namespace: str, manifest: Manifest, *, within: int = 0) -> Any:
        try:
            return await super().create(resource, namespace, manifest, within=within)
        except Transient:
            return Object()


async def test_a_service_that_takes_an_error_for_success_is_seen(rig: Rig):
    plan = Plan.parse(f"{SCENARIO} status create events in.ScalingInSucceeded 1 500")
    outcome = await rig.play(plan, connects=lambda _: Careless.connect, patience=AT_REST_SECONDS)
    assert outcome.struck
    assert any(fault.startswith("Events ScaleIn in") for fault in outcome.faults), outcome.faults


async def test_a_restored_store_is_noticed_and_seen_afresh(ground: Ground, tmp_path: Path):
    async with Stage(ground, "restored", tmp_path / "stage") as stage:
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
    lives = folded(stage.journal.events)
    return {history.job.key.name: history.job for history in lives if history.job.resource.generation}


def _backoff_limit(stage: Stage) -> int:
    spec = _jobs(stage)["edited"].spec
    assert spec is not None
    return spec.backoff_limit
