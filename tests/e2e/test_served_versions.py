"""Where a cluster serves another version of a kind, that one is watched and written, and the owner that children name.

Definitions of others have one version each: the training operator's MPIJob is v1, the MPI operator's v2beta1.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
import pytest_asyncio

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster.crds import manifests
from muster.jobs import the_job
from shared.cluster.kube import KubeCluster
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.mpijob import MPIJOB, MPIJOB_V2BETA1
from shared.telling.targets import parse_target
from tests.kit.clusters import DEFINITIONS
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import FOR_EVER, UNTIL_TOLD, WAITING_WORKER, Operator, an_operator, launcher_that

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

[OURS] = manifests(Kinds([MPIJOB]))
OLD, NEW = MPIJOB.resource, MPIJOB_V2BETA1.resource


def theirs() -> dict[str, Any]:
    """As ours, but for the version that it lacks."""
    [version] = [each for each in OURS["spec"]["versions"] if each["name"] == NEW.version]
    return OURS | {"spec": OURS["spec"] | {"versions": [version | {"storage": True}]}}


class WithTheirs(ControlPlane):
    """A cluster with a definition that has only v2beta1."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            kube = await KubeCluster.connect(self.kubeconfig(ADMIN))
            await kube.create(DEFINITIONS, "", theirs())
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
    await operator.apply(an_mpijob("lasting", UNTIL_TOLD))
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
