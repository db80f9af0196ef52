"""Seals: what a fold lets go of, what does not fit, and what comes after."""

import tracemalloc
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed, EffectRefused
from shared.job.events.scaler import ScriptFinished
from shared.job.events.scheduler import SecretMade
from shared.job.events.status import JobCreated, JobSealed
from shared.job.events.watcher import JobGone, PodsGone
from shared.job.fold import MOST_SEALED, Histories, History
from shared.job.naming import JobKey, Uid
from tests.kit.builders import a_running_job
from tests.kit.histories import folded, stored

KEY = JobKey("team-a", "resnet", Uid("u-1"))
SEEN = a_running_job()[0]
LIFE: Sequence[AnyEvent] = (SEEN, JobCreated(reason="TrainingJobCreated"), JobGone())


def seal_of(history: History) -> JobSealed:
    head = history.head
    return JobSealed(
        first=history.first,
        last=head.sequence,
        count=history.count,
        hash=head.hash,
        outcome="Created",
        reason="Deleted",
    )


def a_log(events: Iterable[AnyEvent] = LIFE, key: JobKey = KEY, after: int = 0) -> tuple[History, list[Stored]]:
    """The history of a job that a seal has not ended yet, and its events."""
    history, found = History(key), list[Stored]()
    for event in events:
        found.append(stored(history, event, sequence=after + 1 + len(found)))
        history.fold(found[-1])
    return history, found


def keeps_nothing(histories: Histories) -> bool:
    indexes = (histories._by_key, histories._by_prefix, histories._lives, histories._open, histories._held)
    return not any(indexes) and all(use.memory == 0 for use in histories.used.values())


def test_a_fold_lets_go_of_a_sealed_history_and_of_all_that_points_to_it():
    history, events = a_log()
    histories = folded(events)
    assert not keeps_nothing(histories)
    assert histories.fold(stored(history, seal_of(history))) is not None, "who appended it has to read it back"
    assert keeps_nothing(histories)
    assert histories.sealed(KEY) == 4


def test_a_fold_that_begins_with_a_seal_keeps_and_holds_nothing():
    history, _ = a_log()
    assert keeps_nothing(folded([stored(history, seal_of(history))]))


def test_a_seal_whose_history_is_being_purged_holds_nothing():
    history, events = a_log()
    assert keeps_nothing(folded([*events[1:2], stored(history, seal_of(history))]))


@pytest.mark.parametrize("read", [1, 2])
def test_a_replica_that_was_slow_lets_go_at_the_seal_of_what_was_purged_meanwhile(read: int):
    history, events = a_log()
    assert keeps_nothing(folded([*events[:read], stored(history, seal_of(history))]))


@pytest.mark.parametrize("wrong", [{"first": 0}, {"last": 2}, {"count": 2}, {"hash": "00" * 32}, {"count": 4}], ids=str)
def test_a_seal_that_does_not_fit_holds_and_drops_nothing(wrong: dict[str, object]):
    history, events = a_log()
    histories = folded([*events, stored(history, replace(seal_of(history), **wrong))])
    known = histories.get(KEY)
    assert known is not None
    assert known.held_for == "NotConfirmed"
    assert not histories.sealed(KEY)


def test_a_seal_of_a_job_that_lives_holds_it():
    history, events = a_log(LIFE[:2])
    known = folded([*events, stored(history, seal_of(history))]).get(KEY)
    assert known is not None
    assert known.held_for == "NotConfirmed"


@pytest.mark.parametrize("event", [SEEN, JobCreated(reason="TrainingJobCreated")], ids=["fact", "decision"])
@pytest.mark.parametrize("purged", [False, True])
def test_what_comes_after_a_seal_holds_the_job_and_begins_no_life(event: AnyEvent, *, purged: bool):
    history, events = a_log()
    seal = stored(history, seal_of(history))
    history.fold(seal)
    histories = folded([*([] if purged else events), seal, stored(history, event)])
    known = histories.get(KEY)
    assert known is not None
    assert known.held_for == "Sealed"
    assert "sealed at 4" in known.held
    assert [*histories.held()] == [known]


LATE: tuple[tuple[AnyEvent, str], ...] = (
    (SecretMade(attempt=0, uid=Uid("s-1")), "scheduler"),
    (EffectRefused(effect="CreatePod", reason="Forbidden", message="no"), "scheduler"),
    (ScriptFinished(request=Uid("r-1"), exit_code=0), "scaler"),
    (PodsGone(uids=(Uid("p-1"),)), "watcher"),
)


@pytest.mark.parametrize("purged", [False, True])
@pytest.mark.parametrize(
    ("event", "author"), LATE, ids=lambda part: part if isinstance(part, str) else type(part).__name__
)
def test_a_fact_that_comes_late_is_told_and_holds_neither_its_job_nor_a_new_one_of_the_name(
    event: AnyEvent, author: str, *, purged: bool
):
    told: list[tuple[JobKey, str]] = []
    history, events = a_log()
    seal = stored(history, seal_of(history))
    late = stored(history, event, sequence=5, author=author)
    new = JobKey(KEY.namespace, KEY.name, Uid("u-2"))
    _, again = a_log(LIFE[:2], new, after=5)
    histories = Histories(late=lambda key, stored: told.append((key, stored.subject.rpartition(".")[2])))
    for each in [*([] if purged else events), seal, late, *again]:
        histories.fold(each)
    assert told == [(KEY, type(event).__name__)]
    assert not [*histories.held()]
    assert [life.job.key for life in histories.lives(KEY)] == [new]


def test_a_fact_that_comes_late_is_told_also_of_a_job_whose_resource_came_back():
    told: list[JobKey] = []
    history, events = a_log()
    seal = stored(history, seal_of(history))
    histories = Histories(late=lambda key, _: told.append(key))
    for each in [*events, seal]:
        histories.fold(each)
    back = histories.reopened(KEY)
    assert histories.fold(stored(history, LATE[0][0], sequence=5, author=LATE[0][1])) is None
    assert told == [KEY]
    assert (back.sequence, back.held_for) == (0, "Sealed")


def test_who_made_a_change_may_be_told_after_a_seal():
    history, events = a_log()
    seal = stored(history, seal_of(history))
    late = stored(history, ChangeAttributed(of=1, user="alice"), sequence=5)
    histories = Histories(late=lambda *_: pytest.fail("it is no fact of a service"))
    for each in [*events, seal, late]:
        histories.fold(each)
    assert keeps_nothing(histories)


def test_another_life_of_the_name_stays():
    history, events = a_log()
    other = JobKey(KEY.namespace, KEY.name, Uid("u-2"))
    _, later = a_log(LIFE[:1], other, after=10)
    histories = folded([*events, stored(history, seal_of(history)), *later])
    assert [life.job.key for life in histories.lives(KEY)] == [other]
    assert histories.is_open(other)


def sealed_jobs(first: int, end: int) -> Iterable[Stored]:
    for number in range(first, end):
        key = JobKey("team-a", f"job-{number}", Uid(f"{number:036}"))
        history, events = a_log(key=key, after=number * 4)
        yield from (*events, stored(history, seal_of(history)))


@pytest.mark.unrecorded
def test_five_hundred_sealed_jobs_are_a_small_line_each():
    histories = folded(sealed_jobs(0, 100))
    tracemalloc.start()
    try:
        for event in sealed_jobs(100, 600):
            histories.fold(event)
        kept = tracemalloc.get_traced_memory()[0] / 500
    finally:
        tracemalloc.stop()
    assert keeps_nothing(histories)
    assert kept < 200, f"{kept:.0f} bytes a job"


def test_the_memory_of_seals_is_bounded():
    histories, (history, _) = Histories(), a_log()
    seal = stored(history, seal_of(history))
    for number in range(1, MOST_SEALED + 2):
        histories.fold(replace_subject(seal, number))
    assert len(histories._sealed) == MOST_SEALED // 2 + 1
    assert keeps_nothing(histories)


def replace_subject(seal: Stored, number: int) -> Stored:
    return replace(seal, sequence=number, subject=seal.subject.replace(".u-1.", f".u-{number}."))
