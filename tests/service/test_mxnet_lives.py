"""Lives of MXNet jobs with the real services, and all four kinds side by side."""

from typing import Any

import pytest

from shared.cluster import Resource
from shared.cluster.kinds import SERVICES
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxjob import MXJOB
from tests.frameworks.documents import ABSENT, Document, changed, fioravanzo_job, kubeflow_mx_job, mlkube_job, mpba_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World

SIZES = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 2}


def applied(document: Document) -> Document:
    """As a user writes it: what the API server fills in is not there."""
    return {"metadata": {"name": document["metadata"]["name"]}, "spec": document["spec"]}


def uids(world: World) -> dict[str, str]:
    return {name: held.metadata["uid"] for name, held in world.pods().items()}


async def reaches(world: World, framework: Framework, phase: str, state: str, name: str = "mnist") -> Document:
    resource: Resource[Any] = framework.resource

    def there() -> bool:
        status = world.status(resource, name)
        return (status.get("phase"), status.get("state")) == (phase, state)

    await world.until(there, f"{framework.name} is {phase}, {state}")
    return world.status(resource, name)


KINDS = [
    pytest.param(FIORAVANZO_MXJOB, fioravanzo_job(**SIZES), "mnist-{}-1kkf-{}", id="fioravanzo"),
    pytest.param(MPBA_MXJOB, mpba_job(**SIZES), "{}-mnist-{}", id="mpba"),
    pytest.param(MLKUBE_MXJOB, mlkube_job(**SIZES), "mnist-{}-1kkf-{}", id="mlkube"),
]


@pytest.mark.parametrize(("framework", "document", "names"), KINDS)
@in_virtual_time
async def test_servers_and_workers_come_back_and_the_schedulers_success_is_the_jobs(
    framework: Framework, document: Document, names: str
):
    async with World() as world:
        world.apply(framework.resource, applied(document))
        await reaches(world, framework, "Running", "Running")
        await world.quiet()
        all_pods = {names.format(role, index) for role, index in [("scheduler", 0), ("server", 0), *_WORKERS]}
        assert world.pods().keys() == all_pods
        assert {held.at[1] for held in world.store.find(SERVICES)} == all_pods
        before = uids(world)
        for role, code in (("worker", 1), ("server", 137)):
            world.exit_codes[name := names.format(role, 0)] = code
            await world.until(
                lambda name=name: uids(world).get(name, before[name]) != before[name],  # type: ignore[misc]
                f"{name} came back",
            )
        world.exit_codes[done := names.format("worker", 1)] = 0
        await world.quiet()
        assert uids(world)[done] == before[done], "what is done is not begun again"
        assert uids(world)[names.format("scheduler", 0)] == before[names.format("scheduler", 0)]
        world.exit_codes[names.format("scheduler", 0)] = 0
        status = await reaches(world, framework, "Done", "Succeeded")
        assert status["replicaStatuses"][0]["ReplicasStates"] == {"Succeeded": 1}
        await world.pass_seconds(40)
        await world.quiet()
        ended = {names.format("scheduler", 0), done}
        assert world.pods().keys() == (all_pods if framework is FIORAVANZO_MXJOB else ended)


_WORKERS = [("worker", 0), ("worker", 1)]


@pytest.mark.parametrize(("framework", "document", "names"), KINDS)
@in_virtual_time
async def test_a_scheduler_that_was_killed_begins_the_whole_job_again_and_one_that_fails_ends_it(
    framework: Framework, document: Document, names: str
):
    scheduler = names.format("scheduler", 0)
    async with World() as world:
        world.apply(framework.resource, applied(document))
        await reaches(world, framework, "Running", "Running")
        await world.quiet()
        before = uids(world)
        world.exit_codes[scheduler] = 137
        await world.until(
            lambda: uids(world).keys() == before.keys() and not {*uids(world).values()} & {*before.values()},
            "all pods are others",
        )
        await reaches(world, framework, "Running", "Running")
        assert world.job("mnist").attempt.number == 1
        world.exit_codes[scheduler] = 3
        status = await reaches(world, framework, "Done", "Failed")
        assert "exited with 3" in status["reason"]
        await world.quiet()
        # GPUs are not kept by pods that never end, except where people count on finding them.
        assert world.pods().keys() == (before.keys() if framework is FIORAVANZO_MXJOB else {scheduler})


@in_virtual_time
async def test_a_worker_of_mx_operator_that_ended_well_restarts_unless_the_job_ends_meanwhile():
    job = applied(fioravanzo_job(**SIZES))
    for index in range(3):
        job = changed(job, f"spec.replicaSpecs[{index}].template.spec.restartPolicy", ABSENT)
    worker, server, scheduler = (f"mnist-{role}-1kkf-0" for role in ("worker", "server", "scheduler"))
    async with World() as world:
        world.apply(FIORAVANZO_MXJOB.resource, job)
        await reaches(world, FIORAVANZO_MXJOB, "Running", "Running")
        await world.quiet()
        before = uids(world)
        for name in (worker, server):
            world.exit_codes[name] = 0
            await world.until(lambda name=name: uids(world).get(name, before[name]) != before[name], f"{name} is back")  # type: ignore[misc]
        assert uids(world)[scheduler] == before[scheduler]
        await reaches(world, FIORAVANZO_MXJOB, "Running", "Running")
        await world.quiet()
        before = uids(world)
        # At the end of a training all processes exit at about the same time: none of them restarts.
        world.exit_codes[worker] = world.exit_codes[server] = 0
        await world.pass_seconds(1)
        world.exit_codes[scheduler] = 0
        await reaches(world, FIORAVANZO_MXJOB, "Done", "Succeeded")
        await world.pass_seconds(600)
        assert uids(world) == before


@in_virtual_time
async def test_all_kinds_live_side_by_side_under_one_name_in_one_namespace():
    jobs: list[tuple[Framework, Document]] = [
        (FIORAVANZO_MXJOB, {"replicaSpecs": fioravanzo_job(**SIZES)["spec"]["replicaSpecs"]}),
        (MLKUBE_MXJOB, {"jobMode": "dist", "replicaSpecs": mlkube_job(**SIZES)["spec"]["replicaSpecs"]}),
        (MPBA_MXJOB, mpba_job(**SIZES)["spec"]),
        (MXJOB, kubeflow_mx_job(Scheduler=1, Server=1, Worker=2)["spec"]),
    ]
    async with World() as world:
        owners = {
            framework.name: world.apply(framework.resource, {"metadata": {"name": "mnist"}, "spec": spec}).metadata[
                "uid"
            ]
            for framework, spec in jobs
        }
        await world.until(lambda: len(world.pods()) == 16, "each has its four pods")
        for framework, _ in jobs[:3]:
            await reaches(world, framework, "Running", "Running")
        await world.shows("Running", "MXJobRunning", MXJOB.resource, "mnist")
        await world.quiet()
        for owner in owners.values():
            assert len([held for held in world.owned_by(owner) if held.at[1] in world.pods()]) == 8, "and Services"
        # The end of one is not the end of another.
        world.exit_codes["mnist-scheduler-0"] = 0
        await world.shows("Succeeded", "MXJobSucceeded", MXJOB.resource, "mnist")
        world.exit_codes["scheduler-mnist-0"] = 1
        await reaches(world, MPBA_MXJOB, "Done", "Failed")
        await world.quiet()
        for framework in (FIORAVANZO_MXJOB, MLKUBE_MXJOB):
            assert world.status(framework.resource, "mnist")["phase"] == "Running"


@pytest.mark.parametrize("takes_over", [False, True])
@pytest.mark.parametrize(("phase", "state"), [("Done", "Succeeded"), ("Running", "Running")])
@in_virtual_time
async def test_what_an_older_operator_began_is_left_alone(phase: str, state: str, takes_over: bool):
    """Its pods have names that cannot be guessed: a job that seems to have none would begin a second time."""
    theirs = {"phase": phase, "state": state, "reason": "", "replicaStatuses": []}
    resource = FIORAVANZO_MXJOB.resource
    world = World(takes_over=takes_over)
    world.apply(resource, applied(fioravanzo_job(**SIZES)))
    world.store.patch(resource, "team-a", "mnist", {"status": theirs}, subresource="status")
    async with world:
        await world.quiet()
        assert not world.pods()
        assert world.status(resource, "mnist") == theirs
