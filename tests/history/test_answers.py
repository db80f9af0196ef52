"""Answers from the log: the documents of the command line, within bounds, and never older than the log."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from muster.asking import report_of, why_of
from muster.get import Options, texts
from muster.history import Part, job_events, lines
from services.history import answers
from services.history.answers import Answer, Answers
from shared.errors import Refused, Transient
from shared.eventlog import EventLog
from shared.history_api import Question, with_query
from shared.job.events.status import JobFailed
from shared.job.events.watcher import JobGone, JobRelabelled
from shared.telling.report import Report, report_lines
from shared.telling.targets import known_kinds, parse_target
from tests.kit.builders import a_running_job, a_spec, labelled, observed, scaling_out
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

RESNET = Question("team-a", "trainingjob.resnet")
ASKED = parse_target("trainingjob/resnet")


@pytest.fixture
def log() -> Log:
    made = Log()
    made.add(*a_running_job(2))
    made.add(*a_running_job(2), JobGone(version=9), name="bygone", uid="uid-2")
    made.add(*a_running_job(2), name="other", namespace="team-b", uid="uid-3")
    return made


def of(log: Log) -> Answers:
    return Answers(lambda: _reached(log), known_kinds())


def reader(log: Log) -> MemoryEventLog:
    return MemoryEventLog(log.journal, user="history")


async def _reached(log: Log) -> EventLog:
    return reader(log)


def ask(**more: object) -> Question:
    return msgspec.structs.replace(RESNET, **more)


async def told(log: Log, question: Question) -> str:
    return (await of(log).answer(question)).body.decode()


async def test_its_words_are_those_of_the_command_line(log: Log):
    printed = await why_of(reader(log), ASKED, "", "team-a")
    assert await told(log, ask(part="why", text=True)) == printed
    printed = await why_of(reader(log), ASKED, "worker-1", "team-a", as_json=True)
    assert await told(log, ask(part="why", about="worker-1")) == printed
    log.add(JobGone(version=90))
    report = await report_of(reader(log), ASKED, "team-a", known_kinds())
    found = msgspec.json.decode(await told(log, ask(part="report")), type=Report)
    assert msgspec.structs.replace(found, until=report.until) == report
    assert await told(log, ask(part="report", text=True)) == "".join(
        f"{line}\n" for line in report_lines(report, as_json=False)
    )
    events = [line async for line in lines(job_events(reader(log), ASKED, "team-a"), Part(as_json=True))]
    assert (await told(log, ask(part="events"))).splitlines() == events
    known = job_events(reader(log), ASKED, "team-a")
    *_, state = [line async for line in lines(known, Part(at="4"), lambda e: e.sequence <= 4)]
    assert await told(log, ask(part="at", at="4")) == f"{state}\n"
    options = Options("team-a", asked=ASKED, output="json")
    [shown] = [text async for text in texts(reader(log), options, known_kinds())]
    assert json.loads(await told(log, RESNET))["job"] == json.loads(shown)


async def test_a_list_has_the_jobs_of_its_namespace_and_those_that_are_gone(log: Log):
    listed = json.loads(await told(log, Question("team-a")))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["trainingjob.bygone", "trainingjob.resnet"]
    assert [item["job"]["gone"] for item in listed["items"]] == [True, False]
    everywhere = json.loads(await told(log, Question()))
    assert {item["metadata"]["namespace"] for item in everywhere["items"]} == {"team-a", "team-b"}


async def test_of_several_jobs_of_a_name_a_list_has_the_newest_and_a_uid_finds_the_others(log: Log):
    log.add(JobGone(version=90))
    log.add(*a_running_job(4), uid="uid-9")
    # What is recorded of the former one later, such as its seal, makes it no newer.
    log.add(JobRelabelled(version=91))
    listed = json.loads(await told(log, Question("team-a")))
    assert [item["metadata"]["uid"] for item in listed["items"]] == ["uid-2", "uid-9"]
    every = json.loads(await told(log, Question("team-a", every=True)))
    assert [item["metadata"]["uid"] for item in every["items"]] == ["uid-2", "uid-1", "uid-9"]
    assert json.loads(await told(log, RESNET))["metadata"]["uid"] == "uid-9"
    assert json.loads(await told(log, ask(uid="uid-1")))["metadata"]["uid"] == "uid-1"


async def test_an_event_that_is_of_no_job_does_not_keep_the_others_from_their_answers(log: Log):
    async def seen() -> list[Any]:
        listed = json.loads(await told(log, Question("team-a")))["items"]
        return [listed, *[await told(log, question) for question in (RESNET, ask(part="events"))]]

    before = await seen()
    log.plant("facts.team-a.resnet.uid-1.scaler.X.Y")
    assert await seen() == before
    assert await told(log, ask(part="why", text=True))


async def test_an_event_without_a_time_is_not_in_the_state_at_a_time(log: Log):
    moment = log.journal.events[5].time
    before = await told(log, ask(part="at", at=moment))
    log.plant("facts.team-a.resnet.uid-1.scaler.X", time="soon")
    assert await told(log, ask(part="at", at=moment)) == before


async def pages(answering: Answers, question: Question, as_table: bool = False) -> AsyncIterator[dict[str, Any]]:
    while True:
        page = json.loads((await answering.answer(question, as_table=as_table)).body)
        yield page
        if not (go_on := page["metadata"].get("continue")):
            return
        question = replace(question, go_on=go_on)


@pytest.mark.parametrize("as_table", [False, True])
async def test_a_list_comes_in_pages_which_outlive_an_event(log: Log, as_table: bool):
    for number in range(5):
        log.add(*a_running_job(2), name=f"job-{number}", uid=f"uid-1{number}")
    whole = [item["metadata"]["name"] for item in json.loads(await told(log, Question("team-a")))["items"]]
    assert len(whole) == 7
    answering, first = of(log), len(log.journal.events)
    found, left, versions = [], [], set()
    async for page in pages(answering, Question("team-a", limit=3), as_table):
        items = page["rows" if as_table else "items"]
        found += [(item["object"] if as_table else item)["metadata"]["name"] for item in items]
        left.append(page["metadata"].get("remainingItemCount", 0))
        versions.add(page["metadata"]["resourceVersion"])
        log.add(JobFailed(reason="JobFailed"))
    assert (found, left) == (whole, [4, 1, 0])
    # A watch after any page has what came after the first one.
    assert versions == {str(first)}


async def test_a_page_of_another_log_is_expired_and_of_none_is_refused(log: Log):
    page = json.loads(await told(log, Question("team-a", limit=1)))
    more = Question("team-a", limit=1, go_on=page["metadata"]["continue"])
    other = Log()
    other.journal._genesis = "another"
    other.add(*a_running_job(2))
    for question, asked, reason in ((more, other, "Expired"), (replace(more, go_on="x"), log, "Invalid")):
        with pytest.raises(Refused, match="list anew") as refused:
            await told(asked, question)
        assert refused.value.reason == reason


async def test_a_list_since_a_time_has_the_jobs_with_a_later_event(log: Log):
    moment = log.journal.events[-1].time
    log.add(JobFailed(reason="JobFailed"))
    late = json.loads(await told(log, Question(since=log.journal.events[-1].time)))["items"]
    assert [item["metadata"]["name"] for item in late] == ["trainingjob.resnet"]
    assert len(json.loads(await told(log, Question(since=moment)))["items"]) == 2
    with pytest.raises(Refused, match="is no time"):
        await told(log, Question(since="yesterday"))


async def test_a_table_has_the_columns_of_kubectl(log: Log):
    table = json.loads((await of(log).answer(Question("team-a"), as_table=True)).body)
    shown = [each["name"] for each in table["columnDefinitions"] if not each["priority"]]
    assert shown == ["Name", "Phase", "Ready", "Restarts", "Last Event", "Note"]
    assert [row["cells"][:3] for row in table["rows"]] == [
        ["trainingjob.bygone", "Running", "-"],
        ["trainingjob.resnet", "Running", "3/3"],
    ]


async def test_a_row_has_what_kubectl_asks_for(log: Log):
    async def rows(include: str) -> list[Any]:
        question = Question("team-a", include=include)
        return list(json.loads((await of(log).answer(question, as_table=True)).body)["rows"])

    listed = json.loads(await told(log, Question("team-a")))["items"]
    # `kubectl get --sort-by` sorts by a field of the whole object.
    assert [row["object"] for row in await rows("Object")] == listed
    assert [row["object"] for row in await rows("None")] == [None, None]
    partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": listed[0]["metadata"]}
    assert (await rows(""))[0]["object"] == (await rows("Metadata"))[0]["object"] == partial


async def test_a_history_has_the_labels_that_its_job_has_now(log: Log):
    log.add(*labelled(a_running_job(2), team="a", tier="x"), name="mine", uid="uid-7")
    chosen = Question("team-a", labels="team in (a,b),tier")
    [found] = json.loads(await told(log, chosen))["items"]
    assert found["metadata"]["labels"].items() >= {"team": "a", "tier": "x", "history.muster.dev/name": "mine"}.items()
    assert found["job"]["labels"] == {"team": "a", "tier": "x"}
    [row] = json.loads((await of(log).answer(chosen, as_table=True)).body)["rows"]
    assert row["object"]["metadata"]["labels"] == found["metadata"]["labels"], "`kubectl get -L team` prints it"
    log.add(*labelled([observed(a_spec(2))], team="c"), name="mine", uid="uid-7")
    assert json.loads(await told(log, chosen))["items"] == []


async def test_lists_share_one_search_for_the_last_event_where_the_newest_was_purged(
    log: Log, monkeypatch: pytest.MonkeyPatch
):
    searches: list[tuple[str, ...]] = []

    class Searched(MemoryEventLog):
        async def end(self, subjects: tuple[str, ...] = ()) -> int:
            if len(subjects) > 1:
                searches.append(subjects)
                await asyncio.sleep(0.05)
            return await super().end(subjects)

    monkeypatch.setattr(answers, "BEHIND_SECONDS", 0.01)
    assert log.journal.purge("*.team-b.>", len(log.journal.events) + 1)
    reached, made = Searched(log.journal, user="history"), Answers(lambda: asyncio.sleep(0, reached), known_kinds())
    found = await asyncio.gather(*(made.answer(Question(limit=limit)) for limit in range(1, 6)))
    assert [len(json.loads(each.body)["items"]) for each in found] == [1, 2, 2, 2, 2]
    assert len(searches) == 1
    log.add(*a_running_job(2), name="new", uid="uid-8")
    assert log.journal.purge("*.team-a.new.>", len(log.journal.events) + 1)
    await made.answer(Question(limit=1))
    assert len(searches) == 2, "the log has another end"
    await made.view.stop()


async def test_a_history_is_as_old_as_its_first_event_and_has_labels(log: Log):
    first = next(event.time for event in log.journal.events if ".resnet." in event.subject)
    metadata = json.loads(await told(log, RESNET))["metadata"]
    assert metadata["creationTimestamp"] == f"{first[:19]}Z"
    assert metadata["labels"] == {
        "history.muster.dev/name": "resnet",
        "history.muster.dev/kind": "TrainingJob",
        "history.muster.dev/phase": "Running",
        "history.muster.dev/gone": "false",
    }


@pytest.mark.parametrize(
    ("question", "names"),
    [
        pytest.param(Question("team-a", labels="history.muster.dev/gone=true"), ["trainingjob.bygone"], id="a label"),
        pytest.param(Question("team-a", labels="history.muster.dev/phase=Failed"), [], id="a label that none has"),
        pytest.param(Question(fields="metadata.namespace=team-b"), ["trainingjob.other"], id="a namespace"),
        pytest.param(
            Question("team-a", fields="metadata.name!=trainingjob.bygone"),
            ["trainingjob.resnet"],
            id="but for one name",
        ),
    ],
)
async def test_a_list_has_what_is_selected(log: Log, question: Question, names: list[str]):
    listed = json.loads(await told(log, question))["items"]
    assert [item["metadata"]["name"] for item in listed] == names


async def test_an_answer_is_kept_until_the_job_has_a_newer_event(log: Log, monkeypatch: pytest.MonkeyPatch):
    answering = of(log)
    first = await answering.answer(RESNET)
    log.add(*a_running_job(2), name="another", uid="uid-8")
    assert await answering.answer(RESNET) is first
    log.add(JobFailed(reason="JobFailed"))
    assert json.loads((await answering.answer(RESNET)).body)["job"]["phase"] == "Failed"
    # Nothing is kept beyond the bound.
    monkeypatch.setattr(answers, "KEPT_BYTES", 0)
    kept = await answering.answer(ask(part="events"))
    assert await answering.answer(ask(part="events")) is not kept


async def test_an_answer_is_kept_for_some_minutes_alone(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "KEPT_SECONDS", -1.0)
    answering = of(log)
    assert await answering.answer(RESNET) is not await answering.answer(RESNET)


async def test_what_is_kept_is_bounded_also_for_answers_without_a_body(log: Log, monkeypatch: pytest.MonkeyPatch):
    answering = of(log)
    nothing_later = ask(part="events", after=1_000)
    assert await answering.answer(nothing_later) is not await answering.answer(nothing_later)
    monkeypatch.setattr(answers, "KEPT_BYTES", len((await answering.answer(RESNET)).body))
    answering = of(log)
    assert await answering.answer(RESNET) is not await answering.answer(RESNET)


def test_an_option_that_a_part_does_not_have_makes_no_other_question():
    query = {"about": "worker-1", "uid": "uid-1", "after": "7", "output": "text", "every": "true"}
    assert with_query(ask(), query) == ask(uid="uid-1")
    assert with_query(ask(part="at", at="4"), query) == ask(part="at", at="4", uid="uid-1")
    assert with_query(ask(part="events"), query) == ask(part="events", uid="uid-1", after=7)
    assert with_query(ask(part="why"), query) == ask(part="why", about="worker-1", uid="uid-1", text=True)
    assert with_query(Question("team-a"), query) == Question("team-a", every=True)
    watch = {"watch": "1", "resourceVersion": "7", "allowWatchBookmarks": "true", "timeoutSeconds": "30"}
    watched = Question("team-a", watch=True, after=7, bookmarks=True, seconds=30)
    assert with_query(Question("team-a"), watch) == watched
    paged = {"limit": "500", "continue": "abc", "since": "2030-01-01"}
    assert with_query(Question("team-a"), paged) == Question("team-a", limit=500, go_on="abc", since="2030-01-01")
    assert with_query(ask(), paged) == ask()
    assert with_query(ask(), watch) == ask()
    assert with_query(ask(part="why"), watch) == ask(part="why")
    assert with_query(Question("team-a"), {"resourceVersion": "7"}) == Question("team-a")
    only = {"fieldSelector": "metadata.name=trainingjob.resnet"}
    asked = Question("team-a", only="trainingjob.resnet", fields=only["fieldSelector"])
    assert with_query(Question("team-a"), only) == asked
    both = {"labelSelector": "a=b", "fieldSelector": "metadata.name!=x", "includeObject": "Object"}
    wide = Question("team-a", labels="a=b", fields="metadata.name!=x", include="Object")
    assert with_query(Question("team-a"), both) == wide
    assert with_query(ask(), both) == ask(include="Object")


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"watch": "1", "resourceVersion": "yesterday"}, id="a version that is no number"),
        pytest.param({"watch": "1", "resourceVersion": "9" * 50}, id="a version of too many digits"),
        pytest.param({"limit": "-1"}, id="a limit that is no number"),
        pytest.param({"includeObject": "Everything"}, id="an unknown part of a row"),
    ],
)
def test_an_option_that_is_none_is_refused(query: dict[str, str]):
    with pytest.raises(Refused) as refused:
        with_query(Question("team-a"), query)
    assert refused.value.reason == "Invalid"


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        pytest.param(ask(name="trainingjob.none"), "NotFound", id="no such job"),
        pytest.param(ask(name="choir.resnet"), "NotFound", id="no such kind"),
        pytest.param(ask(name="resnet"), "NotFound", id="no kind"),
        pytest.param(ask(uid="uid-0"), "NotFound", id="no such uid"),
        pytest.param(ask(part="why", about="worker-9"), "NotFound", id="no such worker"),
        pytest.param(ask(part="at", at="0"), "NotFound", id="before it began"),
        pytest.param(ask(part="at", at="yesterday"), "Invalid", id="no moment"),
        pytest.param(ask(part="at", at="9" * 5_000), "Invalid", id="a sequence of too many digits"),
        pytest.param(ask(namespace="team.>"), "Invalid", id="a namespace that is a pattern"),
        pytest.param(ask(name="trainingjob.>"), "Invalid", id="a name that is a pattern"),
        pytest.param(ask(part="why", about="w" * 2_000), "Invalid", id="more than a question has"),
        pytest.param(ask(uid="*"), "Invalid", id="a uid that is a pattern"),
        pytest.param(Question("*"), "Invalid", id="a list of namespaces that is a pattern"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_a_word(log: Log, question: Question, reason: str):
    with pytest.raises(Refused) as refused:
        await of(log).answer(question)
    assert refused.value.reason == reason


WORDS = [name for name, value in asdict(Question()).items() if isinstance(value, str)]


@pytest.mark.parametrize("field", WORDS)
async def test_the_words_of_a_question_are_bounded_in_each_field(log: Log, field: str):
    with pytest.raises(Refused, match="at most 1024 characters"):
        await of(log).answer(replace(Question(), **{field: "a" * 1025}))


async def test_a_history_beyond_the_bound_is_refused_with_what_to_do(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "MOST_BYTES", 100)
    with pytest.raises(Refused, match=r"read its events in pages .* or the log itself with --nats") as refused:
        await of(log).answer(ask(part="events"))
    assert refused.value.reason == "TooLarge"
    assert (await of(log).answer(RESNET)).body
    monkeypatch.setattr(answers, "MOST_ANSWER", 100)
    with pytest.raises(Refused, match="ask for pages of it with limit=500") as refused:
        await of(log).answer(Question("team-a"))
    assert refused.value.reason == "TooLarge"


async def test_why_of_a_request_reads_the_events_of_its_job_alone(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.add(*scaling_out(2))
    request = Question("team-a", "scaleout.scaleout-request-1", "why", text=True)
    before = await told(log, request)
    assert before.startswith("scaleout/scaleout-request-1: ")
    mine = sum(len(stored.body) for stored in log.journal.events if ".resnet.uid-1." in stored.subject)
    monkeypatch.setattr(answers, "MOST_BYTES", mine)
    log.add(*a_running_job(20), name="large", uid="uid-7")
    assert await told(log, request) == before
    with pytest.raises(Refused, match="knows no ScaleIn"):
        await told(log, Question("team-a", "scalein.scaleout-request-1", "why"))


async def test_a_request_of_several_jobs_is_that_of_the_newest(log: Log, monkeypatch: pytest.MonkeyPatch):
    log.add(*scaling_out(2))
    log.add(*a_running_job(3), *scaling_out(3), name="later", uid="uid-7")
    request = Question("team-a", "scaleout.scaleout-request-1", "why", text=True)
    newest = await told(log, request)
    assert "later" in newest
    monkeypatch.setattr("shared.telling.reading.MOST_JOBS_OF_A_REQUEST", 1)
    assert await told(log, request) == newest


async def test_another_tenant_is_answered_while_one_has_a_hundred_questions(log: Log, monkeypatch: pytest.MonkeyPatch):
    let, render = threading.Event(), answers._render

    def slowly(question: Question, *rest: Any) -> Answer:
        assert question.namespace == "team-b" or let.wait(20)
        return render(question, *rest)

    monkeypatch.setattr(answers, "_render", slowly)
    answering = of(log)
    many = [ask(part="at", at=str(number)) for number in range(3, 103)]
    asked = [asyncio.ensure_future(answering.answer(question, ("ann",))) for question in many]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await answering.answer(Question("team-b", "trainingjob.other"), ("bob",))
    assert not any(each.done() for each in asked)
    let.set()
    await asyncio.gather(*asked)


async def test_a_fold_counts_until_its_thread_ends_also_where_nobody_waits_any_more(
    log: Log, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answers, "MOST_SECONDS", 0.2)
    let, begun, render = threading.Event(), list[Question](), answers._render

    def slowly(question: Question, *rest: Any) -> Answer:
        begun.append(question)
        assert let.wait(20)
        return render(question, *rest)

    monkeypatch.setattr(answers, "_render", slowly)
    answering = of(log)
    questions = [ask(part="at", at=str(number)) for number in range(3, 3 + 2 * answers.FOLDS)]
    for _ in range(2):
        asked = (answering.answer(each, (f"tenant-{number}",)) for number, each in enumerate(questions))
        ended = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(each) for each in ended} == {Transient}
    assert begun == questions[: answers.FOLDS]
    let.set()
    monkeypatch.setattr(answers, "MOST_SECONDS", 20.0)
    assert all([(await answering.answer(question)).body for question in questions])


async def test_an_answer_that_takes_too_long_ends(log: Log, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers, "MOST_SECONDS", 0.01)

    async def never() -> EventLog:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(Transient, match="ask for less"):
        await Answers(never, known_kinds()).answer(RESNET)
