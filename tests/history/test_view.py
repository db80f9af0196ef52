"""The view: one fold for all readers, in bounded memory, which begins anew with another log."""

import asyncio
import json
import zlib
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from services.history import view as views
from services.history.answers import Answers
from services.history.streams import Progress, Streams
from services.history.view import Folding, View
from shared.errors import Refused
from shared.eventlog import Batch, EventLog, Stored
from shared.history_api import Question
from shared.job.events.status import JobFailed
from shared.job.events.watcher import JobGone
from shared.job.naming import JobKey, Uid
from tests.history.test_answers import RESNET, of, told
from tests.history.test_answers import log as log  # noqa: PLC0414
from tests.job.test_sealing import LIFE, seal_of
from tests.muster.test_get import Log


async def test_many_readers_are_told_of_one_fold(log: Log, monkeypatch: pytest.MonkeyPatch):
    reads = []
    read = type(await of(log).log()).read

    def counted(self: Any, **options: Any) -> Any:
        reads.append(options)
        return read(self, **options)

    monkeypatch.setattr(type(await of(log).log()), "read", counted)
    answering = of(log)
    streams = Streams(answering)
    watches = [streams.changes(Question("team-a", watch=True), Progress(), as_table=False) for _ in range(50)]
    for watch in watches:
        assert all([await anext(watch) == b"", await anext(watch), await anext(watch)])
    lists = await asyncio.gather(*(answering.answer(Question("team-a", limit=n), str(n)) for n in range(20)))
    assert all(each.body for each in lists)
    log.add(JobFailed(reason="JobFailed"))
    frames = {await anext(watch) for watch in watches}
    assert [json.loads(frame)["object"]["job"]["phase"] for frame in frames] == ["Failed"]
    assert len(reads) == 1
    for watch in watches:
        await watch.aclose()


async def test_a_packed_history_goes_on_as_one_that_is_not(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.add(JobFailed(reason="JobFailed"))
    before = json.loads(await told(log, Question()))
    monkeypatch.setattr(views, "UNPACKED", 1)
    packed, compress = list[bytes](), zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda *given: packed.append(found := compress(*given)) or found)
    assert json.loads(await told(log, Question())) == before
    assert len(packed) == 3, "three times an event is of another job than the one before; rows pack nothing"
    answering = of(log)
    await answering.answer(RESNET)
    assert len(answering.view._unpacked) == 1
    log.add(JobGone(version=90))
    assert json.loads((await answering.answer(RESNET)).body)["job"]["gone"]


async def test_of_a_sealed_history_the_row_remains_within_a_bound(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.add(*LIFE, name="over", uid="uid-7")
    log.add(seal_of(log._histories[JobKey("team-a", "over", Uid("uid-7"))]), name="over", uid="uid-7")
    log.plant("jobs.team-a.over.uid-7.scheduler.SlotsAssigned")
    log.plant("jobs.team-a.purged.uid-9.status.JobSealed")
    # A seal that is of another history ends none.
    log.plant("jobs.team-a.bygone.uid-2.status.JobSealed")
    answering = of(log)
    listed = json.loads((await answering.answer(Question("team-a"))).body)["items"]
    assert [(item["job"]["name"], item["job"]["note"][:9]) for item in listed] == [
        ("bygone", "the decis"),
        ("over", "gone"),
        ("resnet", ""),
    ]
    assert {key.name for key in answering.view._folded} == {"bygone", "resnet", "other"}
    log.add(JobGone(version=91), name="over", uid="uid-7")
    assert json.loads((await answering.answer(Question("team-a"))).body)["items"] == listed
    monkeypatch.setattr(views, "SEALED", 0)
    listed = json.loads((await of(log).answer(Question("team-a"))).body)["items"]
    assert [item["job"]["name"] for item in listed] == ["bygone", "resnet"]


@pytest.mark.parametrize(
    ("purged", "late"),
    [
        pytest.param(("facts",), "", id="an archiver that was killed left its decisions"),
        pytest.param(("facts", "jobs"), "", id="it left the log while it was read"),
        pytest.param((), "scheduler.SecretMade", id="a fact came after the seal"),
    ],
)
async def test_of_a_sealed_history_of_which_the_log_has_a_part_there_is_no_row(
    log: Log, purged: tuple[str, ...], late: str
):
    key = JobKey("team-a", "over", Uid("uid-7"))
    log.add(*LIFE, name="over", uid=key.uid)
    first = log._histories[key].first
    log.add(seal_of(log._histories[key]), name="over", uid=key.uid)
    end = len(log.journal.events)
    for family in purged or ("facts", "jobs"):
        # Of what the archiver purges a reader that was there before has the first event.
        for event in log.journal.events[first if len(purged) == 2 else first - 1 : end - 1]:
            if event.subject.startswith(family):
                log.journal.purged[event.sequence] = end
    if late:
        log.plant(f"facts.team-a.over.{key.uid}.{late}")
    answering = of(log)
    for every in (False, True):
        listed = json.loads((await answering.answer(Question("team-a", every=every))).body)["items"]
        assert {item["job"]["name"] for item in listed} == {"bygone", "resnet"}
    assert key not in answering.view._folded


async def test_a_row_goes_at_the_seal_of_a_history_whose_end_was_purged_before_it_was_read(log: Log):
    key = JobKey("team-a", "over", Uid("uid-7"))
    log.add(*LIFE[:2], name="over", uid=key.uid)
    answering = of(log)
    assert b'"trainingjob.over"' in (await answering.answer(Question("team-a"))).body
    log.add(LIFE[2], name="over", uid=key.uid)
    end = len(log.journal.events)
    log.journal.purged[end] = end
    log.add(seal_of(log._histories[key]), name="over", uid=key.uid)
    assert b'"trainingjob.over"' not in (await answering.answer(Question("team-a"))).body


async def test_an_event_whose_time_no_calendar_has_stops_no_list(log: Log):
    log.plant("facts.team-a.odd.uid-8.watcher.JobGone", time="0001-01-01T00:00:00+14:00")
    items = json.loads((await of(log).answer(Question("team-a"))).body)["items"]
    assert [item["job"]["name"] for item in items] == ["bygone", "odd", "resnet"]


class _Slow:
    """A log whose end no reader reaches."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def read(self, **options: Any) -> Any:
        async with aclosing(self.log.read(**options)) as batches:
            async for batch in batches:
                yield batch if "subjects" in options else Batch(batch.events[:4], 20)
                if "subjects" not in options:
                    await asyncio.Event().wait()


async def test_until_the_first_fold_is_complete_its_progress_is_told(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(views, "WAIT_SECONDS", 0.1)
    fast = of(log)

    async def slow() -> Any:
        return _Slow(await fast.log())

    answering = Answers(slow, fast.kinds)
    assert not answering.view.folding
    with pytest.raises(Folding, match="it has folded 4 of ") as folding:
        await answering.answer(Question("team-a"))
    assert folding.value.retry_after
    assert answering.view.folding
    # The parts of a job are read from the log.
    assert (await answering.answer(replace(RESNET, part="why"))).body


async def test_a_log_that_was_replaced_ends_watches_and_the_view_begins_anew(log: Log):
    answering = of(log)
    await answering.answer(Question("team-a"))
    stream = Streams(answering).changes(Question("team-a", watch=True), Progress(), as_table=False)
    assert [await anext(stream) for _ in range(3)]
    answering.view._clear("")
    with pytest.raises(Refused, match="list anew") as refused:
        await anext(stream)
    assert refused.value.reason == "Expired"


def test_what_no_job_has_makes_no_row():
    view = View(_none, of(Log()).kinds)
    for subject in (
        "facts.a.b",
        "facts.team-a.resnet.none.watcher.ScaleRequested",
        "facts.a.b.c.audit.ChangeAttributed",
    ):
        view._fold(Stored(1, subject, "id", "", b"{}"))
    assert not view._dirty


async def _none() -> EventLog:
    raise AssertionError
