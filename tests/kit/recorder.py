"""Records every history that a test folds, and every log in memory or of a NATS server that a test starts.

`tests/determinism` folds them again in other processes.

A history that another one begins with is no file of its own.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.errors import Trouble
from shared.eventlog import Stored
from shared.eventlog.account import READER
from shared.eventlog.server import NatsServer
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.telling.reading import event_of, everything, line_of
from tests.kit.histories import folded, write
from tests.kit.nats import connected
from tests.memory.eventlog import MemoryJournal

KEPT_IN = "MUSTER_HISTORIES"
"""The environment variable with the folder."""

LONGEST_NAME = 100
"""Characters of a test's name in the name of a file."""

PATIENCE_SECONDS = 30.0


class Recorder:
    """What was folded since the last file: a tree of events, as many histories begin alike."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends: dict[int, tuple[History, bytes]] = {}
        """By identity, with the history itself, so that no other one gets its identity."""
        self._events: dict[bytes, tuple[bytes, Stored]] = {}
        """By a hash of the events up to this one: the hash before it, and the event."""
        self._followed: set[bytes] = set()
        self._journals: list[MemoryJournal] = []
        self.rests = False
        """True during a test that measures what recording would take, too."""

    @contextmanager
    def recording(self) -> Iterator["Recorder"]:
        fold, begin, leave = History.fold, MemoryJournal.__init__, NatsServer.__aexit__

        def folded(history: History, stored: Stored) -> AnyEvent | None:
            self._note(history, stored)
            return fold(history, stored)

        def begun(journal: MemoryJournal, **given: Any) -> None:
            if not self.rests:
                self._journals.append(journal)
            begin(journal, **given)

        async def left(server: NatsServer, *about: object) -> None:
            with suppress(Trouble, TimeoutError, KeyError):
                if server.running and not self.rests:
                    async with asyncio.timeout(PATIENCE_SECONDS), connected(server, READER) as log:
                        await everything(log)
            await leave(server, *about)

        History.fold, MemoryJournal.__init__, NatsServer.__aexit__ = folded, begun, left  # type: ignore[assignment]
        try:
            yield self
        finally:
            History.fold, MemoryJournal.__init__, NatsServer.__aexit__ = fold, begin, leave  # type: ignore[method-assign]

    def write(self, name: str) -> None:
        """Write what came since the last time, under a test's name."""
        stem = re.sub(r"[^\w.-]+", "-", name)[-LONGEST_NAME:]
        for journal in self._journals:
            if all(map(_is_kept, journal.events)):
                folded(journal.events)
        self._journals.clear()
        for end in self._events.keys() - self._followed:
            log = [*self._back_from(end)][::-1]
            if all(_is_kept(stored) for stored in log):
                write(log, self._folder, stem)
        self._ends.clear()
        self._events.clear()
        self._followed.clear()

    def _back_from(self, end: bytes) -> Iterator[Stored]:
        while end:
            end, stored = self._events[end]
            yield stored

    def _note(self, history: History, stored: Stored) -> None:
        if self.rests:
            return
        known, before = self._ends.get(id(history), (None, b""))
        if not history.sequence:
            before = b""
        elif known is not history:
            # It began before the last file.
            return
        envelope = f"{stored.sequence}\0{stored.subject}\0{stored.event_id}\0{stored.time}\0{stored.basis}\0"
        here = sha256(before + f"{envelope}{stored.optional}\0".encode() + stored.body).digest()
        self._ends[id(history)] = history, here
        self._events[here] = before, stored
        self._followed.add(before)


def _is_kept(stored: Stored) -> bool:
    """False for an event that a file cannot hold as it is."""
    try:
        return event_of(line_of(stored).encode()) == msgspec.structs.replace(stored, logged="")
    except ValueError:
        return False


class Recording:
    """The recorder as a plug-in of pytest: a file for each history of each test."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._recorder.rests = item.get_closest_marker("unrecorded") is not None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._recorder.write(item.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._recorder.write("session")
