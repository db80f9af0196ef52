"""`muster get`: tables, documents and changes, from the log alone."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from muster.asking import report_of, why_of
from muster.commands import application
from muster.get import Options, age, texts
from shared.errors import Refused
from shared.eventlog import Batch, Stored
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobFailed
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, PodsGone, PodsObserved
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.spec import Problem
from shared.telling.targets import Asked, parse_target
from tests.kit.builders import a_created_job, a_running_job, a_spec, labelled, observed, pods, scaling_out, worker
from tests.kit.histories import KEY, stored
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.muster.test_summary import a_crash_loop

WRONG = JobObserved(
    kind="TrainingJob",
    api_version="kai.alibabacloud.com/v1alpha1",
    generation=2,
    version=1,
    problems=(Problem(reason="NoContainers", field="spec.worker", message="add a container"),),
)


def waiting(reason: str) -> JobObserved:
    return msgspec.structs.replace(WRONG, generation=1, problems=(Problem(reason=reason),))


an_mx_job, *started = a_running_job(2)
assert isinstance(an_mx_job, JobObserved)


class Log:
    """A log in memory to which jobs are added."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self._histories: dict[JobKey, History] = {}

    def add(self, *events: AnyEvent, name: str = "resnet", namespace: str = "team-a", uid: str = KEY.uid) -> None:
        key = JobKey(namespace, name, Uid(uid))
        history = self._histories.setdefault(key, History(key))
        for event in events:
            record = stored(history, event, sequence=len(self.journal.events) + 1)
            history.fold(record)
            self.journal.events.append(record)
        self.journal.wake()

    def damage(self) -> None:
        """An event of another job that ends a command which is given it: that reads the whole log."""
        subject = "facts.team-b.another.uid-9.watcher.JobGone"
        self.journal.events.append(Stored("no number", subject, "bad", "2030-01-01T00:00:00.000Z", b"{}"))  # type: ignore[arg-type]

    def plant(self, subject: str, time: str = "2030-01-01T00:00:00.000Z") -> None:
        """An event that no service would write."""
        self.journal.events.append(Stored(len(self.journal.events) + 1, subject, "bad", time, b""))

    async def says(self, asked: Asked | None = None, kinds: Kinds = BUILT_IN, **options: object) -> str:
        wished = Options(**{"namespace": "", "asked": asked, **options})  # type: ignore[arg-type]
        async with aclosing(texts(MemoryEventLog(self.journal), wished, kinds)) as shown:
            return "\n".join([text async for text in shown])


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize(
    ("events", "row"),
    [
        pytest.param(a_running_job(2), "team-a trainingjob resnet Running 3/3 0", id="runs"),
        pytest.param(
            [WRONG],
            "team-a trainingjob resnet Refused 0/0 0 refused: NoContainers (spec.worker): add a container",
            id="refused",
        ),
        pytest.param(
            [*a_running_job(2), WRONG],
            "team-a trainingjob resnet Running 3/3 0 edit refused: NoContainers (spec.worker): add a container",
            id="an edit was refused",
        ),
        pytest.param(
            [waiting("ManyStarting")],
            "team-a trainingjob resnet Pending 0/0 0 waits for its turn: ManyStarting",
            id="its turn",
        ),
        pytest.param(
            [waiting("TrainingRuntimeNotFound")],
            "team-a trainingjob resnet Pending 0/0 0 waits for its runtime: TrainingRuntimeNotFound",
            id="its runtime",
        ),
        pytest.param(
            a_crash_loop("TFJob"),
            "team-a tfjob resnet Restarting 2/3 1 resnet-worker-0 exited with 1 (Error); "
            "it is replaced after a back-off of 10 s",
            id="its pods crash",
        ),
        pytest.param(
            [*a_created_job(2), pods(worker(0, phase="Pending", reason="Unschedulable", message="no GPU is free"))],
            "team-a trainingjob resnet Created 0/2 0 resnet-worker-0: Unschedulable: no GPU is free",
            id="a pod waits",
        ),
        pytest.param(
            [*a_running_job(2), PodsGone(uids=(Uid("pod-1"),))],
            "team-a trainingjob resnet Running 2/3 0 "
            "resnet-worker-1 was deleted and is not replaced (restartPolicy: Never)",
            id="a worker is lost for good",
        ),
        pytest.param(
            [*a_running_job(2), JobDeleting(version=9, finalizers=("example.com/hold",))],
            "team-a trainingjob resnet Running 3/3 0 being deleted, waits for example.com/hold",
            id="its deletion waits",
        ),
        pytest.param(
            [
                msgspec.structs.replace(an_mx_job, kind="MXJob", api_version="mpba.fbk.eu/v1"),
                *started,
                JobFailed(reason="MXJobFailed", message="the launcher exited with 3 (Error)"),
            ],
            "team-a mxjob.mpba.fbk.eu resnet Failed - 0 the launcher exited with 3 (Error)",
            id="a kind without conditions failed",
        ),
    ],
)
async def test_a_job_is_one_whole_line(log: Log, events: list[AnyEvent], row: str):
    log.add(*events)
    heading, line = (await log.says()).splitlines()
    assert heading.split() == ["NAMESPACE", "KIND", "NAME", "PHASE", "READY", "RESTARTS", "AGE", "NOTE"]
    cells = line.split()
    assert [*cells[:6], *cells[7:]] == row.split()


async def test_a_wide_table_says_more_and_its_columns_are_aligned(log: Log):
    log.add(*a_running_job(2), *scaling_out(2))
    log.add(*a_running_job(2), name="a-longer-name", uid="uid-2")
    heading, long, short = (await log.says(output="wide")).splitlines()
    assert heading.split()[7:] == ["ATTEMPT", "REQUESTS", "EVENTS", "AT", "UID", "NOTE"]
    assert [line.index("uid-") for line in (long, short)] == [heading.index("UID")] * 2
    assert short.split()[7:] == ["1", "0/1", "14", "uid-1"]


async def test_the_namespace_is_a_column_where_there_may_be_several(log: Log):
    log.add(*a_running_job(2))
    heading, line = (await log.says(namespace="team-a")).splitlines()
    assert (heading.split()[0], line.split()[0]) == ("KIND", "trainingjob")


async def test_on_a_terminal_a_job_is_one_line_that_fits_and_its_phase_has_a_colour(log: Log):
    log.add(*a_running_job(2), JobFailed(reason="TrainingJobFailed", message="exited with 1: no data\n" + "x" * 400))
    heading, line = (await log.says(width=100, colours=True)).splitlines()
    assert "\x1b[31mFailed\x1b[0m" in line
    plain = line.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert len(plain) == 100
    assert plain.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert plain.index("Failed") == heading.index("PHASE")
    assert "exited with 1: no data | xxx" in plain


async def test_a_row_that_is_wider_than_the_terminal_loses_its_note_alone(log: Log):
    log.add(*a_running_job(2), JobFailed(reason="TrainingJobFailed", message="x" * 400))
    heading, line = (await log.says(width=30)).splitlines()
    assert "AGE" in heading
    assert "Failed" in line
    assert len(line) % 30 == 0
    assert line.endswith("x\N{HORIZONTAL ELLIPSIS}")


async def test_the_whole_note_is_in_a_wide_table_and_where_no_terminal_is(log: Log):
    log.add(*a_running_job(2), JobFailed(reason="TrainingJobFailed", message="x" * 400))
    assert "x" * 400 in await log.says(width=100, output="wide")
    assert "x" * 400 in await log.says()


async def test_on_a_terminal_a_pod_in_a_note_is_called_without_the_name_of_its_job(log: Log):
    unschedulable = worker(0, phase="Pending", ready=False, reason="Unschedulable", message="no nodes")
    log.add(*a_created_job(2), pods(unschedulable))
    assert (await log.says(width=80, namespace="team-a")).splitlines()[1].endswith("  worker-0: Unschedulable: no…")
    assert (await log.says()).endswith("  resnet-worker-0: Unschedulable: no nodes")


async def test_control_characters_in_a_note_reach_no_terminal(log: Log):
    log.add(*a_running_job(2), JobFailed(reason="TrainingJobFailed", message="a\x1b[2Jb"))
    assert "a\\u001b[2Jb" in await log.says(width=200, colours=True)


def test_a_selector_that_is_none_is_wrong_usage_before_a_cluster_is_looked_for():
    refused = CliRunner().invoke(application(), ["get", "-A", "-l", "team in (a"])
    assert refused.exit_code == 2
    assert "'team in (a' is no part of a selector" in refused.output


async def test_a_selector_shows_the_jobs_that_have_its_labels(log: Log):
    log.add(*labelled(a_running_job(2), team="b"))
    log.add(*labelled(a_running_job(2), team="a"), name="another", uid="uid-2")
    (_, line) = (await log.says(selector="team=a")).splitlines()
    assert line.split()[2] == "another"
    with pytest.raises(Refused, match="no part of a selector"):
        await log.says(selector="team=a=b")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59, "59s"), (60, "1m"), (312, "5m12s"), (660, "11m"), (7500, "2h5m"), (3 * 86_400 + 7200, "3d2h")],
)
def test_an_age_has_its_two_largest_units(seconds: int, words: str):
    began = datetime(2030, 1, 1, tzinfo=UTC)
    assert age(began.isoformat(), began + timedelta(seconds=seconds)) == words


async def test_deleted_jobs_are_shown_when_they_are_asked_for(log: Log):
    log.add(*a_running_job(2), JobGone(version=90))
    assert await log.says(namespace="team-a") == "no jobs in namespace team-a"
    assert "gone" in await log.says(gone=True)
    assert "gone" in await log.says(parse_target("resnet"), namespace="team-a")


async def test_one_job_is_one_row_and_one_document(log: Log):
    log.add(*a_running_job(2))
    log.add(*a_running_job(2), name="another", uid="uid-2")
    asked = parse_target("trainingjob/resnet")
    assert len((await log.says(asked, namespace="team-a")).splitlines()) == 2
    document = json.loads(await log.says(asked, namespace="team-a", output="json"))
    assert (document["kind"], document["name"], document["phase"]) == ("TrainingJob", "resnet", "Running")
    assert (document["ready"], document["wanted"], document["restarts"], document["attempt"]) == (3, 3, 0, 1)
    assert document["status"]["workers"] == "2/2"


async def test_all_jobs_are_a_list_of_documents(log: Log):
    log.add(*a_running_job(2))
    listed = json.loads(await log.says(output="json"))
    assert [one["uid"] for one in listed] == ["uid-1"]
    assert yaml.safe_load(await log.says(output="yaml")) == listed
    assert json.loads(await Log().says(output="json")) == []


async def test_a_job_that_the_log_does_not_know_is_one_line(log: Log):
    with pytest.raises(Refused, match="the log knows no job team-a/resnet"):
        await log.says(parse_target("resnet"), namespace="team-a")


@pytest.mark.parametrize("name", ["*", ">", "a b", "a_b"])
async def test_a_name_that_no_job_can_have_is_one_line(log: Log, name: str):
    with pytest.raises(Refused) as refused:
        await log.says(parse_target(name), namespace="team-a")
    assert "\n" not in str(refused.value)


async def test_one_job_is_read_without_the_events_of_others(log: Log):
    log.add(*a_running_job(2))
    log.damage()
    assert "Running" in await log.says(parse_target("resnet"), namespace="team-a")
    assert "Running" in await log.says(namespace="team-a")


@pytest.mark.parametrize("asked", [None, parse_target("resnet")], ids=["all", "one"])
async def test_a_watch_shows_each_change_and_nothing_else(log: Log, asked: Asked | None):
    log.add(*a_running_job(2))
    options = Options("team-a", asked=asked, watch=True)
    async with aclosing(texts(MemoryEventLog(log.journal), options, BUILT_IN)) as shown, asyncio.timeout(10):
        assert "PHASE" in await anext(shown)
        assert "3/3" in await anext(shown)
        log.add(pods(worker(1, version=29)))
        log.add(pods(worker(1, version=30, ready=False)))
        assert "2/3" in await anext(shown)
        log.add(pods(worker(1, version=31)))
        assert "3/3" in await anext(shown)
        log.add(JobGone(version=90))
        assert "gone" in await anext(shown)


async def test_a_watch_of_all_jobs_shows_new_ones(log: Log):
    log.add(*a_running_job(2))
    options = Options("team-a", output="json", watch=True)
    async with aclosing(texts(MemoryEventLog(log.journal), options, BUILT_IN)) as shown, asyncio.timeout(10):
        assert json.loads(await anext(shown))["name"] == "resnet"
        log.add(observed(a_spec(2)), name="new", uid="uid-2")
        assert json.loads(await anext(shown))["name"] == "new"


@pytest.mark.parametrize("gone", [False, True], ids=["as it is", "with --gone"])
async def test_a_watch_leaves_out_jobs_that_were_gone_before(log: Log, gone: bool):
    log.add(*a_running_job(2), JobGone(version=90), name="bygone", uid="uid-2")
    log.add(*a_running_job(2))
    async with aclosing(_changes(log, gone=gone)) as shown, asyncio.timeout(10):
        assert [await anext(shown) for _ in range(1 + gone)] == ["bygone", "resnet"][not gone :]
        log.add(PodsGone(uids=(Uid("pod-0"),)), name="bygone", uid="uid-2")
        log.add(pods(worker(1, version=30, ready=False)))
        assert await anext(shown) == ("bygone" if gone else "resnet")


async def _changes(log: Log, **options: bool) -> AsyncGenerator[str, None]:
    """The names of the jobs that a watch shows."""
    watch = Options("team-a", output="json", watch=True, **options)
    async with aclosing(texts(MemoryEventLog(log.journal), watch, BUILT_IN)) as shown:
        async for text in shown:
            yield json.loads(text)["name"]


async def test_a_watch_as_yaml_is_a_stream_of_documents(log: Log):
    log.add(*a_running_job(2))
    options = Options("team-a", output="yaml", watch=True)
    async with aclosing(texts(MemoryEventLog(log.journal), options, BUILT_IN)) as shown, asyncio.timeout(10):
        first = await anext(shown)
        log.add(PodsObserved(pods=(worker(1, version=30, ready=False),)))
        documents = list(yaml.safe_load_all(f"{first}\n{await anext(shown)}"))
    assert [each["ready"] for each in documents] == [3, 2]


RESNET = parse_target("trainingjob/resnet", BUILT_IN)


async def told(log: MemoryEventLog, asked: Asked | None) -> str:
    async with aclosing(texts(log, Options("team-a", asked, output="json"), BUILT_IN)) as found:
        return await anext(found)


@pytest.mark.unrecorded
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda log: told(log, None), id="the list"),
        pytest.param(lambda log: told(log, RESNET), id="one of it"),
        pytest.param(lambda log: why_of(log, RESNET, "", "team-a"), id="why"),
        pytest.param(lambda log: report_of(log, RESNET, "team-a", BUILT_IN), id="report"),
    ],
)
async def test_what_is_told_of_jobs_keeps_no_events(
    log: Log, monkeypatch: pytest.MonkeyPatch, asked: Callable[[MemoryEventLog], Awaitable[object]]
):
    log.add(*a_running_job(2))
    journal, size = MemoryEventLog(log.journal), 1_000_000
    read = journal.read

    async def one_by_one(**asked: Any) -> AsyncGenerator[Batch, None]:
        async with aclosing(read(**asked)) as batches:
            async for batch in batches:
                for each in batch.events:
                    yield Batch((msgspec.structs.replace(each, body=each.body.ljust(size)),), 1)
                yield Batch((), batch.pending)

    monkeypatch.setattr(journal, "read", one_by_one)
    tracemalloc.start()
    try:
        found = await asked(journal)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "resnet" in str(found)
    assert most < 5 * size < size * len(log.journal.events)
