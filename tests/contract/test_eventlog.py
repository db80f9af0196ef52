"""The promises of every event log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

import msgspec
import pytest

from shared.errors import Conflict, Refused
from shared.eventlog import MAX_BODY, Bucket, Entry, EventLog
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from tests.kit.nats import READY, NatsCluster, a_decision, a_namespace, read_to_end, until
from tests.memory.eventlog import MemoryEventLog, MemoryJournal


@dataclass(frozen=True)
class World:
    """One log, reached as any user, and its time."""

    connect: Callable[[str], Awaitable[EventLog]]
    tick: Callable[[], None]
    namespace: str

    def decision(self, number: int, *, job: str = "resnet", body: bytes = b"{}") -> Entry:
        return a_decision(self.namespace, number, job=job, body=body)

    def fact(self, number: int, *, author: str) -> Entry:
        return Entry(
            subject=f"facts.{self.namespace}.resnet.u-1.{author}.EffectRefused",
            event_id=f"{self.namespace}-{author}-{number}",
            time="2026-01-01T00:00:00.001Z",
            body=b'{"reason":"Forbidden"}',
            optional=True,
        )

    @property
    def mine(self) -> tuple[str, str]:
        return (f"facts.{self.namespace}.>", f"jobs.{self.namespace}.>")


KEEPERS = [
    "memory",
    pytest.param("nats_server", marks=pytest.mark.nats),
    pytest.param("nats_cluster", marks=pytest.mark.nats),
]


@pytest.fixture(params=KEEPERS)
def server(request: pytest.FixtureRequest) -> NatsServer | NatsCluster | None:
    """Who keeps the log; None is this process's memory."""
    return None if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture
async def world(server: NatsServer | NatsCluster | None) -> AsyncIterator[World]:
    opened: list[EventLog] = []
    time = [0.0]
    journal = MemoryJournal(clock=lambda: time[0])

    async def connect(user: str) -> EventLog:
        log: EventLog
        if server is None:
            log = MemoryEventLog(journal, user=user)
        else:
            log = await JetStreamEventLog.connect(
                server.url, name=f"test-{user}", user=user, password=server.users[user]
            )
        opened.append(log)
        return log

    def tick() -> None:
        time[0] += 0.01

    yield World(connect, tick, a_namespace())
    for log in opened:
        await log.close()


@pytest.fixture
async def log(world: World) -> EventLog:
    return await world.connect("scheduler")


@pytest.fixture
async def leases(log: EventLog) -> Bucket:
    return await log.bucket("LEASES")


async def test_an_event_is_read_back_as_it_was_written(world: World, log: EventLog) -> None:
    decision = world.decision(1, body='{"reason":"Größe"}'.encode())
    fact = world.fact(1, author="scheduler")
    first = await log.append(decision, expect=0)
    second = await log.append(fact, expect=0)

    found = await read_to_end(log, *world.mine)

    assert [event.sequence for event in found] == [first, second]
    for entry, event in zip((decision, fact), found, strict=True):
        written = msgspec.structs.asdict(entry)
        assert {name: getattr(event, name) for name in written} == written
    assert await log.last(f"jobs.{world.namespace}.resnet.u-1.>") == found[0]


async def test_the_servers_clock_stamps_each_event_and_is_known_to_each_reader(world: World, log: EventLog) -> None:
    await log.append(world.decision(1), expect=0)
    (event,) = await read_to_end(log, *world.mine)
    now = log.now()
    assert now is not None
    assert abs(now - datetime.fromisoformat(event.logged).timestamp()) < 5.0


async def test_of_two_decisions_on_the_same_basis_one_is_accepted(world: World, log: EventLog) -> None:
    await log.append(world.decision(1), expect=0)
    with pytest.raises(Conflict):
        await log.append(world.decision(2), expect=0)
    assert [event.event_id for event in await read_to_end(log, *world.mine)] == [world.decision(1).event_id]


async def test_an_expectation_that_the_log_never_reached_is_a_conflict(world: World, log: EventLog) -> None:
    sequence = await log.append(world.decision(1), expect=0)
    with pytest.raises(Conflict):
        await log.append(world.decision(2), expect=sequence + 1_000)


async def test_writers_who_race_never_both_win(world: World, log: EventLog) -> None:
    rival = await world.connect("scheduler")
    expect = 0
    for number in range(0, 20, 2):
        outcomes = await asyncio.gather(
            log.append(world.decision(number), expect=expect),
            rival.append(world.decision(number + 1), expect=expect),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {int, Conflict}
        expect = next(outcome for outcome in outcomes if isinstance(outcome, int))
    assert len(await read_to_end(log, *world.mine)) == 10


async def test_scopes_do_not_stand_in_each_others_way(world: World, log: EventLog) -> None:
    scaler = await world.connect("scaler")
    await log.append(world.decision(1), expect=0)
    await log.append(world.decision(1, job="bert"), expect=0)
    await log.append(world.fact(1, author="scheduler"), expect=0)
    await scaler.append(world.fact(1, author="scaler"), expect=0)


async def test_the_decisions_of_all_authors_are_one_scope(world: World, log: EventLog) -> None:
    scaler = await world.connect("scaler")
    await log.append(world.decision(1), expect=0)
    theirs = msgspec.structs.replace(
        world.decision(2), subject=f"jobs.{world.namespace}.resnet.u-1.scaler.ScaleAccepted"
    )
    with pytest.raises(Conflict):
        await scaler.append(theirs, expect=0)


async def test_the_same_entry_again_is_found_and_not_stored_twice(world: World, log: EventLog) -> None:
    first = await log.append(world.decision(1), expect=0)
    assert await log.append(world.decision(1), expect=0) == first
    await log.append(world.decision(2), expect=first)
    assert await log.append(world.decision(1), expect=0) == first, "found beneath what followed it"
    assert len(await read_to_end(log, *world.mine)) == 2


async def test_the_largest_body_is_stored_and_a_larger_one_refused(world: World, log: EventLog) -> None:
    await log.append(world.decision(1, body=b"x" * MAX_BODY), expect=0)
    with pytest.raises(Refused) as refusal:
        await log.append(world.decision(2, job="bert", body=b"x" * (MAX_BODY + 1)), expect=0)
    assert refusal.value.reason == "TooLarge"
    assert [len(event.body) for event in await read_to_end(log, *world.mine)] == [MAX_BODY]


async def test_no_user_writes_as_another_author(world: World, log: EventLog) -> None:
    for entry in (world.fact(1, author="watcher"), world.fact(1, author="setup")):
        async with asyncio.timeout(10):
            with pytest.raises(Refused) as refusal:
                await log.append(entry, expect=0)
        assert refusal.value.reason == "Forbidden"
    assert await read_to_end(log, *world.mine) == []


async def test_readers_write_nothing(world: World) -> None:
    reader = await world.connect("reader")
    with pytest.raises(Refused) as refusal:
        await reader.append(world.decision(1), expect=0)
    assert refusal.value.reason == "Forbidden"


async def test_all_clients_see_one_log(world: World, log: EventLog) -> None:
    other = await world.connect("status")
    assert await other.identity() == await log.identity() != ""
    sequence = await log.append(world.decision(1), expect=0)
    assert await other.end() == sequence
    assert await read_to_end(other, *world.mine) == await read_to_end(log, *world.mine)


async def test_a_reader_of_nothing_learns_that_it_is_at_the_end(world: World, log: EventLog) -> None:
    async with asyncio.timeout(READY), aclosing(log.read(subjects=world.mine)) as batches:
        batch = await anext(batches)
    assert (batch.events, batch.pending) == ((), 0)


async def test_the_end_of_some_subjects_is_their_last_event(world: World, log: EventLog) -> None:
    sequence = await log.append(world.decision(1), expect=0)
    await log.append(world.decision(1, job="bert"), expect=0)
    resnet = f"jobs.{world.namespace}.resnet.>"
    assert await log.end((f"facts.{world.namespace}.>",)) == 0
    assert await log.end((resnet, f"facts.{world.namespace}.>")) == sequence


async def test_the_first_event_of_some_subjects_is_known_by_its_sequence(world: World, log: EventLog) -> None:
    assert await log.first(world.mine) == 0
    fact = await log.append(world.fact(1, author="scheduler"), expect=0)
    decision = await log.append(world.decision(1), expect=0)
    await log.append(world.decision(2), expect=decision)
    resnet = f"jobs.{world.namespace}.resnet.>"
    assert (await log.first((resnet,)), await log.first(world.mine)) == (decision, fact)


async def test_the_events_of_some_subjects_are_counted(world: World, log: EventLog) -> None:
    assert await log.counted(f"*.{world.namespace}.>") == {}
    for number in range(3):
        await log.append(entry := world.decision(number), expect=await log.end((world.decision(0).subject,)))
    other = await log.append(fact := world.fact(9, author="scheduler"), expect=0)
    assert await log.counted(f"*.{world.namespace}.>") == {entry.subject: 3, fact.subject: 1}, other


async def test_after_the_last_event_comes_one_empty_batch(world: World, log: EventLog) -> None:
    await log.append(world.decision(1), expect=0)
    async with asyncio.timeout(READY), aclosing(log.read(subjects=world.mine)) as batches:
        first = await anext(batches)
        second = await anext(batches)
    assert (len(first.events), first.pending) == (1, 0)
    assert (second.events, second.pending) == ((), 0)


async def test_a_reader_goes_on_with_what_is_written_later(world: World, log: EventLog) -> None:
    async with asyncio.timeout(READY), aclosing(log.read(subjects=world.mine)) as batches:
        assert (await anext(batches)).events == ()
        first = await log.append(world.decision(1), expect=0)
        assert [event.sequence for event in (await anext(batches)).events] == [first]
        second = await log.append(world.decision(2), expect=first)
        assert [event.sequence for event in (await anext(batches)).events] == [second]


async def test_a_reader_begins_where_it_is_told(world: World, log: EventLog) -> None:
    first = await log.append(world.decision(1), expect=0)
    second = await log.append(world.decision(2), expect=first)
    assert [event.sequence for event in await read_to_end(log, *world.mine, after=first)] == [second]
    assert await read_to_end(log, *world.mine, after=second) == []


async def test_filters_select_and_keep_the_order(world: World, log: EventLog) -> None:
    wanted = [await log.append(world.decision(1), expect=0)]
    await log.append(world.decision(1, job="bert"), expect=0)
    wanted.append(await log.append(world.fact(1, author="scheduler"), expect=0))
    found = await read_to_end(log, f"jobs.{world.namespace}.resnet.>", f"facts.{world.namespace}.*.u-1.scheduler.*")
    assert [event.sequence for event in found] == wanted


async def test_a_backlog_comes_whole_in_order_and_in_bounded_batches(
    world: World, log: EventLog, server: NatsServer | NatsCluster | None
) -> None:
    written: list[int] = []

    async def write(job: str) -> None:
        sequence = 0
        for number in range(50):
            sequence = await log.append(world.decision(number, job=job), expect=sequence)
            written.append(sequence)

    await asyncio.gather(*(write(f"job-{number}") for number in range(50)))
    read: list[int] = []
    async with aclosing(log.read(subjects=world.mine)) as batches:
        async for batch in batches:
            assert len(batch.events) <= 1_000
            read += [event.sequence for event in batch.events]
            left = len(written) - len(read)
            # Of several servers a copy that lags may answer, which knows of fewer.
            assert 0 < batch.pending <= left if isinstance(server, NatsCluster) and left else batch.pending == left
            if batch.pending == 0:
                break
    assert read == sorted(written)


async def test_reading_beyond_the_end_means_that_events_were_lost(log: EventLog) -> None:
    with pytest.raises(Refused) as refusal:
        await read_to_end(log, after=await log.end() + 1_000_000)
    assert refusal.value.reason == "LogTruncated"


async def test_closing_ends_the_readers_and_may_be_repeated(world: World, log: EventLog) -> None:
    async def follow() -> None:
        async for _ in log.read(subjects=world.mine):
            reading.set()

    reading = asyncio.Event()
    follower = asyncio.create_task(follow())
    async with asyncio.timeout(READY):
        await reading.wait()
        await log.close()
        await log.close()
        await follower
    with pytest.raises(Refused) as refusal:
        await log.append(world.decision(1), expect=0)
    assert refusal.value.reason == "Closed"


async def test_there_is_no_last_event_where_nothing_was_written(world: World, log: EventLog) -> None:
    assert await log.last(f"jobs.{world.namespace}.>") is None


async def test_a_lease_is_taken_once_and_renewed_by_its_revision(world: World, leases: Bucket) -> None:
    key = f"scheduler.{world.namespace}"
    assert await leases.get(key) is None
    revision = await leases.put(key, b"me", expect=0, ttl=10)
    with pytest.raises(Conflict):
        await leases.put(key, b"you", expect=0, ttl=10)
    renewed = await leases.put(key, b"me", expect=revision, ttl=10)
    with pytest.raises(Conflict):
        await leases.put(key, b"me", expect=revision, ttl=10)
    found = await leases.get(key)
    assert found is not None
    assert (found.value, found.revision) == (b"me", renewed)


async def test_an_expired_lease_is_free(world: World, leases: Bucket) -> None:
    key = f"scheduler.{world.namespace}"
    revision = await leases.put(key, b"me", expect=0, ttl=1)

    async def expired() -> bool:
        return await leases.get(key) is None

    await until(expired, tick=world.tick)
    with pytest.raises(Conflict):
        await leases.put(key, b"me", expect=revision, ttl=1)
    await leases.put(key, b"you", expect=0, ttl=1)


async def test_a_released_lease_is_free_at_once(world: World, leases: Bucket) -> None:
    key = f"scheduler.{world.namespace}"
    revision = await leases.put(key, b"me", expect=0, ttl=10)
    with pytest.raises(Conflict):
        await leases.delete(key, expect=revision + 1_000)
    await leases.delete(key, expect=revision)
    assert await leases.get(key) is None
    await leases.delete(key)
    await leases.delete(key, expect=revision)
    assert await leases.put(key, b"you", expect=0, ttl=10) > revision


async def test_a_write_without_expectation_writes_over_anything(world: World, leases: Bucket) -> None:
    key = f"scheduler.{world.namespace}"
    await leases.put(key, b"one")
    revision = await leases.put(key, b"two")
    found = await leases.get(key)
    assert found is not None
    assert (found.value, found.revision) == (b"two", revision)


async def test_leases_below_a_key_are_found_while_they_are_held(world: World, leases: Bucket) -> None:
    key = f"scheduler.{world.namespace}"
    await leases.put(key, b"not below itself", expect=0, ttl=10)
    assert await leases.below(key) is None
    given_up = await leases.put(f"{key}.one", b"one", expect=0, ttl=10)
    # Long enough for what is asked before it expires, on a disk that is busy.
    expiring = await leases.put(f"{key}.two", b"two", expect=0, ttl=4)
    assert await leases.below(key) is not None
    await leases.delete(f"{key}.one", expect=given_up)
    found = await leases.below(key)
    assert found is not None
    assert (found.value, found.revision) == (b"two", expiring)

    async def free() -> bool:
        return await leases.below(key) is None

    await until(free, tick=world.tick)
    kept = await leases.put(f"{key}.three", b"three", expect=0, ttl=10)
    found = await leases.below(key)
    assert found is not None
    assert (found.value, found.revision) == (b"three", kept)


async def test_buckets_are_apart_and_only_status_keeps_heads(world: World, log: EventLog, leases: Bucket) -> None:
    status = await world.connect("status")
    heads = await status.bucket("HEADS")
    await heads.put(world.namespace, b"7:abc")
    seen = await (await log.bucket("HEADS")).get(world.namespace)
    assert seen is not None
    assert seen.value == b"7:abc"
    with pytest.raises(Refused) as refusal:
        await (await log.bucket("HEADS")).put(world.namespace, b"8:abc")
    assert refusal.value.reason == "Forbidden"
    with pytest.raises(Refused) as refusal:
        await leases.put(f"status.{world.namespace}", b"me", expect=0, ttl=1)
    assert refusal.value.reason == "Forbidden"


async def test_an_unknown_bucket_is_not_set_up(world: World) -> None:
    admin = await world.connect("admin")
    with pytest.raises(Refused) as refusal:
        await admin.bucket("NOWHERE")
    assert refusal.value.reason == "NotSetUp"
