"""PyTorchJobs as their users see them: the published examples, with kubectl and muster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.pytorchjob import PYTORCHJOB
from tests.kit.operator import Operator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PYTORCHJOBS = PYTORCHJOB.resource
EXAMPLES = Path(__file__).parents[2] / "examples" / "pytorch"


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return found


async def comes_to(operator: Operator, state: str, job: str) -> dict[str, Any]:
    """Wait until the column State says so; return the status."""
    status: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal status
        status = await operator.status(PYTORCHJOBS, job)
        return bool(status.get("conditions")) and status["conditions"][-1]["type"] == state

    await operator.until(there, lambda: f"{job} is not {state}: {status.get('conditions')}")
    return status


async def has_pods(operator: Operator, job: str, *names: str) -> None:
    """Wait until upstream's label finds just these."""
    now: list[str] = []

    async def so() -> bool:
        nonlocal now
        words = ("get", "pods", "-l", f"training.kubeflow.org/job-name={job}", "-o", "name")
        now = sorted(name.removeprefix("pod/") for name in (await operator.kubectl(*words)).split())
        return now == sorted(names)

    await operator.until(so, lambda: f"{now} are the pods, not {names}")


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
    await operator.apply(example("environment"))
    worker = await told(operator, "led-worker-1")
    ours = {name: worker[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NPROC_PER_NODE")}
    assert ours == {
        "MASTER_ADDR": "led-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "6",
        "RANK": "2",
        "PET_NPROC_PER_NODE": "2",
    }
    await comes_to(operator, "Succeeded", "led")
    # cleanPodPolicy Running: only the master, which has ended, stays.
    await has_pods(operator, "led", "led-master-0")
    assert (await told(operator, "led-master-0"))["RANK"] == "0"


async def test_columns_and_events_are_those_of_the_kind(operator: Operator):
    header, row = (await operator.kubectl("get", "pytorchjob", "led")).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "WORKERS", "FAILED"]
    assert row.split()[:2] == ["led", "Succeeded"]
    described = await operator.kubectl("describe", "pytorchjob", "led")
    for reason in ("PyTorchJobRunning", "PyTorchJobSucceeded"):
        assert reason in described


async def test_without_a_master_all_workers_have_to_end_well(operator: Operator):
    await operator.apply(example("workers"))
    status = await comes_to(operator, "Succeeded", "alone")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 2


async def test_a_group_is_scaled_by_kubectl_and_by_muster(operator: Operator):
    await operator.apply(example("group"))
    await comes_to(operator, "Running", "group")
    await operator.kubectl("scale", "pytorchjob", "group", "--replicas", "3")
    await operator.kubectl("wait", "--for=create", "pod/group-worker-2", "--timeout=60s")
    await operator.kubectl("wait", "--for=condition=Ready", "pod/group-worker-2", "--timeout=60s")
    assert await told(operator, "group-worker-2") == await told(operator, "group-worker-0")
    await operator.muster("scale", "pytorchjob/group", "--to", "1")
    await has_pods(operator, "group", *group(0))
    await operator.muster("scale", "pytorchjob/group", "--to", "2")
    await has_pods(operator, "group", *group(0, 1))


async def test_beyond_its_bounds_it_is_not_scaled(operator: Operator):
    refused = await operator.kubectl("scale", "pytorchjob", "group", "--replicas", "4", fails=True)
    assert "set replicas to at most maxReplicas" in refused
    assert "1 to 3 workers, and not 4" in await operator.muster("scale", "pytorchjob/group", "--to", "4", code=1)
    await has_pods(operator, "group", *group(0, 1))


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
    await has_pods(operator, "group", *group(0, 1))


async def test_a_group_ends_with_the_first_worker_that_ends_well(operator: Operator):
    await operator.signal("group-worker-1", "pytorch")
    await comes_to(operator, "Succeeded", "group")


async def test_a_rendezvous_of_ones_own_is_told_to_every_worker(operator: Operator):
    await operator.apply(example("etcd"))
    await comes_to(operator, "Suspended", "stored")
    await has_pods(operator, "stored")
    patch = json.dumps({"spec": {"runPolicy": {"suspend": False}}})
    await operator.kubectl("patch", "pytorchjob", "stored", "--type", "merge", "-p", patch)
    worker = await told(operator, "stored-worker-1")
    assert (worker["PET_RDZV_ENDPOINT"], worker["PET_RDZV_BACKEND"]) == ("etcd:2379", "etcd-v2")
    assert worker["PET_RDZV_CONF"] == "join_timeout=600,last_call_timeout=5"
    await comes_to(operator, "Succeeded", "stored")
