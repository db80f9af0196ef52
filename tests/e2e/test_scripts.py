"""Scripts of requests, looks into launchers, and edits of the size, with everything real that can be."""

import json
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE, MakeHost
from tests.kit.operator import Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(params=[*HOSTS, NODE], scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """What a script sees is the same in a real container."""
    made: MakeHost = request.param()
    return made


CANARY = "a b; touch canary"
WRITES_A_SCRIPT = (
    "trap 'exit 0' USR1; "
    'printf \'echo "$1" "$TOKEN" $(wc -l < /etc/edl/hostfile) >> told; exit ${CODE:-0}\' > rescale.sh; '
    "while :; do sleep 0.05; done"
)
"""The script notes its argument, its environment and how many hosts the launcher sees."""


async def test_scripts_run_once_in_the_launcher_with_what_the_request_says(operator: Operator):
    await operator.apply(a_job("scripted", WRITES_A_SCRIPT))
    await operator.phase("Running", TRAININGJOBS, "scripted")
    script = {"script": "rescale.sh", "env": [{"name": "TOKEN", "value": CANARY}]}
    await operator.apply(a_request("ScaleOut", "grow", "scripted", toAdd={"count": 2}, **script))
    grown = await operator.phase("ScaleSucceeded", SCALEOUTS, "grow")
    assert [known["type"] for known in grown["conditions"]] == [
        "Created",
        "Scaling",
        "ScriptExecuted",
        "ScaleSucceeded",
    ]
    await operator.apply(a_request("ScaleIn", "shrink", "scripted", toDelete={"count": 1}, **script))
    await operator.phase("ScaleSucceeded", SCALEINS, "shrink")
    script["env"].append({"name": "CODE", "value": "3"})  # type: ignore[attr-defined]
    await operator.apply(a_request("ScaleIn", "fails", "scripted", toDelete={"count": 1}, **script))
    failed = await operator.phase("ScaleFailed", SCALEINS, "fails")
    assert failed["conditions"][-1]["reason"] == "ScriptFailed"
    assert failed["conditions"][-1]["message"] == "the script exited with 3"
    told = (await operator.kubectl("exec", "scripted-launcher", "--", "cat", "told")).splitlines()
    assert told == [
        f"scripted-worker-2:1,scripted-worker-3:1 {CANARY} 4",
        f"scripted-worker-3:1 {CANARY} 4",
        f"scripted-worker-2:1 {CANARY} 3",
    ]
    await operator.has_pods("scripted", "scripted-launcher", *(f"scripted-worker-{index}" for index in range(3)))


async def test_a_script_that_takes_too_long_fails_its_request(operator: Operator):
    # The process that it becomes names no worker: no service ends it, and it uses none.
    await operator.kubectl("exec", "scripted-launcher", "--", "sh", "-c", "echo 'exec sleep 1000' > slow.sh")
    slow = {"script": "slow.sh", "timeout": 2}
    await operator.apply(a_request("ScaleIn", "slow", "scripted", toDelete={"count": 1}, **slow))
    failed = await operator.phase("ScaleFailed", SCALEINS, "slow")
    assert failed["conditions"][-1]["reason"] == "ScriptTimedOut"


async def test_a_worker_in_use_stays_until_its_process_in_the_launcher_is_gone(operator: Operator):
    # As `ssh` would be: a process that was told of a worker.
    using = "sh -c 'until [ -e /run/done ]; do sleep 0.05; done' root@scripted-worker-2 > /dev/null 2>&1 &"
    await operator.kubectl("exec", "scripted-launcher", "--", "sh", "-c", using)
    await operator.apply(a_request("ScaleIn", "patient", "scripted", toDelete={"count": 1}, timeout=1000))
    request = await operator.stack.kube.get(SCALEINS, "default", "patient")
    assert request is not None

    async def looks() -> list[dict[str, Any]]:
        checks = [json.loads(s.body) for s in await operator.log() if s.subject.endswith(".DrainChecked")]
        return [check for check in checks if check["request"] == request.metadata.uid]

    await operator.until(looks, lambda: "no check whether the worker is in use")
    await operator.kubectl("exec", "scripted-launcher", "--", "touch", "/run/done")
    await operator.phase("ScaleSucceeded", SCALEINS, "patient")
    last = await looks()
    assert [check["reason"] for check in last] == [""] * len(last), "this launcher can be looked into"
    assert last[0]["in_use"] == [2]
    assert last[-1]["in_use"] == []
    (reason,) = [
        released["reason"]
        for s in await operator.log()
        if s.subject.endswith(".WorkersReleased")
        and (released := json.loads(s.body))["request"] == request.metadata.uid
    ]
    assert reason == "Drained"


IN_USE = (
    "trap 'exit 0' USR1; n=$(hostname); "
    "sh -c 'echo uses; until [ -e /run/done ]; do sleep 0.05; done' root@${n%launcher}worker-1 & "
    "while :; do sleep 0.05; done"
)
"""It uses its second worker until /run/done is there."""


async def leaving_in_use(operator: Operator, job: str) -> None:
    """A job whose second worker has left the hosts files by a ScaleIn, and is still in use."""
    await operator.apply(a_job(job, IN_USE))
    await operator.phase("Running", TRAININGJOBS, job)

    async def uses() -> bool:
        return await operator.kubectl("logs", f"{job}-launcher") == "uses\n"

    await operator.until(uses, lambda: "the launcher never used its worker")
    await operator.apply(a_request("ScaleIn", f"{job}-in", job, toDelete={"count": 1}, timeout=1000))

    async def looked() -> bool:
        return "DrainChecked" in await operator.types(job)

    await operator.until(looked, lambda: "no check whether the worker is in use")


async def test_10_a_launcher_that_ends_during_a_scale_in_ends_the_request_too(operator: Operator):
    await leaving_in_use(operator, "over")
    status = await operator.phase("Scaling", TRAININGJOBS, "over")
    assert status["currentScaler"] == "ScaleIn:default/over-in"
    await operator.tell_to_end("over")
    await operator.phase("Succeeded", TRAININGJOBS, "over")

    async def ended() -> bool:
        # With no process that uses the worker, it may also be gone before the job ends.
        return (await operator.status(SCALEINS, "over-in"))["phase"] in ("ScaleFailed", "ScaleSucceeded")

    await operator.until(ended, lambda: "the request outlives its job")
    await operator.is_scaled_by_nobody("over")
    await operator.has_pods("over", "over-launcher")


async def test_33_a_scale_in_deleted_midway_is_finished_once_the_hosts_file_has_changed(operator: Operator):
    await leaving_in_use(operator, "halfway")
    await operator.kubectl("delete", "scalein", "halfway-in", "--wait=false")

    async def looked_again() -> bool:
        types = await operator.types("halfway")
        return "DrainChecked" in types[types.index("ScaleRequestGone") :]

    # A worker in use stays, with or without a request.
    await operator.until(looked_again, lambda: "no further check of the drain")
    assert "WorkersReleased" not in await operator.types("halfway")
    await operator.kubectl("exec", "halfway-launcher", "--", "touch", "/run/done")
    await operator.has_pods("halfway", "halfway-launcher", "halfway-worker-0")
    await operator.members("halfway", "halfway-worker-0")
    assert (await operator.job("halfway")).scaling.size == 1
    await operator.assert_replayed("halfway")
    await operator.kubectl("delete", "trainingjob", "halfway", "--wait=false")


async def test_an_edit_of_the_size_is_carried_out(operator: Operator):
    async def sized(size: int) -> bool:
        status = await operator.status(TRAININGJOBS, "scripted")
        return status["phase"] == "Running" and status["workers"] == f"{size}/{size}"

    for size in (4, 1):
        await operator.kubectl("scale", "trainingjob/scripted", f"--replicas={size}")
        await operator.until(lambda size=size: sized(size), lambda: "the edit is not carried out")
    workers = (await operator.status(TRAININGJOBS, "scripted"))["currentWorkers"]
    assert workers == ["scripted-worker-0"]
    await operator.assert_replayed("scripted")
    assert "different: 0" in await operator.muster("replay", "--verify")
    await operator.kubectl("delete", "trainingjob", "scripted", "--wait=false")
