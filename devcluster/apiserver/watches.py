"""WATCH over HTTP: first what there is, if asked for, then every change, with bookmarks in between."""

import asyncio
import random

import msgspec
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.errors import ApiError, Json, bad_request, expired, forbidden_field, invalid
from devcluster.apiserver.listing import asked_version, call_selector
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.render import Renderer
from devcluster.apiserver.resources import DEFINITIONS, Resource
from devcluster.apiserver.store import ADDED, Change, CompactedError
from devcluster.apiserver.watching import Watch

PATIENCE = 10.0
"""Seconds of quiet after which a bookmark is sent, or the client is found gone."""

LAST_WORD = 2.0
"""Seconds before its end at which a watch brings a bookmark, so that the next one can begin there."""

LONGEST = (1800.0, 3600.0)
"""Seconds that a watch lasts when the client does not say, spread so that not all come back at once."""


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
