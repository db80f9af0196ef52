"""The demo's own parts; `tests/e2e/test_demo.py` runs all of it."""

import time

from muster.demo import whole_history
from shared.eventlog.subject import Subject
from shared.job.events.status import JobSucceeded
from tests.kit.builders import a_running_job, launcher, pods, worker
from tests.kit.histories import KEY
from tests.memory.eventlog import MemoryEventLog
from tests.muster.test_get import Log

ENDED = (
    pods(launcher(version=30, phase="Succeeded")),
    JobSucceeded(reason="TrainingJobSucceeded"),
    pods(worker(0, version=31, deleting=True), worker(1, version=31, deleting=True)),
)


async def test_the_history_is_told_once_its_own_pods_are_gone_whatever_other_jobs_run():
    log = Log()
    log.add(*a_running_job(2), *ENDED)
    log.add(*a_running_job(2), name="another", uid="uid-9")
    began = time.monotonic()
    events = await whole_history(MemoryEventLog(log.journal), KEY, patience=5)
    assert time.monotonic() - began < 1
    assert {Subject.parse(stored.subject).uid for stored in events} == {KEY.uid}
    assert len(events) == len([*a_running_job(2), *ENDED])


async def test_a_clean_up_that_takes_too_long_is_not_waited_for():
    log = Log()
    log.add(*a_running_job(2))
    assert len(await whole_history(MemoryEventLog(log.journal), KEY, patience=0)) == len(a_running_job(2))
