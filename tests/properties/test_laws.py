"""Laws of the core, over histories that the deciders themselves wrote."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.eventlog import Stored
from shared.job import timers
from shared.job.events.scaler import ScaleSucceeded, WorkersReleased
from shared.job.events.watcher import DisruptionNoticed, TimePassed
from shared.job.fold import History
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER
from shared.job.state import with_efforts
from shared.job.timing import next_due
from tests.kit.builders import a_running_job, a_spec, hosts_file, published, scaling_in, workers
from tests.kit.histories import KEY, stored
from tests.kit.invariants import faults_of
from tests.kit.loop import Loop, steps_of

seeds = st.integers(min_value=0, max_value=2**32)
many = settings(max_examples=150, deadline=None, derandomize=True)


def running(loop: Loop) -> bool:
    return loop.job.status.phase == "Running" and any(
        pod.role == LAUNCHER and pod.phase == "Running" for pod in loop.pods.values()
    )


def a_life(seed: int, *, calm: bool = False, notices: int = 0) -> Loop:
    """Four workers; requests of all sorts while it runs; then success, unless it failed on the way.

    So many times, at most, all pods' node is about to go.
    """
    loop = Loop(seed, a_spec(4, least=2, most=6))
    loop.calm, loop.notices = calm, notices
    loop.run(lambda loop: running(loop) or loop.job.over)
    for _ in range(loop.chance.randint(1, 5)):
        kind = loop.chance.choice(["ScaleIn", "ScaleOut"])
        count = loop.chance.choice([None, 1, 1, 2, 9])
        loop.request(kind, count=count)
        loop.run(lambda loop: loop.chance.random() < 0.1 or loop.job.over)
    if not calm:
        loop.run(lambda loop: loop.chance.random() < 0.02)
    loop.calm, loop.notices = True, 0
    loop.run()
    if not loop.job.over and running(loop):
        loop.end_launcher(0)
        loop.run()
    return loop


@many
@given(seeds)
def test_every_life_ends_and_every_request_with_it_and_its_fold_can_be_cut_anywhere(seed: int):
    loop = a_life(seed, notices=seed % 4)
    assert loop.job.over
    assert not loop.job.scaling.open
    assert all(request.over for request in loop.job.scaling.requests.values())
    left = [pod for pod in loop.pods.values() if pod.phase == "Running"]
    assert not left, "the default policy leaves no running pods"
    again = History(KEY)
    for event in loop.events:
        again.fold(stored(again, event))
    assert again.job == loop.job
    assert again.head == loop.history.head
    assert not again.held


def a_troubled_life(seed: int) -> Loop:
    """A life in which workers and launchers fail, and a user suspends, resumes, restarts and resizes the job."""
    chance = random.Random(seed)
    wish: dict[str, Any] = {"restart": "OnFailure", "of_workers": chance.choice(["Never", "OnFailure", "ExitCode"])}
    wish |= {"least": 2, "most": 6, "backoff_limit": 3}
    loop = Loop(seed, a_spec(4, **wish))
    loop.crashes, loop.notices, size = 2, 1, 4
    for word in range(chance.randint(1, 6)):
        loop.run(lambda loop: loop.chance.random() < 0.03 or loop.job.over)
        if chance.random() < 0.5:
            size = chance.randint(2, 6)
        suspend = chance.random() < 0.3
        loop.edit(a_spec(size, **wish, suspend=suspend, word=str(word) if chance.random() < 0.3 else ""))
        if chance.random() < 0.5:
            loop.request(chance.choice(["ScaleIn", "ScaleOut"]), count=1)
    loop.run(lambda loop: loop.chance.random() < 0.03 or loop.job.over)
    loop.edit(a_spec(size, **wish))
    loop.calm, loop.crashes, loop.notices = True, 0, 0
    loop.run()
    if not loop.job.over and running(loop):
        loop.end_launcher(0)
        loop.run()
    return loop


@settings(many, max_examples=400)
@given(seeds)
def test_attempts_pauses_and_edits_lead_to_an_end(seed: int):
    loop = a_troubled_life(seed)
    job = loop.job
    assert job.over, job.status.phase
    assert job.retries.restarts <= 3, "no more often than backoffLimit"
    assert not job.scaling.open
    assert all(request.over for request in job.scaling.requests.values())
    assert not [pod for pod in loop.pods.values() if pod.phase == "Running"]
    again = History(KEY)
    for event in loop.events:
        again.fold(stored(again, event))
    assert again.job == job, "replayed, it is the same"


def test_hosts_files_that_list_a_worker_which_is_about_to_go_are_seen():
    history, log = History(KEY), list[Stored]()
    noticed = DisruptionNoticed(node="spot", uids=(Uid("pod-1"),), reason="SpotInterruption")
    for event in [*a_running_job(workers=2), noticed, published(2, 0), published(3, 0, 1)]:
        log.append(stored(history, event))
        history.fold(log[-1])
    assert faults_of(log[:-1]) == []
    (fault,) = faults_of(log)
    assert fault.startswith("I7 ")


@pytest.mark.parametrize("position", [0.25, 0.5, 0.75])
def test_a_lost_event_is_noticed_at_the_next_decision(position: float):
    loop = a_life(7, calm=True)
    whole = History(KEY)
    log = []
    for event in loop.events:
        line = stored(whole, event)
        whole.fold(line)
        log.append(line)
    lost = int(len(log) * position)
    short = History(KEY)
    for line in [*log[:lost], *log[lost + 1 :]]:
        short.fold(line)
    assert short.held


@settings(many, max_examples=25)
@given(seeds)
def test_a_timer_that_may_leave_the_state_is_asked_for_by_no_decision_and_does_not_run_again(seed: int):
    loop = a_troubled_life(seed) if seed % 2 else a_life(seed, notices=seed % 3)
    history, gone = History(KEY), set[tuple[int, str]]()
    for event in loop.events:
        history.fold(stored(history, event))
        passed = history.job.efforts.timers_passed
        gone |= passed.keys() - timers.anchored(history.job).keys()
        few = with_efforts(history.job, timers_passed={each: at for each, at in passed.items() if each not in gone})
        assert steps_of(few) == steps_of(history.job)
        assert next_due(few) == next_due(history.job)


def test_a_job_that_is_scaled_each_day_of_a_year_holds_few_timers():
    history, most = History(KEY), 0
    for event in a_running_job(4):
        history.fold(stored(history, event))
    for day in range(365):
        request, files = Uid(f"request-{day}"), 2 + day
        for event in (*scaling_in(3, request=request), published(files, 0, 1, 2, request=request), hosts_file(files)):
            history.fold(stored(history, event))
        drained = TimePassed(anchor=history.sequence, timer=timers.DRAIN)
        released = WorkersReleased(request=request, slots=(workers(3),), reason="DrainTimed")
        for event in (drained, released, ScaleSucceeded(request=request, reason="ScalingInSucceeded")):
            history.fold(stored(history, event))
        most = max(most, len(history.job.efforts.timers_passed))
    assert not history.held
    assert most <= timers.UNSORTED
