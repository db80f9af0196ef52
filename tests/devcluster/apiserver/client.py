"""A client that says what came back, and how long it is willing to wait."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml

from devcluster.client import AbruptResponse

BOUND = 60.0
"""Seconds that any wait in these tests may take on a busy machine."""


class Answer(NamedTuple):
    code: int
    body: Any
    headers: Any

    @property
    def fields(self) -> list[str]:
        """The fields that a 422 names."""
        return [cause["field"] for cause in self.body["details"]["causes"]]


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def call(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json", **headers: str
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": media} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.url + path, data=data, headers=sent) as response:
            raw = await response.read()
            decoded = json.loads(raw) if "json" in response.headers.get("Content-Type", "") and raw else raw
            return Answer(response.status, decoded, response.headers)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def create(self, path: str, body: Any) -> Answer:
        return await self.call("POST", path, body)

    async def replace(self, path: str, body: Any) -> Answer:
        return await self.call("PUT", path, body)

    async def merge(self, path: str, body: Any) -> Answer:
        return await self.call("PATCH", path, body, media="application/merge-patch+json")

    async def delete(self, path: str, body: Any = None) -> Answer:
        return await self.call("DELETE", path, body)

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        async with self.session.get(self.url + path) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                event = json.loads(line)
                yield event["type"], event["object"]

    async def first(self, path: str, count: int) -> list[tuple[str, Any]]:
        """The first `count` events of a watch."""
        seen: list[tuple[str, Any]] = []
        async with asyncio.timeout(BOUND), aclosing(self.watch(path)) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == count:
                    break
        return seen

    async def until(self, path: str, holds: Callable[[Answer], bool], *, bound: float = BOUND) -> Answer:
        """The answer as soon as it is as wanted."""
        async with asyncio.timeout(bound):
            while True:
                answer = await self.get(path)
                if holds(answer):
                    return answer
                await asyncio.sleep(0.005)


@asynccontextmanager
async def client_of(kubeconfig: Path) -> AsyncIterator[Client]:
    """A client as the user of a kubeconfig with a token, of this server or of any other."""
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority), limit=0)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers, connector=connector, response_class=AbruptResponse) as session:
        yield Client(session, cluster["server"])
