"""Seeds hold, the same seed is the same run, and the checker sees what is planted."""

import asyncio
import contextvars
import functools
import os
import subprocess
import sys
from random import Random

import msgspec
import pytest

from shared.cluster.calls import Timeouts
from shared.errors import Transient
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.job.naming import STALL_TIMEOUT, key_of
from shared.job.timing import CREATED_WITHIN_SECONDS
from shared.telling.reading import fold_all, of_history
from shared.telling.report import Life, reported
from tests.kit.services import AUTHORS
from tests.simulation.archives import ARCHIVERS
from tests.simulation.loop import PROCESS, Process, SimulatedLoop
from tests.simulation.manifests import KINDS
from tests.simulation.matrix import PROTOCOLS, STEADY, cells
from tests.simulation.matrix import plan_of as broken_plan_of
from tests.simulation.mutants import A_LATE_FACT, A_RETURN, MUTANTS, Mutant, an_archive
from tests.simulation.network import LATEST_SECONDS, LONGEST_LATE_SECONDS, Link, Rates
from tests.simulation.plan import FORGED, Apply, Archive, Delete, Edit, Kill, Lie, Node, Plan, Restore, plan_of
from tests.simulation.run import Outcome, simulate
from tests.simulation.shrink import as_test

replace = msgspec.structs.replace

SEEDS = 48
CHUNK = 8
"""`make sim` runs more."""

EVERY = 12
"""Of the cells of the crash matrix one in so many is run here: an event has 13, so each of them has its turn."""

STEPS_OF_AN_ARCHIVER = 300
"""The callbacks in which it archives two histories."""

MOST_SEEDS = 150
"""A mutant that so many seeds do not catch lives."""


@functools.cache
def outcome_of(seed: int) -> Outcome:
    """What the seed comes to in this process."""
    return simulate(plan_of(seed))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_what_must_hold_holds(first: int):
    for seed in range(first, first + CHUNK):
        outcome = outcome_of(seed)
        assert not outcome.faults, as_test(plan_of(seed), outcome.faults)
        assert {"JobObserved", "JobCreated", "SlotsAssigned", "PodsObserved"} <= outcome.reached


def test_each_protocol_comes_to_its_end_undisturbed():
    ends = {
        "create": "JobRunning",
        "restart": "JobRestarted",
        "delete": "JobGone",
        "seal": "JobSealed",
        "capacity": "JobRestarted",
        "notice": "DisruptionNoticed",
        "in place": "JobSucceeded",
    }
    for protocol in PROTOCOLS:
        assert ends.get(protocol, "ScaleSucceeded") in simulate(broken_plan_of(protocol)).reached


def test_each_protocol_holds_when_it_is_broken_at_any_of_its_events():
    sample = [*cells()][::EVERY]
    ways = {(strike.how, strike.author) for cell in sample for strike in cell.strikes}
    assert len(ways) == 3 * len(AUTHORS) + 1
    for cell in sample:
        outcome = simulate(cell.plan)
        assert not outcome.faults, as_test(cell.plan, outcome.faults)


def test_a_fact_may_follow_a_seal_and_a_sealed_job_may_come_back():
    for plan, reached in ((A_LATE_FACT, "late"), (A_RETURN, "JobSealed")):
        outcome = simulate(plan)
        assert not outcome.faults, as_test(plan, outcome.faults)
        assert reached in outcome.reached


def test_an_archiver_that_is_killed_at_any_of_its_steps_loses_nothing_and_archives_nothing_twice():
    for after in range(0, STEPS_OF_AN_ARCHIVER, EVERY):
        kills = (Kill(at=4.5, replica=name, after=after, down=0.3) for name in ARCHIVERS)
        plan = an_archive(*kills, seals=20.0)
        outcome = simulate(plan)
        assert not outcome.faults, as_test(plan, outcome.faults)


@pytest.mark.parametrize("lost", [0, 1, 100], ids=["other bytes are stored", "a part is lost", "all is lost"])
def test_an_archive_that_is_not_what_it_was_costs_the_log_nothing(lost: int):
    for at in (4.5, 5.5, 10.0, 10.5):
        for restores in ((), (Restore(at=at + 1.0, lost=9),)):
            plan = an_archive(Archive(at=at, lost=lost), *restores, seals=20.0)
            outcome = simulate(plan)
            assert not outcome.faults, as_test(plan, outcome.faults)


def test_a_person_removes_what_an_orphaned_job_left_in_the_way_of_the_next_one():
    apply = Apply(at=0.1, job="resnet", kind="TrainingJob", workers=1)
    steps = apply, Delete(at=2.0, job="resnet", orphan=True), replace(apply, at=4.0)
    plan = Plan(seed=1, steps=steps, workload=STEADY)
    outcome = simulate(plan)
    assert not outcome.faults, as_test(plan, outcome.faults)
    assert "JobSucceeded" in outcome.reached


def test_reports_that_are_refused_change_nothing_at_all():
    job = Apply(at=0.1, job="resnet", kind="TrainingJob", workers=1, annotations={STALL_TIMEOUT: "6"})
    other = replace(job, job="other")
    lies = [Lie(at=8.0, job="resnet", step=step, another=of) for step in (-9, 10**15) for of in ("", "other")]
    plan = Plan(seed=1, steps=(job, other, *lies, Delete(at=12.0, job="none")), workload=STEADY, reports=0.5)
    outcome = simulate(plan)
    assert not outcome.faults, as_test(plan, outcome.faults)
    assert "ProgressReported" in outcome.reached
    assert simulate(replace(plan, steps=(job, other, plan.steps[-1]))).trace == outcome.trace


def test_a_node_that_is_silent_for_37_seconds_is_one_incident_with_all_that_it_cost():
    log = list[Stored]()
    outage = (Node(at=20.0, node="node-0", how="silent"), Node(at=57.0, node="node-0", how="open"))
    steps = Apply(at=0.1, job="resnet", kind="TrainingJob", workers=3), *outage, Delete(at=70.0, job="none")
    assert not simulate(Plan(seed=0, steps=steps, workload=STEADY), log.append).faults
    (key,) = {key_of(Subject.parse(stored.subject)) for stored in log if stored.subject.endswith(".JobObserved")}
    life = fold_all(Life(key), (stored for stored in log if of_history(stored, key)))
    found = reported(life, KINDS, until=log[-1].logged)
    (incident,) = found.incidents
    # The places on it wait for the scheduler to give its pods up, and the whole group for the next attempt.
    assert (incident.places, incident.cause) == ("launcher 0 and worker 0-2", "node")
    assert incident.text.startswith("node node-0 is lost")
    assert incident.seconds == sum(share.seconds for share in found.shares if share.bucket == "lost")


def test_what_a_person_writes_into_a_status_may_stay_while_the_status_service_has_nothing_to_write():
    # The run ends with a resumption, which is no edit of this job.
    more = {"suspend": False, "restartPolicy": "Sometimes"}
    steps = (
        Apply(at=0.1, job="resnet", kind="TrainingJob", workers=1, more=more),
        Edit(at=2.0, job="resnet", patch={"status": FORGED[0]}, subresource="status"),
    )
    assert not simulate(Plan(seed=1, steps=steps, workload=STEADY)).faults


def test_the_same_seed_is_the_same_run_in_another_process_with_another_hash_seed():
    another = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "6", "--traces"],
        env=os.environ | {"PYTHONHASHSEED": another},
        capture_output=True,
        text=True,
        check=True,
    )
    traces = [line.split()[1] for line in ended.stdout.splitlines()[:6]]
    assert traces == [outcome_of(seed).trace for seed in range(6)]
    assert len({*traces}) == 6


def test_the_end_of_a_pause_does_not_wake_a_process_that_was_killed_meanwhile():
    ran: list[str] = []

    async def story() -> None:
        process, context = Process("watcher-0#1"), contextvars.copy_context()
        context.run(PROCESS.set, process)
        process.pause()
        asyncio.get_running_loop().call_soon(ran.append, "a callback", context=context)
        await asyncio.sleep(1)
        process.kill()
        process.go_on()
        await asyncio.sleep(1)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    assert not ran


def test_the_end_of_an_outage_lets_nothing_through_that_was_sent_before_the_log_was_restored():
    ran: list[str] = []

    async def story() -> None:
        link = Link(Random(0), Rates(late=1_000))
        with pytest.raises(Transient):
            await link.call(lambda: ran.append("a late call"))
        link.closed = True
        link.cut = False
        await asyncio.sleep(LONGEST_LATE_SECONDS)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    assert not ran


def test_a_call_that_a_client_has_given_up_is_not_carried_out_where_the_server_has_a_deadline():
    """As of a pod: a second call is sent after the first one was carried out, or never will be."""
    carried_out: list[float] = []

    async def story() -> None:
        link, loop = Link(Random(0), Rates(late=1_000)), asyncio.get_running_loop()
        for _ in range(20):
            carried_out.clear()
            with pytest.raises(Transient):
                await link.call(lambda: carried_out.append(loop.time()), within=CREATED_WITHIN_SECONDS)
            given_up = loop.time()
            await asyncio.sleep(LATEST_SECONDS)
            assert not carried_out or carried_out[0] <= given_up

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())
    assert Timeouts().total > CREATED_WITHIN_SECONDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    mutant.plant(monkeypatch)
    for plan in [mutant.plan] if mutant.plan is not None else map(plan_of, range(MOST_SEEDS)):
        faults = simulate(plan).faults
        if faults:
            assert any(fault.startswith(f"{mutant.rule} ") for fault in faults), faults
            return
    pytest.fail("nothing sees it")
