"""What users do with one job while a call of a service meets trouble."""

from collections.abc import Awaitable, Callable, Mapping

from shared.cluster.kinds import PODS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import HOSTS_VERSION
from tests.kit.world import a_scale_in, a_scale_out, a_training_job
from tests.perturbation.stage import Stage

JOB = "resnet"
LAUNCHER = f"{JOB}-launcher"

Scenario = Callable[[Stage], Awaitable[None]]


async def _running(stage: Stage, **spec: object) -> None:
    await stage.apply(TRAININGJOBS, a_training_job(JOB, workers=2, **spec))
    await stage.phase(TRAININGJOBS, JOB, "Running")
    # What is overtaken by the next step is not made up for, and would be another end.
    await stage.announced("TrainingJobRunning")
    await stage.until(lambda: HOSTS_VERSION in _annotations(stage), "the launcher is told of its hosts")


def _annotations(stage: Stage) -> Mapping[str, str]:
    """Those of the launcher."""
    found: Mapping[str, str] = stage.shown(PODS, LAUNCHER).get("metadata", {}).get("annotations", {})
    return found


async def create(stage: Stage) -> None:
    await _running(stage)
    await stage.end_pod(LAUNCHER, 0)
    await stage.phase(TRAININGJOBS, JOB, "Succeeded")


async def scale_out(stage: Stage) -> None:
    await _running(stage)
    await stage.apply(SCALEOUTS, a_scale_out(1, name="out", job=JOB))
    await stage.phase(SCALEOUTS, "out", "ScaleSucceeded")


async def scale_in(stage: Stage) -> None:
    await _running(stage)
    await stage.apply(SCALEINS, a_scale_in(1, name="in", job=JOB))
    await stage.phase(SCALEINS, "in", "ScaleSucceeded")


async def restart(stage: Stage) -> None:
    """The launcher fails once."""
    await _running(stage, restartPolicy="OnFailure")
    await stage.end_pod(LAUNCHER, 1)
    await stage.phase(TRAININGJOBS, JOB, "Restarting")
    await stage.phase(TRAININGJOBS, JOB, "Running")


async def fail(stage: Stage) -> None:
    """The launcher fails for good, and the job's pods go."""
    await _running(stage, restartPolicy="Never", cleanPodPolicy="All")
    await stage.end_pod(LAUNCHER, 1)
    await stage.phase(TRAININGJOBS, JOB, "Failed")


async def delete(stage: Stage) -> None:
    await _running(stage)
    await stage.delete(TRAININGJOBS, JOB)
    await stage.until(lambda: not stage.shown(TRAININGJOBS, JOB), "the job is gone")


async def suspend(stage: Stage) -> None:
    """And resume."""
    await _running(stage)
    await stage.edit(TRAININGJOBS, JOB, {"spec": {"suspend": True}})
    await stage.phase(TRAININGJOBS, JOB, "Suspended")
    await stage.edit(TRAININGJOBS, JOB, {"spec": {"suspend": False}})
    await stage.phase(TRAININGJOBS, JOB, "Running")


SCENARIOS: Mapping[str, Scenario] = {
    "create": create,
    "scale-out": scale_out,
    "scale-in": scale_in,
    "restart": restart,
    "fail": fail,
    "delete": delete,
    "suspend": suspend,
}
