"""nats-py's client with raw delivery, certificates read at every handshake, and sockets that are always closed.

`connection.py` makes requests with it, which wait for their answers by the last token of the reply subject.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import ParseResult

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from shared.errors import Refused
from shared.eventlog.tls import Life, Tls

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply subject, raw headers and body of a message; must not raise."""

AT_ONCE = 100
"""Messages that are handled before the loop runs its other callbacks."""


class RawClient(Client):
    """nats-py's client without its queues, its message objects and its header parser.

    They cost more than all other work of a reader, and its bounded queue loses messages silently.  No other code uses
    nats-py's private parts; the contract suite fails when they change.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Handler] = {}
        self._handled = 0
        self.trusted: Tls | None = None
        self.address: ParseResult | None = None
        """The address of the connected server, or of the last attempt; None before."""

    @property
    def version(self) -> str:
        """The server's release, as it said last; empty before."""
        return str(self._server_info.get("version", ""))

    @property
    def certificate(self) -> Life | None:
        """The validity of the server's certificate; None without TLS."""
        writer = getattr(self._transport, "_io_writer", None)
        shown = writer.get_extra_info("peercert") if writer is not None else None
        if not shown:
            return None
        begins, ends = (ssl.cert_time_to_seconds(shown[moment]) for moment in ("notBefore", "notAfter"))
        return Life(datetime.fromtimestamp(begins, UTC), datetime.fromtimestamp(ends, UTC))

    async def listen(self, subject: str, handler: Handler) -> Subscription:
        subscription = await self.subscribe(subject)
        self._handlers[subscription._id] = handler
        return subscription

    async def forget(self, subscription: Subscription) -> None:
        self._handlers.pop(subscription._id, None)
        if not self.is_closed:
            # A lost connection has no subscriptions at the server.
            with contextlib.suppress(OSError):
                await subscription.unsubscribe()

    def forget_unsent(self) -> None:
        """Drop unsent data; nats-py sends the subscriptions again after a reconnect."""
        self._pending.clear()
        self._pending_data_size = 0

    async def shut(self) -> None:
        # A failed write of unsent data would leave half of nats-py running.
        self.forget_unsent()
        # nats-py cannot close a client that never began to connect.
        if self.address is not None:
            try:
                await self.close()
            except asyncio.CancelledError:
                # nats-py cancels its reconnection, and with it the wait for the socket's end, which the next caller
                # would share.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
        # After a first attempt that was given up, nats-py counts as closed with its socket open; with TLS the server's
        # farewell is not waited for.
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]
            if (bare := getattr(self._transport, "_bare_io_writer", None)) is not None:
                bare.transport.abort()

    async def _connect_to_server(self, server: Any) -> None:
        self.address = server.uri
        # A failed handshake leaves its socket open, and the next attempt would leak it.
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]
        # Before uvloop's own lookup: uvloop leaves it behind when a connection is given up, and it fails unawaited.
        async with asyncio.timeout(self.options["connect_timeout"]):
            await asyncio.get_running_loop().getaddrinfo(server.uri.hostname, server.uri.port)
        await super()._connect_to_server(server)

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Called at every handshake."""
        files = self.trusted or Tls()
        try:
            return files.context()
        except OSError as error:
            raise _Distrusted(f"the certificates cannot be used ({files}): {error}") from error

    def _connect_command(self) -> bytes:
        # The command holds the password: an attacker who strips TLS from the server's INFO must not get it.
        wanted = self.trusted is not None or (self.address is not None and self.address.scheme == "tls")
        if wanted and not self._server_info.get("tls_required"):
            raise _Distrusted("the server offers no TLS, and this service requires it")
        return super()._connect_command()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Forget addresses that the servers no longer tell: pods leave theirs behind, and nats-py would try each."""
        if told := info.get("connect_urls"):
            self._server_pool = [
                known
                for known in self._server_pool
                if not known.discovered or known is self._current_server or known.uri.netloc in told
            ]
        await super()._process_info(info, initial_connection)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        handler(subject, reply, headers or b"", data)
        self._handled += 1
        if not self._handled % AT_ONCE:
            # While bytes are there, nothing else in nats-py lets other tasks run.
            await asyncio.sleep(0)


class NoPassword(nats.errors.Error):
    """The password file is missing or empty.  nats-py tries again, and reads the file again."""


class _Distrusted(nats.errors.Error):
    """One side does not trust the other; nats-py treats it as any failed attempt."""


def distrust_in(error: Exception) -> str:
    """The fault of the server's or the client's certificate; empty for any other error."""
    if isinstance(error, _Distrusted):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}; set NATS_CA to its authority"
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        told = error.reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return f"the server rejects the client certificate: {told}; NATS_CERT and NATS_KEY name it"
    return ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    headers: bytes
    body: bytes


class Asked:
    """The requests of one connection that are in flight."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Answer]]] = {}
        """Subject and answer, by token."""

    @contextmanager
    def about(self, subject: str) -> Iterator[tuple[str, asyncio.Future[Answer]]]:
        """Register a request; give its token and the future of its answer."""
        self._count += 1
        token = str(self._count)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = subject, answer
        try:
            yield token, answer
        finally:
            del self._waiting[token]
            # Reads the exception of an answer that is not awaited any more: asyncio would log it.
            if not answer.cancel() and not answer.cancelled():
                answer.exception()

    def answered(self, subject: bytes, _: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._waiting.get(subject.rpartition(b".")[2].decode())
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(Answer(headers, body))

    def deny(self, name: str, verb: str, subject: str) -> None:
        """Fail the requests for which the server denied `name` a right.

        nats-py lowers the case of the server's message, so that subjects that differ in case alone fail together.
        """
        for asked, answer in self._waiting.values():
            if not answer.done() and (verb == "subscription" or asked.lower() == subject):
                words = f"{asked}: {name} has no permission for {verb} to {subject}"
                answer.set_exception(Refused(words, reason="Forbidden"))

    def fail_all(self, reason: Callable[[], Exception]) -> None:
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(reason())
