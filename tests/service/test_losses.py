"""Events that leave the log under running services are missed, also of a job in which nothing happens."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from shared.errors import Refused
from shared.eventlog import Entry
from shared.job.events.status import JobSealed
from shared.job.naming import JobKey, subject_of
from shared.runtime.losses import SURE, SURE_SECONDS, TURN_SECONDS, notice_losses
from shared.runtime.run import Runtime
from tests.kit.virtual_time import until
from tests.memory.eventlog import MemoryJournal
from tests.service.test_runtime import ONE, TWO, Line, Small, Stage, restarting


class Purged(Line):
    """A log of which some answers lack an event."""

    lacking: str = ""
    answers_left = 0

    def __init__(self, *of: MemoryJournal, user: str) -> None:
        super().__init__(*of, user=user)
        self.more: Counter[str] = Counter()

    async def counted(self, scope: str) -> Mapping[str, int]:
        found = Counter(await super().counted(scope)) + self.more
        missing = next((each for each in found if self.lacking and self.lacking in each), None)
        if missing is None or self.answers_left <= 0:
            return found
        self.answers_left -= 1
        return found - Counter([missing])


def a_quiet_stage() -> tuple[Stage, Purged]:
    stage = Stage(Small(restarting(1)))
    line = Purged(stage.journal, user="scheduler")
    stage.line, stage.runtime = line, Runtime(stage.service, line, owns=lambda: True, chance=lambda: 0.5)
    return stage, line


@pytest.mark.parametrize("lacking", [".watcher.JobObserved", ".scheduler.JobRestarted"])
async def test_an_event_that_left_the_log_is_missed_although_its_job_has_no_other(lacking: str):
    stage, line = a_quiet_stage()
    async with stage.running():
        for key in (ONE, TWO):
            stage.see(key)
        await until(lambda: all(stage.history(key).job.attempt.number == 1 for key in (ONE, TWO)), "the restarts")
        looking = asyncio.create_task(notice_losses(stage.runtime))
        await asyncio.sleep(30)
        assert not looking.done()
        line.lacking, line.answers_left = f"{TWO.uid}{lacking}", SURE - 1
        await asyncio.sleep(30)
        assert not looking.done(), "a former leader may lag"
        line.answers_left = SURE
        await asyncio.sleep(SURE * (SURE_SECONDS + TURN_SECONDS))
        with pytest.raises(Refused, match="team-a/bert, and this service has read 2: some were purged") as loss:
            looking.result()
        assert loss.value.reason == "LogTruncated"


async def test_what_is_sealed_or_for_people_alone_may_leave():
    stage, line = a_quiet_stage()
    async with stage.running():
        stage.see()
        attributed = subject_of(ONE, "facts", "audit", "ChangeAttributed")
        stage.journal.append(Entry(subject=attributed, event_id="who", time="", body=b"{}"), expect=0)
        await until(lambda: stage.history().job.attempt.number == 1, "the restart")
        looking = asyncio.create_task(notice_losses(stage.runtime))
        line.lacking, line.answers_left = attributed, 2 * SURE
        await asyncio.sleep(30)
        assert line.answers_left == 0
        # The archiver purges up to a seal that this service has not read yet.
        line.lacking, line.answers_left = ".watcher.JobObserved", 2 * SURE
        line.more[subject_of(ONE, "jobs", "status", "JobSealed")] = 1
        await asyncio.sleep(30)
        assert not looking.done()
        looking.cancel()


@pytest.mark.parametrize("meanwhile", [ONE, TWO])
async def test_a_job_sealed_since_its_turn_began_is_no_loss_if_its_seal_left_too(meanwhile: JobKey):
    stage, line = a_quiet_stage()
    seal = JobSealed(first=2, last=99, count=8, hash="0" * 64, outcome="Succeeded", reason="Deleted")
    asked: list[str] = []

    async def counted(scope: str) -> Mapping[str, int]:
        found = await Purged.counted(line, scope)
        asked.append(scope)
        if not stage.runtime.histories.sealed(TWO) and meanwhile.uid in scope:
            stage.decide_otherwise(seal, "status", key=TWO)
            await until(lambda: stage.runtime.histories.sealed(TWO) > 0, "the seal")
        return {} if TWO.uid in scope else found

    line.counted = counted  # type: ignore[method-assign]
    async with stage.running():
        for key in (ONE, TWO):
            stage.see(key)
        await until(lambda: all(stage.history(key).job.attempt.number == 1 for key in (ONE, TWO)), "the restarts")
        looking = asyncio.create_task(notice_losses(stage.runtime))
        await until(lambda: len(asked) > 10 or looking.done(), "the next turns")
        assert not looking.done()
        assert sum(TWO.uid in scope for scope in asked) == (meanwhile == TWO)
        looking.cancel()
