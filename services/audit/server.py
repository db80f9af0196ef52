"""The HTTPS server: batches of audit events from API servers that know the token; who made a change, into the log."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import msgspec
import structlog
from aiohttp import web

from services.audit.core import Match
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, EventLog
from shared.eventlog.account import AUDIT
from shared.eventlog.retry import backoff
from shared.eventlog.subject import Subject
from shared.job.events.event import ChangeAttributed
from shared.job.naming import subject_of
from shared.process.bounds import Budget
from shared.process.http import know
from shared.process.kept_connection import Figures
from shared.process.serving import Certificate, listening
from shared.runtime.appends import stamp
from shared.telemetry.metrics import Count, Metric, Series
from shared.untrusted import MALFORMED

BATCHES = Metric("muster_audit_batches_total", "counter", ("code",), "Batches of audit events, by HTTP status")
CLAIMS = Metric(
    "muster_audit_claims_total", "counter", (), "Audit events about writes that changed a job or a scale request"
)
ATTRIBUTED = Metric("muster_audit_attributed_total", "counter", (), "Changes whose author was written down")
LOST = Metric(
    "muster_audit_lost_total",
    "counter",
    ("reason",),
    "Claims and changes that were dropped unmatched: NoRoom, QueueFull, Refused or Failed",
)
WAITING = Metric("muster_audit_waiting", "gauge", (), "Facts of the audit service that wait for the log")
BYTES = Metric("muster_audit_claims_bytes", "gauge", (), "About how many bytes the claims take that may still match")


class AuditFigures(Figures):
    """The metrics of this process.

    Ready: the port for API servers is open, and the log has neither turned this process away nor refused to be read.
    """

    def __init__(self) -> None:
        super().__init__(AUDIT)
        self.gauges = {WAITING: lambda: 0, BYTES: lambda: 0}
        self.forced_out: Callable[[], int] = lambda: 0
        """How many found no room."""
        self.batches, self.claims, self.attributed = Count(BATCHES), Count(CLAIMS), Count(ATTRIBUTED)
        self.lost = Count(LOST)
        for reason in ("NoRoom", "QueueFull", "Refused", "Failed"):
            self.lost.add(reason, by=0)

    def series(self) -> list[Series]:
        self.lost.values["NoRoom",] = self.forced_out()
        return super().series()


PATH = "/audit"

MOST_BYTES = 2**24
"""The most bytes of a batch; an API server that sends more has to cut (`--audit-webhook-truncate-enabled`)."""

HTTPS = Budget(
    port="audit",
    reached_by="API servers, which send the token of the webhook's kubeconfig",
    connections=128,
    strangers=48,
    of_one=32,
    of_network=40,
    patience=1.0,
    head_bytes=2**14,
    body_bytes=MOST_BYTES,
)

AT_ONCE = 2
"""How many batches are read at once."""

MOST_WAITING = 32
"""How many batches may wait for that; those beyond are sent again later."""

SHORTEST_TOKEN = 16

READ_SECONDS = 30.0
"""The most seconds in which an API server sends a batch."""


class Server:
    """`take` gets each batch; it raises one of `MALFORMED` for one that cannot be read."""

    def __init__(self, take: Callable[[bytes], None], token: Path, figures: AuditFigures) -> None:
        self._take = take
        self._token = token
        self._figures = figures
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    def serving(self, certificate: Certificate) -> AbstractAsyncContextManager[int]:
        """Serve while the context lasts, as `listening` does.  Raises `Refused` without a token."""
        read_token(self._token)
        return listening(self._handle, HTTPS, certificate)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        if request.path != PATH:
            return web.Response(status=404, text=f"batches of audit events go to {PATH}")
        if request.method != "POST":
            return web.Response(status=405, text="post batches of audit events here")
        response = await self._answer(request)
        self._figures.batches.add(str(response.status))
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        # Before anything of the body is read.
        if not self._knows_token(request.headers.get("Authorization", "")):
            return web.Response(status=401, text="send the token that the webhook's kubeconfig has")
        know(request)
        if self._waiting >= MOST_WAITING:
            return web.Response(status=429, text="too many batches at once")
        self._waiting += 1
        try:
            async with self._turns, asyncio.timeout(READ_SECONDS):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408, text=f"a batch has to arrive within {READ_SECONDS:.0f} s")
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413, text=f"a batch has at most {MOST_BYTES} bytes")
        finally:
            self._waiting -= 1
        try:
            self._take(body)
        except MALFORMED:
            return web.Response(status=400, text="this is no list of audit events")
        return web.Response()

    def _knows_token(self, header: str) -> bool:
        try:
            token = read_token(self._token)
        except Refused:
            return False
        return hmac.compare_digest(header.encode(errors="replace"), f"Bearer {token}".encode())


def read_token(file: Path) -> str:
    """The token, read anew each time, so that a mounted Secret can be changed.  Raises `Refused` without a long one."""
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        words = f"the token {file} cannot be read: {error}; mount the Secret there"
        raise Refused(words, reason="NoToken") from error
    if len(token) < SHORTEST_TOKEN:
        words = f"the token in {file} has {len(token)} characters; make one of at least {SHORTEST_TOKEN}"
        raise Refused(words, reason="NoToken")
    return token


MOST_WAITING_BYTES = 2**25
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
        if self._bytes + match.claim.weight > MOST_WAITING_BYTES:
            self._figures.lost.add("QueueFull")
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
                self._figures.lost.add("Failed")

    async def _write(self, match: Match) -> None:
        entry, tries, cleared = _entry(match), 0, self._cleared
        while self._cleared == cleared:
            pause = backoff(tries, slowest=SLOWEST_SECONDS)
            try:
                await _append(await self._log(), entry)
            except Refused as refusal:
                if refusal.reason in _OF_ONE_FACT:
                    log.warning("not recorded", subject=entry.subject, why=str(refusal))
                    self._figures.lost.add("Refused")
                    return
                log.debug("not recorded yet", why=str(refusal))
            except Conflict:
                # Another replica wrote of this job.
                pass
            except Transient as trouble:
                pause = trouble.retry_after or pause
            else:
                self._figures.attributed.add()
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
