"""TFJobs as their users see them: the published examples, with kubectl."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import FOR_EVER, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

TFJOBS = TFJOB.resource
EXAMPLES = Path(__file__).parents[2] / "examples" / "tensorflow"


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return found


async def comes_to(operator: Operator, state: str, job: str) -> dict[str, Any]:
    """Wait until the column State says so; return the status."""
    status: dict[str, Any] = {}

    async def there() -> bool:
        nonlocal status
        status = await operator.status(TFJOBS, job)
        return bool(status.get("conditions")) and status["conditions"][-1]["type"] == state

    await operator.until(there, lambda: f"{job} is not {state}: {status.get('conditions')}")
    return status


async def pods(operator: Operator, job: str) -> list[str]:
    """Those that upstream's label finds, sorted."""
    found = await operator.kubectl("get", "pods", "-l", f"training.kubeflow.org/job-name={job}", "-o", "name")
    return sorted(name.removeprefix("pod/") for name in found.split())


async def has_pods(operator: Operator, job: str, *names: str) -> None:
    now: list[str] = []

    async def so() -> bool:
        nonlocal now
        now = await pods(operator, job)
        return now == sorted(names)

    await operator.until(so, lambda: f"{now} are the pods, not {names}")


async def test_a_chief_trains_with_its_servers_and_workers(operator: Operator):
    await operator.apply(example("chief_and_evaluator"))
    await comes_to(operator, "Succeeded", "whole")
    # cleanPodPolicy Running: only the chief, which has ended, stays.
    await has_pods(operator, "whole", "whole-chief-0")
    (line,) = (await operator.kubectl("logs", "whole-chief-0")).splitlines()
    config = json.loads(line)
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"]["worker"] == ["whole-worker-0.default.svc:2222", "whole-worker-1.default.svc:2222"]
    assert "evaluator" not in config["cluster"]


async def test_columns_short_name_and_events_are_those_of_the_kind(operator: Operator):
    header, row = (await operator.kubectl("get", "tfj", "whole")).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "WORKERS", "FAILED"]
    assert row.split()[:2] == ["whole", "Succeeded"]
    described = await operator.kubectl("describe", "tfjob", "whole")
    for reason in ("TFJobRunning", "TFJobSucceeded"):
        assert reason in described
    await operator.kubectl("wait", "--for=condition=Succeeded", "tfjob/whole", "--timeout=5s")


async def test_all_workers_have_to_end_well(operator: Operator):
    await operator.apply(example("all_workers"))
    status = await comes_to(operator, "Succeeded", "together")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 3


async def test_a_worker_begins_again_in_its_place_until_the_limit_is_reached(operator: Operator):
    job = example("limits")
    job["spec"]["runPolicy"] |= {"backoffLimit": 1, "ttlSecondsAfterFinished": 3}
    await operator.apply(job)
    status = await comes_to(operator, "Failed", "limited")
    assert status["conditions"][-1]["message"].startswith("BackoffLimitExceeded: limited-worker-1 ")

    async def gone() -> bool:
        return await operator.stack.kube.get(TFJOBS, "default", "limited") is None

    await operator.until(gone, lambda: "it is not deleted after its time to live")
    await has_pods(operator, "limited")


async def test_a_suspended_job_begins_when_a_person_resumes_it(operator: Operator):
    await operator.apply(example("suspended"))
    await comes_to(operator, "Suspended", "paused")
    assert await pods(operator, "paused") == []
    patch = json.dumps({"spec": {"runPolicy": {"suspend": False}}})
    await operator.kubectl("patch", "tfjob", "paused", "--type", "merge", "-p", patch)
    await comes_to(operator, "Succeeded", "paused")


async def test_dynamic_workers_are_scaled_by_kubectl(operator: Operator):
    await operator.apply(example("dynamic_workers"))
    await comes_to(operator, "Running", "dynamic")
    await operator.kubectl("scale", "tfjob", "dynamic", "--replicas", "3")
    names = ["dynamic-ps-0", *(f"dynamic-worker-{index}" for index in range(3))]
    await has_pods(operator, "dynamic", *names)
    await operator.kubectl("wait", "--for=condition=Ready", "pod/dynamic-worker-2", "--timeout=60s")
    await operator.kubectl("scale", "tfjob", "dynamic", "--replicas", "2")
    await has_pods(operator, "dynamic", *names[:-1])
    await operator.signal("dynamic-worker-0", "tensorflow")
    await comes_to(operator, "Succeeded", "dynamic")


async def test_a_training_job_of_the_same_name_waits_for_the_name_of_its_worker(operator: Operator):
    job = example("suspended")
    job["metadata"]["name"] = "twins"
    job["spec"]["runPolicy"] = {}
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", f"trap 'exit 0' TERM; {FOR_EVER}"]
    await operator.apply(job)
    await comes_to(operator, "Running", "twins")
    await operator.apply(a_job("twins", FOR_EVER))

    async def told() -> bool:
        return "NameConflict" in str((await operator.status(TRAININGJOBS, "twins")).get("conditions"))

    await operator.until(told, lambda: "no status says that the name is taken")
    assert await pods(operator, "twins") == ["twins-worker-0", "twins-worker-1"]
    await operator.kubectl("delete", "tfjob", "twins")
    await operator.phase("Running", TRAININGJOBS, "twins")
    await operator.kubectl("delete", "trainingjob", "twins")
