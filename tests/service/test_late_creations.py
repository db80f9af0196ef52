"""A creation whose answer never came and that lands late: no pod of an earlier attempt comes beside the next one."""

import asyncio
from typing import Any

import pytest

from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.errors import Transient
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import ATTEMPT
from tests.kit.world import World, a_scale_out, a_training_job
from tests.memory.cluster import MemoryCluster


class Slow(MemoryCluster):
    """The API server carries the first creation of one pod out after some seconds, or not after its time."""

    late = ""
    seconds = 0.0
    under_way = False

    async def create(self, resource: Resource[Any], namespace: str, manifest: Any, *, within: int = 0) -> Any:
        if manifest["metadata"]["name"] != self.late or resource is not PODS or self.under_way:
            return await super().create(resource, namespace, manifest, within=within)
        self.under_way = True
        if not within or self.seconds <= within:
            asyncio.get_running_loop().call_later(self.seconds, self._store.create, PODS, namespace, manifest)
        await asyncio.sleep(30)
        raise Transient("no answer")


class SlowWorld(World):
    def __init__(self, seconds: float, late: str = "resnet-launcher") -> None:
        super().__init__()
        self.seconds = seconds
        self.late = late
        self.slow = Slow(self.store)

    async def cluster(self, author: str) -> MemoryCluster:
        if author != "scheduler":
            return await super().cluster(author)
        self.slow = Slow(self.store)
        self.slow.seconds, self.slow.late = self.seconds, self.late
        return self.slow


def attempts(world: World) -> frozenset[str]:
    """Those that have pods now."""
    return frozenset(held.manifest["metadata"]["labels"][ATTEMPT] for held in world.pods().values())


@pytest.mark.parametrize("seconds", [12.0, 40.0], ids=["before the server's deadline", "after it"])
async def test_a_pod_whose_creation_lands_late_never_is_beside_the_next_attempt(seconds: float):
    async with SlowWorld(seconds) as world:
        world.apply(TRAININGJOBS, a_training_job(workers=2))
        await world.until(lambda: world.slow.under_way)
        world.stuck |= {"resnet-worker-0", "resnet-worker-1"}
        world.annotate("resnet", {"muster.dev/restart": "now"})
        together = set[frozenset[str]]()
        for _ in range(600):
            together.add(attempts(world))
            await asyncio.sleep(0.1)
        assert together == {frozenset(), frozenset({"0"}), frozenset({"1"})}
        assert world.job().attempt.number == 1


async def test_nor_is_one_whose_slot_was_released_before_the_end():
    async with SlowWorld(12.0, "resnet-worker-2") as world:
        together = set[frozenset[str]]()
        world.store.listeners.append(lambda *_: together.add(attempts(world)))
        await world.trains(workers=2)
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.until(lambda: world.slow.under_way)
        world.delete(SCALEOUTS, "out")
        await world.until(lambda: world.count("ScaleCancelled") == 1)
        world.annotate("resnet", {"muster.dev/restart": "now"})
        await world.pass_seconds(60)
        assert together == {frozenset(), frozenset({"0"}), frozenset({"1"})}


class Sluggish(MemoryCluster):
    """The API server takes its time for each creation of a pod."""

    begun = 0

    async def create(self, resource: Resource[Any], namespace: str, manifest: Any, *, within: int = 0) -> Any:
        if resource is PODS:
            self.begun += 1
            await asyncio.sleep(10)
        return await super().create(resource, namespace, manifest, within=within)


class SluggishWorld(World):
    async def cluster(self, author: str) -> MemoryCluster:
        if author != "scheduler":
            return await super().cluster(author)
        self.sluggish = Sluggish(self.store)
        return self.sluggish


async def test_nor_is_one_whose_creation_waited_for_its_turn_until_its_attempt_was_over(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("shared.runtime.acts.EFFECTS_PER_JOB", 2)
    async with SluggishWorld() as world:
        together = set[frozenset[str]]()
        world.store.listeners.append(lambda *_: together.add(attempts(world)))
        world.apply(TRAININGJOBS, a_training_job(workers=8))
        await world.until(lambda: world.sluggish.begun > 0)
        world.annotate("resnet", {"muster.dev/restart": "now"})
        await world.pass_seconds(15)
        assert world.sluggish.begun == 2, "the others are wanted no more"
        await world.pass_seconds(90)
        assert together == {frozenset(), frozenset({"0"}), frozenset({"1"})}
        assert world.job().status.phase == "Running"
