"""Kueue is stopped and started again, while Muster and the jobs go on; neither is restarted.

It is away for seconds: Muster counts no time without it, as the story of an hour in `tests/service` shows.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import Operator, a_request, of_kubeflow
from tests.queues.jobs import a_job, a_training_job
from tests.queues.manager import Kueue, muster_and_kueue, why_says

pytestmark = [pytest.mark.kueue, pytest.mark.asyncio(loop_scope="module")]

PYTORCHJOBS = PYTORCHJOB.resource
AWAY_SECONDS = 10.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Operator, Kueue]]:
    """Muster and Kueue, with a queue that has room for ten pods."""
    async with muster_and_kueue(tmp_path_factory.mktemp("stack"), "1", MUSTER_KUEUE="true") as both:
        yield both


def a_stock_job(name: str) -> dict[str, Any]:
    """A PyTorchJob with two pods."""
    return a_job("PyTorchJob", name, cpu="100m")


async def uids(operator: Operator, selector: str) -> list[str]:
    found = json.loads(await operator.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return sorted(each["metadata"]["uid"] for each in found)


async def finished(operator: Operator, job: str) -> bool:
    listed = json.loads(await operator.kubectl("get", "workloads", "-o", "json"))["items"]
    owned = [each for each in listed if each["metadata"]["ownerReferences"][0]["name"] == job]
    return bool(owned) and any(
        (known["type"], known["status"]) == ("Finished", "True")
        for each in owned
        for known in each["status"]["conditions"]
    )


async def test_kueue_goes_away_and_comes_back(both: tuple[Operator, Kueue]):
    operator, kueue = both
    stock = of_kubeflow("stock")
    await operator.apply(a_training_job("runs", workers=2), a_training_job("ends", urgent=True))
    await operator.apply(a_stock_job("stock"), a_stock_job("stock-ends"))
    for name in ("runs", "ends"):
        await operator.comes_to("Running", TRAININGJOBS, name)
    for name in ("stock", "stock-ends"):
        await operator.comes_to("Running", PYTORCHJOBS, name)
    await operator.apply(a_training_job("waits"), a_stock_job("stock-waits"))
    await operator.comes_to("Suspended", TRAININGJOBS, "waits")
    await operator.comes_to("Suspended", PYTORCHJOBS, "stock-waits")
    running = await uids(operator, stock), await uids(operator, "training-job-name=runs")

    await kueue.stop()
    await operator.apply(a_training_job("late"))
    # Kueue's webhook is asked for a kind that it knows.
    assert "failed calling webhook" in await operator.kubectl(
        "apply", "-f", "-", given=a_stock_job("stock-late"), fails=True
    )
    await operator.tell_to_end("ends")
    for number in range(2):
        await operator.signal(f"stock-ends-worker-{number}", "pytorch")
    await operator.comes_to("Succeeded", TRAININGJOBS, "ends")
    await operator.comes_to("Succeeded", PYTORCHJOBS, "stock-ends")
    await operator.apply(a_request("ScaleIn", "in", "runs", toDelete={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEINS, "in")
    await operator.apply(a_request("ScaleOut", "out", "runs", toAdd={"count": 2}))
    await asyncio.sleep(AWAY_SECONDS)

    assert not await finished(operator, "ends")
    waits = "waits for quota in queue team-a since"
    for job, words in (
        ("trainingjob/waits", waits),
        ("pytorchjob/stock-waits", waits),
        ("trainingjob/late", "see that Kueue runs"),
    ):
        await why_says(operator, job, words)
    for name in ("waits", "late"):
        assert not await uids(operator, f"training-job-name={name}")
    assert not await uids(operator, of_kubeflow("stock-waits"))
    assert await uids(operator, stock) == running[0]
    assert set(await uids(operator, "training-job-name=runs")) < set(running[1])

    await kueue.start()
    for name in ("ends", "stock-ends"):

        async def over(name: str = name) -> bool:
            return await finished(operator, name)

        await operator.until(over, lambda: "a Workload is not finished")
    await operator.comes_to("Running", TRAININGJOBS, "waits")
    await operator.comes_to("Running", PYTORCHJOBS, "stock-waits")
    await operator.apply(a_stock_job("stock-late"))
    # The others have eight of ten pods, and the ScaleOut asks for two more.
    await operator.kubectl("delete", "pytorchjob", "stock-waits", "stock-late")
    await operator.phase("ScaleSucceeded", SCALEOUTS, "out")
    await operator.comes_to("Running", TRAININGJOBS, "late")
    assert await uids(operator, stock) == running[0]
    assert len({*await uids(operator, "training-job-name=runs")} & {*running[1]}) == 2
    for name in ("runs", "stock"):
        assert (await operator.job(name)).attempt.number == 0
