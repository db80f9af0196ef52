"""Kubernetes Events over a restart of the status service: none is created again, and none is left out."""

from datetime import timedelta

import pytest

from services.status.checkpoints import ANNOUNCED
from services.status.shell import ANNOUNCED_SECONDS
from shared.errors import Transient
from shared.eventlog.account import HEADS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.services import AUTHORS, wall_clock
from tests.kit.weather import Failing, met_by
from tests.kit.world import World, a_training_job

LONG = 3 * ANNOUNCED_SECONDS


class Events(Failing):
    """Notes the status service's attempts to create Kubernetes Events; while it is `on`, it creates none."""

    def __init__(self) -> None:
        trouble = Transient("create events: 503 ServiceUnavailable")
        super().__init__(lambda call: (call.verb, call.plural) == ("create", "events"), trouble, on=False)

    @property
    def tried(self) -> int:
        return self.count("create", "events")


def a_world(events: Events) -> World:
    return World(weather=met_by("status", events))


async def test_a_start_creates_no_event_again_but_where_the_note_tells_nothing_of_this_log():
    events = Events()
    async with a_world(events) as world:
        await world.trains(workers=2)
        await world.pass_seconds(LONG)
        made, told = events.tried, world.kubernetes_events()
        assert made
        for _ in range(2):
            await world.restart("status")
            await world.pass_seconds(LONG)
        assert (events.tried, world.kubernetes_events()) == (made, told)
        bucket, identity = await world.log("status").bucket(HEADS), await world.log("status").identity()
        await bucket.put(ANNOUNCED, f"another-log/{world.journal.events[-1].sequence}".encode())
        await world.restart("status")
        await world.pass_seconds(LONG)
        assert events.tried == 2 * made
        # Of a log that was restored since: those after its end are created.
        await bucket.put(ANNOUNCED, f"{identity}/999999".encode())
        await world.restart("status")
        world.apply(TRAININGJOBS, a_training_job("other", workers=1))
        await world.phase("Running", name="other")
        await world.pass_seconds(LONG)
        assert [reason for reason, _ in world.kubernetes_events()].count("TrainingJobRunning") == 2
        assert await noted(world) <= world.journal.events[-1].sequence
        # While the service was down.
        before = {*world.kubernetes_events()}
        await world.kill("status")
        world.exit_codes["resnet-worker-0"] = 1
        await world.pass_seconds(LONG)
        await world.start("status")
        await world.pass_seconds(LONG)
        assert {reason for reason, _ in {*world.kubernetes_events()} - before} == {"TrainingJobWorkerFailed"}


async def test_an_event_that_was_not_created_before_the_end_of_a_process_is_created_by_the_next():
    events = Events()
    async with a_world(events) as world:
        events.on = True
        await world.trains(workers=1)
        world.apply(TRAININGJOBS, a_training_job("other", workers=1))
        await world.phase("Running", name="other")
        await world.pass_seconds(LONG)
        assert world.kubernetes_events() == []
        await world.kill("status")
        events.on = False
        await world.start("status")
        await world.pass_seconds(LONG)
        assert [reason for reason, _ in world.kubernetes_events()].count("TrainingJobRunning") == 2


class Replicas:
    """Two replicas of every service, of which the first has the leases."""

    def __init__(self, first: World, second: World) -> None:
        self._worlds = (first, second)
        second.standby |= {*AUTHORS}

    async def led_by(self, leader: World) -> None:
        for world in self._worlds:
            world.standby |= {*AUTHORS}
        for author in AUTHORS:
            await leader.lead(author)


async def noted(world: World) -> int:
    kept = await (await world.log("status").bucket(HEADS)).get(ANNOUNCED)
    assert kept is not None
    return int(kept.value.decode().rpartition("/")[2])


async def test_a_replica_that_lost_the_lease_does_not_set_the_note_back():
    events = Events()
    async with a_world(events) as first:
        second = World(sharing=first)
        replicas = Replicas(first, second)
        async with second:
            await first.trains(workers=2)
            await first.pass_seconds(LONG)
            await replicas.led_by(second)
            newest = await noted(first)
            for number in range(40):
                first.apply(TRAININGJOBS, a_training_job(f"job-{number}", workers=1))
                for _ in range(4):
                    await first.pass_seconds(ANNOUNCED_SECONDS)
                    last, newest = newest, await noted(first)
                    assert newest >= last


async def test_a_replica_that_leads_again_creates_no_event_of_the_one_that_led_meanwhile():
    events = Events()
    async with a_world(events) as first:
        second = World(sharing=first)
        replicas = Replicas(first, second)
        async with second:
            await first.trains(workers=1)
            await first.pass_seconds(LONG)
            await replicas.led_by(second)
            first.apply(TRAININGJOBS, a_training_job("other", workers=1))
            await first.phase("Running", name="other")
            await first.pass_seconds(LONG)
            made, newest = events.tried, await noted(first)
            await replicas.led_by(first)
            await first.pass_seconds(LONG)
            assert events.tried == made
            first.apply(TRAININGJOBS, a_training_job("third", workers=1))
            await first.phase("Running", name="third")
            await first.pass_seconds(LONG)
            assert events.tried > made
            assert await noted(first) > newest


@pytest.mark.parametrize(("author", "hours"), [("watcher", -2), ("status", 2)])
async def test_a_wrong_clock_keeps_no_event_from_being_created(author: str, hours: int):
    async with World() as world:
        await world.trains(workers=1)
        world.now = lambda: wall_clock() + timedelta(hours=hours)
        await world.restart(author)
        world.exit_codes["resnet-worker-0"] = 1
        await world.pass_seconds(LONG)
        assert "TrainingJobWorkerFailed" in [reason for reason, _ in world.kubernetes_events()]
