"""Writes `ChangeAttributed` into the histories of the jobs, one after the other, from a bounded queue."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import structlog

from services.audit.core.matching import Match
from services.audit.probes import Figures
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, EventLog
from shared.eventlog.account import AUDIT
from shared.eventlog.retry import backoff
from shared.eventlog.subject import Subject
from shared.job.events.audit import ChangeAttributed
from shared.job.naming import subject_of
from shared.runtime.appends import stamp

MOST_WAITING = 10_000
"""The most facts that wait for the log, some 20 MiB; what comes while it is full stays without a name."""

log = structlog.get_logger()


class Writer:
    """The facts on their way into the log."""

    def __init__(self, eventlog: Callable[[], Awaitable[EventLog]], figures: Figures) -> None:
        self._log = eventlog
        self._figures = figures
        self._queue: asyncio.Queue[Match] = asyncio.Queue(MOST_WAITING)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def add(self, match: Match) -> None:
        try:
            self._queue.put_nowait(match)
        except asyncio.QueueFull:
            self._figures.lost("QueueFull")

    async def run(self) -> None:
        """Write until cancelled; wait while the log is away."""
        while True:
            match = await self._queue.get()
            entry, tries = _entry(match), 0
            while True:
                try:
                    await _append(await self._log(), entry)
                except Conflict:
                    # Another replica wrote of this job.
                    continue
                except Transient as trouble:
                    await asyncio.sleep(trouble.retry_after or backoff(tries))
                    tries += 1
                except Refused as refusal:
                    log.warning("not recorded", subject=entry.subject, why=str(refusal))
                    self._figures.lost("Refused")
                    break
                else:
                    self._figures.attributed()
                    break


async def _append(eventlog: EventLog, entry: Entry) -> None:
    newest = await eventlog.last(Subject.parse(entry.subject).scope)
    if newest is None or newest.body != entry.body:
        await eventlog.append(entry, expect=newest.sequence if newest is not None else 0)


def _entry(match: Match) -> Entry:
    change, claim = match.change, match.claim
    event = ChangeAttributed(
        of=change.sequence,
        user=claim.user,
        write=max(change.write, 0),
        groups=claim.groups,
        acting_as=claim.acting_as,
        agent=claim.agent,
        audit=claim.audit,
    )
    return Entry(
        subject=subject_of(change.key, "facts", AUDIT, str(ChangeAttributed.__struct_config__.tag)),
        event_id=str(uuid4()),
        time=stamp(datetime.now(UTC)),
        body=msgspec.json.encode(event),
        # A service of a release that does not know the type acts on the job all the same.
        optional=True,
    )
