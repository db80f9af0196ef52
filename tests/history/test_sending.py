"""How a stream is sent."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.history import server
from services.history.server import Sending
from shared.history_api import Question

WATCH = Question("team-a", watch=True, bookmarks=True)


async def silence() -> AsyncGenerator[bytes, None]:
    yield b""
    await asyncio.Event().wait()


async def test_a_bookmark_waits_until_it_promises_something(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "TEND_SECONDS", 0.05)
    streams: list[Sending] = []

    async def allowed() -> bool:
        return True

    async def watched(request: web.Request) -> web.StreamResponse:
        streams.append(Sending(request, WATCH, as_table=False))
        return await streams[0].run(silence(), allowed, lambda _: {})

    app = web.Application()
    app.add_routes([web.get("/", watched)])
    async with TestClient(TestServer(app)) as client, client.get("/") as answer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.content.readline(), 0.5)
        [stream] = streams
        stream.progress.reached = 46
        frame = json.loads(await asyncio.wait_for(answer.content.readline(), 10))
        assert (frame["type"], frame["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", "46")
        stream.end()
        await asyncio.wait_for(answer.content.read(), 10)
