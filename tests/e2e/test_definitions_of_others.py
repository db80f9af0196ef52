"""Where definitions of others are installed, Muster works on them.

The training operator's MPIJob is v1, the MPI operator's v2beta1: the version that is served is watched and written, and
children name it in their owner.  No service needs the fields that et-operator's definitions drop: their schema has no
`history`, so heads are in the checkpoint alone, and no status may be written again for want of it.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster.crds import manifests
from muster.jobs import the_job
from shared.cluster.kube import KubeCluster
from shared.eventlog.account import HEADS, READER
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.integrity import Integrity
from shared.telling.targets import parse_target
from tests.kit import et_operator
from tests.kit.clusters import DEFINITIONS
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import connected
from tests.kit.operator import (
    A_SCALED_LIFE,
    FOR_EVER,
    WAITING_WORKER,
    Operator,
    a_job,
    a_request,
    an_operator,
    audited,
    launcher_that,
)
from tests.kit.operator import UNTIL_TOLD as UNTIL_SIGNALLED

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

CRDS = Path(__file__).parents[2] / "crds"
UNTIL_TOLD = (
    "trap 'exit 0' USR1; until [ $(/etc/edl/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.05; done; "
    "until [ $(/etc/edl/discover_hosts.sh | wc -l) = 2 ]; do sleep 0.05; done; while :; do sleep 0.05; done"
)
"""It ends when a signal says so: of a job that is over no request can succeed."""


[OURS] = manifests(Kinds([MPIJOB]))
OLD, NEW = MPIJOB.resource, MPIJOB_V2BETA1.resource


def of_the_mpi_operator() -> dict[str, Any]:
    """As ours, but for the version that it lacks."""
    [version] = [each for each in OURS["spec"]["versions"] if each["name"] == NEW.version]
    return OURS | {"spec": OURS["spec"] | {"versions": [version | {"storage": True}]}}


class WithTheirs(ControlPlane):
    """A cluster with the definitions of both operators."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            kube = await KubeCluster.connect(self.kubeconfig(ADMIN))
            for definition in (*et_operator.definitions(), of_the_mpi_operator()):
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


def an_mpijob(name: str, script: str) -> dict[str, Any]:
    def one(container: dict[str, Any]) -> dict[str, Any]:
        return {"replicas": 1, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": NEW.api_version,
        "kind": NEW.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {"Launcher": one(launcher_that(script)), "Worker": one(WAITING_WORKER)}},
    }


async def owners(operator: Operator, job: str) -> set[str]:
    """The versions in which the children of a job name it."""
    kinds = "pods,services,configmaps,secrets"
    label = f"training.kubeflow.org/job-name={job}"
    found = json.loads(await operator.kubectl("get", kinds, "-l", label, "-o", "json"))["items"]
    assert len(found) == 5
    return {each["metadata"]["ownerReferences"][0]["apiVersion"] for each in found}


async def test_a_job_lives_there_and_the_garbage_collector_takes_what_it_had(operator: Operator):
    await operator.apply(an_mpijob("served", FOR_EVER))
    await operator.comes_to("Running", NEW, "served")
    assert await owners(operator, "served") == {NEW.api_version}
    for words in ("mpijob/served", "served"):
        # Commands act on the version that is served, too.
        target, job = await the_job(operator.stack.kube, parse_target(words, BUILT_IN), "default", "suspended")
        assert (target.resource, job.metadata.name) == (NEW, "served")
    await operator.kubectl("delete", "mpijob", "served")
    await operator.leaves_nothing("served", "pods,services,configmaps,secrets")


async def test_a_job_goes_on_when_the_definition_serves_the_other_version_too(operator: Operator):
    await operator.apply(an_mpijob("lasting", UNTIL_SIGNALLED))
    await operator.comes_to("Running", NEW, "lasting")
    asked = ("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
    before = await operator.kubectl(*asked)
    name = OURS["metadata"]["name"]
    await operator.stack.kube.patch(DEFINITIONS, "", name, {"spec": {"versions": OURS["spec"]["versions"]}})

    async def watched() -> bool:
        job = an_mpijob("later", "exit 0") | {"apiVersion": OLD.api_version}
        try:
            await operator.apply(job)
        except AssertionError:
            # Not served yet.
            return False
        return True

    await operator.until(watched, lambda: "v1 is not served")
    await operator.comes_to("Succeeded", OLD, "later")
    assert await operator.kubectl(*asked, "-l", "mpi-job-name=lasting") == before
    await operator.tell_to_end("lasting")
    await operator.comes_to("Succeeded", OLD, "lasting")

    async def anew() -> bool:
        logs = [service.log.read_text() for service in operator.stack.services.values()]
        return all("serves other versions of MPIJob" in log for log in logs)

    await operator.until(anew, lambda: "the services watch the old version")
    await operator.apply(an_mpijob("newest", "exit 0") | {"apiVersion": OLD.api_version})
    await operator.comes_to("Succeeded", OLD, "newest")
    assert await owners(operator, "newest") == {OLD.api_version}


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
