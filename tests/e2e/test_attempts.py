"""Attempts, pauses and limits as a job's user sees them, with kubectl."""

import json
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import History
from shared.job.policies.replacement import new_workers
from tests.kit.builders import workers
from tests.kit.hosts import HOSTS, NODE
from tests.kit.operator import FOR_EVER, Operator, a_job, a_request, worker_that

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = [HOSTS[0], HOSTS[2], NODE]
"""Ends of containers are a kubelet's to tell."""

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
