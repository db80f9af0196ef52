"""Scripts of scale requests and looks into launchers, with everything real that can be.

A script hangs, fails, prints without end, or is not there; what it is given arrives byte for byte, and is no code.
"""

import json
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE
from tests.kit.operator import Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = [HOSTS[0], HOSTS[2], NODE]
"""Exec is a kubelet's, and what a script sees a container's."""


SCRIPTS = {
    "rescale": 'echo "$1" "$WORD" $(wc -l < /etc/edl/hostfile) >> /scripts/told; exit ${CODE:-0}',
    "hang": "exec sleep 1000",
    "flood": "head -c 100000000 /dev/zero; head -c 100000 /dev/urandom >&2",
    "killed": "exit 137",
}
"""The first notes its argument, its environment and how many hosts the launcher sees.

The process that a script which hangs becomes names no worker: no service ends it, and it uses none.
"""
WORD = "a b; touch /scripts/canary $(touch /scripts/canary) 'ü\""


def a_scripted_job(name: str) -> dict[str, Any]:
    """Its launcher writes the scripts that its requests run, and waits."""
    lines = [f"cat > /scripts/{script} <<'END'\n{text}\nEND" for script, text in SCRIPTS.items()]
    job = a_job(name, "\n".join([*lines, "sleep 1000 & wait"]))
    spec = job["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]
    spec["volumes"] = [{"name": "scripts", "emptyDir": {}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    return job


def a_scripted(kind: str, name: str, job: str, script: str, **more: Any) -> dict[str, Any]:
    target = {"toAdd": {"count": 1}} if kind == "ScaleOut" else {"toDelete": {"count": 1}}
    return a_request(kind, name, job, **target, script=f"/scripts/{script}", **more)


async def test_21_scripts_run_once_in_the_launcher_with_what_the_request_says(operator: Operator):
    await operator.apply(a_scripted_job("scripted"))
    await operator.phase("Running", TRAININGJOBS, "scripted")
    env = [{"name": "WORD", "value": WORD}]
    two = a_request("ScaleOut", "grow", "scripted", toAdd={"count": 2}, script="/scripts/rescale", env=env)
    await operator.apply(two)
    grown = await operator.phase("ScaleSucceeded", SCALEOUTS, "grow")
    types = [known["type"] for known in grown["conditions"]]
    assert types == ["Created", "Scaling", "ScriptExecuted", "ScaleSucceeded"]
    await operator.apply(a_scripted("ScaleIn", "shrink", "scripted", "rescale", env=env))
    await operator.phase("ScaleSucceeded", SCALEINS, "shrink")
    env.append({"name": "CODE", "value": "3"})
    await operator.apply(a_scripted("ScaleIn", "fails", "scripted", "rescale", env=env))
    failed = await operator.phase("ScaleFailed", SCALEINS, "fails")
    assert failed["conditions"][-1]["reason"] == "ScriptFailed"
    assert failed["conditions"][-1]["message"] == "the script exited with 3"
    told = (await operator.kubectl("exec", "scripted-launcher", "--", "cat", "/scripts/told")).splitlines()
    assert told == [
        f"scripted-worker-2:1,scripted-worker-3:1 {WORD} 4",
        f"scripted-worker-3:1 {WORD} 4",
        f"scripted-worker-2:1 {WORD} 3",
    ]
    await operator.kubectl("exec", "scripted-launcher", "--", "cat", "/scripts/canary", fails=True)
    await operator.has_pods("scripted", "scripted-launcher", *(f"scripted-worker-{index}" for index in range(3)))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param({"script": "/proc/self/environ"}, "InvalidScript", id="a file that shows the request"),
        pytest.param({"env": [{"name": "A", "value": "\ntouch /scripts/canary"}]}, "InvalidEnvironment", id="a line"),
        pytest.param({"env": [{"name": "BASH_ENV", "value": "x"}]}, "InvalidEnvironment", id="what a shell runs first"),
    ],
)
async def test_who_may_only_create_requests_brings_no_code_into_the_launcher(
    operator: Operator, more: dict[str, Any], reason: str
):
    name = f"code-{len(str(more))}"
    request = a_scripted("ScaleIn", name, "scripted", "rescale")
    request["spec"] |= more
    await operator.apply(request)
    status = await operator.phase("ScaleFailed", SCALEINS, name)
    assert status["conditions"][-1]["reason"] == reason
    await operator.kubectl("exec", "scripted-launcher", "--", "cat", "/scripts/canary", fails=True)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("hang", "ScriptTimedOut", id="it hangs"),
        pytest.param("killed", "ScriptFailed", id="137"),
        pytest.param("no-such-script", "ScriptFailed", id="it is not there"),
    ],
)
async def test_17_a_script_that_fails_fails_its_request_and_takes_no_worker(
    operator: Operator, script: str, reason: str
):
    name = f"bad-{script}"
    await operator.apply(a_scripted("ScaleIn", name, "scripted", script, timeout=3))
    status = await operator.phase("ScaleFailed", SCALEINS, name)
    assert status["conditions"][-1]["reason"] == reason
    assert await operator.pods("scripted") == ["scripted-launcher", *(f"scripted-worker-{index}" for index in range(3))]


async def test_what_a_script_prints_delays_no_other_script(operator: Operator):
    await operator.apply(a_scripted("ScaleOut", "flooded", "scripted", "flood"))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "flooded")
    # And takes it back, for the stories that follow.
    await operator.apply(a_scripted("ScaleIn", "dried", "scripted", "flood"))
    await operator.phase("ScaleSucceeded", SCALEINS, "dried")
    await operator.assert_replayed("scripted")


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
    await operator.assert_replayed("scripted")
    assert "different: 0" in await operator.muster("replay", "--verify")
    await operator.kubectl("delete", "trainingjob", "scripted", "--wait=false")


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
