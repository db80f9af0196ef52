"""Containers that a real kubelet begins again in their pods, and what that saves beside new pods."""

import time
from typing import Any

import pytest

from shared.frameworks.tfjob import TFJOB
from shared.job.naming import RESTART_IN_PLACE
from shared.job.policies.replacement import MOST_IN_PLACE
from tests.kit.operator import SHELL, Operator

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

SIGNALLED_AFTER = 0.5
"""Seconds from `signal` to the end of the container."""

FAILS_WHEN_TOLD = {
    "name": "tensorflow",
    "image": SHELL,
    "command": ["sh", "-c", "date +%s.%N; trap 'exit 5' USR1; trap 'exit 0' TERM; while :; do sleep 0.05; done"],
}


def a_job(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    replica = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [FAILS_WHEN_TOLD]}}}
    return {
        "apiVersion": TFJOB.resource.api_version,
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"runPolicy": {"cleanPodPolicy": "All"}, "tfReplicaSpecs": {"Worker": replica}},
    }


async def begun(operator: Operator, job: str, after: float) -> float:
    """When the container of worker 1 began, by its own clock, after this time."""
    at = 0.0

    async def there() -> bool:
        nonlocal at
        status = await operator.status(TFJOB.resource, job)
        active = ((status.get("replicaStatuses") or {}).get("Worker") or {}).get("active")
        try:
            said = (await operator.kubectl("logs", f"{job}-worker-1")).split()
        except AssertionError:
            return False
        at = float(said[0]) if said and active == 2 else 0.0
        return at > after

    await operator.until(there, lambda: f"{job} does not train again")
    return at


async def fails(operator: Operator, job: str) -> float:
    """Worker 1 fails when it is told to; the seconds until its container runs again."""
    told = time.time() + SIGNALLED_AFTER
    await operator.signal(f"{job}-worker-1", "tensorflow")
    return await begun(operator, job, told) - told


async def uid(operator: Operator, job: str) -> str:
    return await operator.kubectl("get", "pod", f"{job}-worker-1", "-o", "jsonpath={.metadata.uid}")


async def test_a_failed_container_begins_again_in_its_pod_and_not_for_ever(operator: Operator) -> None:
    await operator.apply(a_job("again", {RESTART_IN_PLACE: "true"}), a_job("anew", {}))
    for name in ("again", "anew"):
        await begun(operator, name, 0.0)
    first, other = await uid(operator, "again"), await uid(operator, "anew")
    anew = await fails(operator, "anew")
    assert await uid(operator, "anew") != other
    again = await fails(operator, "again")
    assert await uid(operator, "again") == first
    print(f"from the failure to the next start: {again:.1f} s in place, {anew:.1f} s in a new pod")
    assert again < anew
    for _ in range(MOST_IN_PLACE - 1):
        await fails(operator, "again")
    await operator.until(lambda: uid_differs(operator, first))
    assert "new pods keep off " in await operator.muster("why", "tfjob/again")
    job = await operator.job("again")
    assert job.attempt.replaced == MOST_IN_PLACE
    await operator.kubectl("delete", "tfjob", "again", "anew", "--wait=false")


async def uid_differs(operator: Operator, first: str) -> bool:
    try:
        return await uid(operator, "again") != first
    except AssertionError:
        return False
