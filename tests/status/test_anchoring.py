"""The anchor: what changes a log is noticed, what leaves it as it should is not, and it is never overwritten."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from services.status.checkpoints import Anchoring
from shared.cluster.kinds import LEASES
from shared.errors import Conflict
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, ARCHIVER
from shared.eventlog.server import NatsServer
from shared.job.events.watcher import JobGone
from shared.job.fold import Histories
from shared.job.naming import history_filters, namespace_filters
from shared.runtime.heads import SEALS_SECONDS, Anchor, differs
from shared.telemetry.process_metrics import ProcessMetrics
from shared.telling.reading import AT_ONCE, fold_to_end
from tests.archive.test_archiver import archive
from tests.kit.builders import a_running_job
from tests.kit.histories import chained
from tests.kit.nats import a_namespace, connected
from tests.kit.sealed import Life, a_key, a_sealed_life
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog
from tests.memory.store import MemoryStore
from tests.muster.test_get import Log

PLACE = "muster/muster-anchor"


def a_log() -> Log:
    log = Log()
    log.add(*a_running_job(2))
    log.add(*a_running_job(2), name="other", uid="uid-2")
    return log


async def anchor_of(log: Any, *subjects: str) -> Anchor:
    histories = Histories()
    await fold_to_end(log, histories.fold, subjects)
    return Anchor.of(await log.identity(), histories, log.now())


def changed(events: list[Stored], at: int, **changes: Any) -> None:
    events[at] = replace(events[at], **changes)


def rechained(events: list[Stored]) -> None:
    """As an administrator can who writes the log, the checkpoints and the status."""
    changed(events, 1, time="2031-01-01T00:00:00.000Z")
    events[1:] = chained(events[1:])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda events: None, "", id="nothing"),
        pytest.param(lambda events: changed(events, -1, body=events[-1].body + b" "), "other events", id="last body"),
        pytest.param(lambda events: changed(events, 3, time="2031"), "other events", id="a time"),
        pytest.param(lambda events: changed(events, 3, source="x"), "other events", id="a source"),
        pytest.param(rechained, "other events", id="all hashes made anew"),
        pytest.param(lambda events: events.pop(), "the log ends at", id="the last event cut"),
        pytest.param(lambda events: changed(events, 0, event_id="x"), "it is of the log", id="another log"),
    ],
)
async def test_what_changes_a_log_is_noticed(change: Callable[[list[Stored]], object], says: str):
    log = a_log()
    anchor = await anchor_of(MemoryEventLog(log.journal))
    change(log.journal.events)
    fault = await differs(MemoryEventLog(log.journal), anchor)
    assert fault is not None
    assert (says in fault) if says else not fault
    log.add(JobGone(version=9))
    assert bool(await differs(MemoryEventLog(log.journal), anchor)) == bool(says) or "ends at" in says


@pytest.mark.nats
async def test_a_history_that_left_the_log_does_not_count(nats_server: NatsServer):
    namespace = a_namespace()
    subjects = namespace_filters(namespace)
    async with connected(nats_server, ADMIN) as log, connected(nats_server, ARCHIVER) as mine:
        await Life(log, a_key(namespace, "lives")).live()
        await a_sealed_life(log, a_key(namespace, "over"))
        await (later := Life(log, a_key(namespace, "later"))).live()
        anchor = await anchor_of(log, *subjects)
        for _ in range(2):
            assert await differs(log, anchor, subjects) == ""
            await archive(mine, namespace)
        await later.seal()
        assert await differs(log, anchor, subjects) == ""
        await archive(mine, namespace)
        assert await differs(log, anchor, subjects) is None
        old = replace(anchor, time=anchor.time - 25 * 3600)
        newer = await anchor_of(log, *subjects)
        assert newer.seals.split("/")[1] == "2"
        await archive(mine, namespace, seals=0)
        assert await differs(log, newer, subjects) is None
        assert await differs(log, old, subjects) is None, "its seal may have left the log, as it has here"
        for filters in history_filters(a_key(namespace, "lives")):
            await log.archive.purge("JOBS", filters, 2**60)
        assert "other events" in (await differs(log, newer, subjects) or "")


class Site:
    """A status service's part that keeps the anchor, on a log and a cluster."""

    def __init__(self, log: Log) -> None:
        self.log, self.cluster = log, MemoryCluster(MemoryStore())
        self.metrics = ProcessMetrics("status")

    async def begin(self) -> Anchoring:
        made = Anchoring(self.cluster, PLACE, await MemoryEventLog(self.log.journal).identity())
        await self.turn(made)
        return made

    async def turn(self, anchoring: Anchoring) -> None:
        eventlog, histories = MemoryEventLog(self.log.journal), Histories()
        await fold_to_end(eventlog, histories.fold)
        runtime = SimpleNamespace(histories=histories, eventlog=eventlog, subjects=(), metrics=self.metrics)
        await anchoring.turn(runtime)  # type: ignore[arg-type]

    async def kept(self) -> Anchor | None:
        held = await self.cluster.get(LEASES, *PLACE.split("/"))
        assert held is not None
        found = Anchor.read(held.metadata.annotations or {})
        return found and replace(found, time=0.0)

    async def right(self) -> Anchor:
        """The anchor of the log as it is, whenever it is made."""
        return replace(await anchor_of(MemoryEventLog(self.log.journal)), time=0.0)

    async def make(self) -> None:
        namespace, name = PLACE.split("/")
        manifest = {"metadata": {"name": name, "namespace": namespace}}
        await self.cluster.create(LEASES, namespace, manifest)


async def test_the_anchor_follows_the_log_and_another_process_goes_on_with_it():
    site = Site(a_log())
    await site.make()
    anchoring = await site.begin()
    assert await site.kept() == await site.right()
    site.log.add(JobGone(version=9))
    await site.turn(anchoring)
    after = await site.right()
    assert await site.kept() == after
    await site.begin()
    site.log.add(JobGone(version=10))
    await site.turn(await site.begin())
    site.log.add(JobGone(version=11))
    with pytest.raises(Conflict):
        await site.turn(anchoring)
    assert site.metrics.anchor == ""


async def test_the_anchor_of_a_quiet_log_is_made_anew_before_its_seals_are_too_old():
    site = Site(a_log())
    await site.make()
    anchoring, begin = await site.begin(), site.log.journal.wall()
    for passed, made in ((SEALS_SECONDS - 60, 0.0), (SEALS_SECONDS + 60, SEALS_SECONDS)):
        site.log.journal.wall = lambda passed=passed: begin + passed
        await site.turn(anchoring)
        held = await site.cluster.get(LEASES, *PLACE.split("/"))
        found = held and Anchor.read(held.metadata.annotations or {})
        assert found is not None
        assert found.time >= begin + made - 60
        assert found.time < begin + made + 120


async def test_an_anchor_to_which_the_log_does_not_lead_stays_until_a_person_removes_it():
    site = Site(a_log())
    await site.make()
    await site.begin()
    before = await site.kept()
    assert before is not None
    rechained(site.log.journal.events)
    anchoring = await site.begin()
    for _ in range(2):
        site.log.add(JobGone(version=9))
        await site.turn(anchoring)
        kept = await site.kept()
        assert kept == replace(before, fault=site.metrics.anchor)
        assert "other events" in (site.metrics.anchor or "")
    await site.cluster.patch(LEASES, *PLACE.split("/"), {"metadata": {"annotations": None}})
    await site.turn(anchoring)
    assert await site.kept() == await site.right()
    assert site.metrics.anchor == ""


async def test_a_comparison_holds_the_loop_for_few_events_at_a_time(monkeypatch: pytest.MonkeyPatch):
    log, folded = Log(), 0
    for number in range(50):
        log.add(*a_running_job(2), name=f"job-{number}", uid=f"uid-{number}")
    anchor = await anchor_of(MemoryEventLog(log.journal))
    fold = Histories.fold

    def counted(histories: Histories, stored: Stored) -> Any:
        nonlocal folded
        folded += 1
        return fold(histories, stored)

    monkeypatch.setattr(Histories, "fold", counted)
    comparing, steps = asyncio.ensure_future(differs(MemoryEventLog(log.journal), anchor)), [0]
    while not comparing.done():
        await asyncio.sleep(0)
        steps.append(folded)
    assert comparing.result() == ""
    assert folded == len(log.journal.events)
    assert max(later - earlier for earlier, later in pairwise(steps)) <= AT_ONCE
