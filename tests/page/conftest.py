"""The page over histories in memory, on a port of its own."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import pytest_asyncio

from muster.following import Tell
from muster.page.following import Readable
from muster.page.server import serving
from shared.errors import Refused
from shared.eventlog import Stored
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.telling.shown import Shown
from shared.telling.targets import Asked
from tests.kit.histories import stored

SECRET = "secret-of-the-test"


class Memory(Readable):
    """Jobs in memory, of which one can add events; `away` is what trouble says."""

    def __init__(self) -> None:
        self.kinds = BUILT_IN
        self.histories: dict[str, History] = {}
        self.logs: dict[str, list[Stored]] = {}
        self.rows: dict[str, Shown] = {}
        self.changed = asyncio.Event()

    def add(self, name: str, *events: AnyEvent, namespace: str = "team-a") -> None:
        history = self.histories.setdefault(name, History(JobKey(namespace, name, Uid(f"uid-{name}"))))
        log = self.logs.setdefault(name, [])
        for event in events:
            log.append(stored(history, event))
            history.fold(log[-1])
        self.rows[name] = Shown.of(history, self.kinds)
        self.changed.set()
        self.changed = asyncio.Event()

    async def jobs(self, namespace: str, trouble: Tell) -> AsyncGenerator[Shown, None]:
        seen: dict[str, Shown] = {}
        while True:
            changed = self.changed
            for name, row in self.rows.items():
                if seen.get(name) is not row:
                    seen[name] = row
                    yield row
            await changed.wait()

    async def events(
        self, asked: Asked, namespace: str, uid: str, trouble: Tell
    ) -> AsyncGenerator[Sequence[Stored], None]:
        if asked.name not in self.logs:
            raise Refused(f"the log knows no job {namespace}/{asked.name}", reason="NotFound")
        log, told = self.logs[asked.name], 0
        while True:
            changed = self.changed
            if told < len(log):
                yield log[told:]
                told = len(log)
            yield []
            await changed.wait()


@pytest_asyncio.fixture
async def memory() -> Memory:
    return Memory()


@pytest_asyncio.fixture
async def address(memory: Memory) -> AsyncIterator[str]:
    async with serving(memory, "", port=0, secret=SECRET) as found:
        yield found
