"""Scripts of scale requests that hang, fail, print without end, or are not there; and what a script is given."""

from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE, MakeHost
from tests.kit.operator import Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SCRIPTS = {
    "tell": r"""printf "%s|%s" "$1" "$WORD" > /scripts/told""",
    "hang": "sleep 1000",
    "flood": "head -c 100000000 /dev/zero; head -c 100000 /dev/urandom >&2",
    "killed": "exit 137",
}
WORD = "a b; touch /scripts/canary $(touch /scripts/canary) 'ü\""


@pytest.fixture(params=[*HOSTS, NODE], scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """Exec is a kubelet's."""
    made: MakeHost = request.param()
    return made


def a_scripted_job(name: str) -> dict[str, Any]:
    """Its launcher writes the scripts that its requests run, and waits."""
    lines = [f"cat > /scripts/{script} <<'END'\n{text}\nEND" for script, text in SCRIPTS.items()]
    job = a_job(name, "\n".join([*lines, "sleep 1000 & wait"]))
    spec = job["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]
    spec["volumes"] = [{"name": "scripts", "emptyDir": {}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    return job


def a_scripted(kind: str, name: str, job: str, script: str, **more: Any) -> dict[str, Any]:
    wish = {"toAdd": {"count": 1}} if kind == "ScaleOut" else {"toDelete": {"count": 1}}
    return a_request(kind, name, job, **wish, script=f"/scripts/{script}", **more)


async def test_21_a_script_gets_its_workers_and_its_environment_byte_for_byte(operator: Operator):
    await operator.apply(a_scripted_job("told"))
    await operator.phase("Running", TRAININGJOBS, "told")
    env = [{"name": "WORD", "value": WORD}]
    await operator.apply(a_scripted("ScaleOut", "told-out", "told", "tell", env=env))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "told-out")
    told = await operator.kubectl("exec", "told-launcher", "--", "cat", "/scripts/told")
    assert told == f"told-worker-2:1|{WORD}"
    await operator.kubectl("exec", "told-launcher", "--", "cat", "/scripts/canary", fails=True)
    await operator.apply(a_scripted("ScaleIn", "told-in", "told", "tell", env=env))
    await operator.phase("ScaleSucceeded", SCALEINS, "told-in")
    assert await operator.kubectl("exec", "told-launcher", "--", "cat", "/scripts/told") == told
    types = await operator.types("told")
    assert (types.count("ScriptStarted"), types.count("ScriptFinished")) == (2, 2)


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
    request = a_scripted("ScaleIn", name, "told", "tell")
    request["spec"] |= more
    await operator.apply(request)
    status = await operator.phase("ScaleFailed", SCALEINS, name)
    assert status["conditions"][-1]["reason"] == reason
    await operator.kubectl("exec", "told-launcher", "--", "cat", "/scripts/canary", fails=True)


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
    await operator.apply(a_scripted("ScaleIn", name, "told", script, timeout=3))
    status = await operator.phase("ScaleFailed", SCALEINS, name)
    assert status["conditions"][-1]["reason"] == reason
    assert await operator.pods("told") == ["told-launcher", "told-worker-0", "told-worker-1"]


async def test_what_a_script_prints_delays_no_other_script(operator: Operator):
    await operator.apply(a_scripted("ScaleOut", "flooded", "told", "flood"))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "flooded")
    await operator.assert_replayed("told")


def with_only(job: dict[str, Any], *programs: str) -> dict[str, Any]:
    """The job, with no other programs than these in its launcher's image."""
    place = {"name": "programs", "emptyDir": {}}
    copied = " ".join(f"/usr/bin/{program}" for program in programs)
    spec = job["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]
    copy = spec["containers"][0] | {"name": "copy", "command": ["sh", "-c", f"cp {copied} /programs"]}
    copy["volumeMounts"] = [{"name": "programs", "mountPath": "/programs"}]
    # A first process without a shell's traps hears no signal but the last.
    spec |= {"volumes": [place], "initContainers": [copy], "terminationGracePeriodSeconds": 1}
    spec["containers"][0] |= {
        "command": ["/usr/bin/sleep", "1000"],
        "volumeMounts": [{"name": "programs", "mountPath": "/usr/bin"}],
    }
    return job


async def test_8_a_launcher_without_ps_or_a_shell_is_scaled_all_the_same(operator: Operator):
    await operator.apply(
        with_only(a_job("no-shell", "", cleanPodPolicy="All"), "sleep"),
        with_only(a_job("no-ps", "", cleanPodPolicy="All"), "sleep", "sh", "cat"),
    )
    for job in ("no-shell", "no-ps"):
        await operator.phase("Running", TRAININGJOBS, job)
        await operator.kubectl("exec", f"{job}-launcher", "--", "ps", fails=True)
        await operator.apply(a_request("ScaleIn", f"{job}-in", job, toDelete={"count": 1}))
    # A script that cannot run is reported, and stops no later request.
    await operator.apply(
        a_scripted("ScaleOut", "no-shell-script", "no-shell", "tell"),
        a_request("ScaleOut", "no-shell-out", "no-shell", toAdd={"count": 1}),
    )
    for job in ("no-shell", "no-ps"):
        await operator.phase("ScaleSucceeded", SCALEINS, f"{job}-in")
    status = await operator.phase("ScaleFailed", SCALEOUTS, "no-shell-script")
    assert status["conditions"][-1]["reason"] == "CannotExecute"
    await operator.phase("ScaleSucceeded", SCALEOUTS, "no-shell-out")
    released = {s.subject.split(".")[2]: s.body for s in await operator.log() if s.subject.endswith(".WorkersReleased")}
    assert b"DrainTimed" in released["no-shell"]
    assert b"Drained" in released["no-ps"], "this one can be looked into"
    await operator.kubectl("delete", "trainingjob", "no-shell", "no-ps", "--wait=false")


async def test_28_one_hung_script_and_one_broken_job_delay_no_other_job(operator: Operator):
    broken = a_job("broken", "", worker={"name": "main", "image": "missing/such:1", "imagePullPolicy": "Never"})
    await operator.apply(a_scripted("ScaleOut", "hung", "told", "hang", timeout=1000), broken)
    await operator.phase("Scaling", SCALEOUTS, "hung")

    async def hangs() -> bool:
        types = await operator.types("told")
        return types.count("ScriptStarted") == types.count("ScriptFinished") + 1

    await operator.until(hangs, lambda: "the script does not run")
    await operator.apply(a_scripted_job("busy"))
    await operator.phase("Running", TRAININGJOBS, "busy")
    await operator.apply(a_scripted("ScaleOut", "busy-out", "busy", "tell"))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "busy-out")
    await operator.apply(a_request("ScaleIn", "busy-in", "busy", toDelete={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEINS, "busy-in")
    assert await hangs(), "all that was done while it hung"
    assert (await operator.status(TRAININGJOBS, "told"))["currentScaler"] == "ScaleOut:default/hung"
    await operator.kubectl("delete", "trainingjob", "told", "busy", "broken", "--wait=false")
