"""The HTTPS server: batches of audit events from API servers that know the token."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from shared.errors import Refused
from shared.eventlog.account import AUDIT
from shared.process.bounds import Budget
from shared.process.http import know
from shared.process.kept_connection import Figures
from shared.process.serving import Certificate, listening
from shared.telemetry.metrics import Count, Labels, Metric, Series
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
LOST_FOR = ("NoRoom", "QueueFull", "Refused", "Failed")
WAITING = Metric("muster_audit_waiting", "gauge", (), "Facts of the audit service that wait for the log")
BYTES = Metric("muster_audit_claims_bytes", "gauge", (), "About how many bytes the claims take that may still match")


class AuditFigures(Figures):
    """The metrics of this process.

    Ready: the port for API servers is open, and the log has neither turned this process away nor refused to be read.
    """

    def __init__(self) -> None:
        super().__init__(AUDIT)
        self.waiting: Callable[[], int] = lambda: 0
        self.bytes: Callable[[], int] = lambda: 0
        self.forced_out: Callable[[], int] = lambda: 0
        self._batches, self._claims, self._attributed = Count(BATCHES), Count(CLAIMS), Count(ATTRIBUTED)
        self._lost: dict[str, int] = dict.fromkeys(LOST_FOR, 0)

    def answered(self, code: int) -> None:
        self._batches.add(str(code))

    def claimed(self, number: int) -> None:
        self._claims.add(by=number)

    def attributed(self) -> None:
        self._attributed.add()

    def lost(self, reason: str) -> None:
        self._lost[reason] += 1

    def series(self) -> list[Series]:
        lost: dict[Labels, float] = {
            (reason,): number for reason, number in {**self._lost, "NoRoom": self.forced_out()}.items()
        }
        return [
            *super().series(),
            self._batches,
            self._claims,
            self._attributed,
            Count.now(LOST, lost),
            Count.now(WAITING, {(): self.waiting()}),
            Count.now(BYTES, {(): self.bytes()}),
        ]


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

    @asynccontextmanager
    async def serving(self, host: str, port: int, certificate: Certificate) -> AsyncIterator[int]:
        """Serve while the context lasts; yields the port.

        Raises `Refused` without a token or a certificate that can be used, or if the port is taken.
        """
        read_token(self._token)
        async with listening(
            self._handle, HTTPS, (host, port), "AUDIT", read=certificate.read, tls=certificate.context
        ) as found:
            yield found.port

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        if request.path != PATH:
            return web.Response(status=404, text=f"batches of audit events go to {PATH}")
        if request.method != "POST":
            return web.Response(status=405, text="post batches of audit events here")
        response = await self._answer(request)
        self._figures.answered(response.status)
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
