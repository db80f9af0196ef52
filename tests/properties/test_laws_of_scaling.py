"""Laws of scalings with scripts, edits and drains, over generated histories: all are asked of the same lives."""

import random

import pytest

from shared.job.events.scaler import ScaleFailed, ScaleSucceeded, ScriptFinished, ScriptStarted, WorkersReleased
from shared.job.naming import Uid
from shared.job.state import Job
from tests.kit.builders import a_spec
from tests.kit.loop import Loop

SEEDS = range(200)


def a_life(seed: int, *, calm: bool = False) -> Loop:
    """A job that is edited and asked to scale, with scripts, while requests and workers vanish; then it ends."""
    chance = random.Random(seed)
    loop = Loop(seed, a_spec(3, least=1, most=8))
    loop.calm = calm
    loop.run(lambda loop: loop.job.status.phase == "Running" or loop.job.over)
    for _ in range(chance.randint(1, 8)):
        if chance.random() < 0.3:
            loop.edit(a_spec(chance.randint(1, 8), least=1, most=8))
        else:
            kind = chance.choice(["ScaleIn", "ScaleOut"])
            uid = loop.request(kind, count=chance.randint(1, 3), script=chance.random() < 0.7)  # type: ignore[arg-type]
            if not calm and chance.random() < 0.2:
                loop.run(lambda loop: loop.chance.random() < 0.05 or loop.job.over)
                loop.requests.pop(uid, None)
        loop.run(lambda loop: loop.chance.random() < 0.05 or loop.job.over)
    loop.calm = True
    loop.run(_settled)
    return loop


def _settled(loop: Loop) -> bool:
    job = loop.job
    quiet = all_over(job) and not job.scaling.open and seen(loop)
    return quiet and (job.over or (job.status.phase == "Running" and not job.leaving))


def all_over(job: Job) -> bool:
    return all(request.over for request in job.scaling.requests.values())


def seen(loop: Loop) -> bool:
    """The log knows of everything that was asked."""
    known = loop.job.scaling.requests.keys()
    return loop.resource is not None and loop.job.spec == loop.resource.observed.spec and loop.requests.keys() <= known


@pytest.fixture(scope="module")
def lives() -> dict[int, Loop]:
    """By seed."""
    return {seed: a_life(seed) for seed in SEEDS}


def test_every_request_and_every_edit_ends(lives: dict[int, Loop]):
    for seed, loop in lives.items():
        assert all_over(loop.job), seed
        assert not loop.job.scaling.open, seed


def test_a_script_runs_at_most_once(lives: dict[int, Loop]):
    assert any(loop.ran for loop in lives.values())
    for seed, loop in lives.items():
        started = [event.request for event in loop.events if isinstance(event, ScriptStarted)]
        assert len(started) == len({*started}), seed
        assert len(loop.ran) == len({*loop.ran}), seed
        assert {*loop.ran} <= {*started}, seed


def test_no_request_succeeds_whose_script_did_not_end_well(lives: dict[int, Loop]):
    succeeded = 0
    for seed, loop in lives.items():
        well: set[Uid] = set()
        for event in loop.events:
            if isinstance(event, ScriptFinished) and event.exit_code == 0:
                well.add(event.request)
            request = loop.job.scaling.requests.get(event.request) if isinstance(event, ScaleSucceeded) else None
            if request is not None and request.spec is not None and request.spec.script:
                succeeded += 1
                assert request.uid in well, seed
    assert succeeded


def test_no_worker_is_released_before_the_launcher_has_the_files_and_none_twice(lives: dict[int, Loop]):
    for seed, loop in lives.items():
        released = [event.request for event in loop.events if isinstance(event, WorkersReleased) and event.request]
        assert len(released) == len({*released}), seed
        assert all(loop.job.scaling.requests[request].published for request in released), seed


def test_a_failed_script_removes_no_worker(lives: dict[int, Loop]):
    for seed, loop in lives.items():
        for event in loop.events:
            if isinstance(event, ScaleFailed) and event.reason.startswith("Script"):
                assert not event.released, seed


def test_in_peace_everything_succeeds_and_the_size_is_what_was_asked_for():
    for seed in SEEDS:
        job = a_life(seed, calm=True).job
        failed = {request.reason for request in job.scaling.requests.values() if request.phase == "Failed"}
        # A smaller number of a person's ends the growth to a larger one.
        assert failed <= {"AboveMaximum", "BelowMinimum", "Overtaken"}, seed
        assert len(job.attempt.workers) == len(job.listed_workers) == job.scaling.size, seed
