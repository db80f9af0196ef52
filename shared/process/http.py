"""HTTP as a port's budget allows: one small request for probes, aiohttp with bounds for everything else.

A body where none is expected, and every compressed one, is refused with a sentence before it is read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from shared.process.bounds import PIECE, Budget, Client

RECORD = 2**14
"""The largest record of TLS: a connection keeps the buffers of its largest write for as long as it lives."""

STRANGERS_BYTES = 2**14
"""The most bytes of a head, whatever the budget, from a client that has not shown who it is."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Answer = Callable[[str, str], tuple[int, str, bytes]]
"""From a path and a header `Accept` to a status, a content type and a body."""

Trusts = Callable[[str], bool]
"""True if the client whose certificate has this common name is known by it; the handshake checked its authority."""


def of_nobody(_common_name: str) -> bool:
    return False


IDLE_SECONDS = 100.0
"""Seconds for the head of the next request on a connection; the API server closes an idle one after 90."""

PIPELINED = 1
"""How many requests may wait behind the one that is answered."""


def refusal(headers: Mapping[str, str], budget: Budget, *, has_body: bool) -> tuple[int, str] | None:
    """The status and the words for a body that is not read; None for one that may be."""
    if not has_body:
        return None
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        return 415, "send the body without compression"
    if not budget.body_bytes:
        return 400, "send this request without a body"
    if int(headers.get("Content-Length", "0")) > budget.body_bytes:
        return 413, f"send a body of at most {budget.body_bytes} bytes"
    return None


class Asked(asyncio.Protocol):
    """One request without a body, and its answer."""

    def __init__(self, client: Client, budget: Budget, answer: Answer) -> None:
        self._client = client
        self._budget = budget
        self._answer = answer
        self._head = bytearray()
        self._rest: memoryview | None = None
        """Of the answer, what the transport does not have yet."""
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client.arrived(transport)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            return
        self._head += data[: self._budget.head_bytes + 1]
        if len(self._head) > self._budget.head_bytes:
            self._end(431, "text/plain", b"the head of a request is too long")
        elif b"\r\n\r\n" in self._head:
            self._end(*self._answered(bytes(self._head)))

    def _answered(self, head: bytes) -> tuple[int, str, bytes]:
        first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        method, _, target = first.partition(" ")
        headers = {name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        has_body = headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers
        if refused := refusal(headers, self._budget, has_body=has_body):
            return refused[0], "text/plain", refused[1].encode()
        if method != "GET":
            return 405, "text/plain", b"here one can only GET"
        return self._answer(target.partition(" ")[0].partition("?")[0], headers.get("Accept", ""))

    def _end(self, status: int, media: str, body: bytes) -> None:
        self._transport.pause_reading()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {media}\r\nConnection: close\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        self._rest = memoryview(body)
        self._write()

    def _write(self) -> None:
        while self._rest and not self._paused:
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self._transport.write(piece)
        if not self._rest:
            self._transport.close()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._client.took()
        self._paused = False
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.left()


class BoundedServer(web.Server):
    """aiohttp's server of one port."""

    def __init__(self, handler: Handler, budget: Budget, trusts: Trusts = of_nobody) -> None:
        async def bounded(request: web.BaseRequest) -> web.StreamResponse:
            if refused := refusal(request.headers, budget, has_body=request.body_exists):
                refusing = web.Response(status=refused[0], text=refused[1])
                refusing.force_close()
                return refusing
            response = await handler(request)
            if isinstance(request.protocol, Connection) and not request.protocol.client.known:
                # It would keep a place without a credential.
                response.force_close()
            return response

        super().__init__(bounded, request_factory=self._request, handler_cancellation=budget.cancels)
        self.trusts = trusts
        self._budget = budget

    def protocol(self, client: Client) -> "Connection":
        return Connection(self, client, self._budget)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.Request:
        loop, most = asyncio.get_running_loop(), self._budget.body_bytes
        return web.Request(message, payload, protocol, writer, task, loop, client_max_size=most)


class Connection(web.RequestHandler):
    """One connection of a `BoundedServer`."""

    __slots__ = ("_body", "_budget", "_head_bytes", "_trusts", "client")

    def __init__(self, server: BoundedServer, client: Client, budget: Budget) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own runners pass it
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=0,
            read_bufsize=PIECE,
            auto_decompress=False,
            max_line_size=budget.head_bytes,
            max_field_size=budget.head_bytes,
            max_headers=budget.head_lines,
        )
        self.client = client
        self._trusts = server.trusts
        self._budget = budget
        self._head_bytes = 0
        """Of a head that is not complete; aiohttp bounds its lines and their number, not their sum."""
        self._body: StreamReader = EMPTY_PAYLOAD
        """Of the last complete head."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client.arrived(transport)
        name = common_name(transport)
        if name is not None and self._trusts(name):
            self.client.know()

    def data_received(self, data: bytes) -> None:
        most = self._budget.head_bytes if self.client.known else min(self._budget.head_bytes, STRANGERS_BYTES)
        before = self._request_count
        in_head = self._body.is_eof()
        super().data_received(data)
        if self._request_count > before and self._messages:
            self._body, self._head_bytes = self._messages[-1][1], 0
            if self.client.known:
                self.client.head_since = None
        elif in_head and data:
            # aiohttp passes no bytes when it reads on after a body.
            self._head_bytes += len(data)
            self.client.head_since = self.client.head_since or asyncio.get_running_loop().time()
        if self._head_bytes > most or len(self._messages) > 1 + PIPELINED:
            # Thousands of heads may have come at once, which a request under way would keep.
            while len(self._messages) > 1:
                self._messages.pop()
            self.client.cut()

    def resume_writing(self) -> None:
        self.client.took()
        super().resume_writing()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP without a traceback in the log for each."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        response = web.Response(status=status, text=message)
        response.force_close()
        return response

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        # It holds this connection in turn, which would keep its 256 KiB for TLS until the garbage collector comes.
        self._body = EMPTY_PAYLOAD
        self.client.left()


async def send(request: web.BaseRequest, response: web.Response) -> None:
    """Send all of it, as fast as the client takes it: TLS would keep a single write in a buffer that nothing counts.

    Raises `ConnectionError` if the client leaves.
    """
    await response.prepare(request)
    body, response.body = response.body or b"", None
    assert isinstance(body, bytes)
    if request.method == "HEAD":
        body = b""
    await write(response, body)
    await response.write_eof()


async def write(response: web.StreamResponse, part: bytes) -> None:
    """Send a part of a body, as fast as the client takes it.  Raises `ConnectionError` if the client leaves."""
    for at in range(0, len(part), RECORD):
        await response.write(part[at : at + RECORD])


def know(request: web.BaseRequest) -> None:
    """The client of this request has shown who it is: it keeps its place."""
    if isinstance(request.protocol, Connection):
        request.protocol.client.know()


def common_name(transport: asyncio.BaseTransport | None) -> str | None:
    """The name in the client's certificate, whose authority the handshake has checked; None without one."""
    shown: Any = transport.get_extra_info("peercert") if transport is not None else None
    if not shown:
        return None
    return next((value for part in shown["subject"] for name, value in part if name == "commonName"), "")
