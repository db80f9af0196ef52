"""The lives of two jobs in a queue, from their admission over a preemption to their end, with or without Kueue."""

import json

from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import Operator, a_request, of_kubeflow
from tests.queues.jobs import POOL, a_job, a_training_job, by_capacity, give
from tests.queues.recording import Chapters

ELASTIC, STOCK, CAPACITY = "elastic", "stock", "capacity"
RESOURCES = {ELASTIC: TRAININGJOBS, STOCK: PYTORCHJOB.resource, CAPACITY: TRAININGJOBS}
URGENT = "urgent"
QUOTA = "400m"
"""Room for four pods."""


async def of_a_training_job(operator: Operator, run: Chapters) -> None:
    """Muster writes its Workloads: it grows by a second one."""
    await operator.apply(a_training_job(ELASTIC))
    async with run.chapter("begins"):
        await operator.comes_to("Running", TRAININGJOBS, ELASTIC)
    assert await _pools(operator, f"training-job-name={ELASTIC}") == [POOL, POOL]
    await operator.apply(a_request("ScaleOut", "out", ELASTIC, toAdd={"count": 1}))
    async with run.chapter("grows"):
        await operator.phase("ScaleSucceeded", SCALEOUTS, "out")
    assert (await operator.job(ELASTIC)).attempt.number == 0
    await _preempted(operator, run, ELASTIC)
    await operator.members(ELASTIC, f"{ELASTIC}-worker-0", f"{ELASTIC}-worker-1")
    await operator.tell_to_end(ELASTIC)
    async with run.chapter("ends"):
        await operator.comes_to("Succeeded", TRAININGJOBS, ELASTIC)


async def of_a_pytorchjob(operator: Operator, run: Chapters) -> None:
    """Kueue writes its Workload, suspends it and resumes it."""
    job = a_job("PyTorchJob", STOCK, workers=3, cpu="100m")
    if not run.real:
        # What Kueue's webhook does.
        job["spec"]["runPolicy"] = {"suspend": True}
    await operator.apply(job)
    async with run.chapter("begins"):
        await operator.comes_to("Running", PYTORCHJOB.resource, STOCK)
    assert await _pools(operator, of_kubeflow(STOCK)) == [POOL] * 3
    await _preempted(operator, run, STOCK)
    assert await _pools(operator, of_kubeflow(STOCK)) == [POOL] * 3
    for number in range(3):
        await operator.signal(f"{STOCK}-worker-{number}", "pytorch")
    async with run.chapter("ends"):
        await operator.comes_to("Succeeded", PYTORCHJOB.resource, STOCK)


async def of_a_job_by_capacity(operator: Operator, run: Chapters) -> None:
    """It asks for less until Kueue has quota, and for more when some is free: also beside the job that preempted it."""
    workers = [f"{CAPACITY}-worker-{number}" for number in range(4)]
    await operator.apply(by_capacity(CAPACITY))
    async with run.chapter("takes what there is"):
        await operator.members(CAPACITY, *workers[:3])
    await give(operator, "500m")
    async with run.chapter("takes the rest"):
        await operator.members(CAPACITY, *workers)
    if run.real:
        await operator.apply(a_training_job(URGENT, urgent=True))
    async with run.chapter("is preempted"):
        await operator.members(CAPACITY, *workers[:2])
    assert (await operator.job(CAPACITY)).attempt.number == 1
    if run.real:
        await operator.phase("Running", TRAININGJOBS, URGENT)
        await operator.kubectl("delete", "trainingjob", URGENT)
    async with run.chapter("takes it back"):
        await operator.members(CAPACITY, *workers)
    assert (await operator.job(CAPACITY)).attempt.number == 1


async def _preempted(operator: Operator, run: Chapters, job: str) -> None:
    """A job of higher priority comes and goes."""
    if run.real:
        await operator.apply(a_training_job(URGENT, urgent=True))
    async with run.chapter("is preempted"):
        await operator.comes_to("Suspended", RESOURCES[job], job)
    if run.real:
        await operator.comes_to("Running", TRAININGJOBS, URGENT)
        await operator.kubectl("delete", "trainingjob", URGENT)
    async with run.chapter("comes back"):
        await operator.comes_to("Running", RESOURCES[job], job)


async def _pools(operator: Operator, selector: str) -> list[str]:
    """The labels that the pods ask of their nodes."""
    listed = json.loads(await operator.kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return [label for pod in listed for label in pod["spec"].get("nodeSelector", {})]


LIVES = {ELASTIC: of_a_training_job, STOCK: of_a_pytorchjob, CAPACITY: of_a_job_by_capacity}
"""Each is of the job of that name."""
