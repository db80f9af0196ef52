"""What the page knows of now: the table of jobs, and the events of the jobs that a browser has open."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

import msgspec

from muster.asking import Source, patiently
from muster.following import Tell
from muster.get import Options, texts
from muster.history import job_events
from muster.page.drawing import Drawing, drawn
from muster.terminal import Output
from shared.errors import Refused, Trouble
from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.runtime.appends import stamp
from shared.telling.shown import Shown
from shared.telling.targets import Asked, known_kinds

MOST_OPEN = 16
"""The most jobs that are followed at a time: each holds the events of a job, and a stream of the server."""
PAUSE_SECONDS = 0.25
"""The least seconds between two pieces of news to one browser."""
AGAIN_SECONDS = 0.1
"""How long what ends has for it, before it is cancelled once more."""
BEAT_SECONDS = 15.0
"""Seconds without news after which a browser gets an empty line, by which a connection that broke is noticed."""


async def end(task: asyncio.Task[None]) -> None:
    """Cancel until it has ended: a cancellation that comes as a read ends may be lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_SECONDS)


class Readable:
    """What one person may read."""

    def __init__(self, source: Source) -> None:
        self.kinds: Kinds = known_kinds()
        self._source = source

    async def jobs(self, namespace: str, trouble: Tell) -> AsyncGenerator[Shown, None]:
        """The jobs of a namespace, or of all without one, those that are gone as well; then each change of one."""
        options = Options(namespace, output=Output.json, gone=True, watch=True)
        async with aclosing(texts(self._source, options, self.kinds, trouble)) as found:
            async for text in found:
                yield msgspec.json.decode(text, type=Shown)

    def events(self, asked: Asked, namespace: str, uid: str, trouble: Tell) -> AsyncGenerator[Sequence[Stored], None]:
        """The events of a job until now, then later ones."""
        return job_events(self._source, asked, namespace, uid=uid, trouble=trouble)


class News:
    """A number that grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.trouble = ""
        """What is away; empty while all answers."""
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def told(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.changed()

    async def later(self) -> AsyncGenerator[int, None]:
        """The version before each piece of news, now and after each change, and each `BEAT_SECONDS`."""
        seen = -1
        while True:
            changed = self._changed
            if self.version == seen:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        await changed.wait()
                    await asyncio.sleep(PAUSE_SECONDS)
                except TimeoutError:
                    pass
            before, seen = seen, self.version
            yield before


class Table:
    """The jobs that the person may see."""

    def __init__(self) -> None:
        self.news = News()
        self.rows: dict[str, tuple[int, Shown]] = {}
        """By uid, with the version at which it changed."""

    def since(self, version: int) -> list[Shown]:
        return [row for changed, row in self.rows.values() if changed > version]

    async def follow(self, look: Callable[[], AsyncGenerator[Shown, None]]) -> None:
        """Go on for ever; what is refused ends it, and is told."""
        try:
            async with aclosing(patiently(look, self.news.told)) as found:
                async for shown in found:
                    self.note(shown)
        except Trouble as trouble:
            self.news.told(str(trouble))

    def note(self, shown: Shown) -> None:
        # A list has no use for statuses, which are most of the bytes.
        self.rows[shown.uid] = self.news.version + 1, msgspec.structs.replace(shown, status={})
        self.news.trouble = ""
        self.news.changed()


class Followed:
    """One job: its events, and its drawing."""

    def __init__(self, read: Callable[[Tell], AsyncGenerator[Sequence[Stored], None]]) -> None:
        self.news = News()
        self.events: list[Stored] = []
        self.readers = 0
        self._drawing: tuple[int, Drawing] | None = None
        self._draws = asyncio.Lock()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._follow(read))

    async def _follow(self, read: Callable[[Tell], AsyncGenerator[Sequence[Stored], None]]) -> None:
        try:
            async with aclosing(read(self.news.told)) as batches:
                async for batch in batches:
                    self.events += batch
                    self.news.trouble = ""
                    self.news.changed()
                    if not self._first.done():
                        self._first.set_result(None)
        except Trouble as trouble:
            if not self._first.done():
                self._first.set_exception(trouble)
            self.news.told(str(trouble))

    async def ready(self) -> None:
        """Until its events are known.  Raises `Trouble` if they cannot be read."""
        await asyncio.shield(self._first)

    async def drawing(self, source: Readable, asked: Asked, namespace: str, uid: str) -> Drawing:
        """The drawing of now; of several browsers that ask at once, made once."""
        async with self._draws:
            count = len(self.events)
            if self._drawing is None or self._drawing[0] != count:
                # A long history takes a second, in which others are answered.
                events, until = self.events[:count], stamp(datetime.now(UTC))
                made = await asyncio.to_thread(drawn, events, asked, namespace, source.kinds, uid=uid, until=until)
                self._drawing = count, made
            made = self._drawing[1]
            report = msgspec.structs.replace(made.report, until=stamp(datetime.now(UTC)))
            return msgspec.structs.replace(made, report=report)

    async def close(self) -> None:
        await end(self._task)
        if self._first.done() and not self._first.cancelled():
            # asyncio logs an exception that nobody has asked for, and this one was told.
            self._first.exception()


class Open:
    """The jobs that browsers have open: those used last."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._jobs: dict[tuple[str, str, str], Followed] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def of(self, asked: Asked, namespace: str, uid: str) -> AsyncIterator[Followed]:
        """The job while the context lasts.  Raises `Trouble` if it cannot be read."""
        key = namespace, asked.word, uid
        async with self._opening:
            job = self._jobs.pop(key, None) or await self._opened(asked, namespace, uid)
            self._jobs[key] = job
            job.readers += 1
        try:
            await job.ready()
            yield job
        except Trouble:
            if self._jobs.get(key) is job:
                del self._jobs[key]
            await job.close()
            raise
        finally:
            job.readers -= 1

    async def _opened(self, asked: Asked, namespace: str, uid: str) -> Followed:
        if len(self._jobs) >= MOST_OPEN:
            idle = next((key for key, job in self._jobs.items() if not job.readers), None)
            if idle is None:
                raise Refused(f"{MOST_OPEN} jobs are open: close a tab of another one", reason="TooManyRequests")
            await self._jobs.pop(idle).close()
        return Followed(lambda trouble: self._source.events(asked, namespace, uid, trouble))

    async def close(self) -> None:
        for job in self._jobs.values():
            await job.close()
