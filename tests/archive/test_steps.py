"""What comes next for a sealed history, how one is packed, and which messages of the archive are one."""

import gzip
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from services.archive.core import Sealed, next_step, of_namespaces
from shared.eventlog import Batch
from shared.eventlog.parts import PART_BYTES, Packing, Part, Seal, seal_of
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.watcher import JobGone
from shared.job.naming import archived_as, key_archived
from shared.telling.reading import line_of
from shared.telling.sealed import Check, events_of, newest_of, parts_of
from shared.telling.targets import parse_target
from tests.bench.archive import lived
from tests.kit.sealed import Life, a_key, a_life
from tests.memory.eventlog import MemoryArchive, MemoryEventLog, MemoryJournal

SEAL = Seal(1, 9, 9, "a")


@pytest.mark.parametrize(
    ("seen", "earlier", "step"),
    [
        pytest.param({}, False, "copy", id="nothing is known of it"),
        pytest.param({"kept": True}, False, "purge", id="its copy was read back"),
        pytest.param({"kept": True}, True, None, id="an earlier history of the job waits"),
        pytest.param({"kept": True, "purged": True}, False, None, id="its seal is young"),
        pytest.param({"kept": True, "purged": True, "at": 0.0}, False, "drop", id="its seal is old"),
        pytest.param({"purged": True, "at": 0.0}, False, None, id="its seal is all that is left"),
        pytest.param({"again": 101.0}, False, None, id="it has just failed"),
    ],
)
def test_what_comes_next(seen: dict[str, object], earlier: bool, step: str | None):
    sealed = Sealed(**{"key": a_key("team-a"), "sequence": 10, "at": 90.0, "seal": SEAL, **seen})  # type: ignore[arg-type]
    assert next_step(sealed, 100.0, 50.0, earlier=earlier) == step


def test_a_setting_has_numbers_for_all_and_for_some_namespaces():
    assert of_namespaces(("365", "team-a=30"), "DAYS") == {"": 365, "team-a": 30}
    with pytest.raises(ValueError, match="DAYS: 'team-a' is neither"):
        of_namespaces(("team-a",), "DAYS")


@pytest.mark.parametrize("lines", [1, 3, 40_000])
@pytest.mark.parametrize("size", [10, 300])
def test_lines_are_packed_into_messages_of_a_bounded_size_and_come_out_again(lines: int, size: int):
    chance, packing = random.Random(lines), Packing()
    given = [chance.randbytes(size).hex() for _ in range(lines)]
    for line in given:
        packing.add(line)
    bodies = packing.bodies()
    assert max(map(len, bodies)) <= PART_BYTES
    parts = [Part("", 0, SEAL, 1, 1, b"", body, "") for body in bodies]
    assert [line.decode() for part in parts for line in part.lines] == given
    for damaged in (bodies[0][:-9], b"x", bodies[0][:40] + b"x" + bodies[0][41:]):
        with pytest.raises(ValueError, match="is damaged"):
            _ = Part("", 0, SEAL, 1, 1, b"", damaged, "").lines


def a_part(sequence: int, first: int, last: int, digest: str = "a", number: int = 1, of: int = 1) -> Part:
    return Part("archive.team-a.resnet.u-1", sequence, Seal(first, last, 3, digest), number, of, b"", b"", "")


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        pytest.param([a_part(1, 2, 9)], [1], id="one message"),
        pytest.param([a_part(1, 2, 9), a_part(2, 2, 9, number=2, of=2)], [1, 2], id="several of one seal"),
        pytest.param([a_part(1, 2, 9), a_part(2, 12, 14, "b")], [1, 2], id="what came after a first seal"),
        pytest.param([a_part(1, 2, 9), a_part(2, 2, 7, "b")], [2], id="the log was restored from before the first"),
    ],
)
async def test_the_messages_of_a_history(parts: list[Part], whole: list[int]):
    assert [part.sequence async for part in parts_of(MemoryArchive(parts), parts[-1])] == whole


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_a_history_of_which_a_message_is_missing_is_not_taken_for_the_whole(missing: int):
    parts = [a_part(number, 2, 9, number=number, of=3) for number in (1, 2, 3)]
    there = [part for part in parts if part.number != missing]
    with pytest.raises(ValueError, match=f"part {missing} of 3 is missing"):
        _ = [part async for part in parts_of(MemoryArchive(there), parts[-1])]


def test_lines_of_any_alphabet_make_messages_that_can_be_read():
    packing, line = Packing(), "\u8a9e" * 700_000
    for _ in range(5):
        packing.add(line)
    bodies = packing.bodies()
    assert [len(gzip.decompress(body)) for body in bodies] == [len(line.encode()) + 1] * 5


@pytest.mark.parametrize("restored", [True, False], ids=["the log was restored", "the log is being purged"])
async def test_what_the_log_has_from_its_first_event_is_told_as_it_is_unless_its_seal_is_that_of_the_copy(
    *, restored: bool
):
    journal = MemoryJournal()
    log, asked = MemoryEventLog(journal), parse_target("trainingjob/resnet", BUILT_IN)
    await (life := Life(log, key := a_key("team-a"))).live()
    seal, packing, check = seal_of((await life.seal()).body), Packing(), Check(key)
    for event in (whole := journal.events[1:]):
        packing.add(line_of(event))
        check.fold(event)
    [body] = packing.bodies()
    journal.archived.append(Part(archived_as(key), 1, seal, 1, 1, check.row(BUILT_IN).encode(), body, ""))
    if restored:
        journal.restore(6)
        again = Life(log, key)
        for event in journal.events[1:]:
            again.history.fold(event)
        await again.live([JobGone()])
    else:
        journal.purged = dict.fromkeys(range(7, len(whole)), 0)
    read, batches_of_log = list[int](), log.read

    async def noting(**of: Any) -> AsyncIterator[Batch]:
        read.append(0)
        async with aclosing(batches_of_log(**of)) as batches:
            async for batch in batches:
                read[-1] += len(batch.events)
                yield batch

    log.read = noting  # type: ignore[method-assign, assignment]
    told = [event async for batch in events_of(log, asked, "team-a") for event in batch]
    assert [*map(line_of, told)] == [*map(line_of, journal.events[1:] if restored else whole)]
    # Of what the copy has no more than a message is held: the seal alone comes from the log.
    assert sum(read[1:]) == (len(told) if restored else 1)


async def test_of_a_name_with_many_lives_only_those_are_read_that_were_archived_since_the_last_one_began():
    journal = MemoryJournal()
    key, log = a_key("team-a"), MemoryEventLog(journal)
    for number in range(300):
        check = Check(key)
        for event in lived(key, a_life())[1]:
            check.fold(event)
        row = check.row(BUILT_IN).replace("2030-01-01", f"{2030 + number}-01-01").encode()
        subject, seal = archived_as(a_key("team-a", uid=f"u-{number}")), Seal(number, number, 9, "a")
        journal.archived.append(Part(subject, number + 1, seal, 1, 1, row, b"", f"{2030 + number}-01-01T00:01:00Z"))
    parts, read = log.archive.parts, 0

    async def counting(*asked: Any) -> AsyncIterator[Part]:
        nonlocal read
        async for part in parts(*asked):
            read += 1
            yield part

    log.archive.parts = counting  # type: ignore[method-assign, assignment]
    found = await newest_of(log, parse_target("trainingjob/resnet", BUILT_IN), "team-a", "*")
    assert found is not None
    assert (found.sequence, read) == (300, 1)


@pytest.mark.parametrize("uid", ["*", "u-1"])
async def test_of_a_name_the_archive_has_the_life_that_began_last_though_a_former_one_came_later(uid: str):
    journal = MemoryJournal()
    log = MemoryEventLog(journal)
    for sequence, (life, first) in enumerate([("u-1", 20), ("u-2", 60), ("u-1", 20)], 1):
        check = Check(key := a_key("team-a", uid=life))
        for event in lived(key, a_life())[1]:
            check.fold(event)
        row = check.row(BUILT_IN).encode()
        seal = Seal(first, first + 10 * sequence, 9, "a")
        journal.archived.append(Part(archived_as(key), sequence, seal, 1, 1, row, b"", "2030-01-01T00:01:00Z"))
    found = await newest_of(log, parse_target("trainingjob/resnet", BUILT_IN), "team-a", uid)
    assert found is not None
    assert key_archived(found.subject).uid == ("u-2" if uid == "*" else uid)
    assert found.sequence == (2 if uid == "*" else 3), "the last message of that life"
