"""`muster audit`: what people and programs wished for, and what became of it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import typer

from muster.history import begin_of, changes, table
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.event import EventDisowned
from shared.job.events.scaler import ScaleRejected
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import Uid
from shared.job.spec import OVER_BUDGET, Problem, RuntimeUsed, ScaleSpec
from shared.job.views import Actor
from tests.kit.builders import a_running_job, a_spec, observed
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import WRONG, Log

EDIT, SCALE = Actor("kubectl-edit", "Update"), Actor("kubectl", "Update", "scale")
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)

replace = msgspec.structs.replace


@pytest.fixture
def log() -> Log:
    return Log()


async def rows(log: Log, namespace: str = "team-a") -> list[list[str]]:
    found = await changes(MemoryEventLog(log.journal), namespace, BUILT_IN)
    return [[change.job, " and ".join(map(str, change.by)), change.change, change.outcome] for change in found]


async def test_each_wish_has_its_author_and_its_outcome(log: Log):
    first, *later = a_running_job(2)
    assert isinstance(first, JobObserved)
    edited = replace(observed(a_spec(3), generation=2), by=(EDIT, SCALE))
    request = ScaleRequested(
        kind="ScaleOut",
        name="more",
        uid=Uid("request-1"),
        spec=ScaleSpec(kind="ScaleOut", job="resnet", count=9),
        by=(EDIT,),
    )
    rejected = ScaleRejected(request=request.uid, reason="AboveMaximum")
    log.add(replace(first, by=(EDIT,)), *later, edited, request, rejected, WRONG)
    log.add(JobDeleting(version=90), JobGone(version=91))
    job = "trainingjob/resnet"
    applied, resized, asked, wrong, deleted = await rows(log)
    assert applied[:2] == [job, "kubectl-edit"]
    assert applied[2].startswith("the job was applied: 2 workers")
    assert resized == [
        job,
        "kubectl-edit and kubectl (scale)",
        "the job was edited to run 3 workers instead of 2",
        "pending",
    ]
    assert asked[1:3] == ["kubectl-edit", "ScaleOut more was created: 9 more workers"]
    assert asked[3].startswith("failed (AboveMaximum")
    assert (wrong[1], wrong[3]) == ("", "refused")
    assert deleted == [job, "", "it was deleted", "gone"]


async def test_what_waits_for_its_turn_is_listed_once_when_that_came(log: Log):
    first, *later = a_running_job(2)
    assert isinstance(first, JobObserved)
    over = (Problem(reason=OVER_BUDGET, message="wait"),)
    log.add(replace(first, spec=None, problems=over), replace(first, by=(EDIT,)), *later)
    spec = ScaleSpec(kind="ScaleOut", job="resnet", count=1)
    request = ScaleRequested(kind="ScaleOut", name="more", uid=Uid("request-1"), spec=spec, by=(SCALE,))
    log.add(replace(request, spec=None, problems=over), request)
    assert [row[1] for row in await rows(log)] == ["kubectl-edit", "kubectl (scale)"]


async def test_what_nobody_wished_for_is_no_change(log: Log):
    log.add(*a_running_job(2))
    assert len(await rows(log)) == 1


async def test_what_an_administrator_disowned_is_told(log: Log):
    log.add(*a_running_job(2), EventDisowned(sequence=1, reason="a stolen password"))
    assert (await rows(log))[-1][2] == "the event 1 was disowned: a stolen password"


async def test_a_table_names_the_namespace_only_where_there_are_several(log: Log):
    log.add(*a_running_job(2))
    log.add(*a_running_job(2), namespace="team-b", uid="uid-2")
    found = await changes(MemoryEventLog(log.journal), "", BUILT_IN)
    heading, first, second = table(found, "")
    assert heading.split() == ["SEQUENCE", "TIME", "JOB", "BY", "OUTCOME", "CHANGE"]
    assert [line.split()[2] for line in (first, second)] == ["team-a/trainingjob/resnet", "team-b/trainingjob/resnet"]
    assert "unknown" in first
    assert [*table([], "team-c")] == ["no changes in namespace team-c"]


@pytest.mark.parametrize(
    ("since", "begin"),
    [
        ("", None),
        ("90s", datetime(2030, 1, 31, 11, 58, 30, tzinfo=UTC)),
        ("999999d", NOW - timedelta(days=36_500)),
        ("7d", datetime(2030, 1, 24, 12, tzinfo=UTC)),
        ("2030-01-30", datetime(2030, 1, 30, tzinfo=UTC)),
    ],
)
def test_since_is_an_age_or_a_time(since: str, begin: datetime | None):
    assert begin_of(since, NOW) == begin


@pytest.mark.parametrize("since", ["yesterday", "2w", "-1h"])
def test_since_is_nothing_else(since: str):
    with pytest.raises(typer.BadParameter, match="neither an age"):
        begin_of(since, NOW)


async def test_a_change_of_the_runtime_is_no_change_of_the_job(log: Log):
    used = RuntimeUsed(kind="TrainingRuntime", name="torch", uid="runtime-1", generation=1, digest="1")
    spec = a_spec(runtime=used)
    newer = a_spec(runtime=replace(used, generation=2, digest="2"))
    log.add(observed(spec), observed(newer))
    assert len(await rows(log)) == 1
    log.add(replace(observed(replace(newer, suspend=True), generation=2), by=(EDIT,)))
    assert [row[2] for row in await rows(log)][1:] == ["the job was edited to suspend it"]
