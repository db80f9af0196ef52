"""The archiver on a real NATS server: what is sealed leaves the log once its copy was read back, and is still told."""

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
import typer
from structlog.testing import capture_logs

from muster import archive as commands
from muster import usage
from muster.history import Part, disowned, job_events, lines
from services.archive import archiving
from services.archive.archiving import ArchiveFigures, Archiver
from services.history.answers import Answers
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Stored, api, parts, wire
from shared.eventlog.account import ADMIN, ARCHIVE, ARCHIVER
from shared.eventlog.archive import Archive, headers_of
from shared.eventlog.connection import NoAnswer
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.parts import Part as ArchivedPart
from shared.eventlog.parts import Seal
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import archived_under, seals
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import Question
from shared.job.naming import JobKey, archived_as, history_filters, key_archived, subject_of
from shared.process.settings import Settings
from shared.telemetry.metrics import Count
from shared.telling.reading import event_of, line_of, until
from shared.telling.sealed import Check, check_of_log
from shared.telling.targets import parse_target
from tests.kit.builders import a_running_job
from tests.kit.nats import READY, a_namespace, a_server, connected, read_to_end
from tests.kit.sealed import Life, a_key, a_life, a_sealed_life

pytestmark = pytest.mark.nats
LINES = Part(as_json=True)


async def an_archiver(
    log: JetStreamEventLog, namespace: str, *, figures: ArchiveFigures | None = None, **options: object
) -> Archiver:
    """One that has just started."""
    made = Archiver(log, BUILT_IN, figures or ArchiveFigures(), namespace=namespace, **options)  # type: ignore[arg-type]
    for stored in await read_to_end(log, seals(namespace)):
        made.note(stored)
    await log.end()
    return made


async def archive(log: JetStreamEventLog, namespace: str, **options: Any) -> Archiver:
    made = await an_archiver(log, namespace, **options)
    await made.turn(lambda: True)
    return made


def figure(figures: ArchiveFigures, name: str) -> float:
    (found,) = (each for each in figures.series() if each.metric.name == f"muster_archive_{name}")
    assert isinstance(found, Count)
    return found.values[()]


async def told(log: JetStreamEventLog, namespace: str, uid: str = "", part: Part = LINES) -> list[str]:
    known = job_events(log, parse_target("trainingjob/resnet"), namespace, uid=uid)
    return [line async for line in lines(known, part, until(part.at) if part.at else None)]


async def left(log: JetStreamEventLog, key: JobKey) -> list[int]:
    return [stored.sequence for stored in await read_to_end(log, *history_filters(key))]


async def kept(log: JetStreamEventLog, namespace: str) -> int:
    """How many messages the archive has of a namespace."""
    return len([part async for part in log.archive.parts(archived_under(namespace))])


def settings_of(server: NatsServer, user: str) -> Settings:
    return Settings(NATS_URL=server.url, NATS_USER=user, NATS_PASSWORD=server.users[user])


async def test_a_sealed_history_leaves_the_log_and_is_told_from_the_archive(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life, events = Life(log, key), a_life()
        await life.live(events[:-4])
        life.time = "2030-01-01T01:00:00.000Z"
        await life.live(events[-4:])
        await life.seal()
        before, sealed = await told(log, namespace), await log.end(history_filters(key))
        figures = ArchiveFigures()
        figures.tell((await an_archiver(mine, namespace)).sealed.values(), 0.0)
        assert figure(figures, "waiting_events") == (events_of := len(before) - 1)
        await archive(mine, namespace, figures=figures)
        assert await left(log, key) == [sealed]
        assert (figure(figures, "purged_events_total"), figure(figures, "waiting_events")) == (events_of, 0)
        await archive(mine, namespace, seals=0)
        assert await left(log, key) == []
    async with connected(nats_server, "reader") as reader, connected(nats_server, "history") as asked:
        assert await told(reader, namespace) == await told(reader, namespace, key.uid) == before
        costs = [line async for line in usage.lines(reader, namespace, "", BUILT_IN, as_json=False, as_csv=True)]
        assert {line.split(",")[2] for line in costs[1:]} == {key.uid}
        *_, state = await told(reader, namespace, part=Part(at=str(life.events[3].sequence)))
        assert '"resource"' in state
        answers = Answers(lambda: asyncio.sleep(0, asked), BUILT_IN)
        answer = await answers.answer(Question(namespace, "trainingjob.resnet", "events"))
        assert answer.body.decode().splitlines() == before
        assert (await answers.answer(Question(namespace, "trainingjob.resnet", "report"))).body


class Killed(BaseException):
    """The process ends here."""


def kill_at(log: JetStreamEventLog, number: int, *, after: bool) -> None:
    """Let this request of the process be its last."""
    asked, count = log.connection.request, 0

    async def killing(*args: Any, **more: Any) -> Any:
        nonlocal count
        if (count := count + 1) != number:
            return await asked(*args, **more)
        if after:
            await asked(*args, **more)
        raise Killed

    log.connection.request = killing  # type: ignore[method-assign]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 25))
async def test_an_archiver_that_was_killed_at_any_request_goes_on(nats_server: NatsServer, number: int, after: bool):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        before, made = await told(log, namespace), await an_archiver(mine, namespace)
        kill_at(mine, number, after=after)
        with contextlib.suppress(Killed):
            await made.turn(lambda: True)
            assert number > 15
        assert await told(log, namespace) == before
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await archive(mine, namespace)
        assert (len(await left(log, key)), await kept(log, namespace)) == (1, 1)
        assert await told(log, namespace) == before


async def test_of_two_archivers_at_once_one_stores(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        await asyncio.gather(*(archive(mine, namespace) for _ in range(3)))
        assert (len(await left(log, key)), await kept(log, namespace)) == (1, 1)


@pytest.mark.parametrize(
    "changed",
    [{"hash": "0" * 64}, {"count": 3}, {"first": 1}, {"last": 1}],
    ids=lambda changed: next(iter(changed)),
)
async def test_what_is_not_as_its_seal_says_stays_in_the_log(nats_server: NatsServer, changed: dict[str, object]):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await (life := Life(log, key)).live()
        await life.seal(**changed)
        [sealed] = (await archive(mine, namespace)).sealed.values()
        assert f"the log differs from the seal: {next(iter(changed))}" in sealed.trouble
        assert (len(await left(log, key)), await kept(log, namespace)) == (len(life.events) + 1, 0)


async def test_a_copy_is_read_again_before_a_purge_that_failed_is_repeated(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    async def away(*_: object) -> int:
        raise Transient("the log is away")

    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        made = await an_archiver(mine, namespace)
        with monkeypatch.context() as outage:
            outage.setattr(Archive, "purge", away)
            with pytest.raises(Transient):
                await made.turn(lambda: True)
        await log.archive.purge(ARCHIVE, archived_as(key), 2**60)
        async with asyncio.timeout(READY):
            # The server takes no message of the same id within a second.
            while len(await left(log, key)) > 1:
                await made.turn(lambda: True)
                await asyncio.sleep(0.2)
        assert await kept(log, namespace) == 1


async def test_a_copy_that_was_changed_is_told_and_nothing_is_purged(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str]
):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, key)
        made = await an_archiver(mine, namespace)
        await made._store(next(iter(made.sealed.values())), archived_as(key))
        [part] = [part async for part in log.archive.parts(archived_as(key))]
        raw = await api.message(log.connection, ARCHIVE, seq=part.sequence)
        assert raw is not None
        await log.archive.purge(ARCHIVE, part.subject, part.sequence + 1)
        other = b"\n".join(part.lines).replace(b"resnet", b"RESNET", 1)
        names = ("Muster-Seal", "Muster-Part", "Muster-Row")
        headers = {name: wire.header(raw.hdrs, name) for name in names}
        await api.publish(log.connection, part.subject, gzip.compress(other), headers)
        [sealed] = (await archive(mine, namespace)).sealed.values()
        assert "the archive differs from the seal" in sealed.trouble
        assert len(await left(log, key)) == len(life.events) + 1
    await commands.status(settings_of(nats_server, "reader"), namespace)
    assert "the archive differs from the seal" in capsys.readouterr().out
    with pytest.raises(typer.Exit):
        await commands.verify(settings_of(nats_server, "reader"), None, namespace)


async def test_a_copy_without_the_event_with_its_seal_is_not_what_the_seal_says(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, key)
        made, subject = await an_archiver(mine, namespace), archived_as(key)
        [sealed] = made.sealed.values()
        lines = [line_of(stored) for stored in life.events]
        other = line_of(await life.seal(reason="Other"))
        for last in ([], [other]):
            body = gzip.compress("\n".join([*lines, *last]).encode())
            await mine.archive.store(subject, sealed.seal, [body], "{}")
            await made.turn(lambda: True)
            assert "its last event is not its seal" in sealed.trouble
            assert len(await left(log, key)) == len(life.events) + 2
            await log.archive.purge(ARCHIVE, subject, 2**60)
            # The server takes no message of the same id within a second.
            await asyncio.sleep(1.5)
            sealed.again = 0.0


@pytest.mark.parametrize("limit", [0, 5], ids=["the whole", "a page"])
@pytest.mark.parametrize("late", [False, True], ids=["before it is read", "while it is read"])
async def test_a_history_of_which_a_part_is_removed_is_told_in_whole_or_not_at_all(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, limit: int, *, late: bool
):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        with monkeypatch.context() as small:
            small.setattr("shared.eventlog.parts.PART_BYTES", 1_500)
            await archive(mine, namespace, seals=0)
        parts = Archive.parts

        async def cut(*given: Any) -> AsyncIterator[ArchivedPart]:
            async with aclosing(parts(*given)) as found:
                async for part in found:
                    yield part
                    await log.archive.purge(ARCHIVE, archived_as(key), part.sequence + 2)

        if late:
            monkeypatch.setattr(Archive, "parts", cut)
        else:
            first = await anext(parts(log.archive, archived_as(key)))
            await log.archive.purge(ARCHIVE, archived_as(key), first.sequence + 1)
        answers = Answers(lambda: asyncio.sleep(0, log), BUILT_IN)
        with pytest.raises(Refused, match="is missing in the archive"):
            await answers.answer(Question(namespace, "trainingjob.resnet", "events", limit=limit))
        await answers.view.stop()


async def test_a_full_or_missing_archive_leaves_all_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shared.eventlog.archive._PATIENCE", 0.2)
    async with a_server(tmp_path) as server, connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
        key = a_key("team-a")
        life = await a_sealed_life(log, key)
        config = (await api.stream_info(log.connection, ARCHIVE)).config
        await api.call(log.connection, f"STREAM.UPDATE.{ARCHIVE}", config | {"max_bytes": 100}, dict)
        made = await an_archiver(mine, "team-a")
        with pytest.raises(Transient, match="full"):
            await made.turn(lambda: True)
        await api.call(log.connection, f"STREAM.DELETE.{ARCHIVE}", None, dict)
        with pytest.raises(Transient):
            await made.turn(lambda: True)
        assert len(await left(log, key)) == len(life.events) + 1
        assert len(await told(log, "team-a")) == len(life.events) + 1
        await api.call(log.connection, f"STREAM.CREATE.{ARCHIVE}", config, dict)
        await made.turn(lambda: True)
        assert len(await left(log, key)) == 1


async def test_an_archive_that_answers_slowly_takes_no_time_of_others(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        made, asked, slow = await an_archiver(mine, namespace), mine.connection.request, 0

        async def slowly(subject: str, *given: Any, **more: Any) -> Any:
            nonlocal slow
            if ARCHIVE in subject or subject.startswith("archive."):
                slow += 1
                await asyncio.sleep(0.3)
            return await asked(subject, *given, **more)

        mine.connection.request = slowly  # type: ignore[method-assign]
        working, others = asyncio.ensure_future(made.turn(lambda: True)), 0
        while not working.done():
            await log.end(history_filters(key))
            others += 1
        await working
        assert (len(await left(log, key)), await kept(log, namespace)) == (1, 1)
        assert others > slow > 2


@pytest.mark.parametrize("what", ["stored", "read back", "all"])
async def test_an_archive_whose_answers_come_too_late_loses_and_doubles_nothing(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, what: str
):
    monkeypatch.setattr("shared.eventlog.archive._PATIENCE", 0.2)
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, key)
        made, asked, late, stores = await an_archiver(mine, namespace), mine.connection.request, [True], 0

        async def slowly(subject: str, *given: Any, **more: Any) -> Any:
            nonlocal stores
            answer = await asked(subject, *given, **more)
            stores += (store := subject.startswith("archive."))
            if late and (store if what == "stored" else ARCHIVE in subject and (stores or what == "all")):
                raise NoAnswer(f"{subject}: no answer within 3 s")
            return answer

        mine.connection.request = slowly  # type: ignore[method-assign]
        for _ in range(1 if what == "stored" else 3):
            with pytest.raises(Transient, match="no answer within 3 s"):
                await made.turn(lambda: True)
            assert (len(await left(log, key)), await kept(log, namespace)) == (len(life.events) + 1, what != "all")
        if what != "stored":
            # A store whose answer is lost is found by the next turn.
            late.clear()
        await made.turn(lambda: True)
        assert (len(await left(log, key)), await kept(log, namespace)) == (1, 1)


async def test_a_full_archive_has_room_again_once_retention_took_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shared.eventlog.archive._PATIENCE", 0.2)
    async with a_server(tmp_path) as server, connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key("team-a"))
        await archive(mine, "team-a")
        info = await api.stream_info(log.connection, ARCHIVE)
        room = {"max_bytes": info.state.bytes * 3 // 2}
        await api.call(log.connection, f"STREAM.UPDATE.{ARCHIVE}", info.config | room, dict)
        await a_sealed_life(log, newer := a_key("team-a", "newer"))
        made, now = await an_archiver(mine, "team-a", days={"": 1}), log.now() or 0.0
        mine.now = lambda: now + 2 * 86_400  # type: ignore[method-assign]
        with pytest.raises(Transient, match="full"):
            await made.turn(lambda: True)
        await made.turn(lambda: True)
        assert (await left(log, newer), await kept(log, "team-a")) == ([], 1)


async def test_a_seal_stays_in_the_log_while_something_follows_it(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, key)
        seal = await log.end(history_filters(key))
        later = await life._append(subject_of(key, "facts", "watcher", "JobObserved"), b'{"type":"JobObserved"}')
        await archive(mine, namespace, seals=0)
        assert await left(log, key) == [seal, later.sequence]


@pytest.mark.parametrize(
    ("author", "late"),
    [
        ("audit", {"type": "ChangeAttributed", "of": 1, "user": "alice"}),
        ("scheduler", {"type": "SecretMade", "attempt": 0, "uid": "s-1"}),
    ],
    ids=["who made a change", "a fact of a service that stalled"],
)
async def test_what_came_after_the_seal_is_told_as_that_and_leaves_the_log_with_it(
    nats_server: NatsServer, author: str, late: dict[str, object]
):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, key)
        await life._append(subject_of(key, "facts", author, str(late["type"])), json.dumps(late).encode())
        *before, last = await told(log, namespace, part=Part())
        assert last.endswith("(after the seal)")
        assert "after the seal" not in "".join(before)
        assert not (await archive(mine, namespace, seals=0)).sealed
        assert await left(log, key) == []


async def test_retention_takes_nothing_whose_seal_the_log_has(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for uid in ("u-1", "u-2"):
            await a_sealed_life(log, a_key(namespace, uid=uid))
        made, now = await archive(mine, namespace, most={"": 1}, days={"": 1}), mine.now() or 0.0
        mine.now = lambda: now + 2 * 86_400  # type: ignore[method-assign]
        await made.retain()
        assert await kept(log, namespace) == 2
        again = await archive(mine, namespace, seals=3 * 86_400)
        assert [sealed.trouble for sealed in again.sealed.values()] == ["", ""]
        await archive(mine, namespace, seals=0, days={"": 1})
        assert await kept(log, namespace) == 0


async def test_retention_steps_over_a_foreign_message_and_tells_it_once(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        foreign = archived_under(namespace, "other", "u-9")
        await mine.archive._publish(foreign, b"hello", {wire.MESSAGE_ID: namespace}, 0)
        for uid in ("u-1", "u-2"):
            await a_sealed_life(log, a_key(namespace, uid=uid))
        with capture_logs() as lines:
            made, now = await archive(mine, namespace, seals=0, most={"": 9}, days={"": 1}), mine.now() or 0.0
            mine.now = lambda: now + 2 * 86_400  # type: ignore[method-assign]
            await made.turn(lambda: True)
            await made.retain()
        assert [part async for part in log.archive.parts(archived_under(namespace), 0, str)] == []
        assert [line["event"] for line in lines].count("not a part of the archive") == 1
        await log.archive.purge(ARCHIVE, foreign, 2**60)


async def test_what_is_no_history_is_told_and_hides_none(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    key, reader = a_key(namespace := a_namespace()), settings_of(nats_server, "reader")
    foreign, damaged, partial = (archived_under(namespace, "another", uid) for uid in ("u-8", "u-9", "u-10"))
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await mine.archive._publish(foreign, b"hello", {wire.MESSAGE_ID: namespace}, 0)
        seal = headers_of(Seal(1, 9, 9, namespace)) | {"Muster-Part": "1/1"}
        await mine.archive._publish(damaged, b"hello", seal, 0)
        rest = headers_of(Seal(1, 9, 9, namespace), b"rest") | {"Muster-Part": "2/2"}
        await mine.archive._publish(partial, gzip.compress(b"{}"), rest, 0)
        await a_sealed_life(log, key)
        await archive(mine, namespace)
        with pytest.raises(typer.Exit):
            await commands.verify(reader, None, namespace)
        verified = capsys.readouterr()
        await commands.export(reader, None, namespace, "", tmp_path)
        exported = capsys.readouterr()
        for said, end in ((verified, "1, different: 3\n"), (exported, f"1 file in {tmp_path}, 3 left out\n")):
            assert ["no seal" in line for line in said.err.splitlines()] == [True, False, False]
            assert "damaged: Not a gzipped file" in said.err
            assert said.out.endswith(end)
        assert (tmp_path / namespace / "resnet" / "u-1.jsonl").exists()
        await log.archive.purge(ARCHIVE, foreign, 2**60)
        await log.archive.purge(ARCHIVE, damaged, 2**60)
        await log.archive.purge(ARCHIVE, partial, 2**60)


@pytest.mark.parametrize(("marks", "most"), [(1, 2), (3, 3)])
async def test_a_mark_of_a_forgotten_history_takes_no_place_of_one_whose_seal_the_log_has(
    nats_server: NatsServer, marks: int, most: int
):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        forgotten = [a_key(namespace, f"forgotten-{number}") for number in range(marks)]
        for key in forgotten:
            await a_sealed_life(log, key)
        await archive(mine, namespace, seals=0)
        for name in ("older", "newer"):
            await a_sealed_life(log, a_key(namespace, name))
        await archive(mine, namespace)
        for key in forgotten:
            await log.archive.forget(archived_as(key), "its owner asked for it")
        again = await archive(mine, namespace, most={"": most})
        assert [sealed.trouble for sealed in (await archive(mine, namespace)).sealed.values()] == ["", ""]
        assert len(again.sealed) == 2


async def test_of_a_history_that_retention_cuts_nothing_is_left(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(namespace, "older"))
        with monkeypatch.context() as small:
            small.setattr("shared.eventlog.parts.PART_BYTES", 1_500)
            await archive(mine, namespace, seals=0)
        assert await kept(log, namespace) > 1
        await a_sealed_life(log, a_key(namespace, "newer"))
        await archive(mine, namespace, seals=0, most={"": 2})
        parts = [part async for part in log.archive.parts(archived_under(namespace))]
        assert [(key_archived(part.subject).name, part.number) for part in parts] == [("newer", 1)]


async def test_a_copy_is_made_of_no_answer_that_ends_before_the_seal(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    async def lagging(log: JetStreamEventLog, key: JobKey, sequence: int, took: Callable[[Stored], object]) -> Check:
        return await check_of_log(log, key, sequence, lambda stored: stored.sequence < sequence and took(stored))

    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        archiver = await an_archiver(mine, namespace)
        with monkeypatch.context() as patched:
            patched.setattr(archiving, "check_of_log", lagging)
            with pytest.raises(Transient, match="ends before the seal"):
                await archiver.turn(lambda: True)
        assert await kept(log, namespace) == 0
        await archiver.turn(lambda: True)
        assert (len(await left(log, key)), await kept(log, namespace)) == (1, 1)


def then_stopped(
    other: Archive, seal: Seal, lines: bytes, seconds: float
) -> Callable[[str], AsyncIterator[parts.Part]]:
    """The look of an archiver that is stopped behind it, while another one stores these lines."""

    async def look(subject: str) -> AsyncIterator[parts.Part]:
        async for part in other.parts(subject):
            yield part
        await other.store(subject, seal, [gzip.compress(lines)], "{}")
        # For one second the server itself knows what was stored.
        await asyncio.sleep(seconds)

    return look


async def test_an_archiver_that_was_stopped_after_it_looked_doubles_nothing(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    subject, seal = archived_under(a_namespace(), "resnet", "u-1"), Seal(1, 9, 9, "2" * 64)
    async with connected(nats_server, ARCHIVER) as log:
        mine, other = log.archive, log.archive

        monkeypatch.setattr(mine, "parts", then_stopped(other, seal, b"one\n", 1.6))
        await mine.store(subject, seal, [gzip.compress(b"one\n")], "{}")
        assert len([part async for part in other.parts(subject)]) == 1


async def test_a_history_whose_first_seal_a_person_disowned_is_archived_with_its_next_seal(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await (life := Life(log, key)).live()
        wrong = await life.seal(hash="0" * 64)
        made = await archive(mine, namespace)
        assert [sealed.trouble != "" for sealed in made.sealed.values()] == [True]
        await disowned(log, wrong.sequence, "a stolen password", "by-a-person", datetime.now(UTC))
        for stored in (await read_to_end(log, *history_filters(key)))[len(life.events) :]:
            life.history.fold(stored)
        assert not life.history.held
        right = await life.seal()
        before = await told(log, namespace)
        for sealed in made.sealed.values():
            sealed.again = 0.0
        made.note(right)
        await made.turn(lambda: True)
        assert [*made.sealed] == [right.sequence]
        assert await left(log, key) == [right.sequence]
        assert await told(log, namespace) == before
        await commands.verify(settings_of(nats_server, "reader"), None, namespace)


@pytest.mark.parametrize("seconds", [0.0, 1.6], ids=["at once", "after a second"])
async def test_a_part_that_another_archiver_packed_otherwise_is_not_taken_for_ones_own(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, seconds: float
):
    namespace = a_namespace()
    subject, seal = archived_under(namespace, "resnet", "u-1"), Seal(1, 9, 9, namespace)
    async with connected(nats_server, ARCHIVER) as log:
        mine, other = log.archive, log.archive

        with monkeypatch.context() as stopped:
            stopped.setattr(mine, "parts", then_stopped(other, seal, b"1\n2\n", seconds))
            with pytest.raises(Conflict):
                await mine.store(subject, seal, [gzip.compress(b"1\n"), gzip.compress(b"2\n")], "{}")
        await mine.store(subject, seal, [gzip.compress(b"1\n"), gzip.compress(b"2\n")], "{}")
        assert [part.lines async for part in other.parts(subject)] == [[b"1", b"2"]]


async def test_another_history_with_the_same_seal_is_not_added_to(nats_server: NatsServer):
    subject, seal = archived_under(a_namespace(), "resnet", "u-1"), Seal(1, 9, 9, "0" * 64)
    async with connected(nats_server, ARCHIVER) as mine:
        await mine.archive.store(subject, seal, [gzip.compress(b"one\n")], "{}")
        with pytest.raises(Conflict, match="another history is there"):
            await mine.archive.store(subject, seal, [gzip.compress(b"other\n"), gzip.compress(b"more\n")], "{}")


async def test_a_history_that_was_begun_by_another_packing_is_gone_on_with(nats_server: NatsServer):
    subject, seal = archived_under(a_namespace(), "resnet", "u-1"), Seal(1, 9, 9, "1" * 64)
    async with connected(nats_server, ARCHIVER) as mine:
        await mine.archive.store(subject, seal, [gzip.compress(b"1\n2\n", 1)], "")
        for _ in range(2):
            await mine.archive.store(subject, seal, [gzip.compress(b"1\n", 9), gzip.compress(b"2\n3\n", 9)], "{}")
        parts = [part async for part in mine.archive.parts(subject)]
        assert [(part.number, part.of, part.lines) for part in parts] == [(1, 1, [b"1", b"2"]), (2, 2, [b"3"])]


async def test_a_scan_begins_with_the_first_message_since_a_time(nats_server: NatsServer):
    namespace = a_namespace()
    subject, seal = archived_under(namespace, "resnet", "u-1"), Seal(1, 9, 9, namespace)
    async with connected(nats_server, ARCHIVER) as mine:
        await mine.archive.store(
            subject, seal, [gzip.compress(b"1\n"), gzip.compress(b"2\n"), gzip.compress(b"3\n")], ""
        )
        _, second, third = [part async for part in mine.archive.parts(subject)]
        for since, found in ((second.time, [second, third]), ("2200-01-01T00:00:00Z", [])):
            assert [part async for part in mine.archive.scan(subject=subject, since=since)] == found


async def test_a_number_that_was_lowered_counts_where_no_history_is_added(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for uid in ("u-1", "u-2", "u-3"):
            await a_sealed_life(log, a_key(namespace, uid=uid))
        await archive(mine, namespace, seals=0)
        assert namespace in await mine.archive.namespaces()
        await archive(mine, namespace, seals=0, most={namespace: 1})
        assert await kept(log, namespace) == 1


@pytest.mark.parametrize("known", [False, True], ids=["whose archive is away", "that are over"])
async def test_many_seals_do_not_hold_the_loop(known: bool):
    class Away:
        async def first(self, *_: object) -> int:
            raise Transient("away")

        archive = property(lambda self: self)
        now = staticmethod(lambda: 100.0)

    made = Archiver(Away(), BUILT_IN, ArchiveFigures())  # type: ignore[arg-type]
    for number in range(100_000):
        made.note(a_seal(number))
    for sealed in [*made.sealed.values()] if known else ():
        sealed.kept = sealed.purged = True
        del made._open[sealed.sequence]
    made._looked = math.inf
    pauses, working = [0.0], asyncio.ensure_future(made.turn(lambda: True))
    before = time.perf_counter()
    while not working.done():
        await asyncio.sleep(0)
        pauses.append(-before + (before := time.perf_counter()))
    assert max(pauses) < (0.05 if known else 0.2)
    if known:
        await working
    else:
        with pytest.raises(Transient, match="away"):
            await working


def a_seal(number: int) -> Stored:
    body = msgspec.json.encode(Seal(1, 9, 9, "0" * 64))
    subject = f"jobs.team-a.resnet.u-{number}.status.JobSealed"
    return Stored(number, subject, f"{number}", "", body, logged="1970-01-01T00:00:00Z")


async def test_the_days_of_another_namespace_take_nothing_here(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(namespace))
        made, now = await archive(mine, namespace, days={"": 365, "another": 1}), log.now() or 0.0
        mine.now = lambda: now + 2 * 86_400  # type: ignore[method-assign]
        await made.retain()
        assert await kept(log, namespace) == 1


async def test_a_job_that_is_not_over_stays_in_the_log_whatever_its_seal_says(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await (life := Life(log, key)).live(a_running_job())
        await life.seal()
        [sealed] = (await archive(mine, namespace)).sealed.values()
        assert "its job is not over" in sealed.trouble
        assert len(await left(log, key)) == len(life.events) + 1


async def test_the_newer_job_of_a_name_is_told_when_an_older_one_was_forgotten(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for uid in ("u-1", "u-2"):
            await a_sealed_life(log, a_key(namespace, uid=uid))
        before = await told(log, namespace)
        await archive(mine, namespace)
        asked = parse_target("trainingjob/resnet")
        await commands.forget(settings_of(nats_server, ADMIN), asked, namespace, "u-1", "its owner asked for it")
        assert await told(log, namespace) == before


async def test_each_of_several_lives_of_a_name_is_told(nats_server: NatsServer):
    namespace = a_namespace()
    older, newer = a_key(namespace), a_key(namespace, uid="u-2")
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for key in (older, newer):
            await a_sealed_life(log, key)
        before = {key.uid: await told(log, namespace, key.uid) for key in (older, newer)}
        await archive(mine, namespace)
        assert {uid: await told(log, namespace, uid) for uid in before} == before
        assert await told(log, namespace) == before[newer.uid]
        third = Life(log, a_key(namespace, uid="u-3"))
        await third.live()
        assert event_of((await told(log, namespace))[0].encode()).sequence == third.events[0].sequence


async def test_retention_goes_by_number_by_age_and_by_namespace(nats_server: NatsServer):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for uid in ("u-1", "u-2", "u-3"):
            await a_sealed_life(log, a_key(namespace, uid=uid))
        made = await archive(mine, namespace, seals=0, most={namespace: 2, "": 1})
        assert await kept(log, namespace) == 2
        with pytest.raises(Refused, match="knows no"):
            await told(log, namespace, "u-1")
        made._days, now = {"": 1, namespace: 3}, mine.now() or 0.0
        for days, rest in ((2, 2), (4, 0)):
            mine.now = lambda days=days: now + days * 86_400  # type: ignore[method-assign, misc]
            await made.retain()
            assert await kept(log, namespace) == rest


async def test_a_forgotten_history_leaves_a_hash_and_a_reason(
    nats_server: NatsServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    key = a_key(namespace := a_namespace())
    asked, reader = parse_target("trainingjob/resnet"), settings_of(nats_server, "reader")
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        before = await told(log, namespace)
        with pytest.raises(Refused, match="the archive has no TrainingJob"):
            await commands.verify(reader, asked, namespace)
        await archive(mine, namespace)
        await commands.verify(reader, None, namespace)
        await commands.verify(reader, asked, namespace)
        await commands.export(reader, None, namespace, "", tmp_path)
        assert (tmp_path / namespace / "resnet" / "u-1.jsonl").read_text().splitlines() == before
        capsys.readouterr()
        await a_sealed_life(log, a_key(namespace, "res.net"))
        await archive(mine, namespace)
        await commands.export(reader, parse_target("trainingjob/res.net"), namespace, "", tmp_path)
        assert (tmp_path / namespace / "res.net" / "u-1.jsonl").exists()
        capsys.readouterr()
        await commands.export(reader, asked, namespace, "", None)
        assert capsys.readouterr().out.splitlines() == before
        await commands.forget(settings_of(nats_server, ADMIN), asked, namespace, "", "its owner asked for it")
        assert await kept(log, namespace) == 2
        for answer in (told(log, namespace), commands.export(reader, asked, namespace, "", None)):
            with pytest.raises(Refused, match=r"hash [0-9a-f]{64}.*its owner asked for it"):
                await answer
        await commands.verify(reader, None, namespace)
        assert {sealed.trouble for sealed in (await archive(mine, namespace)).sealed.values()} == {""}


async def test_a_copy_that_was_never_finished_adds_nothing_to_the_file_of_the_one_that_was(
    nats_server: NatsServer, tmp_path: Path
):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        begun = headers_of(Seal(1, 9, 9, "0" * 64)) | {"Muster-Part": "1/2"}
        await mine.archive._publish(archived_as(key), gzip.compress(b"1\n"), begun, 0)
        await a_sealed_life(log, key)
        before = await told(log, namespace)
        await archive(mine, namespace)
    await commands.export(settings_of(nats_server, "reader"), None, namespace, "", tmp_path)
    assert (tmp_path / namespace / "resnet" / "u-1.jsonl").read_text().splitlines() == before


async def test_a_history_is_read_with_standard_tools_as_the_page_says(nats_server: NatsServer):
    key = a_key(namespace := a_namespace())
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key)
        before = await told(log, namespace)
        await archive(mine, namespace)
    person = await nats.connect(
        nats_server.url, user="reader", password=nats_server.users["reader"], inbox_prefix="_INBOX_reader"
    )
    try:
        question = json.dumps({"last_by_subj": f"archive.{namespace}.resnet.*"}).encode()
        answer = json.loads((await person.request(f"$JS.API.STREAM.MSG.GET.{ARCHIVE}", question)).data)
    finally:
        await person.close()
    assert gzip.decompress(base64.b64decode(answer["message"]["data"])).decode().splitlines() == before
    digest = bytes(32)
    *events, seal = map(json.loads, before)
    for line, event in zip(before, events, strict=False):
        words = ("sequence", "subject", "event_id", "time", "basis", "optional", "type", "source")
        envelope = "".join(f"{int(event[word]) if word == 'optional' else event[word]}\0" for word in words)
        body = line[line.index('"body":') + 7 : line.index(',"basis":')]
        digest = hashlib.sha256(digest + envelope.encode() + body.encode()).digest()
    assert digest.hex() == seal["body"]["hash"]
