"""Who decides how many workers train, row by row of the table in `docs/capacity.md`, where all of them act at once.

A person, an autoscaler, a queue of Kueue and the room there is; each is bounded by those above it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies import capacity
from shared.job.views import AUTOSCALER
from tests.kit.world import NAMESPACE, a_scale_in, a_scale_out
from tests.service.test_queues import Queued, counts

LEAST, SIZE, MOST = 2, 4, 8
LAUNCHER = 1


def writes(world: Queued, manager: str, workers: int) -> None:
    """A client sets the size by the subresource `scale`."""
    entry = {"manager": manager, "operation": "Update", "subresource": "scale", "fieldsType": "FieldsV1"}
    entry |= {"time": f"2030-01-01T00:00:{world.store.version % 60:02}Z", "fieldsV1": {"f:spec": {}}}
    patch = {"spec": {"etReplicaSpecs": {"worker": {"replicas": workers}}}, "metadata": {"managedFields": [entry]}}
    world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", patch)


def autoscales(world: Queued, workers: int) -> None:
    writes(world, AUTOSCALER[0], workers)


@asynccontextmanager
async def a_contended_job(*, room: int) -> AsyncIterator[Queued]:
    """A job of two to eight workers in a queue, which asks for four and has quota for them."""
    async with Queued() as world:
        world.room = room + LAUNCHER
        world.join(workers=SIZE, least=LEAST)
        await world.admit()
        await world.running()
        await admits(world, SIZE)
        await world.until(lambda: len(world.hosts()) == min(SIZE, room), "it trains with what there is room for")
        yield world


async def admits(world: Queued, workers: int) -> None:
    """Kueue admits the Workload with so many workers in the place of the one before."""

    def newest() -> str:
        return max(world.workloads(), key=int)

    await world.until(lambda: counts(world.workloads()[newest()])["worker"] == workers, "its Workload")
    after = newest()
    await world.admit(after)
    await world.answer(str(int(after) - 1), "Finished", reason="WorkloadSliceReplaced")


def decided(world: Queued) -> list[str]:
    return capacity.deciders(world.job())


async def test_1_the_resource_bounds_what_is_asked_for_though_there_are_quota_and_room():
    async with a_contended_job(room=MOST) as world:
        world.apply(SCALEOUTS, a_scale_out(MOST - SIZE + 1))
        await world.shows("ScaleFailed", "AboveMaximum", SCALEOUTS, "out")
        world.apply(SCALEINS, a_scale_in(SIZE - LEAST + 1))
        await world.shows("ScaleFailed", "BelowMinimum", SCALEINS, "in")
        await world.quiet()
        assert len(world.hosts()) == SIZE
        assert decided(world) == ["its resource asked for 4 workers"]


async def test_2_a_queue_bounds_what_an_autoscaler_and_a_person_ask_for_though_there_is_room():
    async with a_contended_job(room=MOST) as world:
        autoscales(world, MOST)
        await world.until(lambda: len(decided(world)) == 2, "it waits for quota")
        assert decided(world) == [
            "an autoscaler (kube-controller-manager, scale) asked for 8 workers",
            "its queue admitted 4",
        ]
        await world.pass_seconds(60)
        assert len(world.pods()) == SIZE + LAUNCHER
        await world.answer(max(world.workloads(), key=int), "Evicted", reason="Preempted")
        await world.answer(min(world.workloads(), key=int), "Evicted", reason="Preempted")
        await world.phase("Suspended")
        assert not world.pods()


async def test_3_the_newest_request_sets_the_size_whoever_made_it():
    async with a_contended_job(room=MOST) as world:
        autoscales(world, 3)
        await world.until(lambda: len(world.hosts()) == 3, "the autoscaler's")
        writes(world, "kubectl", 2)
        await world.until(lambda: len(world.hosts()) == 2, "the person's")
        await world.until(lambda: counts(world.workloads()["2"])["worker"] == 2, "its quota is given back")
        assert decided(world) == ["kubectl (scale) asked for 2 workers"]
        autoscales(world, 3)
        await admits(world, 3)
        await world.until(lambda: len(world.hosts()) == 3, "the autoscaler asks again")
        world.apply(SCALEINS, a_scale_in(1))
        await world.until(lambda: len(world.hosts()) == 2, "the request's")
        await world.quiet()
        assert decided(world) == ["ScaleIn in asked for 2 workers"]


async def test_4_the_kube_scheduler_says_how_many_of_the_admitted_size_train():
    async with a_contended_job(room=3) as world:
        assert decided(world) == ["its resource asked for 4 workers", "the kube-scheduler finds no node for 1"]
        autoscales(world, MOST)
        await world.until(lambda: len(decided(world)) == 3, "it waits for quota and for room")
        assert decided(world) == [
            "an autoscaler (kube-controller-manager, scale) asked for 8 workers",
            "its queue admitted 4",
            "the kube-scheduler finds no node for 1",
        ]
        assert len(world.hosts()) == 3
        world.room = SIZE + LAUNCHER
        await world.until(lambda: len(world.hosts()) == SIZE, "there is room for what the queue admitted")
        await admits(world, MOST)
        await world.pass_seconds(60)
        assert len(world.hosts()) == SIZE
        world.room = MOST + LAUNCHER
        await world.until(lambda: len(world.hosts()) == MOST, "there is room for all")
