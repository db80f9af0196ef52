"""The reserve of a log that fills up: what begins waits for room, and running jobs end as they should."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from shared.eventlog.account import ADMIN, STREAM
from shared.eventlog.inspection import SILENT_SECONDS, LastKnown, Room, look, reserved, seconds_to_next_check
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.services import AUTHORS
from tests.kit.world import World, a_training_job

ROOM = 400_000
RESERVE = 0.3
CROWD = 60
"""Jobs whose events do not fit into the log."""


def a_room(of: str, used: int, most: int = 100) -> Room:
    return Room(of, used, most, "")


def a_disk(used: int, of: str = "NATS n1") -> Room:
    return Room(of, used, 100, "", server=True)


@pytest.mark.parametrize(
    ("rooms", "begun"),
    [
        pytest.param([a_room(STREAM, 89)], False, id="more than a tenth is left"),
        pytest.param([a_room(STREAM, 90)], True, id="a tenth is left"),
        pytest.param([a_room(STREAM, 5), a_disk(95)], True, id="of the disk of a server"),
        pytest.param([a_room("KV_HEADS", 99)], False, id="the heads have a room of their own"),
        pytest.param([a_room(STREAM, 99, 0)], False, id="nothing bounds the log"),
        pytest.param([], False, id="nothing is known yet"),
    ],
)
def test_reserved(rooms: Sequence[Room], begun: bool):
    assert reserved(rooms, 0.1) is begun


@pytest.mark.parametrize(
    ("rooms", "seconds"),
    [
        pytest.param([a_room(STREAM, 5)], 60.0, id="plenty of room"),
        pytest.param([a_room(STREAM, 70)], 20.0, id="the nearer the reserve, the sooner"),
        pytest.param([a_room(STREAM, 5), a_disk(60)], 30.0, id="the fullest room counts"),
        pytest.param([a_room(STREAM, 95)], 10.0, id="in the reserve"),
        pytest.param([a_room(STREAM, 99, 0), a_room("KV_HEADS", 99)], 60.0, id="nothing bounds the log"),
    ],
)
def test_seconds_to_next_check(rooms: Sequence[Room], seconds: float):
    assert seconds_to_next_check(rooms, 0.1) == pytest.approx(seconds)
    assert seconds_to_next_check(rooms, 0.0) == 60.0


def test_a_full_server_whose_monitor_is_silent_counts_as_full_for_a_while():
    known, full, stream = LastKnown(), a_disk(95), a_room(STREAM, 5)
    assert known.rooms([stream, full], 0.0) == (stream, full)
    assert known.rooms([stream], SILENT_SECONDS - 1) == (stream, full)
    assert known.rooms([stream], SILENT_SECONDS) == (stream,)


def test_the_newest_answer_of_a_monitor_counts():
    known = LastKnown()
    known.rooms([a_disk(95), a_disk(10, "NATS n2")], 0.0)
    assert set(known.rooms([a_disk(20)], 1.0)) == {a_disk(20), a_disk(10, "NATS n2")}


def test_a_stream_that_is_not_there_has_no_room():
    known = LastKnown()
    known.rooms([a_room(STREAM, 95)], 0.0)
    assert known.rooms([], 1.0) == ()


class Watched(World):
    """A world whose watcher knows how full the log is, at each turn.

    A busy server says late how much is used; what the watcher has read since counts, too.
    """

    def __init__(self, logs: dict[str, JetStreamEventLog]) -> None:
        super().__init__(logs=logs)
        self.asked = logs["watcher"]
        self.rooms: list[Room] = []

    async def start(self, author: str) -> None:
        await super().start(author)
        runtime = self._running[author][0]

        def begun() -> bool:
            read = sum(use.log for use in runtime.histories.used.values())
            rooms = [replace(room, used=max(room.used, read)) for room in self.rooms if room.of == STREAM]
            return reserved(rooms, RESERVE)

        runtime.reserved = begun

    @property
    def used(self) -> int:
        return next(room.used for room in self.rooms if room.of == STREAM)

    async def look(self) -> None:
        self.rooms = (await look(self.asked, ())).rooms

    async def settled(self) -> int:
        """How much is used once nothing was written for a second."""
        before = -1
        while before != (before := self.used):
            await asyncio.sleep(1)
            await self.look()
        return before


@asynccontextmanager
async def a_small_log(folder: Path) -> AsyncIterator[tuple[NatsServer, Watched]]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(NatsServer(folder))
        await set_up(server.url, user=ADMIN, password=server.users[ADMIN], max_bytes=ROOM)
        logs = {
            user: await JetStreamEventLog.connect(server.url, name=user, user=user, password=server.users[user])
            for user in AUTHORS
        }
        for log in logs.values():
            stack.push_async_callback(log.close)
        world = await stack.enter_async_context(Watched(logs))

        async def follow() -> None:
            while True:
                await world.look()
                await asyncio.sleep(0.02)

        following = asyncio.create_task(follow())
        stack.callback(following.cancel)
        yield server, world


@pytest.mark.nats
async def test_a_log_that_tenants_filled_still_takes_the_ends_of_jobs(tmp_path: Path):
    async with a_small_log(tmp_path) as (server, world):
        await world.trains(workers=1)
        for number in range(CROWD):
            world.apply(TRAININGJOBS, a_training_job(f"theirs-{number}", workers=1), "team-b")
        watcher = world._running["watcher"][0]
        await world.until(lambda: watcher.metrics.waiting["team-b", "room"] > 0, "the reserve has begun")
        world.apply(TRAININGJOBS, a_training_job("late", workers=1), "team-b")
        before = await world.settled()
        assert (1 - RESERVE) * ROOM <= before < 0.95 * ROOM
        # The budgets count the bytes of each namespace as the server does.
        assert sum(use.log for use in watcher.histories.used.values()) == pytest.approx(before, rel=0.03)
        assert world.status(TRAININGJOBS, "late", "team-b") == {}
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        await world.until(lambda: list(world.pods()) == ["resnet-launcher"], "the workers are cleaned up")
        assert before < await world.settled() < ROOM
        await set_up(server.url, user=ADMIN, password=server.users[ADMIN], max_bytes=20 * ROOM)
        await world.phase("Running", TRAININGJOBS, "late", "team-b")
