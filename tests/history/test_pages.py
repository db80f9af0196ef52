"""The events of a job in pages: bounded ones, which together are the whole, from the log and from the archive."""

from collections.abc import AsyncGenerator
from itertools import chain
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.history import answers, pages
from services.history.answers import Answers
from shared.errors import Refused
from shared.eventlog import Batch, parts
from shared.eventlog.account import ADMIN, ARCHIVER, HISTORY
from shared.eventlog.server import NatsServer
from shared.frameworks.kinds import BUILT_IN
from shared.history_api import Question, parse, with_query
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobDeleting, JobGone
from shared.job.naming import archived_as
from shared.telling.reading import event_of
from tests.archive.test_archiver import an_archiver, archive
from tests.archive.test_people import a_named_life
from tests.history.test_answers import ask, of
from tests.kit.builders import a_running_job, a_spec, observed, scaling_out
from tests.kit.nats import a_namespace, connected
from tests.kit.sealed import a_key
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

FIRST = ask(part="events", limit=1000)


@pytest.fixture
def log() -> Log:
    made = Log()
    made.add(*a_running_job(2), JobGone(version=9))
    made.add(*a_running_job(4), *scaling_out(4), uid="uid-9")
    made.add(JobDeleting(version=90), uid="uid-9")
    made.add(ChangeAttributed(of=len(made.journal.events), user="alice"), uid="uid-9")
    return made


async def read(asked: Answers, question: Question) -> list[list[bytes]]:
    """The lines of the pages, each of which names the next one."""
    found = []
    while True:
        answer = await asked.answer(question)
        found.append(answer.body.splitlines())
        if not answer.go_on:
            return found
        path, _, query = answer.go_on.partition("?")
        again = parse(path)
        assert again is not None
        # What a right decides does not stand in an address.
        again = replace(again, people=question.people)
        question = with_query(again, dict(each.split("=") for each in query.split("&")))
        assert (question.after, bool(question.uid)) == (msgspec.json.decode(found[-1][-1])["sequence"], True)


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("size", [1, 3_000, pages.PAGE_BYTES])
@pytest.mark.parametrize("people", [True, False])
@pytest.mark.parametrize("uid", ["", "uid-1"], ids=["the newest", "an earlier one"])
async def test_pages_are_together_the_history(
    log: Log, limit: int, size: int, uid: str, monkeypatch: pytest.MonkeyPatch, *, people: bool
):
    whole = (await of(log).answer(ask(part="events", uid=uid, people=people))).body.splitlines()
    monkeypatch.setattr(pages, "PAGE_BYTES", size)
    found = await read(of(log), replace(FIRST, limit=limit, uid=uid, people=people))
    assert [*chain(*found)] == whole
    assert all(len(page) <= limit for page in found)
    bodies = [[len(event_of(line).body) for line in page] for page in found]
    assert all(sum(page[:-1]) < size for page in bodies)


async def test_the_pages_of_a_request_are_those_of_its_job(log: Log):
    request = replace(FIRST, name="scaleout.scaleout-request-1", limit=9)
    assert [*chain(*await read(of(log), request))] == [*chain(*await read(of(log), replace(FIRST, uid="uid-9")))]


@pytest.mark.parametrize(("limit", "size"), [(1000, 1_000), (3, pages.PAGE_BYTES)], ids=["by bytes", "by number"])
async def test_a_page_reads_no_more_than_it_has(log: Log, limit: int, size: int, monkeypatch: pytest.MonkeyPatch):
    read_of, begun, given = MemoryEventLog.read, list[int](), 0

    async def counted(self: MemoryEventLog, **asked: Any) -> AsyncGenerator[Batch, None]:
        nonlocal given
        begun.append(asked.get("after", 0))
        async for batch in read_of(self, **asked):
            given += len(batch.events)
            yield batch

    log.add(*[observed(a_spec(2))] * 400, uid="uid-9")
    whole = await read(of(log), FIRST)
    asked = of(log)
    await asked.answer(Question("team-a"))
    monkeypatch.setattr("tests.memory.eventlog.BATCH", 10)
    monkeypatch.setattr(pages, "PAGE_BYTES", size)
    monkeypatch.setattr(answers, "MOST_BYTES", 1_000)
    monkeypatch.setattr(MemoryEventLog, "read", counted)
    after = msgspec.json.decode(whole[0][200])["sequence"]
    page = (await asked.answer(replace(FIRST, uid="uid-9", limit=limit, after=after))).body.splitlines()
    assert page == whole[0][201 : 201 + len(page)]
    assert (begun, given) == ([after - 1], 10)
    await asked.view.stop()


@pytest.mark.parametrize(
    ("cursor", "reason", "words"),
    [
        pytest.param({"after": 2}, "Invalid", "2 is no event of team-a/resnet with the uid uid-9", id="an earlier job"),
        pytest.param({"after": 2, "uid": "uid-9"}, "Invalid", "leave after out", id="an earlier job's, by uid"),
        pytest.param({"after": 10**9}, "Invalid", "is no event of", id="what the log never had"),
        pytest.param({"after": 2, "uid": "uid-0"}, "NotFound", "knows no TrainingJob team-a/resnet", id="no such job"),
        pytest.param({"name": "trainingjob.none"}, "NotFound", "knows no TrainingJob", id="no such name"),
    ],
)
async def test_a_place_of_another_history_is_refused(log: Log, cursor: dict[str, Any], reason: str, words: str):
    with pytest.raises(Refused, match=words) as refused:
        await of(log).answer(replace(FIRST, **cursor))
    assert refused.value.reason == reason
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("query", [{"after": "-1"}, {"after": "9" * 30}, {"after": "٣"}, {"limit": "-5"}])
def test_a_place_that_is_no_sequence_is_refused(query: dict[str, str]):
    with pytest.raises(Refused, match=r"no sequence|no number") as refused:
        with_query(ask(part="events"), query)
    assert refused.value.reason == "Invalid"


async def test_a_history_that_leaves_the_log_between_two_pages_goes_on_until_it_is_forgotten(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
):
    key = a_key(namespace := a_namespace())
    async with (
        connected(nats_server, ADMIN) as log,
        connected(nats_server, ARCHIVER) as mine,
        connected(nats_server, HISTORY) as asked,
    ):
        life = await a_named_life(log, key)

        async def connecting() -> Any:
            return asked

        made = Answers(connecting, BUILT_IN)
        question = Question(namespace, "trainingjob.resnet", "events", people=True)
        whole = (await made.answer(question)).body.splitlines()
        monkeypatch.setattr(pages, "PAGE_BYTES", 2_000)
        monkeypatch.setattr(parts, "_LINES_BYTES", 3_000)
        first = await made.answer(replace(question, limit=5))
        after = msgspec.json.decode(first.body.splitlines()[-1])["sequence"]
        later = replace(question, uid=key.uid, limit=1000, after=after)
        assert first.body.splitlines() == whole[:5]
        # The log has all; a part; the seal; nothing.
        archiver = await an_archiver(mine, namespace)
        await archiver.turn(lambda: True)
        for last in ({}, {"seals": 0}):
            await archive(mine, namespace, **last)
            assert [*chain(*await read(made, later))] == whole[5:]
            assert [*chain(*await read(Answers(connecting, BUILT_IN), replace(question, limit=3)))] == whole
        assert len([part async for part in log.archive.parts(archived_as(key))]) > 2
        with pytest.raises(Refused, match="is no event of"):
            await made.answer(replace(later, after=life.events[0].sequence - 1))
        await log.archive.forget(archived_as(key), "its owner asked for it")
        with pytest.raises(Refused, match=r"was removed .*: its owner asked for it") as refused:
            await made.answer(replace(later, limit=999))
        assert refused.value.reason == "NotFound"
        await made.view.stop()


@pytest.mark.parametrize("read", [0, 3], ids=["the first page", "a later one"])
async def test_a_history_that_leaves_the_log_while_a_page_is_read_is_told_from_the_archive(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, read: int
):
    key, read_of = a_key(namespace := a_namespace()), pages.fold_to_end
    async with (
        connected(nats_server, ADMIN) as log,
        connected(nats_server, ARCHIVER) as mine,
        connected(nats_server, HISTORY) as asked,
    ):
        await a_named_life(log, key)

        async def connecting() -> Any:
            return asked

        async def after_the_archiver(*args: Any, **more: Any) -> int:
            await archive(mine, namespace)
            return await read_of(*args, **more)

        made = Answers(connecting, BUILT_IN)
        question = Question(namespace, "trainingjob.resnet", "events", uid=key.uid)
        whole = (await made.answer(question)).body.splitlines()
        after = msgspec.json.decode(whole[read - 1])["sequence"] if read else 0
        monkeypatch.setattr(pages, "fold_to_end", after_the_archiver)
        page = await made.answer(replace(question, limit=1000, after=after))
        assert page.body.splitlines() == whole[read:]
        await made.view.stop()
