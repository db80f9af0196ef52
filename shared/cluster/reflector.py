"""List and watch of one resource, with a new list whenever the watch's version has expired.

A slow consumer slows the stream and fills no queue.  Of each object only uid and version are kept: they show replays
and new incarnations of a name.  A list is read in pages, whose objects and bytes have bounds.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec
import structlog

from shared.backoff import Backoff
from shared.cluster import Alive, Applied, Blind, Deleted, Resource, Seen, Snapshot
from shared.cluster.answers import AHEAD, EXPIRED, FailedRequest, read_status, trouble
from shared.cluster.calls import METADATA, METADATA_LIST, Caller, TooLong, path_of
from shared.cluster.decoding import BOOKMARK, DELETED, Lines, read_event, read_object, read_page
from shared.cluster.objects import Metadata, Object
from shared.errors import Refused, Transient

T = TypeVar("T", bound=Object)
At = tuple[str, str]

LIST_TRIES = 3
"""How often a paged list whose pages expire is begun again at once."""
SHORT_WATCH_SECONDS = 1.0
SHORT_WATCHES = 3
"""After so many empty watches in a row that end at once the reflector lists: the version is stale."""
AT_ONCE = 50
"""Objects of a list that are read before other work of the loop goes on."""
LOOP_SECONDS = 5.0
"""A version that expires this soon after its list is a loop, and gets a back-off like any other trouble."""

log = structlog.get_logger()


class Pace(msgspec.Struct, frozen=True):
    """Page sizes and times of a watch, in seconds."""

    page: int = 500
    """The most objects of one page of a list."""
    page_bytes: int = 2**23
    """A longer page is not read to its end: the rest of the list comes in pages of a quarter of the objects."""
    shortest_watch: int = 300
    longest_watch: int = 600
    """The server ends a watch after a random time between these two, so that not all watches end together."""
    idle: float = 90.0
    """A stream without data for so long is dead; bookmarks come about once a minute."""
    first_wait: float = 0.8
    longest_wait: float = 30.0
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Reflector(Generic[T]):
    """One list and watch, used once: `async for seen in Reflector(...).run()`."""

    def __init__(
        self,
        caller: Caller,
        resource: Resource[T],
        namespace: str,
        selector: str,
        pace: Pace,
        *,
        fields: str = "",
    ) -> None:
        """`selector` is a label selector, `fields` a field selector, both on values that never change."""
        self._caller = caller
        self._resource = resource
        self._path = path_of(resource, namespace)
        both = {"labelSelector": selector, "fieldSelector": fields}
        self._selector = {name: value for name, value in both.items() if value}
        self._what = f"watch {resource.plural}" + (f" in {namespace}" if namespace else "")
        # `Object` has nothing but metadata.
        self._list_headers, self._watch_headers = (METADATA_LIST, METADATA) if resource.type is Object else ({}, {})
        self._pace = pace
        self._backoff = Backoff(first=pace.first_wait, longest=pace.longest_wait, clock=pace.clock, random=pace.random)
        self._version = 0
        """The version from which the next watch starts; 0 if a list has to come first."""
        self._listed_at = -LOOP_SECONDS
        self._known: dict[At, tuple[str, int]] = {}
        """The uid and version of each present object."""
        self._blind = ""
        self._unsure = False
        """The connection broke: the next API server may lag behind the last one."""
        self._short_watches = 0

    async def run(self) -> AsyncGenerator[Seen[T], None]:
        while not self._caller.closed:
            try:
                if self._version and self._unsure:
                    await self._must_have_reached_version()
                if not self._version:
                    yield await self._list()
                self._unsure = False
                async with aclosing(self._watch()) as watch:
                    async for seen in watch:
                        yield seen
                continue
            except FailedRequest as failure:
                found = trouble(failure.status, self._what)
            except (Transient, Refused) as error:
                found = error
            if self._caller.closed:
                return
            self._unsure = True
            if isinstance(found, Refused) and found.reason in (EXPIRED, AHEAD, "NotFound"):
                self._version = 0
                if found.reason == EXPIRED and self._pace.clock() - self._listed_at >= LOOP_SECONDS:
                    continue
            reason = found.reason if isinstance(found, Refused) else str(found)
            if reason != self._blind:
                self._blind = reason
                yield Blind(reason)
            # Also after a 403 or 404: a server that has just started forbids all until it has read its roles.
            asked = found.retry_after if isinstance(found, Transient) else None
            await self._pace.sleep(self._backoff.next(asked))

    async def _list(self) -> Snapshot[T]:
        """All objects, from one consistent list."""
        for _ in range(LIST_TRIES):
            known: dict[At, tuple[str, int]] = {}
            try:
                snapshot = await self._list_pages(known)
            except FailedRequest as failure:
                if failure.status.code != 410:
                    raise
                continue
            self._known = known
            self._version = snapshot.version
            self._listed_at = self._pace.clock()
            self._blind = ""
            return snapshot
        raise Transient(f"{self._what}: the list expires faster than it can be read")

    async def _must_have_reached_version(self) -> None:
        """Raise `FailedRequest` with the cause `AHEAD` if the server has not reached the watch's version.

        The server would accept such a watch, and be silent until its store has counted that far again.
        """
        query = {
            "limit": "1",
            "resourceVersion": str(self._version),
            "resourceVersionMatch": "NotOlderThan",
            # The selector matches no object: the version in the list's metadata is enough.
            "fieldSelector": ",".join(filter(None, ("metadata.name=none", self._selector.get("fieldSelector")))),
        }
        await self._ask(query)

    async def _list_pages(self, known: dict[At, tuple[str, int]]) -> Snapshot[T]:
        """The objects of every page; `known` gets their uids and versions."""
        objects: list[T] = []
        # Without a resourceVersion the list is consistent: no older than any earlier answer.
        query, most = {"limit": str(self._pace.page), **self._selector}, self._pace.page
        while True:
            try:
                # A single object has a bound at the API server.
                page = read_page(await self._ask(query, self._pace.page_bytes if most > 1 else None), self._what)
            except TooLong:
                most = max(1, most // 4)
                query["limit"] = str(most)
                continue
            for number, raw in enumerate(page.items or (), 1):
                try:
                    found = read_object(self._resource, raw)
                except Refused as refusal:
                    log.warning("object is passed over", why=str(refusal))
                    continue
                known[_at(found.metadata)] = found.metadata.uid, found.metadata.version
                objects.append(self._resource.kept(found))
                if not number % AT_ONCE:
                    await asyncio.sleep(0)
            if not page.metadata.continuation:
                return Snapshot(tuple(objects), int(page.metadata.resource_version))
            query["continue"] = page.metadata.continuation
            # Not beside the next one.
            del page

    async def _ask(self, query: Mapping[str, str], most: int | None = None) -> bytes:
        what, headers = self._what, self._list_headers
        return (await self._caller.request("GET", self._path, what=what, query=query, headers=headers, most=most)).body

    async def _watch(self) -> AsyncGenerator[Seen[T], None]:
        """Follow one stream to its end; an end within a line is an error."""
        pace = self._pace
        seconds = pace.shortest_watch + int(pace.random() * (pace.longest_watch - pace.shortest_watch))
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._version),
            "timeoutSeconds": str(seconds),
            **self._selector,
        }
        begun, progress = pace.clock(), False
        async with self._caller.stream(
            self._path, query, what=self._what, idle=pace.idle, headers=self._watch_headers
        ) as stream:
            if self._blind:
                self._blind = ""
                yield Alive()
            lines = Lines()
            try:
                async for chunk in stream.iter_any():
                    for line in lines.split(chunk):
                        for seen, version in self._read(line):
                            yield seen
                            # Only now has the consumer taken the element.
                            self._version = max(self._version, version)
                            progress = progress or not isinstance(seen, Alive)
            finally:
                short = not progress and pace.clock() - begun < SHORT_WATCH_SECONDS
                self._count_short_watches(short=short)
        if lines.cut or short:
            raise Transient(f"{self._what}: the stream was cut")

    def _read(self, line: bytes) -> Iterator[tuple[Seen[T], int]]:
        """The elements of a line, each with the version that is reached after it."""
        try:
            kind, found = read_event(self._resource, line, self._what)
        except Refused as refusal:
            log.warning("watch event is passed over", why=str(refusal))
            return
        if isinstance(found, msgspec.Raw):
            raise FailedRequest(read_status(found, 500))
        version = found.metadata.version
        if kind == BOOKMARK:
            yield Alive(), version
            return
        at, uid = _at(found.metadata), found.metadata.uid
        known_uid, known_version = self._known.get(at, ("", 0))
        if 0 < version <= (known_version if known_uid else self._version):
            # A replay, or a change of an earlier incarnation.  A deleted object has no version left to compare with,
            # but a stream is in order: new changes lie beyond the version that was reached.
            return
        if known_uid not in ("", uid):
            # A watch may leave out the deletion of an object that was created again.
            yield Deleted(self._deleted(at, known_uid, known_version)), self._version
        if kind != DELETED:
            self._known[at] = (uid, version)
            yield Applied(self._resource.kept(found)), version
        elif self._known.pop(at, None) is not None:
            yield Deleted(self._resource.kept(found)), version

    def _deleted(self, at: At, uid: str, version: int) -> T:
        """The deleted object under this name, with uid and version alone."""
        namespace, name = at
        metadata = Metadata(namespace=namespace, name=name, uid=uid, resource_version=str(version))
        return self._resource.kept(self._resource.type(metadata=metadata))

    def _count_short_watches(self, *, short: bool) -> None:
        self._short_watches = self._short_watches + 1 if short else 0
        if self._short_watches >= SHORT_WATCHES:
            self._short_watches = 0
            self._version = 0


def _at(metadata: Metadata) -> At:
    return metadata.namespace, metadata.name
