"""Lists through the archive: what left the log is listed, in pages, by name, phase and time."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from muster import usage
from muster.get import Options, shown_by_log, texts
from services.history import answers as answering
from services.history import archived as archiving
from services.history.answers import Answers
from services.history.archived import Archived
from services.history.view import View
from shared.errors import Refused, Transient
from shared.eventlog import api
from shared.eventlog.account import ADMIN, ARCHIVE, ARCHIVER, HISTORY
from shared.eventlog.archive import Archive, Part
from shared.eventlog.server import NatsServer
from shared.eventlog.subject import archived_under, filters
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import Question
from shared.job.events.event import ChangeAttributed
from shared.job.events.status import JobSucceeded
from shared.job.naming import NO_UID, JobKey, archived_as
from shared.telling.targets import parse_target
from tests.archive.test_archiver import archive
from tests.kit.builders import labelled
from tests.kit.nats import READY, a_namespace, a_server, connected, until
from tests.kit.sealed import Life, a_key, a_life, a_sealed_life

pytestmark = pytest.mark.nats
PHASE = "history.muster.dev/phase"
ANY = JobKey("", "", NO_UID)


@pytest_asyncio.fixture
async def namespace(nats_server: NatsServer) -> str:
    """One with a job in the log, three in the archive, one in both, and an earlier life of one of them."""
    found = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for name, uid in (("a", "u-1"), ("b", "u-1"), ("b", "u-2"), ("d", "u-1")):
            await a_sealed_life(log, a_key(found, name, uid))
        await archive(mine, found, seals=0)
        ended = Life(log, a_key(found, "e"))
        *lived, gone = labelled(a_life()[:-4], team="a"), *a_life()[-4:]
        await ended.live([*lived[0], JobSucceeded(reason="JobSucceeded"), *lived[1:], gone])
        await ended.seal()
        await archive(mine, found)
        await Life(log, a_key(found, "c")).live()
        await Life(log, a_key(found, "d", "u-2")).live()
    return found


@pytest_asyncio.fixture
async def asked(nats_server: NatsServer) -> AsyncIterator[Answers]:
    """A service that has just started."""
    async with connected(nats_server, HISTORY) as log:
        made = Answers(lambda: asyncio.sleep(0, log), BUILT_IN)
        yield made
        await made.view.stop()


async def listed(asked: Answers, question: Question) -> list[tuple[str, str]]:
    """The names and uids, page by page."""
    found = []
    while True:
        page: dict[str, Any] = json.loads((await asked.answer(question)).body)
        found += [(item["job"]["name"], item["metadata"]["uid"]) for item in page["items"]]
        if not (go_on := page["metadata"].get("continue", "")):
            return found
        question = replace(question, go_on=go_on)


async def test_all_namespaces_are_listed_although_the_newest_event_was_purged(nats_server: NatsServer, asked: Answers):
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(last := a_namespace()))
        await archive(mine, last, seals=0)
        assert await log.end() > await log.end(filters())
    async with asyncio.timeout(READY):
        await asked.answer(Question(limit=1))


@pytest.mark.parametrize("limit", [0, 1, 2, 500])
async def test_a_list_has_what_left_the_log_once_and_in_order(asked: Answers, namespace: str, limit: int):
    newest = [("a", "u-1"), ("b", "u-2"), ("c", "u-1"), ("d", "u-2"), ("e", "u-1")]
    assert await listed(asked, Question(namespace, limit=limit)) == newest
    every = sorted([*newest, ("b", "u-1"), ("d", "u-1")])
    if not limit:
        options = Options(namespace, gone=True, output="json")
        shown = await shown_by_log(await asked.log(), options, BUILT_IN)
        assert [(one.name, one.uid) for one in shown[1]] == every
    assert await listed(asked, Question(namespace, limit=limit, every=True)) == every
    assert [each for each in await listed(asked, Question(limit=limit)) if each in newest]


async def test_an_earlier_life_does_not_begin_the_page_after_the_newest_one(nats_server: NatsServer, asked: Answers):
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(namespace := a_namespace(), "a", "u-9"))
        await archive(mine, namespace, seals=0)
        for name in ("a", "b"):
            await Life(log, a_key(namespace, name, "u-1")).live()
    assert await listed(asked, Question(namespace, limit=1)) == [("a", "u-1"), ("b", "u-1")]


async def test_what_left_the_log_is_selected_as_the_rest(
    asked: Answers, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    for seconds in (0.5, 0.0):
        monkeypatch.setattr(answering, "SCAN_SECONDS", seconds)
        succeeded = Question(namespace, labels=f"{PHASE}=Succeeded", limit=5)
        assert await listed(asked, succeeded) == [("e", "u-1")]
        assert await listed(asked, Question(namespace, labels="team=a", limit=1)) == [("e", "u-1")]
        assert await listed(asked, replace(succeeded, since="2200-01-01T00:00:00Z")) == []
        named = Question(namespace, only="trainingjob.b", fields="metadata.name=trainingjob.b")
        assert await listed(asked, named) == [("b", "u-2")]


async def test_a_row_and_an_object_of_the_archive_are_as_those_of_the_log(asked: Answers, namespace: str):
    table = json.loads((await asked.answer(Question(namespace), as_table=True)).body)
    cells = {row["object"]["metadata"]["name"]: row["cells"] for row in table["rows"]}
    assert cells["trainingjob.e"][:2] == ["trainingjob.e", "Succeeded"]
    whole = json.loads((await asked.answer(Question(namespace, "trainingjob.e"))).body)
    [item] = [
        each
        for each in json.loads((await asked.answer(Question(namespace))).body)["items"]
        if each["job"]["name"] == "e"
    ]
    whole["job"]["status"] = {}
    assert item == whole
    assert item["metadata"]["labels"]["team"] == item["job"]["labels"]["team"] == "a"


async def test_a_job_that_left_the_log_is_shown_by_its_name(asked: Answers, namespace: str):
    options = Options(namespace, parse_target("trainingjob/e", BUILT_IN), output="json")
    async with aclosing(texts(await asked.log(), options, BUILT_IN)) as told:
        shown = json.loads(await anext(told))
    whole = json.loads((await asked.answer(Question(namespace, "trainingjob.e"))).body)
    assert shown == whole["job"]


async def test_a_job_that_was_sealed_again_after_a_restoration_is_listed_and_counted_once(
    asked: Answers, namespace: str, nats_server: NatsServer
):
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, key := a_key(namespace, "f", "u-f"))
        await archive(mine, namespace, seals=0)
        part = await mine.archive.newest(subject := archived_as(key))
        assert part is not None
        seal = replace(part.seal, last=part.seal.last + 1, hash="f" * 64)
        await mine.archive.store(subject, seal, [part.body], part.row.decode())
    _, shown = await shown_by_log(reader := await asked.log(), Options(namespace, gone=True), BUILT_IN)
    costing = await usage._jobs(reader, namespace, "")
    every = await listed(asked, Question(namespace, every=True))
    for uids in ([one.uid for one in shown], [one.uid for one in costing], [uid for _, uid in every]):
        assert uids.count("u-f") == 1
    newest = await reader.archive.newest(subject)
    assert newest is not None
    assert [row.archived for row in asked.view.archived.rows(namespace, ANY)][-1] == newest.sequence


async def test_what_retention_took_away_and_an_archive_that_was_made_anew_are_seen(tmp_path: Path):
    async with a_server(tmp_path) as server, connected(server, ADMIN) as log, connected(server, ARCHIVER) as mine:
        archived = Archived(lambda: asyncio.sleep(0, log))

        async def seen(*names: str) -> list[str]:
            for name in names:
                await a_sealed_life(log, a_key("team-a", name))
            await archive(mine, "team-a", seals=0)
            await archived.look()
            return [row.key.name for row in archived.rows("", ANY)]

        assert await seen("a", "b", "c") == ["a", "b", "c"]
        await log.archive.keep(archived_under("team-a"), 1)
        assert await seen() == ["c"]
        config = (await api.stream_info(log.connection, ARCHIVE)).config
        await api.call(log.connection, f"STREAM.DELETE.{ARCHIVE}", None, dict)
        await api.call(log.connection, f"STREAM.CREATE.{ARCHIVE}", config, dict)
        # As many messages as before, or more.
        assert await seen("d", "e", "f", "g") == ["d", "e", "f", "g"]


async def test_what_is_left_is_counted_with_the_archive(asked: Answers, namespace: str):
    page = json.loads((await asked.answer(Question(namespace, every=True, limit=3))).body)
    assert page["metadata"]["remainingItemCount"] == 7 - 3


async def test_what_was_removed_from_the_archive_is_no_longer_listed(
    asked: Answers, namespace: str, nats_server: NatsServer
):
    before = await listed(asked, Question(namespace))
    async with connected(nats_server, ADMIN) as log:
        await log.archive.forget(archived_under(namespace, "a", "u-1"), "its owner asked for it")
        await log.archive.purge(ARCHIVE, archived_under(namespace, "e", "u-1"), 2**60)
        await Life(log, a_key(namespace, "new")).live()
    assert await listed(asked, Question(namespace)) == sorted([*before[1:-1], ("new", "u-1")])


async def test_what_comes_into_the_archive_is_noted(asked: Answers, namespace: str, nats_server: NatsServer):
    await listed(asked, Question(namespace))
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(namespace, "later"))
        await archive(mine, namespace, seals=0)

    async def noted() -> bool:
        return any(row.key.name == "later" for row in asked.view.archived.rows(namespace, ANY))

    await until(noted)
    assert ("later", "u-1") in await listed(asked, Question(namespace))


async def test_what_a_lagging_server_did_not_answer_is_noted_at_the_next_look(
    namespace: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    async with connected(nats_server, HISTORY) as log:
        scan, archived = type(log.archive).scan, Archived(lambda: asyncio.sleep(0, log))

        async def two(*asked: Any) -> AsyncIterator[Part]:
            async with aclosing(scan(*asked)) as parts:
                for _ in range(2):
                    yield await anext(parts)

        with monkeypatch.context() as patched:
            patched.setattr(type(log.archive), "scan", two)
            await archived.look()
        behind = archived.count(namespace, ANY)
        await archived.look()
        assert behind < archived.count(namespace, ANY) == 5


async def test_a_list_without_what_a_lagging_server_did_not_answer_is_not_kept(
    asked: Answers, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    scan = Archive.scan

    async def lagging(*given: Any) -> AsyncIterator[Part]:
        async with aclosing(scan(*given)) as parts:
            async for part in parts:
                if not part.subject.startswith(archived_under(namespace, "e").removesuffix("*")):
                    yield part

    monkeypatch.setattr(archiving, "LOOK_SECONDS", 2 * READY)
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "scan", lagging)
        before = await listed(asked, Question(namespace, every=True))
        assert before == await listed(asked, Question(namespace, every=True))
    await asked.view.archived.look()
    assert [*before, ("e", "u-1")] == await listed(asked, Question(namespace, every=True))


async def test_what_was_forgotten_is_told_no_more_by_an_answer_that_was_kept(
    asked: Answers, namespace: str, nats_server: NatsServer
):
    events = Question(namespace, "trainingjob.a", "events")
    await listed(asked, Question(namespace))
    assert (await asked.answer(events)).body
    async with connected(nats_server, ADMIN) as log:
        await log.archive.forget(archived_under(namespace, "a", "u-1"), "its owner asked for it")

    async def forgotten() -> bool:
        try:
            return not (await asked.answer(events)).body
        except Refused as refusal:
            return "its owner asked for it" in str(refusal)

    await until(forgotten)


async def test_the_newest_job_of_a_name_is_that_of_the_archive_while_the_log_has_an_earlier_one(
    asked: Answers, nats_server: NatsServer
):
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        # Its history is on hold, for example, and is not sealed.
        await Life(log, a_key(namespace := a_namespace())).live()
        await a_sealed_life(log, a_key(namespace, uid="u-2"))
        await archive(mine, namespace, seals=0)
    assert await listed(asked, Question(namespace)) == [("resnet", "u-2")]
    for uid, found in (("", "u-2"), ("u-1", "u-1")):
        answer = await asked.answer(Question(namespace, "trainingjob.resnet", uid=uid))
        assert json.loads(answer.body)["metadata"]["uid"] == found


async def test_what_is_removed_after_a_look_that_failed_is_not_listed(
    namespace: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archiving, "AT_ONCE", 1)
    async with connected(nats_server, HISTORY) as log, connected(nats_server, ADMIN) as administrator:
        scan, archived = type(log.archive).scan, Archived(lambda: asyncio.sleep(0, log))

        async def broken(*asked: Any) -> AsyncIterator[Part]:
            async with aclosing(scan(*asked)) as parts:
                async for part in parts:
                    yield part
                    if part.subject.startswith(archived_under(namespace, "d").removesuffix("*")):
                        raise Transient("the server is away")

        with monkeypatch.context() as patched:
            patched.setattr(type(log.archive), "scan", broken)
            with pytest.raises(Transient):
                await archived.look()
        before = archived.count(namespace, ANY)
        await administrator.archive.purge(ARCHIVE, archived_under(namespace, "a", "u-1"), 2**60)
        await archived.look()
        assert (before, archived.count(namespace, ANY)) == (4, 4)
        assert "a" not in {row.key.name for row in archived.rows(namespace, ANY)}


async def test_the_log_is_folded_while_the_archive_is_read_and_that_once(
    namespace: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    scan, go_on, scans = Archive.scan, asyncio.Event(), 0

    async def slow(*asked: Any) -> AsyncIterator[Part]:
        nonlocal scans
        scans += 1
        await go_on.wait()
        async with aclosing(scan(*asked)) as parts:
            async for part in parts:
                yield part

    monkeypatch.setattr(Archive, "scan", slow)
    async with connected(nats_server, HISTORY) as log, asyncio.timeout(READY):
        view = View(lambda: asyncio.sleep(0, log), BUILT_IN)
        try:
            view.start()
            await view.folded.wait()
            assert not view.archived.looked.is_set()
            go_on.set()
            await view.archived.looked.wait()
            assert (scans, view.archived.count(namespace, ANY)) == (1, 5)
        finally:
            await view.stop()


async def test_the_archive_of_another_log_is_read_anew_though_the_table_could_not_be_emptied_at_once(
    namespace: str, nats_server: NatsServer, tmp_path: Path
):
    async with connected(nats_server, HISTORY) as log, a_server(tmp_path) as other, connected(other, HISTORY) as its:
        logs = [log]
        archived = Archived(lambda: asyncio.sleep(0, logs[-1]))
        await archived.look()
        assert archived.count(namespace, ANY) == 5
        logs.append(its)
        archived._table.execute("PRAGMA query_only = ON")
        for _ in range(2):
            with pytest.raises(Transient, match="readonly"):
                await archived.look()
        assert not archived.looked.is_set()
        archived._table.execute("PRAGMA query_only = OFF")
        await archived.look()
        assert (archived.count("", ANY), archived.identity) == (0, await its.identity())


async def test_a_look_that_began_before_the_archive_was_said_to_be_another_does_not_count(
    namespace: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    async with connected(nats_server, HISTORY) as log:
        scan, archived = Archive.scan, Archived(lambda: asyncio.sleep(0, log))

        async def cleared(*asked: Any) -> AsyncIterator[Part]:
            async with aclosing(scan(*asked)) as parts:
                async for part in parts:
                    yield part
            archived.clear()

        with monkeypatch.context() as patched:
            patched.setattr(Archive, "scan", cleared)
            await archived.look()
        assert not archived.looked.is_set()
        await archived.look()
        assert archived.looked.is_set()
        assert archived.count(namespace, ANY) == 5


async def test_a_look_goes_on_when_the_client_that_asked_has_left(
    asked: Answers, namespace: str, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archiving, "LOOK_SECONDS", 2 * READY)
    await listed(asked, Question(namespace))
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await a_sealed_life(log, a_key(namespace, "later"))
        await archive(mine, namespace, seals=0)
    write, began, go_on = Archived._write, asyncio.Event(), asyncio.Event()

    async def slow(*given: Any) -> None:
        began.set()
        await go_on.wait()
        await write(*given)

    monkeypatch.setattr(Archived, "_write", slow)
    asking = asyncio.ensure_future(asked.answer(Question(namespace)))
    await began.wait()
    asking.cancel()
    await asyncio.wait([asking])
    go_on.set()

    async def noted() -> bool:
        return asked.view.archived.count(namespace, ANY) == 6

    await until(noted)


async def test_a_table_without_room_is_told_and_tried_again(namespace: str, nats_server: NatsServer):
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        for number in range(30):
            await a_sealed_life(log, a_key(namespace, f"more-{number}"))
        await archive(mine, namespace, seals=0)
    async with connected(nats_server, HISTORY) as log:
        archived = Archived(lambda: asyncio.sleep(0, log))
        archived._table.execute("PRAGMA max_page_count = 4")
        with pytest.raises(Transient, match="the table of the archive: database or disk is full"):
            await archived.look()
        archived._table.execute("PRAGMA max_page_count = 1000000")
        await archived.look()
        assert archived.count(namespace, ANY) == 35


async def test_a_line_that_no_archiver_wrote_hides_no_other(asked: Answers, namespace: str, nats_server: NatsServer):
    async with connected(nats_server, ADMIN) as log:
        newest = await log.archive.newest(archived_under(namespace, "a", "u-1"))
        assert newest is not None
        for number, sequence in enumerate(("-1", f"{2**63}", f"-{2**70}", '"7"', "[]")):
            row = re.sub(r'"sequence": \d+', f'"sequence": {sequence}', newest.row.decode()).replace('"u-1"', '"u-x"')
            # The server takes a message with the id of one before it for the same.
            seal = replace(newest.seal, hash=f"{number:064x}")
            await log.archive.store(archived_under(namespace, "odd", f"u-{number}"), seal, [newest.body], row)
    assert ("e", "u-1") in await listed(asked, Question(namespace, every=True))


@pytest.mark.parametrize("gone", [False, True])
async def test_a_fact_that_comes_after_the_seal_makes_no_job_of_its_own(nats_server: NatsServer, *, gone: bool):
    namespace = a_namespace()
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        life = await a_sealed_life(log, a_key(namespace))
        await archive(mine, namespace)
        # Who deleted it, as the API server's audit may say a quarter of an hour later.
        await life.live([ChangeAttributed(of=life.events[-1].sequence, user="alice")])
        _, shown = await shown_by_log(log, Options(namespace, gone=gone), BUILT_IN)
        assert [(one.called, one.gone) for one in shown] == [("trainingjob", True)] * gone
