"""An HTTP proxy before an API server that disturbs lists, watches and gets as a plan says.

A plan is plain data, so that a failure can be written down and played again.  Without one, or after `clear()`,
everything passes; `hold` and `cut_watches` are for tests that disturb by hand.
"""

import asyncio
import socket
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal, Self, get_args

import aiohttp
import msgspec
import yaml
from aiohttp import web

from shared.cluster.connections import AbruptResponse
from tests.kit.apiserver import Answer, event, html, status

Verb = Literal["list", "watch", "get"]
CHANGES = {"POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
"""The verbs of requests that change something, by method."""
Trouble = Literal[
    "throttled",
    "error",
    "unavailable",
    "bad gateway",
    "good gateway",
    "expired",
    "unauthorized",
    "forbidden",
    "not served",
    "reset",
]
"""Instead of an answer."""
Disturbance = Literal["expires", "fails", "tears", "garbles", "resets", "ends", "stalls", "repeats", "falls silent"]
"""In the middle of a watch."""

ANSWERS: Mapping[str, Answer] = {
    "throttled": status(429, "TooManyRequests", retry_after="1"),
    "error": status(500, "InternalError"),
    "unavailable": status(503, "ServiceUnavailable"),
    "bad gateway": html(502),
    "good gateway": html(200),
    "expired": status(410, "Expired"),
    "unauthorized": status(401, "Unauthorized"),
    "forbidden": status(403, "Forbidden"),
    # The API server's own words for a kind that it does not serve.
    "not served": lambda _: _answered(web.Response(status=404, text="404 page not found\n")),
}


class Fault(msgspec.Struct, frozen=True):
    """What happens to one request."""

    what: Trouble | Disturbance | Literal["late", "old"]
    """`late` is the true answer after `seconds`; `old` is, of a list, one that was answered before."""
    after: int = 0
    """Lines of a watch that pass first."""
    seconds: float = 0.0
    """How long it is late, stalls, or stays silent before the connection is reset."""


class Spell(msgspec.Struct, frozen=True):
    """For a while, this trouble for every request of a kind, and every open watch is cut when it begins."""

    what: Trouble
    begin: float
    """Seconds after the first request."""
    seconds: float
    plural: str = ""
    """Of one kind; empty is all."""


class Plan(msgspec.Struct, frozen=True):
    """Faults by verb and plural, in the order of the requests that they meet, and spells by the clock."""

    faults: dict[tuple[Verb, str], tuple[Fault, ...]] = {}
    spells: tuple[Spell, ...] = ()


class FaultProxy:
    """`async with FaultProxy(server, authority) as proxy: proxy.kubeconfig(folder, like=a_kubeconfig)`."""

    def __init__(
        self, server: str, authority: Path, plan: Plan | None = None, *, session: aiohttp.ClientSession | None = None
    ) -> None:
        """`server` is the API server's URL, `authority` the certificate that it is trusted by.

        A `session` of the caller's, as `to_server` makes it, spares many proxies as many handshakes.
        """
        self._server = server
        self._authority = authority
        self._session = session or to_server(authority)
        self._lent = session is not None
        self._plan = plan or Plan()
        self._due = defaultdict[tuple[str, str], deque[Fault]](
            deque, {about: deque(faults) for about, faults in self._plan.faults.items()}
        )
        self._lists = defaultdict[str, list[bytes]](list)
        self._lines = defaultdict[str, deque[bytes]](lambda: deque(maxlen=200))
        self._watches = dict[int, tuple[web.Request, str]]()
        self._held = defaultdict[str, asyncio.Event](_set)
        self._cleared = asyncio.Event()
        self._spells: list[asyncio.Task[None]] = []
        self._spelled: dict[str, Trouble] = {}
        self.met: list[str] = []
        """The faults that really happened, in order."""
        self.asked = asyncio.Event()
        """The first request has come: the clock of the spells begins."""
        self.url = ""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._spells = [asyncio.create_task(self._cast(spell)) for spell in self._plan.spells]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.clear()
        await asyncio.gather(*self._spells, return_exceptions=True)
        await self._runner.cleanup()
        if not self._lent:
            await self._session.close()

    def kubeconfig(self, folder: Path, *, like: Path) -> Path:
        """That kubeconfig, by way of this proxy."""
        config = yaml.safe_load(like.read_text())
        for cluster in config["clusters"]:
            # Not needed for this URL; without it a client reads every certificate that the machine trusts.
            cluster["cluster"] = {"server": self.url, "certificate-authority": str(self._authority)}
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def clear(self) -> None:
        """The weather is over: everything passes from now on, and what stood still goes on, or breaks."""
        self._cleared.set()
        self._due.clear()
        self._spelled.clear()
        for spell in self._spells:
            spell.cancel()
        for held in self._held.values():
            held.set()

    def cut_watches(self, plural: str = "") -> None:
        """Reset every open watch (of one kind)."""
        for request, of in list(self._watches.values()):
            if plural in ("", of):
                _reset(request)

    def hold(self, plural: str) -> None:
        """What the watches of a kind have to tell waits, until `release`."""
        self._held[plural].clear()

    def release(self, plural: str) -> None:
        self._held[plural].set()

    async def _cast(self, spell: Spell) -> None:
        await self.asked.wait()
        await asyncio.sleep(spell.begin)
        self._spelled[spell.plural] = spell.what
        self.cut_watches(spell.plural)
        await asyncio.sleep(spell.seconds)
        self._spelled.pop(spell.plural, None)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        verb, plural = about(request)[:2]
        self.asked.set()
        fault = self._next(verb, plural)
        if fault is not None:
            self.met.append(f"{verb} {plural}: {fault.what}")
            match fault.what:
                case "reset":
                    _reset(request)
                    return web.Response()
                case "late":
                    await self._wait(fault.seconds)
                case "old":
                    kept = self._lists[plural]
                    # One that was answered two answers ago; with few kept, the first.
                    return _json(kept[-min(len(kept), 3)]) if kept else await self._pass(request, plural)
                case what if what in ANSWERS:
                    return await ANSWERS[what](request)
        try:
            if verb == "watch":
                return await self._stream(request, plural, fault)
            if verb in CHANGES.values():
                return await self._change(request)
            return await self._pass(request, plural if verb == "list" else "")
        except aiohttp.ClientError as error:
            # The API server is away: so are we.
            return web.Response(status=502, text=f"<html>{type(error).__name__}</html>", content_type="text/html")

    def _next(self, verb: str, plural: str) -> Fault | None:
        spelled = self._spelled.get("") or self._spelled.get(plural)
        if spelled:
            return Fault(spelled)
        due = self._due.get((verb, plural))
        return due.popleft() if due else None

    async def _wait(self, seconds: float) -> None:
        """That long, or until the weather clears."""
        try:
            async with asyncio.timeout(seconds):
                await self._cleared.wait()
        except TimeoutError:
            pass

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

    async def _stream(self, request: web.Request, plural: str, fault: Fault | None) -> web.StreamResponse:
        async with self._upstream(request) as upstream:
            response = web.StreamResponse(status=upstream.status, headers={"Content-Type": "application/json"})
            response.content_type = upstream.content_type
            await response.prepare(request)
            self._watches[id(request)] = request, plural
            try:
                passed = 0
                async for line in _lines(upstream.content):
                    await self._held[plural].wait()
                    if fault is not None and passed == fault.after and not self._cleared.is_set():
                        if not await self._disturb(request, response, plural, line, fault):
                            return response
                        fault = None
                    self._lines[plural].append(line)
                    await response.write(line)
                    passed += 1
            except aiohttp.ClientError:
                # The API server died in the middle of it, and so does this stream.
                _reset(request)
            finally:
                self._watches.pop(id(request), None)
            return response

    async def _disturb(
        self, request: web.Request, response: web.StreamResponse, plural: str, line: bytes, fault: Fault
    ) -> bool:
        """Do it before `line`; whether the stream goes on."""
        self.met.append(f"watch {plural}: {fault.what} after {fault.after}")
        match fault.what:
            case "expires":
                await response.write(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
            case "fails":
                await response.write(event("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError"}))
            case "tears":
                await response.write(line[: len(line) // 2])
                _reset(request)
            case "garbles":
                # Half a line that says it is whole, and the rest that says so too.
                await response.write(line[: len(line) // 2] + b"\n" + line[len(line) // 2 :])
            case "resets":
                _reset(request)
            case "falls silent":
                await self._wait(fault.seconds)
                _reset(request)
            case "stalls":
                await self._wait(fault.seconds)
                return True
            case "repeats":
                for old in list(self._lines[plural]):
                    await response.write(old)
                return True
            case "ends":
                pass
        return False


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


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


async def _answered(response: web.Response) -> web.Response:
    return response


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


DISTURBANCES: tuple[Disturbance, ...] = get_args(Disturbance)
