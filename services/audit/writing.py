"""Writes `ChangeAttributed` into the histories of the jobs, one after the other, from a bounded queue."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import structlog

from services.audit.core.matching import Match
from services.audit.server import AuditFigures
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, EventLog
from shared.eventlog.account import AUDIT
from shared.eventlog.retry import backoff
from shared.eventlog.subject import Subject
from shared.job.events.event import ChangeAttributed
from shared.job.naming import subject_of
from shared.runtime.appends import stamp

MOST_BYTES = 2**25
"""The most bytes of the facts that wait for the log; what comes beyond that stays without a name."""

SLOWEST_SECONDS = 5.0
"""The longest pause before a fact is tried again."""

_OF_ONE_FACT = ("TooLarge", "Invalid")
"""The refusals that are about the fact; after any other one it waits until an administrator has fixed the log."""

log = structlog.get_logger()


class Writer:
    """The facts on their way into the log."""

    def __init__(self, eventlog: Callable[[], Awaitable[EventLog]], figures: AuditFigures) -> None:
        self._log = eventlog
        self._figures = figures
        self._queue: asyncio.Queue[Match] = asyncio.Queue()
        self._bytes = 0
        self._cleared = 0

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def add(self, match: Match) -> None:
        if self._bytes + match.claim.weight > MOST_BYTES:
            self._figures.lost("QueueFull")
            return
        self._bytes += match.claim.weight
        self._queue.put_nowait(match)

    def clear(self) -> None:
        """Forget all facts: the events that they name are in another log."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._bytes = 0
        self._cleared += 1

    async def run(self) -> None:
        """Write until cancelled; wait while the log is away, or refuses this process."""
        while True:
            match = await self._queue.get()
            self._bytes -= match.claim.weight
            try:
                await self._write(match)
            except Exception:
                log.exception("not recorded")
                self._figures.lost("Failed")

    async def _write(self, match: Match) -> None:
        entry, tries, cleared = _entry(match), 0, self._cleared
        while self._cleared == cleared:
            pause = backoff(tries, slowest=SLOWEST_SECONDS)
            try:
                await _append(await self._log(), entry)
            except Refused as refusal:
                if refusal.reason in _OF_ONE_FACT:
                    log.warning("not recorded", subject=entry.subject, why=str(refusal))
                    self._figures.lost("Refused")
                    return
                log.debug("not recorded yet", why=str(refusal))
            except Conflict:
                # Another replica wrote of this job.
                pass
            except Transient as trouble:
                pause = trouble.retry_after or pause
            else:
                self._figures.attributed()
                return
            await asyncio.sleep(pause)
            tries += 1


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
