"""Measuring timers: judgements only while the watches see, promises whatever happens."""

from datetime import UTC, datetime

from services.watcher.core.clock import Clock
from shared.job.naming import JobKey, Uid
from shared.job.timers import Timer
from tests.kit.histories import KEY

ANCHOR = datetime(2030, 1, 1, tzinfo=UTC)
JUDGEMENT = Timer(anchor=5, name="ScalingDeadline", seconds=60)
PROMISE = Timer(anchor=6, name="BackOff:CreatePod", seconds=30, since="2030-01-01T00:00:00.000000000Z")
OTHER = JobKey("team-b", "bert", Uid("uid-2"))


def a_clock(*, sees: bool = True) -> Clock:
    clock = Clock()
    clock.note_watches(sees=sees)
    return clock


def at(seconds: float) -> float:
    return ANCHOR.timestamp() + seconds


def test_a_judgement_runs_from_when_it_was_first_seen():
    clock = a_clock()
    assert clock.measure(KEY, (JUDGEMENT,), 100.0, at(0)) == ([], 60.0)
    assert clock.measure(KEY, (JUDGEMENT,), 159.0, at(59)) == ([], 1.0)
    assert clock.measure(KEY, (JUDGEMENT,), 160.0, at(60)) == ([JUDGEMENT], None)


def test_one_that_ran_out_is_told_until_the_log_knows_it():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    assert clock.measure(KEY, (JUDGEMENT,), 61.0, at(61))[0] == [JUDGEMENT]
    assert clock.measure(KEY, (JUDGEMENT,), 62.0, at(62))[0] == [JUDGEMENT]
    assert clock.measure(KEY, (), 63.0, at(63)) == ([], None)


def test_a_judgement_that_ended_is_measured_anew_when_it_comes_back():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    assert clock.measure(KEY, (), 59.0, at(59)) == ([], None)
    assert clock.measure(KEY, (JUDGEMENT,), 61.0, at(61)) == ([], 60.0)


def test_without_sight_nothing_is_judged():
    clock = a_clock(sees=False)
    assert clock.measure(KEY, (JUDGEMENT,), 0.0, at(0)) == ([], None)
    assert clock.measure(KEY, (JUDGEMENT,), 1_000.0, at(1_000)) == ([], None)


def test_after_blindness_a_judgement_begins_afresh():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    clock.note_watches(sees=False)
    assert clock.measure(KEY, (JUDGEMENT,), 59.0, at(59)) == ([], None)
    clock.note_watches(sees=True)
    assert clock.measure(KEY, (JUDGEMENT,), 3_600.0, at(3_600)) == ([], 60.0)


def test_a_judgement_that_ran_out_unseen_did_not_run_out():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    clock.note_watches(sees=False)
    clock.note_watches(sees=True)
    assert clock.measure(KEY, (JUDGEMENT,), 61.0, at(61)) == ([], 60.0)


def test_a_judgement_stands_still_while_facts_are_late_and_begins_afresh_after_them():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    assert clock.measure(KEY, (JUDGEMENT,), 61.0, at(61), late=True)[0] == []
    assert clock.measure(KEY, (JUDGEMENT,), 62.0, at(62)) == ([], 60.0)


def test_sight_lost_and_found_is_told_once_each():
    clock = Clock()
    changes = [clock.note_watches(sees=sees) for sees in (False, True, True, False, False, True)]
    assert changes == [False, True, False, True, False, True]


def test_a_judgement_is_about_its_own_anchor():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    again = Timer(anchor=9, name="ScalingDeadline", seconds=60)
    assert clock.measure(KEY, (again,), 50.0, at(50)) == ([], 60.0)
    assert clock.measure(KEY, (JUDGEMENT,), 55.0, at(55)) == ([], 60.0), "what was stopped begins afresh"


def test_a_promise_goes_on_after_a_restart():
    assert a_clock().measure(KEY, (PROMISE,), 7.0, at(20)) == ([], 10.0)


def test_a_promise_goes_on_in_blindness():
    clock = a_clock()
    clock.measure(KEY, (PROMISE,), 0.0, at(0))
    clock.note_watches(sees=False)
    assert clock.measure(KEY, (PROMISE,), 30.0, at(30)) == ([PROMISE], None)


def test_a_promise_that_ran_out_while_the_watcher_was_down_is_due_at_once():
    assert a_clock(sees=False).measure(KEY, (PROMISE,), 0.0, at(86_400)) == ([PROMISE], None)


def test_no_promise_runs_out_that_was_first_seen_before_the_servers_clock_was_known():
    clock = a_clock()
    assert clock.measure(KEY, (PROMISE,), 0.0, None) == ([], 1.0)
    assert clock.measure(KEY, (PROMISE,), 100.0, None) == ([], 1.0)
    assert clock.measure(KEY, (PROMISE,), 100.0, at(20)) == ([], 10.0)
    assert clock.measure(KEY, (PROMISE,), 110.0, None) == ([PROMISE], None), "what runs needs no clock of the server"


def test_a_servers_clock_that_was_set_back_makes_no_promise_longer():
    clock = a_clock()
    assert clock.measure(KEY, (PROMISE,), 0.0, at(-3_600)) == ([], 30.0)
    assert clock.measure(KEY, (PROMISE,), 30.0, at(-3_570)) == ([PROMISE], None)


def test_a_servers_clock_that_jumps_does_not_move_what_already_runs():
    clock = a_clock()
    clock.measure(KEY, (PROMISE,), 0.0, at(0))
    assert clock.measure(KEY, (PROMISE,), 1.0, at(9_999)) == ([], 29.0)
    assert clock.measure(KEY, (PROMISE,), 30.0, at(-9_999)) == ([PROMISE], None)


def test_the_next_one_of_several_is_what_to_wake_for():
    clock = a_clock()
    assert clock.measure(KEY, (JUDGEMENT, PROMISE), 0.0, at(0)) == ([], 30.0)
    out, following = clock.measure(KEY, (JUDGEMENT, PROMISE), 31.0, at(31))
    assert (out, following) == ([PROMISE], 29.0)


def test_jobs_are_measured_apart():
    clock = a_clock()
    clock.measure(KEY, (JUDGEMENT,), 0.0, at(0))
    assert clock.measure(OTHER, (JUDGEMENT,), 50.0, at(50)) == ([], 60.0)
    assert clock.measure(OTHER, (), 51.0, at(51)) == ([], None)
    assert clock.measure(KEY, (JUDGEMENT,), 60.0, at(60)) == ([JUDGEMENT], None)
