"""Stock Kueue over Muster's jobs: admission, waiting, preemption and return, a new size, and a person's pause."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.job.spec import LAUNCHER
from tests.kit.operator import Operator, of_kubeflow
from tests.queues.jobs import POOL, a_job
from tests.queues.manager import muster_and_kueue

pytestmark = [pytest.mark.kueue, pytest.mark.asyncio(loop_scope="module")]

ALL = [pytest.param(kind, id=kind.resource.kind) for kind in (PYTORCHJOB, TFJOB, MPIJOB)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Muster and Kueue, with a queue of two processors."""
    async with muster_and_kueue(tmp_path_factory.mktemp("stack"), 2) as (operator, _):
        yield operator


async def workload(operator: Operator, job: str) -> dict[str, Any]:
    """The newest Workload of a job."""
    listed = json.loads(await operator.kubectl("get", "workloads", "-o", "json"))["items"]
    owned = [each for each in listed if each["metadata"]["ownerReferences"][0]["name"] == job]
    found: dict[str, Any] = max(owned, key=lambda each: each["metadata"]["creationTimestamp"])
    return found


async def pools(operator: Operator, job: str) -> set[str]:
    """What the pods of a job ask of their nodes."""
    listed = json.loads(await operator.kubectl("get", "pods", "-l", of_kubeflow(job), "-o", "json"))["items"]
    return {pod["spec"].get("nodeSelector", {}).get(POOL, "") for pod in listed}


async def sequence_of(operator: Operator, job: str, kind: str) -> int:
    """The newest event of that type in a job's history."""
    found = [
        s.sequence for s in await operator.log() if (s.subject.split(".")[2], s.subject.split(".")[-1]) == (job, kind)
    ]
    return max(found)


@pytest.mark.parametrize("kind", ALL)
async def test_a_job_waits_is_admitted_preempted_and_comes_back(operator: Operator, kind: KubeflowJob):
    resource, name = kind.resource, kind.resource.kind.lower()
    low, next_one, high = f"{name}-low", f"{name}-next", f"{name}-high"
    await operator.apply(a_job(resource.kind, low))
    await operator.comes_to("Running", resource, low)
    assert await pools(operator, low) == {"a"}

    await operator.apply(a_job(resource.kind, next_one))
    await operator.comes_to("Suspended", resource, next_one)
    assert not await operator.selected(of_kubeflow(next_one))

    async def waits() -> bool:
        return "waits for quota in queue team-a since" in await operator.muster("why", f"{name}/{next_one}")

    await operator.until(waits, lambda: "why says nothing of the queue")
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
    assert await pools(operator, low) == {"a"}
    if kind is MPIJOB:
        spec = (await operator.job(low)).spec
        assert spec is not None
        assert spec.policy(LAUNCHER) == "Never", "it was made as v1"
    await operator.kubectl("delete", name, low)
    await operator.selects(of_kubeflow(low))


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
    assert "waits for quota in queue team-a" in await operator.muster("why", "pytorchjob/grows")
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
    assert "a person suspended it in queue team-a" in await operator.muster("why", "tfjob/paused")
    await operator.kubectl("delete", "tfjob", "other")
    await operator.muster("resume", "tfjob/paused", "--timeout", "60")
    await operator.kubectl("delete", "tfjob", "paused")


async def test_the_end_finishes_the_workload(operator: Operator):
    await operator.apply(a_job("PyTorchJob", "ends", workers=1))
    await operator.comes_to("Running", PYTORCHJOB.resource, "ends")
    await operator.signal("ends-worker-0", "pytorch")
    await operator.comes_to("Succeeded", PYTORCHJOB.resource, "ends")

    async def finished() -> bool:
        known = (await workload(operator, "ends"))["status"]["conditions"]
        return any((each["type"], each["status"]) == ("Finished", "True") for each in known)

    await operator.until(finished, lambda: "the Workload is not Finished")
