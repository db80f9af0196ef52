"""One watch: the changes of a kind after a version, narrowed to a namespace and a selector."""

import asyncio
from collections import deque

from devcluster.apiserver.entry import Entry, Key
from devcluster.apiserver.selectors import Selector
from devcluster.apiserver.store import ADDED, DELETED, MODIFIED, Change, Store

QUEUE = 50_000
"""Changes that wait for one slow client; past that its watch ends, and it has to start again."""


class Watch:
    """Use as a context manager; `CompactedError` is raised on construction when `since` is too long ago."""

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
