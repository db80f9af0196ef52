"""The way of one service to the API server, on which one of its changes meets trouble, and each is noted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, get_args

import aiohttp
import msgspec
from aiohttp import web

from shared.cluster.kinds import EVENTS
from tests.kit.apiserver import Answer, status
from tests.kit.faultproxy import ANSWERS, FaultProxy, about

Way = Literal[
    "crash-before",
    "crash-after",
    "409",
    "429",
    "500",
    "timeout-applied",
    "timeout-lost",
    "stale-read",
]
"""What a change meets: the death of its service before or after it, an answer instead of it, silence after or instead
of it, or a watch that expires, with a list after it of what was there before.  An API server answers a GET of one
object with the truth.
"""
WAYS: tuple[Way, ...] = get_args(Way)

INSTEAD: dict[str, Answer] = {
    # Not AlreadyExists, which would be a lie; the API server answers a creation so when a quota is being counted.
    "409": status(409, "Conflict"),
    "429": ANSWERS["throttled"],
    "500": ANSWERS["error"],
}


class Call(msgspec.Struct, frozen=True):
    """A request that changes something: the `nth` of its service with this verb for this object."""

    service: str
    verb: str
    plural: str
    name: str
    """With the subresource, if there is one: `resnet/status`."""
    nth: int

    def __str__(self) -> str:
        return " ".join(map(str, msgspec.structs.astuple(self)))


class Strike(msgspec.Struct, frozen=True):
    """What one call meets."""

    call: Call
    way: Way

    def __str__(self) -> str:
        return f"{self.call} {self.way}"

    @classmethod
    def parse(cls, words: str) -> "Strike":
        """As `str` wrote it.  Raises `ValueError`."""
        *call, way = words.split()
        if len(call) != 5 or way not in WAYS:
            raise ValueError(f"not a call and a way: {words!r}")
        return msgspec.convert(
            {"call": dict(zip(Call.__struct_fields__, call, strict=True)), "way": way}, cls, strict=False
        )


class CallProxy(FaultProxy):
    """One of the changes that pass here meets the strike; without one they are only noted."""

    def __init__(
        self,
        server: str,
        authority: Path,
        session: aiohttp.ClientSession,
        service: str,
        strike: Strike | None,
        calls: list[Call],
        *,
        crash: Callable[[], None],
        remember: Callable[[str], Awaitable[Callable[[], None]]],
    ) -> None:
        """`calls` gets every change that the service asks for; `crash` kills the service.

        `remember` is given a plural; what it returns makes the watcher list once more what was there at that moment.
        """
        super().__init__(server, authority, session)
        self.struck = False
        self._service = service
        self._strike = strike
        self._calls = calls
        self._crash = crash
        self._remember = remember
        self._counted = Counter[tuple[str, str, str]]()
        self._lister: dict[str, web.Request] = {}
        """By plural, the newest list."""

    async def list_again(self, plural: str) -> bytes:
        """What the API server answers now to the newest list of this service; nothing if it never listed."""
        request = self._lister.get(plural)
        if request is None:
            return b""
        async with self._upstream(request) as response:
            return await response.read()

    def list_back(self, plural: str, body: bytes) -> None:
        """The watch of this kind has expired, and the list after it is `body`."""
        self._lists[plural] = [body]
        self._due["watch", plural].append("expired")
        self._due["list", plural].append("old")
        self.cut_watches(plural)

    async def _pass(self, request: web.Request, listed: str) -> web.Response:
        if listed:
            self._lister[listed] = request
        return await super()._pass(request, listed)

    async def _change(self, request: web.Request) -> web.StreamResponse:
        call = await self._noted(request)
        strike = self._strike
        if strike is None or call != strike.call:
            return await super()._change(request)
        self.struck = True
        match strike.way:
            case "crash-before":
                self._crash()
            case "crash-after":
                await super()._change(request)
                self._crash()
            case "timeout-applied":
                await super()._change(request)
            case "timeout-lost":
                pass
            case "stale-read":
                recall = await self._remember(call.plural)
                answer = await super()._change(request)
                recall()
                return answer
            case instead:
                return await INSTEAD[instead](request)
        # The sender dies, or gives up.
        await asyncio.Event().wait()
        raise AssertionError("an event that is never set")

    async def _noted(self, request: web.Request) -> Call:
        verb, plural, name, subresource = about(request)
        if not name:
            name = _named(plural, msgspec.json.decode(await request.read()))
        name += f"/{subresource}" if subresource else ""
        self._counted[verb, plural, name] += 1
        call = Call(self._service, verb, plural, name, self._counted[verb, plural, name])
        self._calls.append(call)
        return call


def _named(plural: str, manifest: dict[str, dict[str, str]]) -> str:
    """The name of a new object; that of a Kubernetes Event has a uid and a number in it, which differ in each run."""
    if plural == EVENTS.plural:
        return f"{manifest['involvedObject']['name']}.{manifest['reason']}"
    return manifest["metadata"]["name"]
