"""The queue of facts: what waits, what is dropped, and that one fault does not end it."""

import asyncio
from collections.abc import Callable

import pytest

from services.audit import server
from services.audit.core import Change, Claim, Match
from services.audit.server import LOST, AuditFigures, Writer
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import MAX_BODY, EventLog
from shared.eventlog.account import AUDIT
from shared.job.naming import JobKey, Uid
from tests.memory.eventlog import MemoryEventLog, MemoryJournal

PATIENCE_SECONDS = 20.0


def a_match(user: str = "alice", *, agent: str = "") -> Match:
    change = Change(7, JobKey("team-a", "resnet", Uid("uid-1")), "uid-1", 40)
    return Match(change, Claim("team-a", "uid-1", 40, user, (), "", agent, f"audit-{user}"))


class Site:
    """A writer and the log that it finds, after a number of faults."""

    def __init__(self, *faults: Exception) -> None:
        self.journal, self.figures, self.faults = MemoryJournal(), AuditFigures(), [*faults]
        self.writer = Writer(self.log, self.figures)

    async def log(self) -> EventLog:
        if self.faults:
            raise self.faults.pop(0)
        return MemoryEventLog(self.journal, user=AUDIT)

    @property
    def written(self) -> list[str]:
        return [stored.body.decode() for stored in self.journal.events if stored.subject.endswith("ChangeAttributed")]

    def lost(self, reason: str) -> float:
        (series,) = (each for each in self.figures.series() if each.metric == LOST)
        return series.values[(reason,)]

    async def until(self, ready: Callable[[], bool]) -> None:
        task = asyncio.create_task(self.writer.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not ready():
                    assert not task.done(), task
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "fault",
    [
        Refused("the password was changed", reason="Unauthorized"),
        Refused("another log", reason="LogReplaced"),
        Refused("no log", reason="NotSetUp"),
        Conflict("another replica was first"),
        Transient("away"),
    ],
    ids=lambda fault: getattr(fault, "reason", type(fault).__name__),
)
async def test_a_fact_waits_while_the_log_refuses_the_service(fault: Exception):
    site = Site(fault, fault, fault)
    site.writer.add(a_match())
    await site.until(lambda: bool(site.written))
    assert site.lost("Refused") == 0


async def test_a_fact_that_no_log_takes_is_dropped_and_the_next_one_is_written():
    site = Site()
    site.writer.add(a_match("a" * (MAX_BODY + 1)))
    site.writer.add(a_match())
    await site.until(lambda: bool(site.written))
    assert site.lost("Refused") == 1


async def test_a_fault_of_the_service_takes_one_fact_and_not_the_queue():
    site = Site(RuntimeError("a bug"))
    site.writer.add(a_match("bob"))
    site.writer.add(a_match())
    await site.until(lambda: bool(site.written))
    assert "alice" in site.written[0]
    assert site.lost("Failed") == 1


async def test_facts_about_another_log_are_forgotten_the_one_under_way_included():
    site = Site(*[Transient("away")] * 1000)
    site.writer.add(a_match("bob"))
    site.writer.add(a_match("carol"))

    def cleared() -> bool:
        if len(site.faults) == 999:
            site.writer.clear()
            site.faults.clear()
            site.writer.add(a_match("alice"))
        return bool(site.written)

    await site.until(cleared)
    assert len(site.written) == 1
    assert "alice" in site.written[0]


def test_the_queue_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "MOST_WAITING_BYTES", 20_000)
    site = Site()
    for _ in range(100):
        site.writer.add(a_match(agent="x" * 250))
    assert 0 < site.writer.waiting < 100
    assert site.lost("QueueFull") == 100 - site.writer.waiting
