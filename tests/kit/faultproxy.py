"""An HTTP proxy before an API server: it cuts watches, and answers lists and watches with what is due instead."""

import socket
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal, Self

import aiohttp
import yaml
from aiohttp import web

from shared.cluster.connections import AbruptResponse
from tests.kit.apiserver import Answer, status

CHANGES = {"POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
"""The verbs of requests that change something, by method."""
ANSWERS: Mapping[str, Answer] = {
    "throttled": status(429, "TooManyRequests", retry_after="1"),
    "error": status(500, "InternalError"),
    "expired": status(410, "Expired"),
}
"""Instead of an answer."""


Fault = Literal["expired", "old"]
"""What the next request of a kind meets; `old` is, of a list, one that was answered before."""


class FaultProxy:
    """`async with FaultProxy(server, authority) as proxy: proxy.kubeconfig(folder, like=a_kubeconfig)`."""

    def __init__(self, server: str, authority: Path, session: aiohttp.ClientSession) -> None:
        """`server` is the API server's URL, `authority` the certificate that it is trusted by.

        A `session` of the caller's, as `to_server` makes it, spares many proxies as many handshakes.
        """
        self._server = server
        self._authority = authority
        self._session = session
        self._due = defaultdict[tuple[str, str], deque[Fault]](deque)
        self._lists = defaultdict[str, list[bytes]](list)
        self._watches = dict[int, tuple[web.Request, str]]()
        self.met: list[str] = []
        """The faults that really happened, in order."""
        self.url = ""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def kubeconfig(self, folder: Path, *, like: Path) -> Path:
        """That kubeconfig, by way of this proxy."""
        config = yaml.safe_load(like.read_text())
        for cluster in config["clusters"]:
            # Not needed for this URL; without it a client reads every certificate that the machine trusts.
            cluster["cluster"] = {"server": self.url, "certificate-authority": str(self._authority)}
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def cut_watches(self, plural: str = "") -> None:
        """Reset every open watch (of one kind)."""
        for request, of in list(self._watches.values()):
            if plural in ("", of):
                _reset(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        verb, plural = about(request)[:2]
        if due := self._due.get((verb, plural)):
            fault = due.popleft()
            self.met.append(f"{verb} {plural}: {fault}")
            if fault in ANSWERS:
                return await ANSWERS[fault](request)
            if kept := self._lists[plural]:
                # One that was answered two answers ago; with few kept, the first.
                return web.Response(body=kept[-min(len(kept), 3)], content_type="application/json")
        try:
            if verb == "watch":
                return await self._stream(request, plural)
            if verb in CHANGES.values():
                return await self._change(request)
            return await self._pass(request, plural if verb == "list" else "")
        except aiohttp.ClientError as error:
            # The API server is away: so are we.
            return web.Response(status=502, text=f"<html>{type(error).__name__}</html>", content_type="text/html")

    async def _change(self, request: web.Request) -> web.StreamResponse:
        """The answer to a request that changes something."""
        return await self._pass(request, "")

    def _upstream(self, request: web.Request, body: bytes | None = None) -> aiohttp.client._RequestContextManager:
        keep = ("Authorization", "Content-Type", "Accept")
        headers = {name: request.headers[name] for name in keep if name in request.headers}
        return self._session.request(
            request.method,
            f"{self._server}{request.path_qs}",
            headers=headers,
            data=body or None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def _pass(self, request: web.Request, listed: str) -> web.Response:
        async with self._upstream(request, await request.read()) as response:
            body = await response.read()
            if listed and response.status == 200:
                self._lists[listed].append(body)
            return web.Response(
                status=response.status, body=body, headers={"Content-Type": response.headers["Content-Type"]}
            )

    async def _stream(self, request: web.Request, plural: str) -> web.StreamResponse:
        async with self._upstream(request) as upstream:
            response = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
            response.content_type = upstream.content_type
            await response.prepare(request)
            self._watches[id(request)] = request, plural
            try:
                async for line in _lines(upstream.content):
                    await response.write(line)
            except aiohttp.ClientError:
                # The API server died in the middle of it, and so does this stream.
                _reset(request)
            finally:
                self._watches.pop(id(request), None)
            return response


def to_server(authority: Path) -> aiohttp.ClientSession:
    """What requests pass through to an API server; made within a running loop."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(authority)), limit=0)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, response_class=AbruptResponse)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"


def about(request: web.Request) -> tuple[str, str, str, str]:
    """What a request is about: verb, plural, name and subresource.

    Of `/api/v1/…` or `/apis/<group>/<version>/…`, then perhaps a namespace.  The question whether a server has reached
    a version looks like a list, and is none: nobody reads what it lists.
    """
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    plural, name, subresource = [*parts, "", "", ""][:3]
    if request.method != "GET":
        return CHANGES.get(request.method, request.method), plural, name, subresource
    if name:
        return "get", plural, name, subresource
    if request.query.get("watch") == "true":
        return "watch", plural, "", ""
    return "question" if "resourceVersionMatch" in request.query else "list", plural, "", ""


def _reset(request: web.Request) -> None:
    """As a machine does that lost its memory: RST instead of a good-bye."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
