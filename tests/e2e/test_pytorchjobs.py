"""PyTorchJobs as their users see them: the published examples, with kubectl and muster."""

import json

import pytest

from shared.frameworks.pytorchjob import PYTORCHJOB
from tests.kit.operator import Operator, an_example, of_kubeflow

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PYTORCHJOBS = PYTORCHJOB.resource


async def told(operator: Operator, pod: str) -> dict[str, str]:
    """The environment that a pod has printed."""
    found: dict[str, str] = {}

    async def whole() -> bool:
        nonlocal found
        lines = (await operator.kubectl("logs", pod)).splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        return "PET_NNODES" in found

    await operator.until(whole, lambda: f"{pod} printed {found}")
    return found


def group(*indices: int) -> list[str]:
    return [f"group-worker-{index}" for index in indices]


async def test_a_master_leads_and_its_end_is_the_jobs(operator: Operator):
    await operator.apply(an_example("pytorch/environment"))
    worker = await told(operator, "led-worker-1")
    ours = {name: worker[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NPROC_PER_NODE")}
    assert ours == {
        "MASTER_ADDR": "led-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "6",
        "RANK": "2",
        "PET_NPROC_PER_NODE": "2",
    }
    await operator.comes_to("Succeeded", PYTORCHJOBS, "led")
    # cleanPodPolicy Running: only the master, which has ended, stays.
    await operator.selects(of_kubeflow("led"), "led-master-0")
    assert (await told(operator, "led-master-0"))["RANK"] == "0"


async def test_columns_and_events_are_those_of_the_kind(operator: Operator):
    header, row = (await operator.kubectl("get", "pytorchjob", "led")).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "WORKERS", "FAILED", "REASON"]
    assert row.split()[:2] == ["led", "Succeeded"]
    described = await operator.kubectl("describe", "pytorchjob", "led")
    for reason in ("PyTorchJobRunning", "PyTorchJobSucceeded"):
        assert reason in described


async def test_without_a_master_all_workers_have_to_end_well(operator: Operator):
    await operator.apply(an_example("pytorch/workers"))
    status = await operator.comes_to("Succeeded", PYTORCHJOBS, "alone")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 2


async def test_a_group_is_scaled_by_kubectl_and_by_muster(operator: Operator):
    await operator.apply(an_example("pytorch/group"))
    await operator.comes_to("Running", PYTORCHJOBS, "group")
    await operator.kubectl("scale", "pytorchjob", "group", "--replicas", "3")
    await operator.kubectl("wait", "--for=create", "pod/group-worker-2", "--timeout=60s")
    await operator.kubectl("wait", "--for=condition=Ready", "pod/group-worker-2", "--timeout=60s")
    assert await told(operator, "group-worker-2") == await told(operator, "group-worker-0")
    await operator.muster("scale", "pytorchjob/group", "--to", "1")
    await operator.selects(of_kubeflow("group"), *group(0))
    await operator.muster("scale", "pytorchjob/group", "--to", "2")
    await operator.selects(of_kubeflow("group"), *group(0, 1))


async def test_beyond_its_bounds_it_is_not_scaled(operator: Operator):
    refused = await operator.kubectl("scale", "pytorchjob", "group", "--replicas", "4", fails=True)
    assert "set replicas to at most maxReplicas" in refused
    assert "1 to 3 workers, and not 4" in await operator.muster("scale", "pytorchjob/group", "--to", "4", code=1)
    await operator.selects(of_kubeflow("group"), *group(0, 1))


async def test_a_worker_that_goes_comes_back_under_its_name(operator: Operator):
    async def uid() -> str:
        return await operator.kubectl(
            "get", "pod", "group-worker-0", "--ignore-not-found", "-o", "jsonpath={.metadata.uid}"
        )

    first = await uid()
    await operator.kubectl("delete", "pod", "group-worker-0", "--wait=false")

    async def another() -> bool:
        return await uid() not in ("", first)

    await operator.until(another, lambda: "worker 0 did not come back")
    await operator.kubectl("wait", "--for=condition=Ready", "pod/group-worker-0", "--timeout=60s")
    await operator.selects(of_kubeflow("group"), *group(0, 1))


async def test_a_group_ends_with_the_first_worker_that_ends_well(operator: Operator):
    await operator.signal("group-worker-1", "pytorch")
    await operator.comes_to("Succeeded", PYTORCHJOBS, "group")


async def test_a_rendezvous_of_ones_own_is_told_to_every_worker(operator: Operator):
    await operator.apply(an_example("pytorch/etcd"))
    await operator.comes_to("Suspended", PYTORCHJOBS, "stored")
    await operator.selects(of_kubeflow("stored"))
    patch = json.dumps({"spec": {"runPolicy": {"suspend": False}}})
    await operator.kubectl("patch", "pytorchjob", "stored", "--type", "merge", "-p", patch)
    worker = await told(operator, "stored-worker-1")
    assert (worker["PET_RDZV_ENDPOINT"], worker["PET_RDZV_BACKEND"]) == ("etcd:2379", "etcd-v2")
    assert worker["PET_RDZV_CONF"] == "join_timeout=600,last_call_timeout=5"
    await operator.comes_to("Succeeded", PYTORCHJOBS, "stored")
