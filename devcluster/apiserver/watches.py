"""WATCH over HTTP: first what there is, if asked for, then every change, with bookmarks in between."""

import asyncio
import random
from collections import deque

import msgspec
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.entry import Entry, Key
from devcluster.apiserver.errors import ApiError, Json, bad_request, expired, forbidden_field, invalid
from devcluster.apiserver.listing import Selector, asked_version, call_selector
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.render import Renderer
from devcluster.apiserver.resources import DEFINITIONS, Resource
from devcluster.apiserver.store import ADDED, DELETED, MODIFIED, Change, CompactedError, Store

PATIENCE = 10.0
"""Seconds of quiet after which a bookmark is sent, or the client is found gone."""

LAST_WORD = 2.0
"""Seconds before its end at which a watch brings a bookmark, so that the next one can begin there."""

LONGEST = (1800.0, 3600.0)
"""Seconds that a watch lasts when the client does not say, spread so that not all come back at once."""


QUEUE = 50_000
"""Changes that wait for one slow client; past that its watch ends, and it has to start again."""


class Watch:
    """The changes of a kind after a version, narrowed to a namespace and a selector.

    Use as a context manager; `CompactedError` is raised on construction when `since` is too long ago.
    """

    def __init__(self, store: Store, key: Key, namespace: str, selector: Selector | None, since: int) -> None:
        self.ended = False
        """No more changes will come: the client was too slow, or the server stops."""
        self._store = store
        self._key = key
        self._namespace = namespace
        self._selector = selector
        self._waiting: deque[tuple[str, Entry]] = deque()
        self._arrived = asyncio.Event()
        for change in store.since(key, since):
            self._hear(change)

    def __enter__(self) -> "Watch":
        self._store.subscribers[self._key].append(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._store.subscribers[self._key].remove(self._hear)

    def _hear(self, change: Change) -> None:
        if self.ended or (self._namespace and change.entry.place.namespace != self._namespace):
            return
        seen = seen_as(change, self._selector)
        if seen is None:
            return
        if len(self._waiting) >= QUEUE:
            self.end()
            return
        self._waiting.append(seen)
        self._arrived.set()

    @property
    def waiting(self) -> bool:
        """Something has arrived that was not taken yet."""
        return bool(self._waiting)

    def end(self) -> None:
        self.ended = True
        self._arrived.set()

    async def changes(self, patience: float) -> list[tuple[str, Entry]]:
        """What has gathered; empty when nothing comes within `patience` seconds."""
        if not self._waiting and not self.ended:
            try:
                await asyncio.wait_for(self._arrived.wait(), patience)
            except TimeoutError:
                return []
        self._arrived.clear()
        gathered = [*self._waiting]
        self._waiting.clear()
        return gathered


def seen_as(change: Change, selector: Selector | None) -> tuple[str, Entry] | None:
    """What the change looks like through a selector: coming into view is ADDED, leaving it is DELETED."""
    if selector is None:
        return change.type, change.entry
    previous = change.previous
    before = previous is not None and selector(previous)
    after = change.type != DELETED and selector(change.entry)
    if after:
        return MODIFIED if before else ADDED, change.entry
    if not before:
        return None
    if change.type == DELETED:
        return DELETED, change.entry
    # What left the view is shown as it last was in view, at the version of the change that took it out.
    assert previous is not None, change
    last = previous.object()
    last["metadata"]["resourceVersion"] = str(change.entry.version)
    return DELETED, Entry(last, change.entry.version)


class Watches:
    """All open watches, so that they can be ended together, or when their kind is not what it was."""

    def __init__(self, objects: Objects) -> None:
        self._store = objects.store
        self._registry = objects.registry
        self._open: dict[Watch, Resource] = {}
        self._store.subscribers[DEFINITIONS.key].append(self._follow_definitions)

    def end(self) -> None:
        for watch in self._open:
            watch.end()

    def _follow_definitions(self, _: Change) -> None:
        for watch, resource in self._open.items():
            if self._registry.get(resource.group, resource.version, resource.plural) is not resource:
                watch.end()

    async def serve(self, resource: Resource, call: Call) -> web.StreamResponse:
        renderer = Renderer.of(resource, call)
        chosen = call_selector(resource, call)
        version = asked_version(call)
        _refuse_initial_events(call)
        seconds = call.number("timeoutSeconds") or random.uniform(*LONGEST)  # noqa: S311
        # Without a version, or from version 0, a watch begins with what there is now.
        from_now = version in (None, 0)
        since = self._store.version if from_now else version or 0
        try:
            watch = Watch(self._store, resource.key, call.target.namespace, chosen, since)
        except CompactedError:
            return await _only(
                call, _error_event(expired(f"too old resource version: {since} ({self._store.version})"))
            )
        first = b""
        if from_now:
            present = self._store.all(resource.key, call.target.namespace)
            present.sort(key=lambda entry: entry.place)
            first = b"".join(renderer.watch_event(ADDED, entry) for entry in present if chosen is None or chosen(entry))
        with watch:
            self._open[watch] = resource
            try:
                response = await _begin(call)
                await response.write(first) if first else None
                await self._follow(call, response, watch, renderer, seconds)
            except (ConnectionError, asyncio.CancelledError):
                # The client went away.
                pass
            finally:
                del self._open[watch]
        return response

    async def _follow(
        self, call: Call, response: web.StreamResponse, watch: Watch, renderer: Renderer, seconds: float
    ) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        bookmarks = call.query.get("allowWatchBookmarks") in ("true", "1")
        bookmarked = clock()
        # The bookmark that comes in any case.
        last = end - LAST_WORD
        while not watch.ended and (left := end - clock()) > 0:
            changes = await watch.changes(min(left, PATIENCE, max(last - clock(), 0) or left))
            if changes:
                await response.write(b"".join(renderer.watch_event(kind, entry) for kind, entry in changes))
            elif call.request.transport is None or call.request.transport.is_closing():
                return
            elif bookmarks and not watch.waiting and (clock() - bookmarked >= PATIENCE or bookmarked < last <= clock()):
                bookmarked = clock()
                # This watch has heard of every write so far, and none of them waits.
                await response.write(renderer.bookmark(self._store.version))


def _refuse_initial_events(call: Call) -> None:
    if call.query.get("sendInitialEvents", "") not in ("", "false", "0"):
        cause = forbidden_field(
            "sendInitialEvents", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        )
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])
    if call.query.get("resourceVersionMatch"):
        raise bad_request("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")


async def _begin(call: Call) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    return response


async def _only(call: Call, line: bytes) -> web.StreamResponse:
    response = await _begin(call)
    await response.write(line)
    return response


def _error_event(error: ApiError) -> bytes:
    event: Json = {"type": "ERROR", "object": error.status()}
    return msgspec.json.encode(event) + b"\n"
