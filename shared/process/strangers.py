"""Closes the connections of clients that have not shown who they are, so that they take no descriptors."""

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

SECONDS = 30.0
"""Seconds that a client has for the head of its first request, with what shows who it is."""

LOOK_SECONDS = 1.0


class Strangers:
    """The clients of one server that are not known yet."""

    def __init__(self) -> None:
        self._known: set[RequestHandler] = set()
        self._since: dict[RequestHandler, float] = {}

    def know(self, request: web.BaseRequest) -> None:
        """The client of this connection has shown who it is."""
        self._known.add(request.protocol)

    async def keep_out(self, runner: web.BaseRunner) -> None:
        """Close, until cancelled, what has not become known in time; aiohttp waits for the rest of a head for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now, open_now = loop.time(), set(runner.server.connections if runner.server is not None else ())
            self._known &= open_now
            self._since = {each: self._since.get(each, now) for each in open_now - self._known}
            for each, since in self._since.items():
                if now - since >= SECONDS:
                    each.force_close()
