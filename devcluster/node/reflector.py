"""List and watch: everything of one kind that a selector matches, kept current whatever happens to the server.

The sink hears whole objects and the names of those that are gone.  After a break it may hear the same again.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
import structlog

from devcluster.node.kubernetes import Backoff, Json, Kubernetes, trouble
from shared.errors import Refused, Transient

IDLE_TIMEOUT = 90.0
"""Seconds without a line, not even a bookmark, after which a connection counts as dead."""

PAGE = 500

FAILURES = 3
"""Broken watches in a row after which only a new list is believed."""

log = structlog.get_logger()


class Expired(Exception):  # noqa: N818 - the API server's word
    """The version to go on from is no longer kept; only a new list helps."""


class Reflector:
    def __init__(
        self,
        api: Kubernetes,
        path: str,
        changed: Callable[[Json], None],
        gone: Callable[[str], None],
        **selectors: str,
    ) -> None:
        """`gone` hears the uid."""
        self._api = api
        self._path = path
        self._changed = changed
        self._gone = gone
        self._selectors: Mapping[str, str] = selectors
        self._known: set[str] = set()
        self._version = ""
        self._failures = 0
        """Watches in a row that told nothing."""
        self.synchronized = asyncio.Event()
        """The first list was heard."""

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                if not self._version:
                    await self._list()
                    self.synchronized.set()
                await self._watch(backoff)
            except Expired:
                self._version = ""
            except (Transient, Refused) as error:
                self._failures += 1
                if self._failures >= FAILURES:
                    # Perhaps the server does not know our version, whatever it says: its store may be a new one.
                    self._version = ""
                log.debug("watch broke", path=self._path, problem=str(error))
                await backoff.wait()

    async def _list(self) -> None:
        items: list[Json] = []
        query = {**self._selectors, "limit": str(PAGE)}
        while True:
            answer = await self._api.call("GET", self._path, query=query)
            items += answer["items"]
            going_on = answer["metadata"].get("continue")
            if not going_on:
                break
            query["continue"] = going_on
        self._version = answer["metadata"]["resourceVersion"]
        present = {item["metadata"]["uid"] for item in items}
        for uid in self._known - present:
            self._gone(uid)
        self._known = present
        for item in items:
            self._changed(item)

    async def _watch(self, backoff: Backoff) -> None:
        query = {**self._selectors, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=IDLE_TIMEOUT)
        try:
            async with self._api.session.get(self._api.url + self._path, params=query, timeout=timeout) as response:
                if response.status == 410:
                    raise Expired
                if response.status != 200:
                    raise trouble(response.status, await response.read(), f"watch {self._path}")
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._hear(msgspec.json.decode(line, type=Json))
                        backoff.reset()
                        self._failures = 0
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
            raise Transient(f"watch {self._path}: {error or type(error).__name__}") from error
        # The server ends watches now and then; one that ends at once must not be asked again at once.
        await backoff.wait()

    def _hear(self, event: dict[str, Any]) -> None:
        obj = event["object"]
        if event["type"] == "ERROR":
            if obj.get("code") == 410:
                raise Expired
            raise Transient(f"watch {self._path}: {obj.get('message')}")
        self._version = obj["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        uid = obj["metadata"]["uid"]
        if event["type"] == "DELETED":
            self._known.discard(uid)
            self._gone(uid)
        else:
            self._known.add(uid)
            self._changed(obj)
