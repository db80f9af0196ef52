"""Nodes that go while a job trains, as an autoscaler, a spot market and an administrator take them."""

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, MakeHost
from tests.kit.operator import FOR_EVER, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

STAYS, GOES = "node-0", "node-1"
HOSTNAME = "kubernetes.io/hostname"


CLUSTERS = HOSTS[:2]


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """With two nodes: nothing else than the number of nodes differs from how other tests begin."""
    make: MakeHost = request.param()
    return functools.partial(make, nodes=2)


@asynccontextmanager
async def a_job_on_two_nodes(operator: Operator, name: str) -> AsyncIterator[dict[str, str]]:
    """It runs, its launcher where nothing happens, and workers on both nodes; gives the node of each worker."""
    manifest = a_job(name, FOR_EVER, workers=3)
    template: dict[str, Any] = manifest["spec"]["etReplicaSpecs"]["launcher"]["template"]
    template["spec"]["nodeSelector"] = {HOSTNAME: STAYS}
    await operator.apply(manifest)
    await operator.phase("Running", TRAININGJOBS, name)
    workers = await nodes_of_workers(operator, name)
    assert set(workers.values()) == {STAYS, GOES}, "the workers are spread over both nodes"
    try:
        yield workers
    finally:
        await operator.delete(name)
        # What still stood on a node would have a say where the pods of the next job go.
        await operator.leaves_no_pod(name)


async def nodes_of_workers(operator: Operator, job: str) -> dict[str, str]:
    """The node of each worker that is not to go."""
    selector = f"training-job-name={job},training-job-role=worker"
    listed = json.loads(await operator.kubectl("get", "pods", "-l", selector, "-o", "json"))
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in listed["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }


async def listed(operator: Operator, job: str) -> list[str]:
    """The workers that the launcher is shown."""
    said = await operator.kubectl("exec", f"{job}-launcher", "--", "/etc/edl/discover_hosts.sh")
    return [line.partition(":")[0] for line in said.split()]


async def until_moved(operator: Operator, job: str, before: dict[str, str]) -> None:
    """Wait until no worker is on the node that goes, and others have taken the paths."""
    staying = [worker for worker, node in before.items() if node == STAYS]
    new = [f"{job}-worker-{3 + number}" for number in range(3 - len(staying))]
    now: dict[str, str] = {}

    async def moved() -> bool:
        nonlocal now
        now = await nodes_of_workers(operator, job)
        return now == dict.fromkeys([*staying, *new], STAYS) and await listed(operator, job) == [*staying, *new]

    await operator.until(moved, lambda: f"{job} is on {now}, and was on {before}")


async def until_as_before(operator: Operator, job: str) -> None:
    """Wait until the status shows all workers; nothing began anew meanwhile."""
    status: dict[str, Any] = {}

    async def complete() -> bool:
        nonlocal status
        status = await operator.status(TRAININGJOBS, job)
        return bool(status["workers"] == "3/3")

    await operator.until(complete, lambda: f"the status of {job} is {status}")
    assert (status["phase"], status["restartCount"]) == ("Running", 0)


async def test_the_workers_of_a_node_that_an_autoscaler_removes_move_before_it_goes(operator: Operator):
    async with a_job_on_two_nodes(operator, "spot") as before:
        await operator.kubectl("taint", "node", GOES, "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
        try:
            await until_moved(operator, "spot", before)
        finally:
            await operator.kubectl("taint", "node", GOES, "ToBeDeletedByClusterAutoscaler-")
        await until_as_before(operator, "spot")
        told = await operator.types("spot")
        assert told.count("DisruptionNoticed") == 1
        # Replaced first, then out of the hosts file, and at last drained and released.
        replaced = told.index("SlotsAssigned", told.index("DisruptionNoticed"))
        published = told.index("HostsPublished", replaced)
        assert published < told.index("TimePassed", published) < told.index("WorkersReleased")
        await operator.assert_replayed("spot")


async def test_the_workers_of_a_node_that_an_administrator_drains_are_replaced(operator: Operator):
    async with a_job_on_two_nodes(operator, "drained") as before:
        workers_only = ("--pod-selector", "training-job-role=worker", "--delete-emptydir-data")
        await operator.kubectl("drain", GOES, *workers_only, "--timeout=60s")
        try:
            await until_moved(operator, "drained", before)
        finally:
            await operator.kubectl("uncordon", GOES)
        # A cordon is no notice; the pods said it themselves.
        assert "DisruptionNoticed" not in await operator.types("drained")
        await until_as_before(operator, "drained")


async def test_the_history_shows_why(operator: Operator):
    told = await operator.muster("history", "trainingjob/spot")
    assert "NodeScaledDown" in told
    assert "different: 0" in await operator.muster("replay", "--verify")
