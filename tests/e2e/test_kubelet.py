"""Stories in which the kubelet has a part, with kubectl: attempts, pauses and limits, scripts, and volumes.

A script hangs, fails, prints without end, or is not there; what it is given arrives byte for byte, and is no code.
"""

import json
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import History
from shared.job.policies.replacement import new_workers
from tests.kit.builders import workers
from tests.kit.hosts import HOSTS
from tests.kit.operator import FOR_EVER, Operator, a_job, a_request, worker_that

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = [HOSTS[0], HOSTS[2]]
"""Ends of containers are a kubelet's to tell: `tests/node` tells these stories on a real one, too."""

SPIN = "while :; do sleep 0.05; done"
UNTIL_TOLD = f"trap 'exit 3' USR1; {SPIN}"


async def test_12_a_restart_keeps_the_size_and_the_history(operator: Operator):
    await operator.apply(a_job("again", UNTIL_TOLD, restartPolicy="OnFailure", backoffLimit=1))
    await operator.phase("Running", TRAININGJOBS, "again")
    await operator.apply(a_request("ScaleOut", "again-out", "again", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "again-out")
    await operator.signal("again-launcher")
    await operator.phase("Restarting", TRAININGJOBS, "again")
    await operator.phase("Running", TRAININGJOBS, "again")
    await operator.signal("again-launcher")
    status = await operator.phase("Failed", TRAININGJOBS, "again")
    assert status["restartCount"] == 1
    known = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert (known["ScaleSucceeded"], known["Restarting"], known["Failed"]) == ("True", "False", "True")
    job = await operator.job("again")
    assert (job.attempt.number, job.scaling.size) == (1, 3)
    assert "exited with 3" in status["conditions"][-1]["message"]
    await operator.assert_replayed("again")


async def test_12_terminating_pods_are_waited_for(operator: Operator):
    # Of two workers the second one does not want to go, and the name that the next attempt begins with is free.
    stubborn = worker_that(f"case $n in *-worker-1) trap '' TERM;; esac; {SPIN}")
    job = a_job("slowly", FOR_EVER, worker=stubborn)
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    await operator.apply(job)
    await operator.phase("Running", TRAININGJOBS, "slowly")
    await operator.apply(a_request("ScaleIn", "slowly-in", "slowly", toDelete={"podNames": ["slowly-worker-0"]}))
    await operator.phase("ScaleSucceeded", SCALEINS, "slowly-in")
    # By hand, as there is no other wait between two attempts then.
    await operator.muster("restart", "trainingjob/slowly")
    await operator.has_pods("slowly", "slowly-launcher", "slowly-worker-0")
    history = History((await operator.job("slowly")).key)
    for stored in await operator.log():
        if stored.subject.split(".")[3] == history.job.key.uid:
            history.fold(stored)
            attempts = {pod.attempt for pod in history.job.pods.views.values()}
            assert len(attempts) <= 1, f"pods of the attempts {attempts} at {stored.subject}"
    assert attempts == {1}
    await operator.delete("slowly")


def with_sidecar(script: str, job: dict[str, Any], role: str) -> dict[str, Any]:
    """The job, with a second container in the pods of a role."""
    # A kubelet tells of containers by name.
    side = worker_that(script) | {"name": "a-side"}
    job["spec"]["etReplicaSpecs"][role]["restartPolicy"] = "ExitCode"
    job["spec"]["etReplicaSpecs"][role]["template"]["spec"]["containers"].append(side)
    return job


async def sides_ended(operator: Operator, job: str, count: int) -> None:
    """Wait until so many sidecars ended; the log says nothing of that, as each training goes on."""
    selector = f"training-job-name={job}"

    async def so() -> bool:
        pods = json.loads(await operator.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
        statuses = [known for pod in pods for known in pod["status"].get("containerStatuses", ())]
        return sum(known["name"] == "a-side" and "terminated" in known["state"] for known in statuses) == count

    await operator.until(so, lambda: f"not {count} sidecars have ended")
    assert not any(pod.exits for pod in (await operator.job(job)).pods.views.values())


def exiting(first: int, others: int) -> str:
    """A script that exits with a code by the worker's number, when it is told to."""
    return f"case $n in *-worker-0) code={first};; *) code={others};; esac; trap 'exit $code' USR1; {SPIN}"


async def test_13_exit_codes_of_workers_are_those_of_the_training_container(operator: Operator):
    job = a_job("codes", FOR_EVER, worker=worker_that(exiting(1, 137)))
    await operator.apply(with_sidecar(exiting(137, 1), job, "worker"))
    await operator.phase("Running", TRAININGJOBS, "codes")
    for pod in ("codes-worker-0", "codes-worker-1"):
        await operator.signal(pod, "a-side")
    await sides_ended(operator, "codes", 2)
    # Their ends end nothing; a member that is not Ready for a while stays one.
    await operator.members("codes", "codes-worker-0", "codes-worker-1")
    await operator.signal("codes-worker-0")
    await operator.members("codes", "codes-worker-1")
    await operator.signal("codes-worker-1")
    await operator.members("codes", "codes-worker-2")
    assert new_workers(await operator.job("codes"), 1) == workers(3), "1 is for good, 137 is replaced"
    await operator.delete("codes")


async def test_13_the_exit_code_of_the_launcher_says_whether_the_job_begins_again(operator: Operator):
    jobs = {
        name: with_sidecar(f"exit {side}", a_job(name, f"trap 'exit {code}' USR1; {SPIN}"), "launcher")
        for name, code, side in (("for-good", 1, 137), ("once-more", 137, 1))
    }
    await operator.apply(*jobs.values())
    for name in jobs:
        await operator.phase("Running", TRAININGJOBS, name)
        await sides_ended(operator, name, 1)
        await operator.tell_to_end(name)
    status = await operator.phase("Failed", TRAININGJOBS, "for-good")
    assert "exited with 1 " in status["conditions"][-1]["message"]
    assert status["restartCount"] == 0

    async def restarting() -> bool:
        return "JobRestarting" in await operator.types("once-more")

    await operator.until(restarting, lambda: "it does not begin again")
    [restart] = [s.body for s in await operator.log() if ".once-more." in s.subject and "JobRestarting" in s.subject]
    assert b"exited with 137 " in restart
    await operator.delete(*jobs)


async def test_25_a_suspended_job_resumes_with_its_size(operator: Operator):
    await operator.apply(a_job("pause", FOR_EVER))
    await operator.phase("Running", TRAININGJOBS, "pause")
    await operator.apply(a_request("ScaleOut", "pause-out", "pause", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "pause-out")
    await operator.muster("suspend", "trainingjob/pause")
    await operator.leaves_no_pod("pause")
    assert await operator.pods("pause") == []
    await operator.muster("resume", "trainingjob/pause")
    await operator.phase("Running", TRAININGJOBS, "pause")
    assert await operator.pods("pause") == ["pause-launcher", *(f"pause-worker-{index}" for index in range(3))]
    # By the annotation, as et-operator's users do it.
    annotation = "job-supervisor.kube-ai.io/job-suspended"
    await operator.kubectl("annotate", "trainingjob", "pause", f"{annotation}=true")
    await operator.phase("Suspended", TRAININGJOBS, "pause")
    await operator.kubectl("annotate", "trainingjob", "pause", f"{annotation}-")
    status = await operator.phase("Running", TRAININGJOBS, "pause")
    assert status["restartCount"] == 0
    await operator.assert_replayed("pause")
    await operator.delete("pause")


async def test_the_usual_tools_scale_a_job(operator: Operator):
    await operator.apply(a_job("usual", FOR_EVER))
    await operator.phase("Running", TRAININGJOBS, "usual")
    await operator.kubectl("scale", "trainingjob/usual", "--replicas=4")
    await operator.members("usual", *(f"usual-worker-{index}" for index in range(4)))
    await operator.kubectl("scale", "trainingjob/usual", "--replicas=1")
    await operator.members("usual", "usual-worker-0")
    refused = await operator.kubectl("scale", "trainingjob/usual", "--replicas=9", fails=True)
    assert "maxReplicas" in refused
    status = await operator.phase("Running", TRAININGJOBS, "usual")
    assert status["replicas"] == 1
    await operator.assert_replayed("usual")
    await operator.delete("usual")


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


SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}


async def test_a_volume_that_cannot_be_mounted_is_told_in_the_words_of_the_kubelet(operator: Operator):
    job = a_job("lacking", FOR_EVER)
    template = job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]
    template["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    template["containers"][0]["volumeMounts"] = [{"name": "settings", "mountPath": "/settings"}]
    await operator.apply(job)
    words = 'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'
    told = f"lacking-worker-0: FailedMount: {words}"
    status = await operator.shows(TRAININGJOBS, "lacking", lambda status: told in str(status), told)
    (ready,) = (known for known in status["conditions"] if known["type"] == "WorkersReady")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "FailedMount", told)
    assert told in " ".join((await operator.muster("why", "trainingjob/lacking")).split())

    async def announced() -> bool:
        about = "involvedObject.name=lacking,involvedObject.kind=TrainingJob,reason=FailedMount"
        return json.dumps(words)[1:-1] in await operator.kubectl(
            "get", "events", f"--field-selector={about}", "-o", "json"
        )

    await operator.until(announced, lambda: "no Kubernetes Event tells it")
    await operator.apply(SETTINGS)
    status = await operator.phase("Running", TRAININGJOBS, "lacking")
    assert words not in str(status)
    await operator.delete("lacking")
