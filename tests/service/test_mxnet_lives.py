"""All four kinds of MXNet jobs side by side, and one that an older operator began; `tests/e2e` walks each of them."""

from typing import Any

import pytest

from shared.cluster import Resource
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxjob import MXJOB
from tests.frameworks.documents import Document, fioravanzo_job, kubeflow_mx_job, mlkube_job, mpba_job
from tests.kit.world import World

SIZES = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 2}


def applied(document: Document) -> Document:
    """As a user writes it: what the API server fills in is not there."""
    return {"metadata": {"name": document["metadata"]["name"]}, "spec": document["spec"]}


async def reaches(world: World, framework: Framework, phase: str, state: str, name: str = "mnist") -> Document:
    resource: Resource[Any] = framework.resource

    def there() -> bool:
        status = world.status(resource, name)
        return (status.get("phase"), status.get("state")) == (phase, state)

    await world.until(there, f"{framework.name} is {phase}, {state}")
    return world.status(resource, name)


async def test_all_kinds_live_side_by_side_under_one_name_in_one_namespace(world: World):
    jobs: list[tuple[Framework, Document]] = [
        (FIORAVANZO_MXJOB, {"replicaSpecs": fioravanzo_job(**SIZES)["spec"]["replicaSpecs"]}),
        (MLKUBE_MXJOB, {"jobMode": "dist", "replicaSpecs": mlkube_job(**SIZES)["spec"]["replicaSpecs"]}),
        (MPBA_MXJOB, mpba_job(**SIZES)["spec"]),
        (MXJOB, kubeflow_mx_job(Scheduler=1, Server=1, Worker=2)["spec"]),
    ]
    owners = {
        framework.name: world.apply(framework.resource, {"metadata": {"name": "mnist"}, "spec": spec}).metadata["uid"]
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
