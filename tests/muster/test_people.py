"""The users who made changes, in `muster why`, `audit` and `report`, where the audit service knows them."""

import msgspec
import pytest

from muster.history import changes, table
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, ScaleRequested
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.spec import ScaleSpec
from shared.job.views import Actor
from shared.telling.causes.links import People, Person
from shared.telling.report import report_lines, reported
from shared.telling.why import caused, chain_lines, explained
from tests.kit.builders import a_running_job, a_spec, observed
from tests.kit.histories import KEY
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log
from tests.muster.test_why import JOB, log_of

EDIT = Actor("kubectl-edit", "Update")
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
    causes = caused(KEY, log_of([*BEGUN, *events]))
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
    history = History(KEY)
    events = log_of([*BEGUN, an_edit(40), by("alice", write=40)])
    for stored in events:
        history.fold(stored)
    lines = "\n".join(report_lines(reported(history, events, BUILT_IN, until=events[-1].time), as_json=False))
    assert "edit of the job by alice of team-a with kubectl/v1.36.2 (kubectl-edit)" in lines


def test_an_answer_of_why_has_them_in_its_text():
    heading, chains = explained(caused(KEY, log_of([*BEGUN, MORE, by("alice")])), "more", JOB)
    assert "created by alice" in "\n".join([*heading, *chain_lines(chains)])
