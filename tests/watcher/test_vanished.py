"""Jobs that a LIST lacks: one is asked for, very many are not believed gone."""

import asyncio

import pytest

from services.watcher.asking import Asking
from services.watcher.core.lists import too_many
from services.watcher.core.questions import UNANSWERED, Answers, Confirm, Presence, settles
from shared.eventlog.account import HEADS
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.watcher import JobGone
from shared.job.naming import Uid
from tests.kit.builders import a_spec, observed
from tests.kit.histories import a_history
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryBucket, MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.watcher.watching import Watching, a_resource


@pytest.mark.parametrize(
    ("missing", "known", "doubted"),
    [
        pytest.param(10, 10, False, id="ten may go at once, even if that is all"),
        pytest.param(11, 12, True, id="more are too many of a few"),
        pytest.param(200, 1_000, False, id="a fifth of many may go"),
        pytest.param(201, 1_000, True, id="but no more"),
    ],
)
def test_too_many(missing, known, doubted):
    assert too_many(missing, known) is doubted


def test_a_job_that_no_list_shows_any_more_is_asked_for():
    watching = Watching(observed(a_spec()))
    watching.show(a_resource(version=1))
    assert watching.look().questions == ()
    watching.show(None)
    assert watching.look().questions == (Confirm(epoch=0, taken=(), missing=True),)


def test_a_gone_job_is_asked_for_no_longer():
    watching = Watching(observed(a_spec()), JobGone())
    assert watching.look().questions == ()


def test_before_the_first_list_nothing_is_missing():
    watching = Watching(observed(a_spec()))
    watching.cache.scalable.version = 0
    assert watching.look().questions == ()


LOST = (Uid("l"),)


@pytest.mark.parametrize(
    ("question", "presence", "settled"),
    [
        pytest.param(Confirm(0, (), missing=True), Presence(there=False), True, id="gone"),
        pytest.param(Confirm(0, (), missing=True), Presence(there=True), False, id="its watch is late"),
        pytest.param(Confirm(0, LOST), Presence(there=True), True, id="there, without its launcher"),
        pytest.param(Confirm(0, LOST), Presence(there=True, deleting=True), False, id="about to go"),
        pytest.param(Confirm(0, LOST, missing=True), Presence(there=True), False, id="the same, and its watch is late"),
    ],
)
def test_an_answer_that_does_not_settle_the_question_is_asked_for_again(
    question: Confirm, presence: Presence, *, settled: bool
) -> None:
    assert settles(question, presence) is settled


def test_an_answer_is_forgotten_when_its_question_is_asked_no_longer():
    confirm = Confirm(epoch=0, taken=())
    answers = Answers(presence=(confirm, Presence(there=False)))
    assert answers.kept([confirm]) == answers
    assert answers.kept([]) == UNANSWERED


def test_an_answer_about_another_store_says_nothing():
    watching = Watching(observed(a_spec()))
    watching.answer(there=False)
    assert [type(fact).__name__ for fact in watching.seen()] == ["JobGone"]
    watching.cache.epoch = 1
    assert watching.seen() == []


async def test_an_answer_is_dropped_once_its_question_is_not_asked_any_more():
    """Asked again later, the job may be there again."""
    gone, history, woken = Confirm(epoch=0, taken=(), missing=True), a_history([observed(a_spec())]), asyncio.Event()
    cluster, journal = MemoryCluster(MemoryStore()), MemoryJournal()
    log, heads = MemoryEventLog(journal), MemoryBucket(journal, HEADS, user="watcher")
    async with asyncio.TaskGroup() as tasks:
        asking = Asking(cluster, log, heads, BUILT_IN, tasks, lambda *_: woken.set())
        asking.ask(history, (gone,))
        async with asyncio.timeout(10):
            await woken.wait()
    assert asking.answers(history.job.key).of(gone) == Presence(there=False)
    asking.ask(history, ())
    assert asking.answers(history.job.key) == UNANSWERED
