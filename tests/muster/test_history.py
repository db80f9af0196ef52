"""`muster history`: looking back, and what is refused."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any

import msgspec
import pytest
import typer

from muster.history import Part, job_events, lines
from muster.terminal import wrong_usage
from shared.errors import Refused, Transient
from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At, ChangeAttributed
from shared.job.events.watcher import JobGone
from shared.job.evolve import evolve
from shared.job.fold import History
from shared.job.naming import Slot, history_filters
from shared.job.state import Job
from shared.telling.reading import as_json_text, found_subjects, until
from shared.telling.targets import parse_target
from tests.kit.builders import a_running_job, exited, pods, scaling_out, worker
from tests.kit.histories import KEY, a_history, log_of, stored
from tests.memory import eventlog
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log
from tests.muster.test_why import STORIES


@pytest.mark.parametrize(
    ("at", "there"),
    [
        pytest.param("1", True, id="its own sequence"),
        pytest.param("0", False, id="an earlier sequence"),
        pytest.param("2100-01-01T00:00:00Z", True, id="a later time"),
        pytest.param("2000-01-01T00:00:00Z", False, id="an earlier time"),
        pytest.param("2000-01-01", False, id="a date is its midnight, UTC"),
    ],
)
def test_a_moment_is_a_sequence_or_a_time(at: str, there: bool):
    assert until(at)(stored(a_history([]), a_running_job()[0], sequence=1)) is there


def test_a_time_of_another_zone_is_the_same_moment():
    event = stored(a_history([]), a_running_job()[0], sequence=1)
    zulu = event.time[:19]
    assert until(f"{zulu}.999+00:00")(event)
    assert not until(f"{zulu}.999+02:00")(event)
    assert until(f"{zulu}-02:00")(event)


def test_what_is_no_moment_is_wrong_usage():
    with pytest.raises(typer.BadParameter, match="'yesterday'"), wrong_usage():
        until("yesterday")


@pytest.mark.parametrize("name", STORIES)
def test_the_state_at_every_event_of_a_history_can_be_shown(name: str):
    history = History(KEY)
    for event in log_of(STORIES[name][0]):
        history.fold(event)
        job, shown = history.job, json.loads(as_json_text(history.job))
        assert shown["status"]["phase"] == job.status.phase
        assert set(shown) == set(job.__struct_fields__)


def test_keys_of_several_words_are_one_word_each():
    history = a_history([*a_running_job(2), pods(worker(1, version=30, phase="Failed", exits=exited(1)))])
    shown = json.loads(
        as_json_text({Slot(0, "worker", 1): history.job.scaling.size, ("ConfigMap", "resnet-config"): 1, 7: {}})
    )
    assert shown == {"0/worker/1": 2, "ConfigMap/resnet-config": 1, "7": {}}


def known(log: Log) -> AsyncGenerator[Sequence[Stored], None]:
    return job_events(MemoryEventLog(log.journal), parse_target("resnet"), "team-a")


async def says(log: Log, **part: object) -> list[str]:
    wished = Part(**part)  # type: ignore[arg-type]
    early = until(wished.at) if wished.at else None
    async with aclosing(lines(known(log), wished, early)) as shown:
        return [line async for line in shown]


async def test_a_history_is_read_without_the_events_of_others():
    log = Log()
    log.add(*a_running_job(2))
    log.damage()
    assert len(await says(log)) == len(a_running_job(2))
    assert {line.split()[2] for line in await says(log, decisions=True)} == {"scheduler", "scaler", "status"}


async def test_the_state_at_a_sequence_follows_the_events_up_to_it():
    log = Log()
    log.add(*a_running_job(2))
    *events, state = await says(log, at="4")
    assert len(events) == 3
    assert json.loads(state)["status"]["phase"] == "Created"


async def test_what_was_before_a_history_is_one_line():
    log = Log()
    log.add(*a_running_job(2))
    with pytest.raises(Refused, match="it begins at 2"):
        await says(log, at="1")


async def test_a_history_is_followed_from_where_it_was_read():
    log = Log()
    log.add(*a_running_job(2))
    shown = lines(known(log), Part(follow=True))
    async with aclosing(shown), asyncio.timeout(10):
        for _ in a_running_job(2):
            await anext(shown)
        log.add(JobGone(version=90), name="another", uid="uid-2")
        # An event of no job, under the subjects of this one, does not end it.
        log.plant("facts.team-a.resnet.uid-1.scaler.X.Y")
        log.add(JobGone(version=90))
        assert (await anext(shown)).split()[3] == "JobGone"


async def test_a_line_waits_for_no_later_event():
    log, read = Log(), list[int]()
    log.add(*a_running_job(2))

    async def pages() -> AsyncGenerator[Sequence[Stored], None]:
        for event in log.journal.events[1:]:
            read.append(event.sequence)
            yield [event]
        yield []

    for part, early in ((Part(), None), (Part(at="5"), until("5"))):
        read.clear()
        async with aclosing(lines(pages(), part, early)) as shown:
            await anext(shown)
            assert read == [2]
            _ = [line async for line in shown]
        assert read[-1] == (5 if early else len(log.journal.events))


async def test_no_more_than_a_batch_of_a_long_history_is_held():
    log = Log()
    log.add(*a_running_job(2), *(pods(worker(1, version=100 + each)) for each in range(2000)))
    sizes = list[int]()
    async with aclosing(known(log)) as found:
        while batch := await anext(found):
            sizes.append(len(batch))
    assert max(sizes) <= 1000
    assert sum(sizes) == len(log.journal.events) - 1


@pytest.mark.parametrize("begins", [1, 40], ids=["whole", "without its beginning"])
async def test_pods_are_not_folded_to_find_the_job_of_a_name(monkeypatch: pytest.MonkeyPatch, begins: int):
    log, folded = Log(), list[str]()
    log.add(*a_running_job(2), *(pods(worker(1, version=100 + each)) for each in range(50)))
    log.journal.purge("*.team-a.>", begins)

    def counted(job: Job, event: AnyEvent, at: At) -> Job:
        folded.append(type(event).__name__)
        return evolve(job, event, at)

    monkeypatch.setattr("shared.job.fold.evolve", counted)
    async with aclosing(known(log)) as found:
        told = [stored.sequence for stored in await anext(found)]
    assert told == [*range(max(begins, 2), len(log.journal.events) + 1)]
    assert folded.count("PodsObserved") == (begins == 40)


@pytest.mark.parametrize("number", [0, 1], ids=["before the first batch", "between two batches"])
@pytest.mark.parametrize(
    ("subject", "before"),
    [
        pytest.param("*.team-a.>", 3, id="in part"),
        pytest.param("facts.team-a.>", 99, id="its facts"),
        pytest.param("*.team-a.>", 99, id="whole"),
    ],
)
async def test_of_a_history_that_leaves_the_log_while_it_is_read_no_event_is_left_out(
    monkeypatch: pytest.MonkeyPatch, subject: str, before: int, number: int
):
    monkeypatch.setattr(eventlog, "BATCH", 4)
    log, reads, told = Log(), list[int](), list[Stored]()
    log.add(*a_running_job(2))

    class Purged(MemoryEventLog):
        async def read(self, **of: Any) -> Any:
            reads.append(1)
            purged_at = number if len(reads) == 2 else -1
            async with aclosing(super().read(**of)) as batches:
                for at in count():
                    if at == purged_at:
                        log.journal.purge(subject, before)
                    yield await anext(batches)

    async def all_told() -> None:
        async with aclosing(job_events(Purged(log.journal), parse_target("resnet"), "team-a")) as found:
            while batch := await anext(found):
                told.extend(batch)

    with pytest.raises(Transient, match="ask again"):
        await all_told()
    assert told == log.journal.events[1:][: 4 * number]


async def test_of_a_job_of_which_the_log_has_only_who_changed_it_that_is_told():
    log = Log()
    log.add(ChangeAttributed(of=1, user="alice"))
    assert len(await says(log)) == 1


async def test_a_request_is_of_the_jobs_that_the_watcher_says():
    log, asked = Log(), parse_target("scaleout/scaleout-request-1")
    log.add(*a_running_job(2), *scaling_out(2))
    [requested] = [each for each in log.journal.events if each.subject.endswith(".ScaleRequested")]
    forged = requested.subject.replace(".resnet.", ".vgg.").replace(".watcher.", ".status.")
    log.journal.events.append(msgspec.structs.replace(requested, sequence=len(log.journal.events) + 1, subject=forged))
    found = await found_subjects(MemoryEventLog(log.journal), asked, "team-a")
    assert found == history_filters(KEY)
