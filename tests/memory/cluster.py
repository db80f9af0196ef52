"""A cluster in memory: one `MemoryStore`, and a client for each service that uses it.

For unit tests and the simulation.  It is deterministic: it reads no clock, starts no task, and wakes its watches
in the order in which they began to wait.

Faults come in three ways: `store.faults` for the next calls of any client, `store.outage` for the whole cluster,
and a `Weather` for one client, which may delay each call or make it fail before or after its effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from shared.cluster import MOST_OUTPUT, Alive, Applied, Blind, Deleted, Execution, Manifest, Resource, Seen, Snapshot
from shared.cluster.kinds import PODS
from shared.cluster.objects import Object
from shared.errors import Refused, Transient
from tests.memory.store import MemoryStore
from tests.memory.trouble import Fault
from tests.memory.watching import Change, View

T = TypeVar("T", bound=Object)
R = TypeVar("R")

Verb = Literal["get", "list", "create", "patch", "delete", "watch", "execute"]


class Call(msgspec.Struct, frozen=True):
    """One call of a client; for a watch, one delivery."""

    verb: Verb
    plural: str
    namespace: str
    name: str = ""
    subresource: str = ""
    within: int = 0
    """Seconds within which the server has to carry it out; 0 sets no bound."""


class Weather(Protocol):
    """The faults of one client; both methods may wait, and may raise the error that the caller gets.

    A watch that gets a `Transient` is blind until a call raises none.
    """

    async def before(self, call: Call) -> None:
        """Runs before the cluster gets the call: an error means that nothing was done.

        It yields to other tasks at least once, because a blind watch repeats its call at once.
        """

    async def after(self, call: Call) -> None:
        """Runs after the call was done: an error is a lost answer.  Not called for watches."""


class Calm:
    """No fault, but other tasks always run first, as with a real cluster."""

    async def before(self, call: Call) -> None:
        await asyncio.sleep(0)

    async def after(self, call: Call) -> None:
        pass


class MemoryCluster:
    """One client of a store."""

    def __init__(self, store: MemoryStore, *, weather: Weather | None = None) -> None:
        self._store = store
        self._weather = weather or Calm()
        self._closed = False

    async def watch(
        self, resource: Resource[T], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncGenerator[Seen[T], None]:
        call = Call("watch", resource.plural, namespace)
        kind, outage, view = self._store.kind(resource), self._store.outage, View(namespace, selector, name)
        position = dropped = -1
        cuts, bookmarks, blind = outage.cuts, outage.bookmarks, False
        while not self._closed:
            served = self._store.serves(resource)
            if outage.reason or cuts != outage.cuts or not served:
                cuts = outage.cuts
                if not blind:
                    yield Blind(outage.reason or ("ConnectionLost" if served else "NotFound"))
                blind = True
                if not served:
                    # A kind that is installed later under this name has a history of its own.
                    position = dropped = -1
                if outage.reason or not served:
                    await kind.news()
                    continue
            try:
                await self._weather.before(call)
            except Transient as error:
                if not blind:
                    yield Blind(str(error))
                blind = True
                continue
            if self._closed:
                return
            if position < kind.dropped and dropped < kind.dropped:
                dropped, blind, bookmarks = kind.dropped, False, outage.bookmarks
                version = self._version_listed(resource)
                objects, position = kind.as_of(version)
                yield Snapshot(
                    tuple(resource.kept(held.read(resource)) for held in objects if view.shows(held)), version
                )
            elif blind or bookmarks != outage.bookmarks:
                blind, bookmarks = False, outage.bookmarks
                yield Alive()
            elif position < kind.end:
                change = kind.at(position)
                position += 1
                seen = _seen(resource, view, change)
                if seen is not None:
                    yield seen
            else:
                await kind.news()

    def _version_listed(self, resource: Resource[Any]) -> int:
        """The version that the next list shows."""
        return self._store.version

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T | None:
        held = await self._call(
            Call("get", resource.plural, namespace, name), lambda: self._of(resource).get(resource, namespace, name)
        )
        return held.read(resource) if held is not None else None

    async def find(self, resource: Resource[T], namespace: str, fields: str, *, most: int) -> tuple[T, ...]:
        where, _, value = fields.partition("=")

        def look() -> tuple[T, ...]:
            found = sorted(self._of(resource).find(resource, namespace), key=lambda held: held.at)
            chosen = [held for held in found if _field(held.manifest, where) == value]
            return tuple(held.read(resource) for held in chosen[:most])

        return await self._call(Call("list", resource.plural, namespace), look)

    async def create(self, resource: Resource[T], namespace: str, manifest: Manifest, *, within: int = 0) -> T:
        name = (manifest.get("metadata") or {}).get("name", "")
        held = await self._call(
            Call("create", resource.plural, namespace, name, within=within),
            lambda: self._of(resource).create(resource, namespace, manifest),
        )
        return held.read(resource)

    async def would_create(self, resource: Resource[T], namespace: str, manifest: Manifest) -> None:
        name = (manifest.get("metadata") or {}).get("name", "")
        call = Call("create", resource.plural, namespace, name)
        await self._call(call, lambda: self._of(resource).check(resource, namespace, manifest))

    async def patch(
        self, resource: Resource[T], namespace: str, name: str, manifest: Manifest, *, subresource: str = ""
    ) -> T:
        held = await self._call(
            Call("patch", resource.plural, namespace, name, subresource),
            lambda: self._of(resource).patch(resource, namespace, name, manifest, subresource=subresource),
        )
        return held.read(resource)

    async def delete(
        self,
        resource: Resource[T],
        namespace: str,
        name: str,
        *,
        uid: str,
        version: str = "",
        grace: int | None = None,
    ) -> None:
        await self._call(
            Call("delete", resource.plural, namespace, name),
            lambda: self._of(resource).delete(resource, namespace, name, uid=uid, version=version, grace=grace),
        )

    async def would_delete(self, resource: Resource[T], namespace: str, name: str) -> str | None:
        def look() -> str | None:
            held = self._of(resource).get(resource, namespace, name)
            return held.metadata["uid"] if held is not None else None

        return await self._call(Call("delete", resource.plural, namespace, name), look)

    async def execute(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        timeout: float,
        most: int = MOST_OUTPUT,
    ) -> Execution:
        call = Call("execute", PODS.plural, namespace, pod, "exec")
        execution = await self._execute(
            call, timeout, lambda: self._store.program_of(namespace, pod)(namespace, pod, container, command)
        )
        return Execution(execution.exit_code, execution.output[:most])

    async def _execute(self, call: Call, timeout: float, run: Callable[[], Awaitable[Execution]]) -> Execution:
        """`run` starts the command in its pod; raises `Refused` if it cannot."""
        fault = await self._before(call)
        execution = await within(timeout, call, run())
        await self._after(call, fault)
        return execution

    async def close(self) -> None:
        self._closed = True
        self._store.wake()

    def _of(self, resource: Resource[Any]) -> MemoryStore:
        """The store, if it serves the kind."""
        if not self._store.serves(resource):
            raise Refused(f"{resource.plural}.{resource.group}: the kind is not served", reason="NotFound")
        return self._store

    async def _call(self, call: Call, work: Callable[[], R]) -> R:
        fault = await self._before(call)
        result = work()
        await self._after(call, fault)
        return result

    async def _before(self, call: Call) -> Fault | None:
        """Raise a planned fault before the call, or return one that happens after it."""
        self._must_be_open(call)
        await self._weather.before(call)
        self._store.outage.check(call.verb)
        fault = self._store.faults.next(call.verb, call.plural)
        if fault is not None and not fault.applied:
            raise fault.error
        return fault

    async def _after(self, call: Call, fault: Fault | None) -> None:
        if fault is not None:
            raise fault.error
        await self._weather.after(call)

    def _must_be_open(self, call: Call) -> None:
        if self._closed:
            raise Refused(f"{call.verb} {call.plural}: this client was closed", reason="Closed")


def _field(manifest: Manifest, path: str) -> object:
    value: Any = manifest
    for part in path.split("."):
        value = value.get(part) or {}
    return value


async def within(seconds: float, call: Call, running: Awaitable[R]) -> R:
    """Wait for a command.  Raises `Transient` after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await running
    except TimeoutError as error:
        raise Transient(f"execute in {call.namespace}/{call.name}: timed out") from error


def _seen(resource: Resource[T], view: View, change: Change) -> Applied[T] | Deleted[T] | None:
    """A change as a watch with this view shows it; an object that leaves the view is deleted."""
    if change.after is not None and view.shows(change.after):
        return Applied(resource.kept(change.after.read(resource)))
    if change.before is None or not view.shows(change.before):
        return None
    return Deleted(resource.kept(change.last.read(resource)))
