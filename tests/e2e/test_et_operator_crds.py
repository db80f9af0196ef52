"""Where et-operator's definitions are installed, Muster works on them: no service needs the fields that they drop.

Their schema has no `history`, so heads are in the checkpoint alone, and no status may be written again for want of it.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest
import pytest_asyncio

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.cluster.kube import KubeCluster
from shared.eventlog.account import HEADS, READER
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.integrity import Integrity
from tests.kit import et_operator
from tests.kit.clusters import DEFINITIONS
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import connected
from tests.kit.operator import A_SCALED_LIFE, Operator, a_job, a_request, an_operator, audited

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

CRDS = Path(__file__).parents[2] / "crds"
UNTIL_TOLD = (
    "trap 'exit 0' USR1; until [ $(/etc/edl/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.05; done; "
    "until [ $(/etc/edl/discover_hosts.sh | wc -l) = 2 ]; do sleep 0.05; done; while :; do sleep 0.05; done"
)
"""It ends when a signal says so: of a job that is over no request can succeed."""


class WithTheirs(ControlPlane):
    """A cluster with et-operator's definitions."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            kube = await KubeCluster.connect(self.kubeconfig(ADMIN))
            for definition in et_operator.definitions():
                await kube.create(DEFINITIONS, "", definition)
            await kube.close()
        except BaseException:
            await super().__aexit__(None, None, None)
            raise
        return self


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    require_control_plane()
    async with an_operator(tmp_path_factory.mktemp("theirs"), WithTheirs) as operator:
        yield operator


def status_writes(audit: Path, name: str) -> int:
    """How often the status service wrote the status of an object of this name."""
    return sum(
        call["verb"] == "patch"
        and call["user"]["username"].endswith(":status")
        and call["objectRef"].get("subresource") == "status"
        and call["objectRef"]["name"] == name
        for call in audited(audit)
    )


async def test_a_job_lives_there_from_its_creation_to_its_end(operator: Operator):
    await operator.apply(a_job("theirs", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "theirs")
    await operator.apply(a_request("ScaleOut", "theirs-out", "theirs", toAdd={"count": 1}))
    out = await operator.phase("ScaleSucceeded", SCALEOUTS, "theirs-out")
    assert out["addPods"] == ["theirs-worker-2"]
    await operator.apply(a_request("ScaleIn", "theirs-in", "theirs", toDelete={"count": 1}))
    shrunk = await operator.phase("ScaleSucceeded", SCALEINS, "theirs-in")
    assert shrunk["toDeletePods"] == ["theirs-worker-2"]
    await operator.tell_to_end("theirs")
    status = await operator.phase("Succeeded", TRAININGJOBS, "theirs")
    assert [condition["type"] for condition in status["conditions"]] == A_SCALED_LIFE
    assert status["restartCount"] == 0
    # What their schema has no place for is not there.
    assert not status.keys() & {"history", "observedGeneration", "workers", "selector"}
    job = await operator.job("theirs")
    assert job.integrity == Integrity()


async def test_the_head_is_in_the_checkpoint_alone(operator: Operator):
    history = await operator.history("theirs")
    async with connected(operator.stack.nats, READER) as log:
        kept = await (await log.bucket(HEADS)).get(history.job.key.uid)
        identity = await log.identity()
    assert kept is not None
    named, _, head = kept.value.decode().partition("/")
    sequence = int(head.partition(":")[0])
    assert named == identity
    # It is that of the last document, which a later fact need not have changed.
    assert 0 < sequence <= history.sequence


async def test_a_status_is_not_written_again_for_what_was_dropped(operator: Operator):
    names = ("theirs", "theirs-out", "theirs-in")

    async def cleaned_up() -> bool:
        return (await operator.status(TRAININGJOBS, "theirs"))["replicas"] == 0

    await operator.until(cleaned_up, lambda: "the end of the workers was not written")
    before = {name: status_writes(operator.audit, name) for name in names}
    assert all(0 < written < 40 for written in before.values()), before
    # A restarted status service looks first, and finds less than it wrote; once it writes that again, and no more.
    for _ in range(2):
        operator.crash("status")
    told = await operator.status(TRAININGJOBS, "theirs")
    await operator.apply(a_job("another", "sleep 0.2"))
    await operator.phase("Succeeded", TRAININGJOBS, "another")
    after = {name: status_writes(operator.audit, name) for name in names}
    assert all(after[name] - before[name] <= 2 for name in names), (before, after)
    again = await operator.status(TRAININGJOBS, "theirs")
    assert again | {"lastReconcileTime": ""} == told | {"lastReconcileTime": ""}


async def test_what_their_schema_admits_and_cannot_run_is_told(operator: Operator):
    odd = a_job("7b", "sleep 1")
    odd["spec"]["etReplicaSpecs"]["worker"]["template"] = {}
    await operator.apply(odd)

    async def told() -> bool:
        status = await operator.status(TRAININGJOBS, "7b")
        return bool(status.get("conditions")) and status["conditions"][-1]["status"] == "False"

    await operator.until(told, lambda: "no status says what is wrong with it")
    assert await operator.pods("7b") == []


async def test_our_definitions_can_take_the_place_of_theirs(operator: Operator):
    await operator.apply(a_job("moving", "while :; do sleep 0.1; done"))
    await operator.phase("Running", TRAININGJOBS, "moving")
    await operator.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    await operator.established("-f", str(CRDS))
    await operator.apply(a_request("ScaleOut", "moving-out", "moving", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "moving-out")

    async def headed() -> bool:
        return "history" in await operator.status(TRAININGJOBS, "moving")

    # The API server serves the new schema a moment after it took it; the next document brings the head.
    await operator.until(headed, lambda: "no document with a head was written")
    await operator.assert_replayed("moving")
    # The job that ours would never have admitted is still spoken to.
    odd = await operator.kubectl("get", "trainingjob", "7b", "-o", "json")
    assert json.loads(odd)["status"]["conditions"][-1]["status"] == "False"
    await operator.kubectl("delete", "trainingjob", "moving", "7b", "--wait=false")
