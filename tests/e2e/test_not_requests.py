"""What must not happen to scale requests, with everything real that can be; each test names its line of the contract.

Where a request has to wait, it waits for a worker that becomes Ready when the test says so.
"""

import json
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import FOR_EVER, THIRD_FAILS, UNTIL_TOLD, Operator, a_job, a_request, worker_that

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


PATIENT = 1000
"""Seconds: a request that the test holds open ends for no other reason."""

HELD = worker_that(ready="case $n in *-worker-2) [ -e /run/go ];; esac")
"""The third worker is not Ready before `let_go`."""


async def a_running_job(operator: Operator, name: str, script: str = FOR_EVER, **more: Any) -> None:
    await operator.apply(a_job(name, script, **more))
    await operator.phase("Running", TRAININGJOBS, name)


async def let_go(operator: Operator, job: str) -> None:
    """Have the third worker become Ready."""
    await operator.kubectl("exec", f"{job}-worker-2", "--", "touch", "/run/go")


async def there(operator: Operator, pod: str) -> None:
    """Wait until a pod's container runs."""

    async def so() -> bool:
        await operator.kubectl("exec", pod, "--", "true")
        return True

    await operator.until(so, lambda: f"{pod} does not run")


async def told(operator: Operator, job: str, *types: str) -> list[tuple[str, dict[str, Any]]]:
    """A job's events of these types, each with its body."""
    events = [(s.subject.split("."), s.body) for s in await operator.log()]
    return [(words[-1], json.loads(body)) for words, body in events if words[2] == job and words[-1] in types]


async def test_1_requests_run_oldest_first(operator: Operator):
    await a_running_job(operator, "queue", worker=HELD)
    await operator.apply(a_request("ScaleOut", "zulu", "queue", toAdd={"count": 1}, timeout=PATIENT))
    await operator.phase("Scaling", SCALEOUTS, "zulu")
    # Younger ones have names that sort before, and come in the same second.
    await operator.apply(*(a_request("ScaleOut", n, "queue", toAdd={"count": 1}) for n in ("mike", "alpha")))
    for name in ("mike", "alpha"):
        await operator.phase("Pending", SCALEOUTS, name)
    await there(operator, "queue-worker-2")
    await let_go(operator, "queue")
    added = [(await operator.phase("ScaleSucceeded", SCALEOUTS, n))["addPods"] for n in ("zulu", "mike", "alpha")]
    assert added == [[f"queue-worker-{index}"] for index in (2, 3, 4)]
    await operator.assert_replayed("queue")
    await operator.delete("queue")


NOBODYS = {
    "typo": ["typos-worker-7"],
    "half": ["typos-worker-0", "typos-worker-7"],
    "launcher": ["typos-launcher"],
    "others": ["mates-worker-0"],
}


async def test_3_a_scale_in_of_pods_that_do_not_exist_deletes_nothing(operator: Operator):
    await operator.apply(a_job("typos", FOR_EVER), a_job("mates", FOR_EVER, workers=1))
    for job in ("typos", "mates"):
        await operator.phase("Running", TRAININGJOBS, job)
    before = await operator.pod_uids("typos") | await operator.pod_uids("mates")
    empty = a_request("ScaleIn", "none", "typos", toDelete={"podNames": []})
    assert "podNames" in await operator.kubectl("apply", "-f", "-", given=empty, fails=True)
    await operator.apply(
        *(a_request("ScaleIn", name, "typos", toDelete={"podNames": pods}) for name, pods in NOBODYS.items())
    )
    for name in NOBODYS:
        status = await operator.phase("ScaleFailed", SCALEINS, name)
        assert status["conditions"][-1]["reason"] == "NoSuchWorker"
    await operator.members("typos", "typos-worker-0", "typos-worker-1")
    assert await operator.pod_uids("typos") | await operator.pod_uids("mates") == before
    assert "WorkersReleased" not in await operator.types("typos")
    await operator.delete("typos", "mates")


@pytest.mark.parametrize("wish", [{}, {"toDelete": None}, {"toDelete": {}}, {"toDelete": []}], ids=str)
async def test_4_a_scale_in_without_to_delete_is_refused_at_apply_time(operator: Operator, wish: dict[str, Any]):
    request = a_request("ScaleIn", "whom", "anybody", **wish)
    assert "toDelete" in await operator.kubectl("apply", "-f", "-", given=request, fails=True)


async def test_7_below_the_minimum_a_request_fails_and_down_to_it_one_succeeds(operator: Operator):
    job = a_job("least", FOR_EVER, workers=3)
    job["spec"]["etReplicaSpecs"]["worker"]["minReplicas"] = 2
    await operator.apply(job)
    await operator.phase("Running", TRAININGJOBS, "least")
    both = {"podNames": ["least-worker-0", "least-worker-1"]}
    await operator.apply(
        a_request("ScaleIn", "by-count", "least", toDelete={"count": 2}),
        a_request("ScaleIn", "by-name", "least", toDelete=both),
        a_request("ScaleIn", "just-so", "least", toDelete={"count": 1}),
    )
    for name in ("by-count", "by-name"):
        status = await operator.phase("ScaleFailed", SCALEINS, name)
        assert status["conditions"][-1]["reason"] == "BelowMinimum"
    await operator.phase("ScaleSucceeded", SCALEINS, "just-so")
    await operator.has_pods("least", "least-launcher", "least-worker-0", "least-worker-1")
    await operator.delete("least")


async def test_9_worker_names_are_compared_whole(operator: Operator):
    job = a_job("eleven", FOR_EVER)
    job["spec"]["etReplicaSpecs"]["worker"] |= {"replicas": 11, "maxReplicas": 11}
    await operator.apply(job)
    await operator.phase("Running", TRAININGJOBS, "eleven")
    # The launcher uses one whose name begins like that of another.
    uses = "sh -c 'sleep 1000; :' root@eleven-worker-10 > /dev/null 2>&1 &"
    await operator.kubectl("exec", "eleven-launcher", "--", "sh", "-c", uses)
    await operator.apply(a_request("ScaleIn", "one", "eleven", toDelete={"podNames": ["eleven-worker-1"]}))
    await operator.phase("ScaleSucceeded", SCALEINS, "one")
    # An early look may still find it in the hosts file.
    looks = [body for _, body in await told(operator, "eleven", "DrainChecked")]
    assert (looks[-1]["in_use"], looks[-1].get("reason", "")) == ([], "")
    [(_, released)] = await told(operator, "eleven", "WorkersReleased")
    assert released["reason"] == "Drained"
    left = [f"eleven-worker-{index}" for index in range(11) if index != 1]
    await operator.members("eleven", *left)
    await operator.has_pods("eleven", "eleven-launcher", *left)
    await operator.delete("eleven")


async def test_10_a_launcher_that_ends_during_a_scale_out_ends_the_request_too(operator: Operator):
    await a_running_job(operator, "over", UNTIL_TOLD, worker=HELD)
    await operator.apply(a_request("ScaleOut", "over-out", "over", toAdd={"count": 2}, timeout=PATIENT))
    await operator.phase("Scaling", SCALEOUTS, "over-out")
    await operator.phase("Scaling", TRAININGJOBS, "over")
    await operator.tell_to_end("over")
    await operator.phase("Succeeded", TRAININGJOBS, "over")
    status = await operator.phase("ScaleFailed", SCALEOUTS, "over-out")
    assert status["conditions"][-1]["reason"] == "JobFinished"
    await operator.is_scaled_by_nobody("over")
    await operator.has_pods("over", "over-launcher")


async def test_11_a_request_applied_before_its_job_is_adopted_when_the_job_comes(operator: Operator):
    await operator.apply(a_request("ScaleOut", "early", "awaited", toAdd={"count": 1}))
    status = await operator.phase("Pending", SCALEOUTS, "early")
    assert status["conditions"][-1]["reason"] == "JobNotFound"
    await operator.apply(a_job("awaited", FOR_EVER))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "early")
    job = await operator.stack.kube.get(TRAININGJOBS, "default", "awaited")
    request = await operator.stack.kube.get(SCALEOUTS, "default", "early")
    assert job is not None
    assert request is not None
    assert request.metadata.controller is not None
    assert request.metadata.controller.uid == job.metadata.uid
    await operator.members("awaited", *(f"awaited-worker-{index}" for index in range(3)))
    await operator.delete("awaited")


async def test_32_a_second_scale_out_after_a_failed_one_works_at_once(operator: Operator):
    await a_running_job(operator, "twice", worker=THIRD_FAILS)
    await operator.apply(a_request("ScaleOut", "first", "twice", toAdd={"count": 1}, backoffLimit=0))
    status = await operator.phase("ScaleFailed", SCALEOUTS, "first")
    assert status["conditions"][-1]["reason"] == "WorkerFailed"
    await operator.apply(a_request("ScaleOut", "second", "twice", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "second")
    await operator.members("twice", "twice-worker-0", "twice-worker-1", "twice-worker-3")
    await operator.has_pods("twice", "twice-launcher", "twice-worker-0", "twice-worker-1", "twice-worker-3")
    waits = ("Replacement:", "BackOff:CreatePod", "ScalingDeadline")
    assert not [b for _, b in await told(operator, "twice", "TimePassed") if b["timer"].startswith(waits)], "it waited"
    await operator.delete("twice")


async def test_33_a_scale_out_deleted_midway_is_rolled_back(operator: Operator):
    await a_running_job(operator, "undone", worker=HELD)
    await operator.apply(a_request("ScaleOut", "undone-out", "undone", toAdd={"count": 2}, timeout=PATIENT))
    await operator.phase("Scaling", SCALEOUTS, "undone-out")
    await there(operator, "undone-worker-3")
    await operator.kubectl("delete", "scaleout", "undone-out", "--wait=false")
    await operator.has_pods("undone", "undone-launcher", "undone-worker-0", "undone-worker-1")
    await operator.is_scaled_by_nobody("undone")
    await operator.members("undone", "undone-worker-0", "undone-worker-1")
    [(_, cancelled)] = await told(operator, "undone", "ScaleCancelled")
    assert cancelled["reason"] == "RequestDeleted"
    job = await operator.job("undone")
    assert (job.scaling.size, job.membership.version) == (2, 1), "no hosts files list the workers that did not come"
    await operator.assert_replayed("undone")
    await operator.delete("undone")
