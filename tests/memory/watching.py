"""The objects of one kind in memory, their history, and the part that one watch shows."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from shared.cluster import Manifest, Resource
from shared.cluster.decoding import encode, read_object
from shared.cluster.objects import Object
from tests.memory.selectors import Selects, selects

T = TypeVar("T", bound=Object)
At = tuple[str, str]
"""Namespace and name."""
Check = Callable[[Manifest | None, Manifest], None]


class Held:
    """One object at one version.  Its manifest is shared and never changed."""

    __slots__ = ("_read", "manifest")

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._read: dict[type[Object], Object] = {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.manifest["metadata"]
        return found

    @property
    def at(self) -> At:
        return self.metadata["namespace"], self.metadata["name"]

    def read(self, resource: Resource[T]) -> T:
        """The object as a client reads it; decoded once for all clients."""
        found = self._read.get(resource.type)
        if found is None:
            found = self._read[resource.type] = read_object(resource, encode(self.manifest))
        assert isinstance(found, resource.type), found
        return found


class Change:
    """One step of a kind's history; an object that was removed has no `after`."""

    __slots__ = ("after", "before", "last")

    def __init__(self, before: Held | None, after: Held | None, last: Held) -> None:
        self.before = before
        self.after = after
        self.last = last
        """The last state, at the version of the change, which a deletion shows."""


class Kind:
    """The objects of one kind, their history, and the watches that wait for more of it."""

    def __init__(self) -> None:
        self.objects: dict[At, Held] = {}
        self.dropped = 0
        """The number of changes that were compacted away; a watch that is behind them has to list again, once."""
        self.check: Check = lambda before, after: None
        self._history: list[Change] = []
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def end(self) -> int:
        return len(self._history)

    def at(self, position: int) -> Change:
        return self._history[position]

    def as_of(self, version: int) -> tuple[list[Held], int]:
        """The objects that a server shows which has got no further than `version`, and its place in the history."""
        objects, place = dict(self.objects), self.end
        while place and int(self._history[place - 1].last.metadata["resourceVersion"]) > version:
            place -= 1
            change = self._history[place]
            if change.before is None:
                del objects[change.last.at]
            else:
                objects[change.before.at] = change.before
        return list(objects.values()), place

    def record(self, change: Change) -> None:
        self._history.append(change)
        self.wake()

    def compact(self) -> None:
        self.dropped = self.end

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def news(self) -> None:
        """Wait for the next change or fault."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting


class View:
    """The scope of one watch or list."""

    def __init__(self, namespace: str, selector: str, name: str = "") -> None:
        self._namespace = namespace
        self._name = name
        self._selects: Selects | None = selects(selector) if selector else None

    def shows(self, held: Held | None) -> bool:
        if held is None or self._namespace not in ("", held.at[0]) or self._name not in ("", held.at[1]):
            return False
        return self._selects is None or self._selects(held.metadata.get("labels") or {})
