"""Streams: the histories that change and the events of a job as they come, within bounds."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from services.history import documents, streams
from services.history.answers import Busy
from services.history.streams import Progress, Streams
from shared.errors import Refused
from shared.history_api import Question, with_query
from shared.job.events.status import JobFailed
from shared.job.events.watcher import JobGone
from tests.history.test_answers import ask, of
from tests.history.test_answers import log as log  # noqa: PLC0414
from tests.kit.builders import a_running_job, scaling_out
from tests.muster.test_get import Log

TEAM_A = Question("team-a", watch=True)
RESNET_ALONE = with_query(Question("team-a"), {"watch": "1", "fieldSelector": "metadata.name=trainingjob.resnet"})
EVENTS = ask(part="events", watch=True)


def watched(log: Log, question: Question = TEAM_A, progress: Progress | None = None) -> AsyncGenerator[bytes, None]:
    return Streams(of(log)).changes(question, progress or Progress(), as_table=False)


async def taken(stream: AsyncGenerator[bytes, None], number: int) -> list[dict[str, Any]]:
    """The next lines."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(found) < number:
            found += map(json.loads, (await anext(stream)).splitlines())
    return found


def brief(frame: dict[str, Any]) -> tuple[str, str, str]:
    return frame["type"], frame["object"]["metadata"]["name"], frame["object"]["job"]["phase"]


async def test_a_watch_tells_what_there_is_and_then_each_change(log: Log):
    progress = Progress()
    async with aclosing(watched(log, progress=progress)) as stream:
        assert [brief(each) for each in await taken(stream, 2)] == [
            ("ADDED", "trainingjob.resnet", "Running"),
            ("ADDED", "trainingjob.bygone", "Running"),
        ]
        log.add(JobFailed(reason="JobFailed"))
        log.add(*a_running_job(2), name="new", uid="uid-7")
        log.add(*a_running_job(2), name="elsewhere", namespace="team-b", uid="uid-8")
        failed, new = await taken(stream, 2)
        assert brief(failed) == ("MODIFIED", "trainingjob.resnet", "Failed")
        assert brief(new)[:2] == ("ADDED", "trainingjob.new")
        version = int(new["object"]["metadata"]["resourceVersion"])
    async with aclosing(watched(log, Question("team-a", watch=True, after=version))) as stream:
        assert await anext(stream) == b""
        log.add(JobGone(version=90), name="new", uid="uid-7")
        assert [brief(each)[:2] for each in await taken(stream, 1)] == [("MODIFIED", "trainingjob.new")]


async def test_a_watch_looks_at_its_first_rows_in_a_thread(log: Log, monkeypatch: pytest.MonkeyPatch):
    is_of, threads = documents.Row.is_of, set[int]()
    monkeypatch.setattr(documents.Row, "is_of", lambda *asked: threads.add(threading.get_ident()) or is_of(*asked))
    async with aclosing(watched(log)) as stream:
        await taken(stream, 2)
    assert threads
    assert threading.get_ident() not in threads


async def test_a_watch_goes_on_after_a_version_without_what_was_before(log: Log):
    version = len(log.journal.events)
    log.add(JobFailed(reason="JobFailed"))
    log.add(*a_running_job(2), name="new", uid="uid-7")
    async with aclosing(watched(log, Question("team-a", watch=True, after=version))) as stream:
        assert {brief(each)[:2] for each in await taken(stream, 2)} == {
            ("MODIFIED", "trainingjob.resnet"),
            ("ADDED", "trainingjob.new"),
        }


async def test_who_goes_on_after_any_frame_misses_no_change(log: Log):
    version = len(log.journal.events)
    log.add(*a_running_job(2), name="zebra", uid="uid-9")
    log.add(*a_running_job(2), name="ant", uid="uid-10")
    async with aclosing(watched(log, Question("team-a", watch=True, after=version))) as stream:
        (first,) = await taken(stream, 1)
    seen = int(first["object"]["metadata"]["resourceVersion"])
    async with aclosing(watched(log, Question("team-a", watch=True, after=seen))) as stream:
        (second,) = await taken(stream, 1)
    assert [brief(each)[1] for each in (first, second)] == ["trainingjob.zebra", "trainingjob.ant"]


async def test_nothing_is_promised_before_it_was_sent(log: Log):
    progress = Progress()
    async with aclosing(watched(log, progress=progress)) as stream:
        await taken(stream, 1)
        assert progress.reached == 0
        await taken(stream, 1)
        log.add(JobFailed(reason="JobFailed"))
        await taken(stream, 1)
        assert progress.reached


async def test_a_watch_of_one_name_tells_of_no_other(log: Log):
    async with aclosing(watched(log, RESNET_ALONE)) as stream:
        assert [brief(each)[1] for each in await taken(stream, 1)] == ["trainingjob.resnet"]
        log.add(*a_running_job(2), name="new", uid="uid-7")
        log.add(JobFailed(reason="JobFailed"))
        assert [brief(each) for each in await taken(stream, 1)] == [("MODIFIED", "trainingjob.resnet", "Failed")]


async def test_a_history_that_is_no_longer_selected_leaves_a_watch(log: Log):
    running = Question("team-a", watch=True, labels="history.muster.dev/phase=Running,history.muster.dev/gone=false")
    async with aclosing(watched(log, running)) as stream:
        (first,) = await taken(stream, 1)
        assert brief(first) == ("ADDED", "trainingjob.resnet", "Running")
        log.add(JobFailed(reason="JobFailed"))
        log.add(*a_running_job(2), name="new", uid="uid-7")
        left, new = await taken(stream, 2)
        assert brief(left) == ("DELETED", "trainingjob.resnet", "Failed")
        assert brief(new)[:2] == ("ADDED", "trainingjob.new")
    version = int(first["object"]["metadata"]["resourceVersion"])
    async with aclosing(watched(log, replace(running, after=version))) as stream:
        assert {brief(each)[:2] for each in await taken(stream, 2)} == {
            ("DELETED", "trainingjob.resnet"),
            ("ADDED", "trainingjob.new"),
        }


async def test_a_version_beyond_the_log_is_expired(log: Log):
    for stream in (
        watched(log, Question("team-a", watch=True, after=10_000)),
        Streams(of(log)).events(ask(part="events", watch=True, after=10_000)),
    ):
        with pytest.raises(Refused, match="list anew") as refused:
            await anext(stream)
        assert refused.value.reason == "Expired"


async def test_events_come_as_they_are_recorded_and_go_on_where_a_stream_ended(log: Log):
    async with aclosing(Streams(of(log)).events(EVENTS)) as stream:
        before = await taken(stream, len(a_running_job(2)))
        assert {each["subject"].split(".")[2] for each in before} == {"resnet"}
        log.plant("facts.team-a.resnet.uid-1.scaler.X.Y")
        log.add(*a_running_job(2), name="new", uid="uid-7")
        log.add(JobFailed(reason="JobFailed"))
        [failed] = await taken(stream, 1)
        assert failed["subject"].endswith("JobFailed")
    more = ask(part="events", watch=True, uid="uid-1", after=failed["sequence"])
    async with aclosing(Streams(of(log)).events(more)) as stream:
        assert await anext(stream) == b""
        log.add(JobGone(version=90))
        [gone] = await taken(stream, 1)
        assert gone["subject"].endswith("JobGone")


async def test_the_events_of_a_request_are_those_of_its_job_with_its_uid_too(log: Log):
    log.add(*scaling_out(2))
    end = len(log.journal.events)
    more = ask(name="scaleout.scaleout-request-1", part="events", watch=True, uid="uid-1", after=end)
    async with aclosing(Streams(of(log)).events(more)) as stream:
        assert await anext(stream) == b""
        log.add(JobFailed(reason="JobFailed"))
        [failed] = await taken(stream, 1)
        assert failed["subject"].endswith("JobFailed")


async def test_who_is_not_in_the_log_is_not_followed(log: Log):
    for question in (ask(part="events", name="trainingjob.none"), ask(part="events", uid="*", after=1)):
        with pytest.raises(Refused):
            await anext(Streams(of(log)).events(question))


@pytest.mark.parametrize(
    ("taking", "another"),
    [
        pytest.param([("ann", "team-a")], ("bob", "team-b"), id="one user"),
        pytest.param(
            [(f"user-{n}", f"team-{n}") for n in range(4)], ("bob", "team-b"), id="four users of four namespaces"
        ),
        pytest.param(
            [(f"user-{n}", "team-a") for n in range(40)], ("bob", "team-b"), id="forty users of one namespace"
        ),
        pytest.param([("ann", "team-a")], ("bob", "team-a"), id="one user, and another in the same namespace"),
        pytest.param([("ann", f"team-{n}") for n in range(40)], ("bob", "team-1"), id="one user, in forty namespaces"),
    ],
)
async def test_who_takes_all_streams_that_there_are_leaves_some_to_another(
    log: Log, taking: list[tuple[str, str]], another: tuple[str, str]
):
    bounded = Streams(of(log))
    with ExitStack() as open_streams:
        for tenant, namespace in taking * streams.STREAMS:
            with suppress(Busy):
                open_streams.enter_context(bounded.place((tenant,), namespace))
        (tenant, namespace), (newcomer, where) = taking[0], another
        with pytest.raises(Busy, match="many streams already as are left"), bounded.place((tenant,), namespace):
            pass
        with bounded.place((newcomer,), where):
            assert bounded.open <= streams.STREAMS
    assert bounded.open == 0


async def test_the_jobs_of_streams_are_bounded(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "STREAMED_JOBS", 4)
    bounded = Streams(of(log))
    async with aclosing(bounded.changes(TEAM_A, Progress(), as_table=False)) as first:
        await anext(first)
        with pytest.raises(Refused, match="watch one job"):
            await anext(bounded.changes(TEAM_A, Progress(), as_table=False))
        # A namespace that grows beyond the bound ends its watch, which lists anew.
        log.add(*a_running_job(2), name="new", uid="uid-7")
        with pytest.raises(Refused, match="too many jobs"):
            await taken(first, 10)
    async with aclosing(bounded.changes(RESNET_ALONE, Progress(), as_table=False)) as again:
        await anext(again)


async def test_labels_are_read_once_for_each_history_and_where_none_is_selected_never(
    log: Log, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []
    labels = documents.Row.labels.fget
    assert labels is not None

    def counted(row: documents.Row) -> dict[str, str]:
        read.append(row.key.name)
        return labels(row)

    monkeypatch.setattr(documents.Row, "labels", property(counted))
    await taken(watched(log), 2)
    assert read == []
    phase = Question("team-a", watch=True, labels="history.muster.dev/phase=Running")
    await taken(watched(log, phase), 2)
    assert sorted(read) == ["bygone", "resnet"]
    read.clear()
    await of(log).answer(Question("team-a", limit=500))
    assert read == []
