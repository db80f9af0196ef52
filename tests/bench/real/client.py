"""The bare client: an aiohttp session, bytes in and out, 64 requests in flight; and watches that tell the time."""

import asyncio
import base64
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import aiohttp
import msgspec
import yaml

IN_FLIGHT = 64

T = TypeVar("T")

encode = msgspec.json.encode
MERGE = "application/merge-patch+json"


class Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    status: PodStatus = PodStatus()


class Counts(msgspec.Struct, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """All of a status that follows from what happened: without the head of the history and the time of the write."""

    phase: str = ""
    conditions: tuple[dict[str, str], ...] = ()
    replica_statuses: dict[str, Counts] = {}
    target_workers: tuple[str, ...] = ()
    current_workers: tuple[str, ...] = ()
    restart_count: int = 0
    replicas: int = 0
    workers: str = ""


class Job(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    status: JobStatus = JobStatus()

    def tells_of(self, failed: int) -> bool:
        """True if the status has the end of so many workers, those of the lowest indices."""
        counts = self.status.replica_statuses.get("Worker", Counts())
        lost = {f"{self.metadata.name}-worker-{index}" for index in range(failed)}
        return counts.failed >= failed and not lost.intersection(self.status.current_workers)


class Plain(msgspec.Struct, frozen=True):
    """Any object, by its metadata and the phase in its status."""

    metadata: Meta = Meta()
    status: PodStatus = PodStatus()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    type: str
    object: T


class CallError(RuntimeError):
    """The API server answered with something else than success."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class Client:
    """Requests as they are; a failed one raises."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url: str = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {"Authorization": f"Bearer {user['token']}", "Accept-Encoding": "identity"}

    async def __aenter__(self) -> Self:
        self._session = self._open(IN_FLIGHT)
        self._streams = self._open(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._streams.close()

    def _open(self, limit: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self._url,
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=limit, ssl=self._tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """The answer; raises `CallError` for any but a success."""
        headers = {"Content-Type": kind} if body is not None else {}
        async with self._session.request(method, path, data=body, headers=headers) as response:
            answer = await response.read()
            if response.status >= 300:
                raise CallError(f"{method} {path}: {response.status} {answer[:300]!r}", response.status)
            return answer

    async def flood(self, requests: Iterable[tuple[str, bytes]]) -> None:
        """POST them all, in their order, `IN_FLIGHT` at a time."""
        await each(requests, lambda request: self.call("POST", *request))

    async def follow(self, path: str, of: type[T], tell: Callable[[str, T, float], None]) -> None:
        """Watch for ever: `tell(type of the watch event, object, seconds on the clock of `time.perf_counter`)`."""
        kind: Any = WatchEvent
        decode = msgspec.json.Decoder(kind[of]).decode
        query = {"watch": "true"}
        while True:
            rest = b""
            async with self._streams.get(path, params=query) as response:
                if response.status != 200:
                    raise RuntimeError(f"watch {path}: {response.status} {(await response.read())[:300]!r}")
                async for chunk in response.content.iter_any():
                    now = time.perf_counter()
                    *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
                    for line in lines:
                        event = decode(line)
                        if event.type == "ERROR":
                            raise RuntimeError(f"watch {path}: {line[:300]!r}")
                        tell(event.type, event.object, now)
                        query["resourceVersion"] = event.object.metadata.version
            # A server that is busy drops watchers that it thinks slow; the next one goes on where this one was.


async def each(things: Iterable[T], do: Callable[[T], Awaitable[object]]) -> None:
    """Do it for all of them, begun in their order, `IN_FLIGHT` at a time."""
    waiting = iter(things)

    async def work() -> None:
        for thing in waiting:
            await do(thing)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.create_task(work())


class Watch(Generic[T]):
    """The watch of one resource, for the tasks that wait for it."""

    def __init__(self) -> None:
        self.there: set[tuple[str, str]] = set()
        """Namespace and name of every object that exists."""
        self._listeners: list[Callable[[str, T, float], None]] = []

    def tell(self, kind: str, thing: Any, now: float) -> None:
        at = (thing.metadata.namespace, thing.metadata.name)
        if kind == "DELETED":
            self.there.discard(at)
        else:
            self.there.add(at)
        for listener in tuple(self._listeners):
            listener(kind, thing, now)

    def listen(self, listener: Callable[[str, T, float], None]) -> Callable[[], None]:
        """Call it for every watch event; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def seen(self, count: int, fits: Callable[[str, T], bool]) -> asyncio.Future[float]:
        """The moment when a `count`th object fitted."""
        found: set[str] = set()
        moment: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def listener(kind: str, thing: Any, now: float) -> None:
            if not moment.done() and thing.metadata.uid not in found and fits(kind, thing):
                found.add(thing.metadata.uid)
                if len(found) == count:
                    moment.set_result(now)

        end = self.listen(listener)
        moment.add_done_callback(lambda _: end())
        return moment
