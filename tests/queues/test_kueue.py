"""Stock Kueue over Muster's jobs: admission, waiting, preemption and return, a new size, and a person's pause."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.frameworks.framework import Framework
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.trainjob import JOBSET_NAME, TRAINJOB
from shared.job.spec import LAUNCHER
from tests.kit.operator import Operator, of_kubeflow
from tests.queues.jobs import POOL, a_job, a_runtime, a_train_job
from tests.queues.manager import muster_and_kueue, why_says

pytestmark = [pytest.mark.kueue, pytest.mark.asyncio(loop_scope="module")]

ALL = [pytest.param(kind, id=kind.resource.kind) for kind in (PYTORCHJOB, TFJOB, MPIJOB, TRAINJOB)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Muster and Kueue, with a queue of two processors."""
    async with muster_and_kueue(tmp_path_factory.mktemp("stack"), 2) as (operator, _):
        await operator.apply(a_runtime())
        yield operator


def of(kind: Framework, job: str) -> str:
    """The selector of a job's pods."""
    return f"{JOBSET_NAME}={job}" if kind is TRAINJOB else of_kubeflow(job)


async def workload(operator: Operator, job: str) -> dict[str, Any]:
    """The newest Workload of a job."""
    listed = json.loads(await operator.kubectl("get", "workloads", "-o", "json"))["items"]
    owned = [each for each in listed if each["metadata"]["ownerReferences"][0]["name"] == job]
    found: dict[str, Any] = max(owned, key=lambda each: each["metadata"]["creationTimestamp"])
    return found


async def pools(operator: Operator, selector: str) -> set[str]:
    """What the pods of a job ask of their nodes."""
    listed = json.loads(await operator.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return {pod["spec"].get("nodeSelector", {}).get(POOL, "") for pod in listed}


async def sequence_of(operator: Operator, job: str, kind: str) -> int:
    """The newest event of that type in a job's history."""
    found = [
        s.sequence for s in await operator.log() if (s.subject.split(".")[2], s.subject.split(".")[-1]) == (job, kind)
    ]
    return max(found)


@pytest.mark.parametrize("kind", ALL)
async def test_a_job_waits_is_admitted_preempted_and_comes_back(operator: Operator, kind: Framework):
    resource, name = kind.resource, kind.resource.kind.lower()
    low, next_one, high = f"{name}-low", f"{name}-next", f"{name}-high"
    await operator.apply(a_job(resource.kind, low))
    await operator.comes_to("Running", resource, low)
    assert await pools(operator, of(kind, low)) == {"a"}

    await operator.apply(a_job(resource.kind, next_one))
    await operator.comes_to("Suspended", resource, next_one)
    assert not await operator.selected(of(kind, next_one))
    await why_says(operator, f"{name}/{next_one}", "waits for quota in queue team-a since")
    await operator.kubectl("delete", name, next_one)

    await operator.apply(a_job(resource.kind, high, urgent=True))
    await operator.comes_to("Running", resource, high)
    await operator.comes_to("Suspended", resource, low)
    # The quota went on when the last pod was gone, and not before.
    assert await sequence_of(operator, low, "PodsGone") < await sequence_of(operator, high, "JobCreated")
    held = await operator.stack.kube.get(resource, "default", low)
    assert held is not None
    assert POOL not in json.dumps(held.spec)

    await operator.kubectl("delete", name, high)
    await operator.comes_to("Running", resource, low)
    assert await pools(operator, of(kind, low)) == {"a"}
    if kind is MPIJOB:
        spec = (await operator.job(low)).spec
        assert spec is not None
        assert spec.policy(LAUNCHER) == "Never", "it was made as v1"
    await operator.kubectl("delete", name, low)
    await operator.selects(of(kind, low))


async def test_a_new_size_is_admitted_and_then_runs(operator: Operator):
    await operator.apply(a_job("PyTorchJob", "grows", workers=1))
    await operator.comes_to("Running", PYTORCHJOB.resource, "grows")
    await operator.kubectl("scale", "pytorchjob", "grows", "--replicas=2")

    def two(status: dict[str, Any]) -> bool:
        return status.get("replicaStatuses", {}).get("Worker", {}).get("active") == 2

    await operator.shows(PYTORCHJOB.resource, "grows", two, "two workers")
    await operator.comes_to("Running", PYTORCHJOB.resource, "grows")
    assert (await workload(operator, "grows"))["spec"]["podSets"][0]["count"] == 2
    # Beyond the quota it waits whole.
    await operator.kubectl("scale", "pytorchjob", "grows", "--replicas=3")
    await operator.comes_to("Suspended", PYTORCHJOB.resource, "grows")
    await why_says(operator, "pytorchjob/grows", "waits for quota in queue team-a")
    await operator.kubectl("scale", "pytorchjob", "grows", "--replicas=1")
    await operator.comes_to("Running", PYTORCHJOB.resource, "grows")
    await operator.selects(of_kubeflow("grows"), "grows-worker-0")
    await operator.kubectl("delete", "pytorchjob", "grows")


async def test_a_person_s_pause_lasts_and_gives_the_quota_back(operator: Operator):
    await operator.apply(a_job("TFJob", "paused"))
    await operator.comes_to("Running", TFJOB.resource, "paused")
    await operator.muster("suspend", "tfjob/paused", "--timeout", "60")
    await operator.apply(a_job("TFJob", "other"))
    await operator.comes_to("Running", TFJOB.resource, "other")
    await why_says(operator, "tfjob/paused", "a person suspended it in queue team-a")
    await operator.kubectl("delete", "tfjob", "other")
    await operator.muster("resume", "tfjob/paused", "--timeout", "60")
    await operator.kubectl("delete", "tfjob", "paused")


async def finishes(operator: Operator, job: str) -> None:
    """Wait until Kueue has finished the job's Workload."""

    async def finished() -> bool:
        known = (await workload(operator, job)).get("status", {}).get("conditions", ())
        return any((each["type"], each["status"]) == ("Finished", "True") for each in known)

    await operator.until(finished, lambda: "the Workload is not Finished")


async def test_the_end_finishes_the_workload(operator: Operator):
    await operator.apply(a_job("PyTorchJob", "ends", workers=1))
    await operator.comes_to("Running", PYTORCHJOB.resource, "ends")
    await operator.signal("ends-worker-0", "pytorch")
    await operator.comes_to("Succeeded", PYTORCHJOB.resource, "ends")
    await finishes(operator, "ends")


async def test_a_trainjob_of_mpi_has_quota_for_its_launcher_and_its_nodes(operator: Operator):
    await operator.apply(a_runtime("mpi", {"mpi": {}}, "node", "launcher"))
    await operator.apply(a_train_job("mpi", runtime="mpi", nodes=1))
    await operator.comes_to("Running", TRAINJOB.resource, "mpi")
    asked = (await workload(operator, "mpi"))["spec"]["podSets"]
    assert {each["name"]: each["count"] for each in asked} == {"launcher": 1, "node": 1}
    assert await pools(operator, of(TRAINJOB, "mpi")) == {"a"}
    await operator.signal("mpi-launcher", "node")
    await operator.comes_to("Complete", TRAINJOB.resource, "mpi")
    await finishes(operator, "mpi")


async def test_a_trainjob_that_is_refused_asks_for_no_quota(operator: Operator):
    await operator.apply(a_train_job("refused", initializer={"dataset": {"storageUri": "hf://a/b"}}))
    await operator.comes_to("Failed", TRAINJOB.resource, "refused")
    await operator.apply(a_train_job("beside"))
    await operator.comes_to("Running", TRAINJOB.resource, "beside")
    await operator.kubectl("delete", "trainjob", "refused", "beside")


async def test_another_number_of_nodes_of_a_trainjob_is_admitted_and_then_runs(operator: Operator):
    await operator.apply(a_runtime("elastic", {"torch": {"elasticPolicy": {"minNodes": 1, "maxNodes": 4}}}))
    await operator.apply(a_train_job("stretches", runtime="elastic", nodes=1))
    await operator.comes_to("Running", TRAINJOB.resource, "stretches")
    await operator.kubectl("scale", "trainjob", "stretches", "--replicas=2")

    async def admitted_anew() -> bool:
        # The second pod may be there before Kueue has seen the new size: it then deletes the Workload and suspends.
        found = await workload(operator, "stretches")
        return [each["count"] for each in found["spec"]["podSets"]] == [2] and "admission" in found["status"]

    await operator.until(admitted_anew, lambda: "the new size is not admitted")
    await operator.selects(of(TRAINJOB, "stretches"), "stretches-node-0-0", "stretches-node-0-1")
    await operator.comes_to("Running", TRAINJOB.resource, "stretches")
    await operator.kubectl("scale", "trainjob", "stretches", "--replicas=3")
    await operator.comes_to("Suspended", TRAINJOB.resource, "stretches")
    await operator.kubectl("delete", "trainjob", "stretches")


async def test_a_person_s_pause_of_a_trainjob_goes_to_its_workload(operator: Operator):
    await operator.apply(a_train_job("pauses"))
    await operator.comes_to("Running", TRAINJOB.resource, "pauses")
    await operator.muster("suspend", "trainjob/pauses", "--timeout", "60")
    assert (await workload(operator, "pauses"))["spec"]["active"] is False
    await operator.muster("resume", "trainjob/pauses", "--timeout", "60")
    await operator.kubectl("delete", "trainjob", "pauses")
