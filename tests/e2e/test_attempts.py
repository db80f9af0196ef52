"""Attempts, pauses and limits as a job's user sees them, with kubectl."""

import pytest

from shared.frameworks.training import SCALEOUTS, TRAININGJOBS
from tests.kit.hosts import HOSTS, NODE, MakeHost
from tests.kit.operator import SHELL, Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

FOR_EVER = "sleep 1000 & wait"
UNTIL_THREE = "until [ $(/etc/edl/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.05; done; exit 3"


@pytest.fixture(params=[*HOSTS, NODE], scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """Ends of containers are a kubelet's to tell."""
    made: MakeHost = request.param()
    return made


async def end(operator: Operator, job: str) -> None:
    await operator.kubectl("delete", "trainingjob", job, "--wait=false")


async def test_12_a_restart_keeps_the_size_and_the_history(operator: Operator):
    await operator.apply(a_job("again", UNTIL_THREE, restartPolicy="OnFailure", backoffLimit=1))
    await operator.phase("Running", TRAININGJOBS, "again")
    await operator.apply(a_request("ScaleOut", "again-out", "again", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "again-out")
    await operator.phase("Restarting", TRAININGJOBS, "again")
    status = await operator.phase("Failed", TRAININGJOBS, "again")
    assert status["restartCount"] == 1
    types = [condition["type"] for condition in status["conditions"]]
    assert {"Created", "ScaleSucceeded", "Restarting", "Failed"} <= set(types)
    job = await operator.job("again")
    assert (job.attempt, job.size, job.next_index) == (1, 3, 3)
    assert "exited with 3" in status["conditions"][-1]["message"]
    await operator.assert_replayed("again")


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
    await end(operator, "pause")


async def test_a_job_is_restarted_by_hand(operator: Operator):
    await operator.apply(a_job("anew", FOR_EVER))
    await operator.phase("Running", TRAININGJOBS, "anew")
    before = await operator.job("anew")
    await operator.muster("restart", "trainingjob/anew")
    status = await operator.phase("Running", TRAININGJOBS, "anew")
    job = await operator.job("anew")
    assert (status["restartCount"], job.attempt) == (0, 1)
    assert not set(before.pods) & set(job.pods)
    await end(operator, "anew")


async def test_a_deadline_ends_a_job_by_itself(operator: Operator):
    await operator.apply(a_job("brief", FOR_EVER, activeDeadlineSeconds=5, ttlSecondsAfterFinished=3))
    status = await operator.phase("Failed", TRAININGJOBS, "brief")
    assert status["conditions"][-1]["reason"] == "DeadlineExceeded"
    # And its time to live the resource.
    await operator.leaves_nothing("brief", "trainingjobs,pods,services,configmaps,secrets")


async def test_14_a_worker_that_is_deleted_or_dies_is_replaced(operator: Operator):
    # As if somebody had killed it: no process can do that to the first one of its own container.
    script = "trap 'exit 137' USR1; trap 'exit 0' TERM; sleep 1000 & wait"
    killed = {"name": "main", "image": SHELL, "command": ["sh", "-c", script]}
    job = a_job("heal", FOR_EVER, worker=killed)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = "ExitCode"
    await operator.apply(job)
    await operator.phase("Running", TRAININGJOBS, "heal")
    await operator.kubectl("delete", "pod", "heal-worker-1", "--wait=false")
    await operator.members("heal", "heal-worker-0", "heal-worker-2")
    await operator.signal("heal-worker-0")
    await operator.members("heal", "heal-worker-2", "heal-worker-3")
    await operator.assert_replayed("heal")
    await end(operator, "heal")


async def test_27_what_cannot_start_is_told_and_ends(operator: Operator):
    job = a_job("stuck", FOR_EVER, schedulingTimeoutSeconds=8)
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["nodeSelector"] = {"nobody": "has-it"}
    await operator.apply(job)
    status = await operator.phase("Failed", TRAININGJOBS, "stuck")
    assert status["conditions"][-1]["reason"] == "SchedulingTimeout"
    assert "stuck-worker-0: Unschedulable" in status["conditions"][-1]["message"]
    told = await operator.kubectl("describe", "trainingjob", "stuck")
    assert "WorkersReady: stuck-worker-0: Unschedulable" in told


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
    await end(operator, "usual")
