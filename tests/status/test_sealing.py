"""The seal of a history: when it is due, and that the fold lets go of it."""

import pytest
from msgspec.structs import replace

from services.status.core.decide import sealing
from services.status.shell import Status
from shared.eventlog.account import HEADS
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import Cause
from shared.job.events.status import JobCreated, JobSealed
from shared.job.events.watcher import HistoryBroken, JobGone, JobOfAnother, TimePassed
from shared.job.fold import Histories
from shared.job.steps import Record
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history, stored
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore

SEEN, CREATED, GONE = a_running_job()[0], JobCreated(reason="TrainingJobCreated"), JobGone()
SETTLED = TimePassed(anchor=3, timer="Seal")
BROKEN = HistoryBroken(log="other", sequence=9, hash="ab", reason="OtherLog")


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([SEEN, CREATED], id="it lives"),
        pytest.param([SEEN, CREATED, GONE], id="its time to settle runs"),
        pytest.param([SEEN, CREATED, GONE, SETTLED, SEEN], id="it came back"),
        pytest.param([*a_running_job(), GONE, TimePassed(anchor=11, timer="Seal")], id="it has pods"),
        pytest.param([SEEN, CREATED, GONE, BROKEN, SETTLED], id="its log is in doubt"),
    ],
)
def test_what_is_not_over_is_not_sealed(story: list[AnyEvent]):
    assert sealing(a_history(story)) is None


def test_a_history_on_hold_is_not_sealed():
    history = a_history([SEEN, CREATED, GONE, SETTLED])
    history.hold("NotConfirmed", "a decision was taken on an event that is not here")
    assert sealing(history) is None


def test_the_history_of_another_operators_job_ends_with_it_too():
    another = JobOfAnother(phase="Running", reason="BegunByAnother", kind="TFJob", api_version="kubeflow.org/v1")
    assert sealing(a_history([another, GONE])) is None
    assert sealing(a_history([another, GONE, replace(SETTLED, anchor=2)])) is not None


async def test_nothing_is_sealed_before_the_bucket_of_checkpoints_has_nothing_of_it():
    log, history = MemoryEventLog(MemoryJournal(), user="status"), a_history([SEEN, CREATED, GONE, SETTLED])
    service = Status(MemoryCluster(MemoryStore()), await log.bucket(HEADS), "memory")
    assert service.decide(history) == []


def test_a_job_that_settled_is_sealed_and_the_fold_lets_go_of_it():
    history = a_history([SEEN, CREATED, GONE, SETTLED])
    record = sealing(history)
    assert record is not None
    seal = record.event
    assert isinstance(seal, JobSealed)
    assert record.because == Cause(4)
    assert (seal.first, seal.last, seal.count, seal.hash) == (1, 4, 4, history.head.hash)
    assert (seal.outcome, seal.reason) == ("Created", "Deleted")
    histories, again = Histories(), a_history([])
    for event in (SEEN, CREATED, GONE, SETTLED, replace(seal, because=4)):
        made = stored(again, event)
        again.fold(made)
        histories.fold(made)
    assert len(histories) == 0
    assert histories.sealed(history.job.key) == 5
    use = histories.used[history.job.key.namespace]
    assert (use.log, use.memory) == (0, 0)
    assert use.sealed


async def test_a_job_that_came_back_and_went_again_is_sealed_once_the_bucket_was_asked_again():
    log, history = MemoryEventLog(MemoryJournal(), user="status"), a_history([SEEN, CREATED, GONE, SETTLED])
    service = Status(MemoryCluster(MemoryStore()), await log.bucket(HEADS), "memory")
    service._cleared[history.job.key] = history.job.resource.gone
    assert [type(step) for step in service.decide(history)] == [Record]
    for event in (SEEN, GONE, replace(SETTLED, anchor=6)):
        # Another replica acted meanwhile, and may have left a checkpoint.
        history.fold(stored(history, event))
    assert sealing(history) is not None
    assert service.decide(history) == []
