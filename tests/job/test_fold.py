"""The fold of a log: what it confirms, what it holds a job for, and what it goes on with all the same."""

import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import ChangeAttributed, Decided, EffectRefused, EventDisowned, LogCreated
from shared.job.events.scaler import ScaleSucceeded, WorkersReleased
from shared.job.events.status import JobCreated, JobRunning, JobSucceeded
from shared.job.events.watcher import HistoryAccepted, HistoryBroken, JobGone, PodsGone, ScaleRequestGone, TimePassed
from shared.job.fold import MOST_HASHES, Histories, History
from shared.job.naming import NO_UID, JobKey, Uid
from shared.job.scaling import MOST_FINISHED
from shared.job.timers import UNSORTED
from shared.telling.reading import as_json_text
from tests.kit.builders import (
    R1,
    a_created_job,
    a_running_job,
    a_spec,
    hosts_file,
    observed,
    pods,
    published,
    scale_out,
    scaling_in,
    scaling_out,
    worker,
    workers,
)
from tests.kit.histories import KEY, a_history, log_of, stored

replace = msgspec.structs.replace

OTHER = JobKey("team-b", "bert.large", Uid("uid-2"))


def read(lines: list[Stored]) -> History:
    history = History(KEY)
    for line in lines:
        history.fold(line)
    return history


LOG = log_of([*a_running_job(), pods(worker(0, version=50, ready=False)), JobSucceeded(reason="TrainingJobSucceeded")])
FACT = len(LOG) - 2
"""The place of the last fact before the last decision."""


def test_a_whole_log_is_confirmed():
    history = read(LOG)
    assert not history.held
    assert history.sequence == len(LOG)
    assert history.time == LOG[-1].time
    assert history.basis == str(history.head)


def test_facts_and_decisions_are_guarded_apart():
    history = read(LOG)
    assert history.last_decision == LOG[-1].sequence
    made = next(known.sequence for known in LOG if known.subject.endswith("SecretMade"))
    assert history.facts == {"watcher": LOG[FACT].sequence, "scheduler": made}
    refused = stored(history, EffectRefused(effect="CreatePod", reason="Forbidden"))
    history.fold(refused)
    assert history.facts == {"watcher": LOG[FACT].sequence, "scheduler": refused.sequence}
    assert history.last_decision == LOG[-1].sequence


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"body": LOG[FACT].body.replace(b"pod-0", b"pod-9")}, id="body"),
        pytest.param({"body": LOG[FACT].body + b" "}, id="one byte of white space"),
        pytest.param({"time": "2030-01-01T00:00:00.000Z"}, id="time"),
        pytest.param({"event_id": "another"}, id="id"),
    ],
)
def test_a_changed_event_is_noticed_at_the_next_decision(change: dict[str, object]):
    changed = [*LOG]
    changed[FACT] = replace(LOG[FACT], **change)
    assert not read(changed[:-1]).held
    assert "not in this history" in read(changed).held


def test_a_lost_event_is_noticed_at_the_next_decision():
    assert read([*LOG[:FACT], LOG[-1]]).held


def test_two_events_in_each_others_place_are_noticed():
    log = log_of([observed(a_spec()), pods(worker(0)), pods(worker(1)), JobCreated(reason="TrainingJobCreated")])
    one, two = log[1], log[2]
    swapped = [replace(two, sequence=one.sequence), replace(one, sequence=two.sequence)]
    assert not read(log).held
    assert read([log[0], *swapped, log[3]]).held


def test_an_event_that_came_in_between_is_noticed():
    history = read(LOG[:FACT])
    inserted = stored(history, pods(worker(1, version=60)))
    later = [replace(line, sequence=line.sequence + 1) for line in LOG[FACT:]]
    assert read([*LOG[:FACT], inserted, *later]).held


@pytest.mark.parametrize(
    "basis",
    [
        pytest.param("", id="none"),
        pytest.param("12", id="no hash"),
        pytest.param("12:", id="an empty hash"),
        pytest.param(":abc", id="no sequence"),
        pytest.param("-1:abc", id="negative"),
        pytest.param("\u00b2:abc", id="a digit that is no number"),
        pytest.param("9" * 5_000 + ":abc", id="a number without end"),
        pytest.param("999:" + "0" * 64, id="beyond the end"),
    ],
)
def test_a_decision_on_a_foreign_basis_holds_the_job(basis: str):
    history = read([*LOG[:-1], replace(LOG[-1], basis=basis)])
    assert history.held
    assert history.job.status.phase == "Running", "it counts for nothing"


def test_a_decision_may_be_taken_on_any_event_since_the_last_one():
    history = a_history([*a_running_job()])
    early = stored(history, JobSucceeded(reason="TrainingJobSucceeded"))
    for version in (50, 51):
        history.fold(stored(history, pods(worker(0, version=version))))
    history.fold(replace(early, sequence=history.sequence + 1))
    assert not history.held, "facts never stand in a decision's way"


def test_a_basis_before_that_of_the_last_decision_is_forgotten():
    history = a_history([*a_created_job()])
    old = history.basis
    for event in (pods(worker(0)), JobRunning(reason="TrainingJobRunning"), pods(worker(1))):
        history.fold(stored(history, event))
    history.fold(replace(stored(history, JobSucceeded(reason="TrainingJobSucceeded")), basis=old))
    assert history.held


def test_two_decisions_on_one_basis_hold_the_job():
    history = a_history([*a_created_job(), pods(worker(0)), pods(worker(1))])
    first = stored(history, JobRunning(reason="TrainingJobRunning"))
    second = stored(history, JobSucceeded(reason="TrainingJobSucceeded"))
    history.fold(first)
    assert not history.held
    history.fold(replace(second, sequence=first.sequence + 1))
    assert history.held_for == "NotFenced"
    assert f"without the decision at {first.sequence}" in history.held


def test_requests_that_wait_for_their_job_keep_no_hashes_for_decisions():
    history = History(replace(KEY, uid=NO_UID))
    for _ in range(100):
        history.fold(stored(history, scale_out()))
    assert history.hash_at(50) is None
    assert not history.held


def test_hashes_are_kept_since_the_last_basis_only():
    history = a_history([observed(a_spec()), *(pods(worker(0, version=version)) for version in range(10, 60))])
    assert history.hash_at(5) is not None
    history.fold(stored(history, JobCreated(reason="TrainingJobCreated")))
    assert history.hash_at(5) is None
    assert history.hash_at(history.sequence) == history.head.hash


def test_a_long_series_of_facts_keeps_a_bounded_number_of_hashes_and_any_of_them_may_be_a_basis(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("shared.job.fold.MOST_HASHES", 20)
    flips = [pods(worker(0, version=50 + flip, ready=bool(flip % 2))) for flip in range(100)]
    history = read(log := log_of([*a_running_job(), *flips]))
    kept = [line.sequence for line in log if history.hash_at(line.sequence) is not None]
    assert 10 <= len(kept) <= 20
    assert kept[-1] == history.sequence
    over = stored(history, JobSucceeded(reason="TrainingJobSucceeded"))
    old = a_history(a_running_job()).basis
    for basis, held in ((old, None), (history.basis, None), (f"{history.sequence}:{'0' * 64}", "NotConfirmed")):
        reader = read(log)
        reader.fold(replace(over, basis=basis))
        assert reader.held_for == held, basis


@pytest.mark.parametrize("author", ["status", "scaler", "scheduler", "setup", "stranger"])
def test_a_wrong_author_holds_the_job_and_changes_nothing(author: str):
    history = a_history(a_running_job())
    before = history.job
    history.fold(stored(history, PodsGone(uids=(Uid("pod-0"),)), author=author))
    assert "may not write PodsGone" in history.held
    assert history.job == before


def test_a_decision_among_the_facts_holds_the_job():
    # There it would have passed another guard, and named no basis.
    history = a_history(a_running_job())
    line = stored(history, JobSucceeded(reason="TrainingJobSucceeded"))
    history.fold(replace(line, subject=line.subject.replace("jobs.", "facts."), basis=""))
    assert "does not belong under facts" in history.held
    assert history.job.status.phase == "Running"


def test_a_fact_among_the_decisions_holds_the_job():
    history = a_history(a_running_job())
    line = stored(history, JobGone())
    history.fold(replace(line, subject=line.subject.replace("facts.", "jobs."), basis=history.basis))
    assert "does not belong under jobs" in history.held
    assert not history.job.resource.gone


def unknown(history: History, *, optional: bool) -> Stored:
    line = stored(history, JobGone())
    subject = line.subject.replace("JobGone", "JobTeleported")
    return replace(line, subject=subject, body=b'{"type":"JobTeleported"}', optional=optional)


def test_an_unknown_type_holds_the_job_until_this_service_is_upgraded():
    history = a_history(a_running_job())
    history.fold(unknown(history, optional=False))
    assert "upgrade" in history.held


def test_an_unknown_value_of_a_known_type_holds_the_job_until_this_service_is_upgraded():
    history = a_history(a_running_job())
    body, line = b'{"type":"JobAdopted","source":"kubeflow","phase":"Paused"}', stored(history, JobGone())
    for_people = line.subject.replace("watcher.JobGone", "audit.ChangeAttributed")
    assert history.fold(replace(line, subject=for_people, body=body)) is None
    assert not history.held
    history.fold(replace(line, subject=line.subject.replace("JobGone", "JobAdopted"), body=body))
    assert history.held_for == "UnknownEvent"
    assert history.held.startswith("unknown event JobAdopted (Invalid enum value 'Paused'")


def test_an_unknown_type_that_says_so_is_skipped_and_is_part_of_the_chain():
    history = a_history(a_running_job())
    before = history.job
    history.fold(unknown(history, optional=True))
    assert history.job == before
    history.fold(stored(history, JobSucceeded(reason="TrainingJobSucceeded")))
    assert not history.held
    assert history.job.status.phase == "Succeeded"


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b'{"type":"JobGone","reason":"\xff"}', b'{"type":"JobGone","version":[]}']
)
def test_a_malformed_event_holds_its_job_while_others_go_on(body: bytes):
    histories = Histories()
    here, there = History(KEY), History(OTHER)
    bad = replace(stored(here, JobGone(), sequence=1), body=body)
    good = stored(there, observed(a_spec()), sequence=2)
    assert histories.fold(bad) is histories[KEY]
    histories.fold(good)
    assert "malformed" in histories[KEY].held
    assert not histories[OTHER].held
    assert histories[OTHER].job.resource.generation == 1
    assert histories.position == 2


def test_a_malformed_fact_by_which_no_service_acts_holds_no_job():
    histories, history = Histories(), History(KEY)
    event = ChangeAttributed(of=1, user="alice")
    histories.fold(replace(stored(history, event, sequence=1), body=b'{"type":"ChangeAttributed"}'))
    assert not histories[KEY].held
    histories.fold(stored(histories[KEY], event, sequence=2))
    assert (histories[KEY].held, histories[KEY].facts) == ("", {"audit": 2})


def test_the_first_reason_to_hold_a_job_stays():
    history = a_history(a_running_job())
    history.hold("UnknownEvent", "first")
    history.hold("TooLarge", "second")
    assert history.held == "first"


NONSENSE = [
    pytest.param("jobs.{}.status.JobSucceeded", b'{"type":"JobSucceeded","reason":"x"}', "1:00", id="not confirmed"),
    pytest.param("facts.{}.watcher.JobTeleported", b'{"type":"JobTeleported"}', "", id="unknown"),
    pytest.param("facts.{}.watcher.PodsGone", b'{"type":"PodsGone","uids":7}', "", id="malformed"),
    pytest.param("facts.{}.scaler.JobGone", b'{"type":"JobGone"}', "", id="another author's"),
    pytest.param("jobs.{}.watcher.JobGone", b'{"type":"JobGone"}', "{}", id="in the wrong family"),
]


@pytest.mark.parametrize(("subject", "body", "basis"), NONSENSE)
def test_nonsense_holds_its_job_until_an_administrator_disowns_it(subject: str, body: bytes, basis: str):
    history = a_history(a_running_job())
    before = history.job
    model = stored(history, JobGone())
    place = ".".join(model.subject.split(".")[1:4])
    basis = history.basis if basis == "{}" else basis
    history.fold(replace(model, subject=subject.format(place), body=body, basis=basis))
    assert history.held
    assert history.nonsense == (model.sequence,)
    history.fold(stored(history, EventDisowned(sequence=model.sequence, reason="a stolen password")))
    assert not history.held
    assert history.job == before
    history.fold(stored(history, JobSucceeded(reason="TrainingJobSucceeded")))
    assert (history.held, history.job.status.phase) == ("", "Succeeded"), "the chain goes on"


def test_each_nonsense_is_disowned_apart_and_nothing_else():
    history = a_history(a_running_job())
    for _ in range(2):
        history.fold(stored(history, JobGone(), author="status"))
    first, second = history.nonsense
    history.hold("TooLarge", "its own")
    history.fold(stored(history, EventDisowned(sequence=second, reason="")))
    assert history.held_at == first
    history.fold(stored(history, EventDisowned(sequence=first, reason="")))
    assert history.held_for == "TooLarge"
    history.fold(stored(history, EventDisowned(sequence=history.held_at, reason="")))
    assert history.held_for == "TooLarge", "no event holds it"


def test_a_reader_that_counts_a_disowned_event_takes_no_further_step():
    history = a_history(a_running_job())
    read = history.sequence
    history.fold(stored(history, EventDisowned(sequence=read, reason="of a later release")))
    assert history.held_for == "Disowned"
    assert history.nonsense == ()


def test_an_event_that_no_rule_expects_holds_its_job_and_can_be_disowned(monkeypatch: pytest.MonkeyPatch):
    histories = Histories()
    for line in LOG[:-1]:
        histories.fold(line)
    broken = ValueError("a rule that fails")

    def fails(*_: object) -> None:
        raise broken

    with monkeypatch.context() as patched:
        patched.setattr("shared.job.fold.evolve", fails)
        histories.fold(LOG[-1])
    assert "in fails" in histories[KEY].newest_trace
    assert histories[KEY].newest_trace.endswith("ValueError: a rule that fails\n")
    assert histories[KEY].nonsense == (LOG[-1].sequence,)


def test_a_held_job_is_folded_on():
    history = a_history(a_running_job())
    history.hold("TooLarge", "something")
    history.fold(stored(history, JobSucceeded(reason="TrainingJobSucceeded")))
    assert history.job.status.phase == "Succeeded"


def test_an_event_that_comes_again_is_ignored():
    histories = Histories()
    for line in LOG:
        histories.fold(line)
    head, job = histories[KEY].head, histories[KEY].job
    for line in (LOG[-1], LOG[0], LOG[3]):
        assert histories.fold(line) is None
    assert (histories[KEY].head, histories[KEY].job) == (head, job)


def test_a_history_is_closed_with_its_job_and_open_again_when_the_job_comes_back():
    histories, history = Histories(), History(KEY)

    def fold(event: AnyEvent) -> list[JobKey]:
        line = stored(history, event)
        history.fold(line)
        histories.fold(line)
        return [each.job.key for each in histories.open()]

    assert fold(observed(a_spec())) == [KEY]
    assert fold(JobGone()) == []
    assert fold(observed(a_spec(), generation=2)) == [KEY]


def test_the_histories_on_whose_jobs_no_service_may_act_are_known_until_they_are_accepted():
    histories, history = Histories(), History(KEY)
    doubt = HistoryBroken(log="other", sequence=9, hash="ab", reason="OtherLog")
    held = []
    for event in (observed(a_spec()), doubt, PodsGone(uids=()), HistoryAccepted(sequence=9, hash="ab")):
        line = stored(history, event)
        history.fold(line)
        histories.fold(line)
        held.append([each.job.key for each in histories.held()])
    assert held == [[], [KEY], [KEY], []]
    histories[KEY].hold("TooLarge", "a reason that no person accepts")
    histories[OTHER].hold("BrokenInvariant", "another one")
    assert [each.job.key for each in histories.held()] == [KEY, OTHER]


def test_each_job_has_a_history_of_its_own_whatever_its_name():
    histories = Histories()
    waiting = JobKey(KEY.namespace, KEY.name, Uid("none"))
    for sequence, (key, event) in enumerate(
        [(KEY, observed(a_spec())), (OTHER, observed(a_spec(5))), (waiting, scale_out(request=R1, owned=False))], 1
    ):
        histories.fold(stored(histories[key], event, sequence=sequence))
    assert len(histories) == 3
    assert {history.job.key for history in histories} == {KEY, OTHER, waiting}
    assert histories.get(JobKey("team-b", "unknown", Uid("uid-3"))) is None
    assert R1 in histories[waiting].job.scaling.requests
    assert not histories[KEY].job.scaling.requests


def test_the_genesis_event_is_folded_like_any_other():
    histories = Histories()
    genesis = Stored(1, "facts.none.none.none.setup.LogCreated", "log-1", "", msgspec.json.encode(LogCreated()))
    history = histories.fold(genesis)
    assert history is not None
    assert not history.held


@pytest.mark.parametrize("subject", ["facts.a", "facts.a.b.c.watcher", "facts.a.b.c.d.watcher.JobGone"])
def test_a_subject_of_another_shape_is_no_event_of_ours_and_stops_nothing(subject: str):
    stray = list[Stored]()
    histories = Histories(stray=stray.append)
    event = Stored(1, subject, "e", "", b"{}")
    assert histories.fold(event) is None
    assert (histories.position, stray) == (1, [event])
    histories.fold(stored(History(KEY), observed(a_spec()), sequence=2))
    assert histories[KEY].job.resource.generation == 1


def a_year(cycles: range) -> Iterator[AnyEvent]:
    """A worker is added and taken away again and again; timers pass, and effects are refused, on the way."""
    for cycle in cycles:
        version, out, back = 2 * cycle + 2, Uid(f"out-{cycle}"), Uid(f"in-{cycle}")
        new = replace(worker(2, version=cycle + 10), uid=Uid(f"pod-2-{cycle}"))
        yield from scaling_out(2, request=out)
        yield EffectRefused(effect="CreatePod", reason="Forbidden", slots=(workers(2),), message="quota")
        yield TimePassed(anchor=version, timer="BackOff:CreatePod")
        yield pods(new)
        yield from (published(version, 0, 1, 2, request=out), hosts_file(version))
        yield from (ScaleSucceeded(request=out, reason="ScalingOutSucceeded"), JobRunning(reason="TrainingJobRunning"))
        yield ScaleRequestGone(uid=out)
        yield from scaling_in(2, request=back)
        yield from (published(version + 1, 0, 1, request=back), hosts_file(version + 1))
        yield TimePassed(anchor=version + 1, timer="Drain")
        yield WorkersReleased(request=back, slots=(workers(2),), reason="Drained")
        yield PodsGone(uids=(new.uid,))
        yield from (ScaleSucceeded(request=back, reason="ScalingInSucceeded"), JobRunning(reason="TrainingJobRunning"))
        yield ScaleRequestGone(uid=back)


def test_a_job_that_lives_a_year_keeps_a_bounded_state():
    history, sizes = a_history(a_running_job()), list[int]()
    for cycles in (range(100), range(100, 500)):
        for event in a_year(cycles):
            made = replace(event, because=1) if isinstance(event, Decided) else event
            history.fold(stored(history, made))
        sizes.append(len(as_json_text(history.job)))
    assert not history.held
    assert len(history.job.scaling.requests) <= MOST_FINISHED
    assert len(history.job.efforts.timers_passed) <= UNSORTED
    assert not history.job.efforts.refusals
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.unrecorded
def test_flips_of_readiness_for_weeks_keep_a_bounded_memory():
    history = a_history(a_running_job())
    tracemalloc.start()
    try:
        for flip in range(MOST_HASHES * 3 // 2):
            history.fold(stored(history, pods(worker(0, version=50 + flip, ready=bool(flip % 2)))))
        kept = tracemalloc.get_traced_memory()[0] / 2**20
    finally:
        tracemalloc.stop()
    assert kept < 0.5, f"{kept:.1f} MiB"
