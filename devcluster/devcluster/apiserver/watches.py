"""WATCH over HTTP: first the present objects, if asked for, then every change, with bookmarks in between."""

import asyncio
import random
from collections import deque

import msgspec
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.errors import ApiError, Json, bad_request, expired, forbidden_field, invalid
from devcluster.apiserver.listing import Selector, asked_version, call_selector
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.render import Renderer
from devcluster.apiserver.resources import DEFINITIONS, Resource
from devcluster.apiserver.store import ADDED, DELETED, MODIFIED, Change, CompactedError, Entry, Key, Store

PATIENCE = 10.0
"""Seconds without a change after which a bookmark is sent, or a closed connection is noticed."""

LAST_WORD = 2.0
"""Seconds before the end of a watch at which it sends a bookmark, from which the next watch can start."""

LONGEST = (1800.0, 3600.0)
"""Seconds that a watch without timeoutSeconds lasts, chosen at random so that clients do not reconnect together."""


QUEUE = 50_000
"""The most changes that wait for one slow client; with more, its watch ends and the client has to start again."""


class Watch:
    """The changes of a kind after a version, narrowed to a namespace and a selector.

    Use as a context manager; `CompactedError` is raised on construction when `since` is too long ago.
    """

    def __init__(self, store: Store, key: Key, namespace: str, selector: Selector | None, since: int) -> None:
        self.ended = False
        """True if no more changes will come: the client was too slow, the kind has changed, or the server stops."""
        self._store = store
        self._key = key
        self._namespace = namespace
        self._selector = selector
        self._waiting: deque[tuple[str, Entry]] = deque()
        self._arrived = asyncio.Event()
        for change in store.since(key, since):
            self._on_change(change)

    def __enter__(self) -> "Watch":
        self._store.subscribers[self._key].append(self._on_change)
        return self

    def __exit__(self, *_: object) -> None:
        self._store.subscribers[self._key].remove(self._on_change)

    def _on_change(self, change: Change) -> None:
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
        """True if a change has arrived that `changes` has not returned yet."""
        return bool(self._waiting)

    def end(self) -> None:
        self.ended = True
        self._arrived.set()

    async def changes(self, patience: float) -> list[tuple[str, Entry]]:
        """The changes that have arrived; empty if none comes within `patience` seconds."""
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
    """The change as a watch with this selector shows it: ADDED if the object begins to match, DELETED if it stops."""
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
    # An object that stops matching is shown in its last matching state, with the version of the change.
    assert previous is not None, change
    last = previous.object()
    last["metadata"]["resourceVersion"] = str(change.entry.version)
    return DELETED, Entry(last, change.entry.version)


class Watches:
    """All open watches: they end when the server stops, or when their kind's definition changes."""

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
        # The time of the last bookmark.
        last = end - LAST_WORD
        while not watch.ended and (left := end - clock()) > 0:
            changes = await watch.changes(min(left, PATIENCE, max(last - clock(), 0) or left))
            if changes:
                await response.write(b"".join(renderer.watch_event(kind, entry) for kind, entry in changes))
            elif call.request.transport is None or call.request.transport.is_closing():
                return
            elif bookmarks and not watch.waiting and (clock() - bookmarked >= PATIENCE or bookmarked < last <= clock()):
                bookmarked = clock()
                # The client has got every change of its kind up to this version.
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
