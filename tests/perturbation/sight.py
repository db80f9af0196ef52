"""What the API server shows the administrator, who asks it straight: every version of every object of some kinds."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import aiohttp
import msgspec

from devcluster.cluster import DevelopmentCluster
from shared.cluster import Resource
from shared.cluster.calls import path_of


class Sight:
    """`async with Sight(plane, kinds)`: lists and watches them from now on; what is seen goes to the three hooks."""

    def __init__(self, plane: DevelopmentCluster, resources: Sequence[Resource[Any]]) -> None:
        self._plane = plane
        self._resources = resources
        self._tasks: list[asyncio.Task[None]] = []
        self._listed = [asyncio.Event() for _ in resources]

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def anew(self) -> None:
        """The store is another one: what it shows is listed again."""
        await self._end()
        await self._begin()

    def relisted(self, resource: Resource[Any]) -> None:
        """A list of this kind follows, object by object; what is not in it is gone."""

    def shown(self, resource: Resource[Any], manifest: Any) -> None:
        """A version of an object."""

    def gone(self, resource: Resource[Any], manifest: Any) -> None:
        """Its last version, which was shown too."""

    async def _begin(self) -> None:
        for listed in self._listed:
            listed.clear()
        self._tasks = [
            asyncio.create_task(self._watch(resource, listed))
            for resource, listed in zip(self._resources, self._listed, strict=True)
        ]
        listed = asyncio.gather(*(listed.wait() for listed in self._listed))
        done, _ = await asyncio.wait((listed, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _watch(self, resource: Resource[Any], listed: asyncio.Event) -> None:
        """List and follow; across a restart of the API server from where it was, as far as that remembers."""
        path, version = path_of(resource, ""), ""
        async with self._plane.session() as session:
            while True:
                try:
                    version = version or await self._list(session, resource, path)
                    listed.set()
                    query = {"watch": "true", "resourceVersion": version}
                    timeout = aiohttp.ClientTimeout(total=None)
                    async with session.get(path, params=query, timeout=timeout) as answer:
                        if answer.status != 200:
                            version = ""
                            await asyncio.sleep(0.1)
                            continue
                        # A line of the log may be longer than aiohttp's own reading of lines allows.
                        rest = b""
                        async for chunk in answer.content.iter_any():
                            *lines, rest = (rest + chunk).split(b"\n")
                            for line in lines:
                                version = self._take(resource, line)
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)

    async def _list(self, session: aiohttp.ClientSession, resource: Resource[Any], path: str) -> str:
        async with session.get(path) as answer:
            if answer.status != 200:
                raise aiohttp.ClientError(f"{path}: {answer.status}")
            page = await answer.json()
        self.relisted(resource)
        for manifest in page["items"]:
            self.shown(resource, manifest)
        return str(page["metadata"]["resourceVersion"])

    def _take(self, resource: Resource[Any], line: bytes) -> str:
        event = msgspec.json.decode(line)
        if event["type"] == "ERROR":
            return ""
        self.shown(resource, event["object"])
        if event["type"] == "DELETED":
            self.gone(resource, event["object"])
        return str(event["object"]["metadata"]["resourceVersion"])
