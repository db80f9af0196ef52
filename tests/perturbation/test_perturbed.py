"""Some plans of `make perturb`, and a service that takes an error for success: the comparison sees it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.binaries import MissingProgram, find
from shared.cluster import Manifest, Resource
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.errors import Transient
from tests.kit.controlplane import require_control_plane
from tests.perturbation.calls import WAYS
from tests.perturbation.run import Plan, Rig, play_all
from tests.perturbation.stage import Ground

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

SCENARIO = "scale-in"
"""It creates, patches and deletes, and three services take turns in it."""
OF_EACH_WAY = 2
AT_REST_SECONDS = 20.0
"""Without a change, after which a run that ended otherwise is believed to have ended: it tries nothing again."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """It knows what the scenario does when nothing is in its way."""
    require_control_plane()
    try:
        find("fakenodes")
    except MissingProgram as missing:
        pytest.skip(str(missing))
    folder: Path = tmp_path_factory.mktemp("perturbed")
    async with Ground(folder) as ground:
        rig = Rig(ground, folder / "runs")
        await rig.learn([SCENARIO])
        yield rig


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
