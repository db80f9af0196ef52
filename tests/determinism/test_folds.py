"""A history folds to the same state, documents and decisions in every process, whatever the seed of its hashes.

Here for some histories; `make test-determinism` does it for all that any test makes, and under other Pythons.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.eventlog import Stored
from shared.telling.reading import event_of
from tests.determinism.fold import prefixes
from tests.determinism.processes import ROOT, SEEDS, Process, compare, whole
from tests.histories.recorded import recordings
from tests.kit.builders import a_running_job, a_spec, scaling_in, scaling_out
from tests.kit.histories import a_history, write
from tests.kit.loop import Loop
from tests.kit.nats import a_decision, a_server, connected
from tests.kit.recorder import Recorder
from tests.kit.replicas import a_replicated_spec, a_running_replicated_job, ended
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

PYTHON = Path(sys.executable)
EACH = 10
"""Every tenth recording of a release is folded."""
SIMULATIONS = 4


def test_histories_of_a_release_fold_the_same_under_eight_hash_seeds(tmp_path: Path):
    found = recordings("0.1.0")[::EACH]
    files = [write(each.events(), tmp_path / "histories", str(number)) for number, each in enumerate(found)]
    outcome = compare(files, [Process(PYTHON, seed) for seed in SEEDS], tmp_path)
    assert not outcome.differences, "\n".join(outcome.differences)
    assert outcome.prefixes > 10 * len(files)


def test_histories_of_this_release_fold_the_same_under_eight_hash_seeds(tmp_path: Path):
    with Recorder(tmp_path / "histories").recording() as recorder:
        a_history([*a_running_job(workers=4), *scaling_out(4, 5)])
        a_history([*a_running_job(workers=4), *scaling_in(1, 3)])
        spec = a_replicated_spec("OnFailure", workers=4)
        a_history([*a_running_replicated_job(spec), ended("worker", 1, 1), ended("worker", 3, 137)])
        for seed in range(SIMULATIONS):
            Loop(seed, a_spec(4, least=2, most=6)).run(lambda loop: loop.job.over or len(loop.log) > 150)
        recorder.write("this release")
    files = whole((tmp_path / "histories").iterdir())
    assert len(files) == 3 + SIMULATIONS
    outcome = compare(files, [Process(PYTHON, seed) for seed in SEEDS], tmp_path)
    assert not outcome.differences, "\n".join(outcome.differences)


@pytest.mark.parametrize("body", [b"{}", b"not json"])
def test_a_malformed_event_is_folded_as_any_other(body: bytes):
    event = Stored(1, "facts.team-a.resnet.uid-1.watcher.JobObserved", "event-1", "2030-01-01T00:00:00.000Z", body)
    (prefix,) = prefixes([event])
    assert prefix.sequence == 1


def test_a_history_that_another_one_begins_with_is_folded_once(tmp_path: Path):
    events = a_running_job()
    with Recorder(tmp_path).recording() as recorder:
        a_history(events[:5])
        recorder.write("short")
        a_history(events)
        a_history(events[:5])
        a_history(events)
        recorder.write("long")
    (longest,) = tmp_path.glob("long*")
    assert len([*tmp_path.iterdir()]) == 2
    assert whole(tmp_path.iterdir()) == [longest]


@pytest.mark.nats
async def test_a_log_that_no_service_of_the_test_folded_is_kept_too(tmp_path: Path):
    with Recorder(tmp_path / "histories").recording() as recorder:
        await MemoryEventLog(MemoryJournal()).append(a_decision("in-memory"), expect=0)
        async with a_server(tmp_path / "nats") as server, connected(server) as log:
            await log.append(a_decision("on-a-server"), expect=0)
        recorder.write("logs")
    kept = [event_of(file.read_bytes().splitlines()[-1]).subject for file in (tmp_path / "histories").iterdir()]
    assert {subject.split(".")[1] for subject in kept} == {"none", "in-memory", "on-a-server"}


def test_the_order_of_a_set_is_seen_in_its_bytes():
    program = (
        "from tests.determinism.spelling import Spelling; print(Spelling()({'chief', 'ps', 'worker', 'evaluator'}))"
    )
    said = set()
    for seed in SEEDS:
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", program]
        said.add(subprocess.run(words, env=environment, check=True, capture_output=True).stdout)
    assert len(said) > 1


class Disagreeing(Process):
    """A process whose states are its own."""

    def fold(self, *words: str, into: Path) -> None:
        super().fold(*words, into=into)
        into.write_text(into.read_text().replace("resnet", "alexnet").replace(" 3 ", " 3 changed-"))


def test_a_difference_is_told_with_the_event_after_which_it_begins(tmp_path: Path):
    with Recorder(tmp_path / "histories").recording() as recorder:
        a_history(a_running_job())
        recorder.write("one")
    files = whole((tmp_path / "histories").iterdir())
    outcome = compare(files, [Process(PYTHON, 0), Disagreeing(PYTHON, 1)], tmp_path)
    (told,) = outcome.differences
    assert "differs after event 3" in told
    assert "PYTHONHASHSEED=1" in told
    assert "alexnet" in told
