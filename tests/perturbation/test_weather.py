"""Watchers through random bad weather end with what an undisturbed one knows, and said nothing false on the way.

`PLANS=20 pytest -m real tests/perturbation/test_weather.py` draws more seeds; `SEED=7` replays one.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.cluster.kube import KubeCluster
from tests.kit.clusters import NAMESPACES
from tests.perturbation.agreement import agreement, sees_everything
from tests.perturbation.driver import Driver
from tests.perturbation.plans import Weather, weather
from tests.perturbation.watched import Watched, a_watcher
from tests.perturbation.witness import Witness

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 120.0
"""Seconds for a watcher to send its first request."""
AT_ONCE = 4
"""Watchers around one world; each has a NATS server, and two cores bear no more."""
SECONDS = 12.0
STEPS_A_SECOND = 20

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else [*range(int(os.environ.get("PLANS", AT_ONCE)))]


@pytest.mark.parametrize(
    "seeds", [SEEDS[at : at + AT_ONCE] for at in range(0, len(SEEDS), AT_ONCE)], ids=lambda seeds: f"seeds {seeds}"
)
async def test_the_end_is_the_truth_and_so_was_all_before(plane: ControlPlane, tmp_path: Path, seeds: list[int]):
    async with AsyncExitStack() as stack:
        witness = await stack.enter_async_context(Witness(plane))
        admin = await KubeCluster.connect(plane.kubeconfig(ADMIN))
        stack.push_async_callback(admin.close)
        namespace = f"world-{seeds[0]}"
        await admin.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        undisturbed = await stack.enter_async_context(a_watcher(plane, tmp_path / "undisturbed"))
        drawn = [weather(seed) for seed in seeds]
        disturbed = [
            await stack.enter_async_context(a_watcher(plane, tmp_path / f"seed-{each.seed}", plan=each.plan))
            for each in drawn
        ]
        # Five processes that start at once on a busy machine may take longer than the weather lasts.
        for watched in disturbed:
            async with asyncio.timeout(PATIENCE):
                await watched.proxy.asked.wait()
        driver = Driver(admin, witness, namespace, seeds[0])
        await asyncio.gather(_drive(driver), *map(_incidents, drawn, disturbed))
        for watched in disturbed:
            watched.proxy.clear()
        await sees_everything(undisturbed, witness)
        assert not witness.lies(await undisturbed.log())
        for watched in disturbed:
            assert watched.proxy.met, "a plan that disturbs nothing proves nothing"
            await agreement(watched, undisturbed, witness)
            assert {job.resource.epoch for job in await watched.jobs()} == {0}, (
                f"no store went back\n{watched.last_words()}"
            )


async def _drive(driver: Driver) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    while loop.time() < end:
        await driver.step()
        await asyncio.sleep(1 / STEPS_A_SECOND)


async def _incidents(each: Weather, watched: Watched) -> None:
    begin = asyncio.get_running_loop().time()
    for incident in each.incidents:
        await asyncio.sleep(max(0.0, begin + incident.begin - asyncio.get_running_loop().time()))
        if incident.what == "kill":
            watched.kill()
            continue
        watched.pause()
        await asyncio.sleep(incident.seconds)
        watched.resume()
