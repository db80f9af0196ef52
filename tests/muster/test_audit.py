"""`muster audit`: what people and programs asked for and what became of it; `why` and `report` name users too."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import typer

from muster.history import begin_of, changes, table
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed, EventDisowned
from shared.job.events.scaler import ScaleRejected
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.naming import JobKey, Uid
from shared.job.spec import OVER_BUDGET, Problem, RuntimeUsed, ScaleSpec
from shared.job.views import Actor
from shared.telling.causes.links import People, Person
from shared.telling.causes.walk import Causes
from shared.telling.reading import fold_all
from shared.telling.report import Life, report_lines, reported
from tests.job.test_sealing import LIFE, seal_of
from tests.kit.builders import a_running_job, a_spec, observed
from tests.kit.histories import KEY, log_of
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
    request = replace(MORE, spec=ScaleSpec(kind="ScaleOut", job="resnet", count=9))
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


async def test_a_sealed_job_keeps_its_kind_and_its_outcomes(log: Log):
    log.add(*LIFE)
    before = await rows(log)
    assert before[-1] == ["trainingjob/resnet", "", "it was deleted", "gone"]
    log.add(seal_of(log._histories[KEY]))
    assert await rows(log) == before


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


BEGUN = a_running_job(2)
AT = len(BEGUN) + 1
"""The sequence of the next event."""


def by(user: str, *, of: int = AT, write: int = 0, audit: str = "") -> ChangeAttributed:
    groups, agent = ("team-a", "system:authenticated"), "kubectl/v1.36.2 (linux/amd64) kubernetes/abc"
    return ChangeAttributed(of=of, user=user, write=write, groups=groups, agent=agent, audit=audit or f"{user}-{write}")


def an_edit(*writes: int) -> JobObserved:
    return msgspec.structs.replace(observed(a_spec(3), generation=2), by=(EDIT,), writes=writes)


MORE = ScaleRequested(
    kind="ScaleOut",
    name="more",
    uid=Uid("request-1"),
    spec=ScaleSpec(kind="ScaleOut", job="resnet", count=1),
    by=(EDIT,),
)


def why(*events: AnyEvent) -> str:
    causes = fold_all(Causes(KEY), log_of([*BEGUN, *events]))
    return "\n".join(line for link in causes.at.values() for line in [link.text, link.unknown])


def test_an_edit_is_its_users():
    said = why(an_edit(40), by("alice", write=40))
    assert "the job was edited by alice of team-a with kubectl/v1.36.2 (kubectl-edit) to run 3 workers" in said


def test_a_request_is_its_creators_and_a_deletion_has_an_author():
    assert "ScaleOut more was created by alice of team-a with" in why(MORE, by("alice"))
    deleted = why(JobDeleting(version=90), by("alice"), JobGone(), by("alice", of=AT + 2))
    assert "it was deleted by alice of team-a with kubectl/v1.36.2, and waits for a finalizer" in deleted
    assert "who deleted it" not in deleted
    assert "the resource is gone: it was deleted by alice of team-a" in why(JobGone(), by("alice"))
    assert "who deleted it is not in this log" in why(JobGone())


@pytest.mark.parametrize(
    "events",
    [
        pytest.param((an_edit(40), by("bob", write=41)), id="of another write"),
        pytest.param((an_edit(40), by("bob", of=AT - 1, write=40)), id="of another event"),
        pytest.param((an_edit(40, 41), by("bob", write=41)), id="of one of two writes"),
        pytest.param((an_edit(), by("bob")), id="of an edit of which the writes are not known"),
        pytest.param((an_edit(40), by("alice", write=40), by("bob", write=40)), id="two claim the same write"),
        pytest.param(
            (an_edit(40), by("alice", write=40, audit="x"), by("bob", write=40, audit="x")),
            id="two claim the same write, and a client chose the id of its request",
        ),
    ],
)
def test_a_user_who_is_not_certain_is_not_named(events: tuple[AnyEvent, ...]):
    assert "the job was edited by kubectl-edit to run" in why(*events)


def test_the_same_fact_twice_counts_once_and_edits_recorded_together_have_all_their_users():
    twice = why(an_edit(40), by("alice", write=40), by("alice", write=40))
    assert "edited by alice of" in twice
    both = why(an_edit(40, 41), by("alice", write=40), by("bob", write=41))
    assert "edited by alice of team-a with kubectl/v1.36.2 and bob of team-a with" in both


def test_control_characters_in_names_do_not_reach_a_terminal():
    for name in ("alice\x1b[2J", "alice\nbob", "alice\u202ebob"):
        assert why(an_edit(40), by(name, write=40)).replace("\n", "").isprintable()
        assert "\n" not in str(Person(name))


def test_who_impersonates_is_named_with_whom():
    event = ChangeAttributed(of=1, user="alice", acting_as="bob")
    people = People()
    people.add(KEY, event)
    assert [*map(str, people.of(KEY, 1, MORE))] == ["alice as bob"]
    assert str(Person("alice")) == "alice"


def test_an_attribution_in_another_jobs_history_names_nobody():
    people, other = People(), JobKey("team-a", "other", Uid("uid-9"))
    people.add(other, by("mallory"))
    assert people.of(KEY, AT, MORE) == ()
    assert len(people.of(other, AT, MORE)) == 1


async def test_the_audit_and_the_report_name_users():
    log = Log()
    log.add(*BEGUN, an_edit(40))
    before = await changes(MemoryEventLog(log.journal), "team-a", BUILT_IN)
    assert before[-1].people == ()
    log.add(by("alice", of=before[-1].sequence, write=40))
    found = await changes(MemoryEventLog(log.journal), "team-a", BUILT_IN)
    assert [person.user for person in found[-1].people] == ["alice"]
    assert "alice of team-a with kubectl/v1.36.2 (kubectl-edit)" in "\n".join(table(found, "team-a"))
    events = log_of([*BEGUN, an_edit(40), by("alice", write=40)])
    found = reported(fold_all(Life(KEY), events), BUILT_IN, until=events[-1].time)
    lines = "\n".join(report_lines(found, as_json=False))
    assert "edit of the job by alice of team-a with kubectl/v1.36.2 (kubectl-edit)" in lines
