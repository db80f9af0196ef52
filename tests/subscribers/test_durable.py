"""A position that has to be made again begins where no event is passed over; what cannot come any more is known."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.errors import Transient
from shared.eventlog import Stored, api
from shared.eventlog.account import ADMIN, SUBSCRIBER, Copy
from shared.eventlog.durable import IN_HAND, Delivered, Durable, Lost
from shared.eventlog.setup import set_up
from shared.eventlog.subject import Subject
from tests.kit import sealed
from tests.kit.nats import READY, at, connected
from tests.kit.sealed import Life, a_key, a_sealed_life
from tests.kit.subscribers import COPY_BYTES, Log, a_log_for_subscribers, write

pytestmark = pytest.mark.nats


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Log]:
    async with a_log_for_subscribers(tmp_path) as server:
        yield server


@asynccontextmanager
async def a_position(
    server: Log, namespace: str, *, kind: str = "*", everything: bool = False
) -> AsyncIterator[Durable]:
    login = {"user": SUBSCRIBER, "password": server.copies.users[SUBSCRIBER]}
    subjects = (f"*.{namespace}.*.*.*.{kind}",)
    await server.forgets()
    position = await Durable.connect(server.copies.url, name="mine", subjects=subjects, everything=everything, **login)
    try:
        yield position
    finally:
        await position.close()
        server.left()


async def taken(position: Durable, number: int) -> tuple[list[int], str]:
    """The sequences of so many events, each acknowledged, and what was told meanwhile."""
    found: list[int] = []
    told = ""
    async with asyncio.timeout(READY):
        while len(found) < number:
            try:
                events = await position.fetch(number)
            except Transient as trouble:
                told += str(trouble)
                continue
            await position.acknowledge(events)
            found += [event.stored.sequence for event in events]
    return found, told


async def copied(server: Log, sequence: int) -> None:
    """Wait until the copy has the event."""
    async with at(server.copies, SUBSCRIBER) as connection, asyncio.timeout(READY):
        while (await api.call(connection, "STREAM.INFO.JOBS", None, dict))["state"]["last_seq"] < sequence:
            await asyncio.sleep(0.01)


async def consumer_gone(server: Log) -> None:
    async with at(server.copies, SUBSCRIBER) as connection:
        await api.call(connection, "CONSUMER.DELETE.JOBS.mine", None, dict)


async def test_a_position_that_brought_nothing_to_this_process_is_where_it_was(server: Log):
    first = await write(server, 2)
    async with a_position(server, "team-a", everything=True) as position:
        assert (await taken(position, 2))[0] == first
    async with a_position(server, "team-a") as position:
        await consumer_gone(server)
        wanted = await write(server, 3)
        assert (await taken(position, 3))[0] == wanted


async def test_a_new_position_that_brought_nothing_is_where_it_began(server: Log):
    await copied(server, (await write(server, 2))[-1])
    async with a_position(server, "team-a") as position:
        await consumer_gone(server)
        wanted = await write(server, 3)
        assert (await taken(position, 3))[0] == wanted


async def test_what_was_acknowledged_some_time_ago_does_not_come_again_from_a_position_that_was_made_anew(server: Log):
    first = await write(server, 4)
    async with a_position(server, "team-a", everything=True) as position:
        assert (await taken(position, 4))[0] == first
        # The request that is open, and the next one, with which it asks what was acknowledged.
        assert [await position.fetch(1) for _ in range(2)] == [[], []]
        await consumer_gone(server)
        wanted = await write(server, 1)
        assert (await taken(position, 1))[0] == wanted


@pytest.mark.parametrize("given", [True, False], ids=["were given back", "are in hand"])
async def test_events_that_are_not_acknowledged_come_again_from_a_position_that_was_made_anew(
    server: Log, *, given: bool
):
    wanted = await write(server, 4)
    async with a_position(server, "team-a", everything=True) as position:
        events = list[Delivered]()
        async with asyncio.timeout(READY):
            while len(events) < 4:
                events += await position.fetch(4 - len(events))
        await position.acknowledge(events[2:])
        if given:
            await position.give_back(events[:2])
        await consumer_gone(server)
        more = await write(server, 1)
        found, _ = await taken(position, 5)
        assert {*wanted[:2], *more} <= {*found}


async def test_another_log_is_read_from_its_first_event(server: Log):
    async with a_position(server, "team-a", everything=True) as position:
        await taken(position, len(await write(server, 8)))
        async with at(server, ADMIN) as admin:
            await api.call(admin, "STREAM.DELETE.JOBS", None, dict)
        await set_up(server.url, password=server.users[ADMIN], subscribers={Copy(): COPY_BYTES})
        wanted = await write(server, 4)
        found, told = await taken(position, 4)
        assert found == wanted
        assert "the copy was made anew" in told


SMALL, LARGE = 2**20, b'{"padding":"%s"}' % (b"x" * 8000)
"""The size of a copy, and an event of which it has room for some hundred."""


async def overflow(server: Log, namespace: str = "team-b", *, events: int = 200) -> int:
    """Write more than the small copy has room for; the sequence of the first event that it still has."""
    await set_up(server.url, password=server.users[ADMIN], subscribers={Copy(): SMALL})
    await copied(server, (await write(server, events, namespace, body=LARGE))[-1])
    async with at(server.copies, SUBSCRIBER) as connection:
        return int((await api.call(connection, "STREAM.INFO.JOBS", None, dict))["state"]["first_seq"])


async def test_what_left_the_copy_while_no_process_ran_is_known(server: Log):
    async with a_position(server, "*", everything=True) as position:
        (*_, last) = (await taken(position, len(await write(server, 3))))[0]
    first = await overflow(server)
    async with a_position(server, "*") as position:
        await taken(position, 5)
        assert position.lost() == [Lost(last + 1, first - 1)]
        await taken(position, 5)
        assert position.lost() == []


async def test_what_left_the_copy_while_a_process_was_busy_is_known(server: Log):
    async with a_position(server, "*", everything=True) as position:
        (*_, last) = (await taken(position, len(await write(server, 3))))[0]
        first = await overflow(server, events=2 * IN_HAND)
        # What the open request brought is in hand already.
        await taken(position, IN_HAND)
        (lost,) = position.lost()
        assert last < lost.first <= lost.last == first - 1


async def test_events_of_others_that_leave_the_copy_are_not_lost(server: Log):
    async with a_position(server, "team-a", everything=True) as position:
        await taken(position, len(await write(server, 3)))
        await copied(server, (await write(server, 10, "team-b"))[-1])
        assert await position.fetch(1) == []
        await overflow(server)
        assert await position.fetch(1) == []
        assert (await taken(position, len(await write(server, 3))))[0]
        assert position.lost() == []


async def test_a_position_that_wants_little_knows_how_far_it_looked(server: Log):
    async with a_position(server, "team-a", everything=True) as position:
        await taken(position, len(await write(server, 3)))
        (*_, last) = await write(server, 10, "team-b")
        await copied(server, last)
        assert await position.fetch(1) == []
        assert await position.fetch(1) == []
    first = await overflow(server)
    async with a_position(server, "team-a") as position:
        await taken(position, len(await write(server, 3)))
        assert position.lost() == [Lost(last + 1, first - 1)]


async def purge(server: Log, namespace: str, before: int) -> None:
    async with at(server, ADMIN) as admin:
        for family in ("facts", "jobs"):
            words = {"filter": f"{family}.{namespace}.>", "seq": before}
            await api.call(admin, "STREAM.PURGE.JOBS", words, dict)


async def a_life_while_the_copies_are_away(server: Log, *, purged: bool = True) -> tuple[Life, Stored]:
    """A sealed life that left the log, but for its seal, before the copies had any of it."""
    server.copies.stop()
    async with connected(server, ADMIN) as log:
        life = await a_sealed_life(log, a_key("team-b"))
        seal = await log.last("jobs.team-b.*.*.status.JobSealed")
    assert seal is not None
    if purged:
        await purge(server, "team-b", seal.sequence)
    await server.copies.restart()
    await copied(server, seal.sequence)
    return life, seal


@pytest.mark.parametrize("kind", ["*", "SlotsAssigned"])
@pytest.mark.parametrize("purged", [True, False])
async def test_what_left_the_log_before_the_copy_had_it_is_known_by_its_seal(server: Log, kind: str, *, purged: bool):
    async with a_position(server, "*", kind=kind, everything=True) as position:
        # All begins with the genesis event.
        await taken(position, len(await write(server, 3)) + (kind == "*"))
    life, seal = await a_life_while_the_copies_are_away(server, purged=purged)
    first, last = life.events[0].sequence, life.events[-1].sequence
    there = [] if purged else [each.sequence for each in life.events if kind in ("*", subject_type(each))]
    after = [seal.sequence] if kind == "*" else []
    async with a_position(server, "*", kind=kind) as position:
        later = await write(server, 1)
        found, _ = await taken(position, len([*there, *after, *later]))
        assert found == [*there, *after, *later]
        assert position.lost() == ([Lost(first, last, len(life.events), "team-b/resnet")] if purged else [])


async def test_a_service_whose_clock_is_behind_hides_no_loss(server: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sealed, "TIME", "1970-01-01T00:00:00.000Z")
    async with a_position(server, "*", everything=True) as position:
        await taken(position, len(await write(server, 3)) + 1)
    life, seal = await a_life_while_the_copies_are_away(server)
    async with a_position(server, "*") as position:
        assert (await taken(position, 1))[0] == [seal.sequence]
        assert [each.of_job for each in position.lost()] == [len(life.events)]


async def unacknowledged(server: Log) -> int:
    async with at(server.copies, SUBSCRIBER) as connection:
        return int((await api.call(connection, "CONSUMER.INFO.JOBS.mine", None, dict))["num_ack_pending"])


async def test_a_seal_that_is_read_for_its_loss_alone_is_acknowledged_once_the_loss_was_told(server: Log):
    await a_life_while_the_copies_are_away(server)
    async with a_position(server, "*", kind="SlotsAssigned", everything=True) as position:
        for _ in range(2):
            assert await position.fetch(1) == []
            assert await unacknowledged(server) == 1
        assert len(position.lost()) == 1
        await position.fetch(1)
        assert await unacknowledged(server) == 0


async def test_a_seal_that_is_sent_again_counts_its_loss_once(server: Log):
    _, seal = await a_life_while_the_copies_are_away(server)
    async with a_position(server, "*", kind="JobSealed", everything=True) as position:
        first = await position.fetch(1)
        assert len(position.lost()) == 1
        await position.give_back(first)
        assert (await taken(position, 1))[0] == [seal.sequence]
        assert position.lost() == []


def subject_type(event: Stored) -> str:
    return Subject.parse(event.subject).type


async def test_what_left_the_log_before_there_was_a_copy_is_not_missed(tmp_path: Path):
    async with Log(tmp_path) as server:
        admin = server.users[ADMIN]
        await set_up(server.url, password=admin)
        async with connected(server, ADMIN) as log:
            life = Life(log, a_key("team-b"))
            life.time = "2020-01-01T00:00:00.000Z"
            await life.live()
            seal = await life.seal()
        await purge(server, "team-b", seal.sequence)
        await set_up(server.url, password=admin, subscribers={Copy(): COPY_BYTES})
        await copied(server, seal.sequence)
        async with a_position(server, "*", everything=True) as position:
            await taken(position, 1)
            assert position.lost() == []
