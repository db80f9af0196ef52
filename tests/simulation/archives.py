"""The stream of the archive and the purges of the log, as a server keeps them, and who archives; with their judge.

The client is the product's own; the judge compares what is stored, and what is purged, with all that the log ever had.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, cast

import msgspec

from services.archive.archiving import ArchiveFigures, Archiver
from shared.eventlog import Stored, wire
from shared.eventlog.account import ARCHIVE, ARCHIVER, LEASES
from shared.eventlog.api import Message
from shared.eventlog.archive import _PART, _SEAL, Archive
from shared.eventlog.client import Answer
from shared.eventlog.connection import Connection
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.parts import Seal, lines_in, seal_of
from shared.eventlog.subject import Subject, is_decision, matches
from shared.job.naming import JobKey, archived_as, history_filters, key_archived, key_of
from shared.process.serving import first_of
from shared.runtime.lease import Lease
from shared.runtime.queue import Slice
from shared.telling.reading import is_seal, line_of
from tests.memory.eventlog import MemoryJournal
from tests.simulation.network import Link, NetworkedLog
from tests.simulation.replica import Replica

ARCHIVERS = ("archiver-0", "archiver-1")
_GET, _PURGE = "$JS.API.STREAM.MSG.GET.", "$JS.API.STREAM.PURGE."
_NOT_FOUND = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}
_MOVED = {"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}


class Archives:
    """The server's side of the archive of one log."""

    def __init__(self, journal: MemoryJournal, fault: Callable[[str], None]) -> None:
        self.messages: list[Message] = []
        self.damaging = False
        """True if the next message is stored with other bytes."""
        self.lost = False
        """True once the archive was restored from a backup: what it lost was verified before."""
        self._journal = journal
        self._fault = fault
        self._last = 0
        self._read: dict[int, bytes] = {}
        """The messages that were read back, by their sequence, as they were then."""

    def answer(self, subject: str, body: bytes, headers: dict[str, str] | None) -> bytes:
        """What the server answers to a request of the archiver."""
        if headers is not None:
            return msgspec.json.encode(self._store(subject, body, headers))
        query = json.loads(body)
        if subject.startswith(_PURGE):
            return msgspec.json.encode({"purged": self._purge(subject.removeprefix(_PURGE), query)})
        if subject == f"{_GET}{ARCHIVE}":
            found = self._find(query)
        else:
            events = (each for each in self._journal.events if each.sequence not in self._journal.purged)
            wanted = (each for each in events if matches(query["next_by_subj"], each.subject))
            found = next((Message(each.subject, each.sequence) for each in wanted), None)
        return msgspec.json.encode(_NOT_FOUND if found is None else {"message": found})

    def restore(self, lost: int) -> None:
        """The archive comes back from a backup without its `lost` newest messages."""
        self.lost, self.messages = True, self.messages[: max(len(self.messages) - lost, 0)]

    def repair(self) -> None:
        """A person removes copies that differ from their seals while the log has the events, as is documented."""
        self.damaging, purged = False, self._journal.purged
        there = {
            archived_as(key_of(Subject.parse(each.subject)))
            for each in self._journal.events
            if each.sequence not in purged and not is_seal(each)
        }
        wrong = {message.subject for message in self.messages if self._wrong(message)} & there
        self.messages = [message for message in self.messages if message.subject not in wrong]

    def copied(self, key: JobKey) -> set[str]:
        """The lines of a job's histories in the archive that are whole."""
        found, parts = set[str](), list[list[bytes]]()
        for message in self.messages:
            if key_archived(message.subject) == key and not self._wrong(message):
                number, of = _place(message)
                parts = [*parts[: number - 1], lines_in(message.data)]
                found |= {line.decode() for part in parts for line in part} if len(parts) == number == of else set()
        return found

    def left(self, sealed: Iterable[JobKey]) -> list[str]:
        """What is still to do for sealed histories: each of them is to be in the archive, and no longer in the log."""
        found = []
        for key in sealed:
            if not self.copied(key):
                found.append(f"I53 {key} is sealed, and never archived")
            there = (event for event in self._of(key) if event.sequence not in self._journal.purged)
            stay = [each for each in there if each.sequence < self._sealed(key) and not is_seal(each)]
            found += [f"I53 {each.subject} at {each.sequence} is archived, and never purged" for each in stay]
        return found

    def _of(self, key: JobKey) -> list[Stored]:
        """All events of a job that the log ever had."""
        filters = history_filters(key)
        return [event for event in self._journal.events if any(matches(each, event.subject) for each in filters)]

    def _sealed(self, key: JobKey) -> int:
        """The sequence of a job's last seal."""
        return max((event.sequence for event in self._of(key) if is_seal(event)), default=0)

    def _find(self, query: dict[str, Any]) -> Message | None:
        if (last := query.get("last_by_subj")) is not None:
            return next((each for each in reversed(self.messages) if matches(last, each.subject)), None)
        wanted = query.get("next_by_subj", ">")
        found = next(
            (each for each in self.messages if each.seq >= query["seq"] and matches(wanted, each.subject)), None
        )
        if found is not None:
            self._read[found.seq] = found.data
        return found

    def _store(self, subject: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        before = [message for message in self.messages if message.subject == subject]
        if int(headers[wire.EXPECTED]) != (before[-1].seq if before else 0):
            return _MOVED
        self._last += 1
        raw = "".join(f"\r\n{name}: {value}" for name, value in headers.items()).encode()
        time = datetime.fromtimestamp(self._journal.wall(), UTC).isoformat()
        data, self.damaging = (b"other bytes", False) if self.damaging else (body, False)
        made = Message(subject, self._last, b"NATS/1.0" + raw + b"\r\n\r\n", data, time)
        if any((_seal(each), _place(each)[0]) == (_seal(made), _place(made)[0]) for each in before):
            self._fault(f"I52 the archive has a part of {subject} twice")
        if data == body and self._wrong(made):
            self._fault(f"I52 the archive has other events of {subject} than the log had")
        self.messages.append(made)
        return {"seq": self._last}

    def _wrong(self, message: Message) -> bool:
        """True for other lines than the log had; what a log had before its restoration is not known."""
        try:
            lines = [line.decode() for line in lines_in(message.data)]
        except ValueError:
            return True
        known = {line_of(event) for event in self._of(key_archived(message.subject))}
        return not self._journal.restored and not known.issuperset(lines)

    def _purge(self, stream: str, query: dict[str, Any]) -> int:
        assert stream != ARCHIVE, "no retention is simulated"
        removed = self._journal.purge(query["filter"], query["seq"])
        for key, events in groupby(removed, lambda event: key_of(Subject.parse(event.subject))):
            mine = [message for message in self.messages if key_archived(message.subject) == key]
            copied, sealed, seals = self.copied(key), self._sealed(key), [*map(_seal, mine)]
            for event in events:
                what = f"{event.subject} at {event.sequence} is purged, and"
                late = event.sequence > sealed and not is_decision(event.subject) and seals
                there = seal_of(event.body) in seals if is_seal(event) else late or line_of(event) in copied
                if not there and not self.lost:
                    self._fault(f"I52 {what} the archive does not have it")
                if any(self._read.get(message.seq) != message.data for message in mine):
                    self._fault(f"I52 {what} its copy was not read back")
        return len(removed)


def _seal(message: Message) -> Seal:
    return seal_of(wire.header(message.hdrs, _SEAL).encode())


def _place(message: Message) -> tuple[int, int]:
    number, _, of = wire.header(message.hdrs, _PART).partition("/")
    return int(number), int(of)


class _Connection:
    """The product's requests, over a link."""

    def __init__(self, archives: Archives, link: Link) -> None:
        self._archives, self._link = archives, link

    async def request(
        self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None, *, timeout: float
    ) -> Answer:
        answer = await self._link.call(lambda: self._archives.answer(subject, body, headers))
        return Answer(b"", answer)


class ArchiverReplica(Replica):
    """A name under which one archiver after the other runs."""

    def __init__(self, archives: Archives, seals: float, number: int, **given: Any) -> None:
        super().__init__("status", number, **given)
        self.name = ARCHIVERS[number]
        self._archives, self._seals = archives, seals

    async def _run(self) -> None:
        log = NetworkedLog(self._journal, self.to_log, user=ARCHIVER)
        log.archive = Archive(cast("Connection", _Connection(self._archives, self.to_log)))  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        holder = f"{self.name}/{self.lives}"
        bucket = await log.bucket(LEASES)
        self.lease = lease = Lease(bucket, ARCHIVER, holder, clock=loop.time, chance=self._chance.random)

        async def working() -> None:
            archiver = Archiver(cast("JetStreamEventLog", log), self._kinds, ArchiveFigures(), seals=self._seals)
            archiver._slice = Slice(self._clock)
            await first_of(archiver.follow(), archiver.work(lease.held))

        await lease.keep(working)
