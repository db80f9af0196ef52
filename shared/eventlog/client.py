"""nats-py's client as we need it: raw delivery, certificates read at every handshake, sockets that are really closed.

Who asks for what, and what an answer means, is the business of `connection.py`.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from shared.eventlog.tls import Life, Tls

Handler = Callable[[bytes, bytes, bytes, bytes], None]
"""Takes subject, reply subject, raw headers and body of a message; must not raise."""


class RawClient(Client):
    """nats-py's client with a way past its queues, its message objects and its header parser.

    They cost more than everything else a reader does, and a bounded queue there loses messages silently.
    The only code that touches nats-py's insides; the contract suite notices when they change.
    """

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, Handler] = {}
        self.trusted: Tls | None = None

    @property
    def greeting(self) -> dict[str, Any]:
        """What the server said of itself when we came; empty before."""
        return dict(self._server_info)

    @property
    def address(self) -> str:
        """Of the server that we are connected to, or tried last; empty before."""
        return self._current_server.uri.netloc if self._current_server else ""

    @property
    def certificate(self) -> Life | None:
        """How long the server's certificate is good; None without TLS."""
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
            # Of a connection that is lost nothing is left at the server either.
            with contextlib.suppress(OSError):
                await subscription.unsubscribe()

    def forget_unsent(self) -> None:
        """Drop what waits to be written; subscriptions are replayed from elsewhere after a reconnect."""
        self._pending.clear()
        self._pending_data_size = 0

    async def shut(self) -> None:
        # Writing it could fail, and would leave half of nats-py running.
        self.forget_unsent()
        # One that was never told how to connect cannot be closed either.
        if self._flush_queue is not None:
            try:
                await self.close()
            except asyncio.CancelledError:
                # A reconnection that it broke off waited for the socket's end, and with it that wait is cancelled for
                # whoever comes after.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
        # A first attempt that was given up leaves a client that counts as closed with its socket open.
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]

    async def _connect_to_server(self, server: Any) -> None:
        # A handshake that failed leaves its socket open, and the next attempt would forget it.
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]
        # Before uvloop does: of a connection that is given up it leaves the lookup behind, which then fails unheard.
        async with asyncio.timeout(self.options["connect_timeout"]):
            await asyncio.get_running_loop().getaddrinfo(server.uri.hostname, server.uri.port)
        await super()._connect_to_server(server)

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Asked for at every handshake."""
        files = self.trusted or Tls()
        try:
            return files.context()
        except OSError as error:
            raise _Distrusted(f"the certificates cannot be used ({files}): {error}") from error

    def _connect_command(self) -> bytes:
        # The password is in it: whoever strips TLS from a server's greeting shall not have it.
        wanted = self.trusted is not None or (self._current_server and self._current_server.uri.scheme == "tls")
        if wanted and not self._server_info.get("tls_required"):
            raise _Distrusted("the server does not ask for TLS, and we do")
        return super()._connect_command()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._handlers.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            handler(subject, reply, headers or b"", data)


class NoPassword(nats.errors.Error):
    """There is none to send: its file is missing or empty.  nats-py tries again, and so reads it again."""


class _Distrusted(nats.errors.Error):
    """One side does not take the other for what it says; nats-py treats it as any failed attempt."""


def distrust_in(error: Exception) -> str:
    """What is wrong with a certificate, the server's or ours; empty for any other trouble."""
    if isinstance(error, _Distrusted):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}; NATS_CA names whom to trust"
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        told = error.reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        return f"the server does not take our certificate: {told}; NATS_CERT and NATS_KEY name it"
    return ""
