"""Heads: lost history, a forged head, and a person who accepts a loss."""

import msgspec
import pytest

from services.watcher.heads import accepted, judge
from shared.job.chain import Head
from shared.job.events.watcher import HeadForged, HistoryAccepted, HistoryBroken, JobAdopted, JobObserved
from shared.job.naming import Slot, Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import PodView, Slots
from tests.kit.builders import a_running_job, a_spec, exited, launcher, observed, worker
from tests.kit.histories import a_history, stored
from tests.kit.replicas import a_replicated_spec, replica
from tests.kit.replicas import observed as a_replicated_job

replace = msgspec.structs.replace

HEAD = Head(7, "ab")
BROKEN = HistoryBroken(log="log-2", sequence=7, hash="ab", reason="OtherLog")


def judged(
    log: str = "log-1", *, began: int = 100, end: int = 100, known: str | None = "ab", checkpoint: str = ""
) -> object:
    return judge("log-1", log, HEAD, began=began, end=end, known=known, checkpoint=checkpoint)


def broken(reason: str, log: str = "log-1") -> HistoryBroken:
    return HistoryBroken(log=log, sequence=7, hash="ab", reason=reason)


def test_a_head_that_the_log_leads_to_is_right():
    assert judged() is None
    assert judged(end=7) is None
    assert judged(checkpoint="log-1/9:cd") is None, "the checkpoint may be ahead"


@pytest.mark.parametrize("checkpoint", ["", "log-1/7:ab", "log-2/7:ab"])
def test_a_head_of_another_log_is_lost_history_whatever_the_checkpoint_says(checkpoint: str):
    assert judged("log-2", checkpoint=checkpoint) == broken("OtherLog", "log-2")


@pytest.mark.parametrize("known", [None, "", "ab", "cd"])
def test_a_head_beyond_the_end_is_lost_history(known: str | None):
    assert judged(end=6, known=known) == broken("BeyondTheEnd")


@pytest.mark.parametrize("checkpoint", ["", "log-1/5:cd", "log-1/7:ab"])
def test_a_head_that_was_beyond_the_end_is_lost_history_though_the_log_grew_past_it(checkpoint: str):
    assert judged(began=6, known="cd", checkpoint=checkpoint) == broken("BeyondTheEnd")
    assert judged(began=6, known="", checkpoint=checkpoint) == broken("BeyondTheEnd")


def test_a_head_of_an_event_that_came_since_is_right():
    assert judged(began=6) is None


def test_a_wrong_hash_that_the_checkpoint_shows_too_is_lost_history():
    assert judged(known="cd", checkpoint="log-1/7:ab") == broken("HashMismatch")


@pytest.mark.parametrize("checkpoint", ["", "log-1/7:cd", "log-1/8:ab", "log-2/7:ab", "7:ab"])
def test_a_wrong_hash_alone_was_written_by_somebody_else(checkpoint: str):
    assert judged(known="cd", checkpoint=checkpoint) == HeadForged(log="log-1", sequence=7, hash="ab")


def test_a_sequence_that_is_no_event_of_this_job_is_a_wrong_hash():
    assert judged(known="") == HeadForged(log="log-1", sequence=7, hash="ab")


def test_what_cannot_be_compared_is_not_judged():
    assert judged(known=None) is None


def a_broken_job(*events: JobObserved) -> Job:
    return a_history([*events, BROKEN]).job


def alive(*views: PodView) -> dict[Uid, PodView]:
    return {view.uid: view for view in views}


def test_only_exactly_that_head_accepts_the_loss():
    job = a_broken_job(observed(a_spec()))
    assert accepted(job, "7:ab", {}) == [HistoryAccepted(sequence=7, hash="ab")]
    for wish in ("", "7:ac", "17:ab", "7:a", "7", "ab", "7:ab ", "log-2/7:ab", "true"):
        assert accepted(job, wish, {}) == [], wish


def test_there_is_nothing_to_accept_in_a_whole_history():
    assert accepted(a_history(a_running_job()).job, "7:ab", {}) == []


def test_an_end_that_decides_is_taken_on_with_what_is_there():
    done = launcher(phase="Succeeded", exits=exited(0))
    adopted, _ = accepted(a_broken_job(observed(a_spec())), "7:ab", {done.uid: done})
    assert isinstance(adopted, JobAdopted)
    assert adopted.slots == (Slots(0, LAUNCHER, ((0, 0),)),)


def test_of_a_job_that_needs_every_pod_those_that_are_missing_are_known():
    spec = a_replicated_spec()
    chief, failed = replica("chief", 0), replica("worker", 1, phase="Failed")
    adopted, _ = accepted(a_broken_job(a_replicated_job(spec)), "7:ab", {chief.uid: chief, failed.uid: failed})
    assert isinstance(adopted, JobAdopted)
    assert adopted.slots == (Slots(0, "chief", ((0, 0),)), Slots(0, WORKER, ((1, 1),)))
    assert adopted.lost == (Slots(0, WORKER, ((0, 0),)),)


def test_pods_that_live_are_taken_on_before_going_on():
    job = a_broken_job(observed(a_spec()))
    pods = alive(worker(0), worker(4), launcher(), worker(2, phase="Failed"), worker(3, deleting=True))
    adopted, go_on = accepted(job, "7:ab", pods)
    assert adopted == JobAdopted(
        source="AcceptedLoss",
        attempt=0,
        slots=(Slots(0, LAUNCHER, ((0, 0),)), Slots(0, WORKER, ((0, 0), (4, 4)))),
        next_index=5,
    )
    assert go_on == HistoryAccepted(sequence=7, hash="ab")


def test_the_newest_attempt_is_the_one_that_lives():
    job = a_broken_job(observed(a_spec()))
    newest = replace(worker(1), attempt=2, uid=Uid("new"))
    adopted, _ = accepted(job, "7:ab", alive(worker(0), worker(1), newest))
    assert isinstance(adopted, JobAdopted)
    assert (adopted.attempt, adopted.slots) == (2, (Slots(2, WORKER, ((1, 1),)),))


def test_a_history_that_knows_its_slots_needs_no_adoption():
    job = a_history([*a_running_job(), BROKEN]).job
    assert accepted(job, "7:ab", alive(worker(0))) == [HistoryAccepted(sequence=7, hash="ab")]


def test_after_the_acceptance_the_job_goes_on_with_what_was_there():
    history = a_history([observed(a_spec()), BROKEN])
    for event in accepted(history.job, "7:ab", alive(worker(0), worker(1), launcher())):
        history.fold(stored(history, event))
    assert not history.held
    assert not history.job.halted
    assert history.job.attempt.slots == {Slot(0, WORKER, 0), Slot(0, WORKER, 1), Slot(0, LAUNCHER, 0)}
    assert history.job.attempt.next_index == 2
