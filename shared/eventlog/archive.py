"""The archive: the stream `ARCHIVE`, with a message for each sealed history, or a few in order.

Messages of one job have one subject, and are never replaced: a part expects the one before it.  A forgotten history is
one message without lines.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec

from shared.errors import Conflict, Refused, Transient, accepting
from shared.eventlog import Extent, api, wire
from shared.eventlog.account import ARCHIVE, ARCHIVED, GET_ARCHIVED, STREAM
from shared.eventlog.connection import Connection, NoAnswer, NotSent
from shared.eventlog.parts import Packing, Part, Seal, lines_in, seal_of
from shared.eventlog.retry import insist
from shared.eventlog.streams import StreamInfo
from shared.eventlog.subject import archived_of, matches, people_of
from shared.untrusted import whole_number

_SEAL, _PART, _ROW, _FORGOTTEN = "Muster-Seal", "Muster-Part", "Muster-Row", "Muster-Forgotten"
_PATIENCE = 10.0
_BATCH, _BATCH_BYTES = 500, 4 * 1024 * 1024
"""The most messages, and about the most bytes of them, of one answer to `scan`."""
_ENDED = (204, 404)
"""The statuses with which such an answer ends."""


class Archive:
    """The archive beside a log, with the rights of the connection's user."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def parts(
        self, subject: str, after: int = 0, foreign: Callable[[Refused], object] | None = None
    ) -> AsyncGenerator[Part, None]:
        """The messages under a subject, or a filter, in order; none without an archive.

        `foreign` is told of a message that is no part of it; without that raises `Refused(reason="Invalid")` for one.
        """
        while (found := await self._next(subject, after)) is not None:
            after = found.seq
            try:
                part = _part(found)
            except Refused as refusal:
                if foreign is None:
                    raise
                foreign(refusal)
                continue
            yield part

    async def extent(self) -> Extent:
        with accepting("NotSetUp"):
            info = await api.stream_info(self._connection, ARCHIVE)
            return Extent(info.state.messages, info.state.last_seq, info.created)
        return Extent()

    async def removed(self) -> tuple[int, list[int]]:
        query = {"deleted_details": True}
        state = (await api.call(self._connection, f"STREAM.INFO.{ARCHIVE}", query, StreamInfo)).state
        return state.first_seq, state.deleted

    async def scan(self, after: int = 0, subject: str = ARCHIVED, since: str = "") -> AsyncGenerator[Part, None]:
        """The messages after a sequence, under a filter, or stored since a time, but for those that are no part of it.

        Any server with a copy answers, which may lag.  Raises `Transient` if one was missed.
        """
        end = (await self.extent()).end
        # Of a filter that nearly all match the server would look every message up.
        asked = ">" if subject == ARCHIVED else subject
        while after < end:
            begin: dict[str, Any] = {"start_time": since} if since and not after else {"seq": after + 1}
            many = await self._many(begin | {"next_by_subj": asked, "batch": _BATCH, "max_bytes": _BATCH_BYTES})
            if not many.found:
                return
            after = many.previous
            for found in many.found:
                if matches(subject, found.subject):
                    with suppress(Refused):
                        yield _part(found)

    async def count(self, subject: str, since: int) -> int:
        """How many messages there are under a filter from a sequence on."""
        many = await self._many({"seq": since, "next_by_subj": subject, "batch": 1})
        return len(many.found) + many.pending

    async def _many(self, query: dict[str, Any]) -> "_Many":
        many, inbox = _Many(), self._connection.new_inbox()
        stop = await self._connection.listen(inbox, many.take, lost=many.ended.set)
        try:
            await self._connection.send(GET_ARCHIVED, msgspec.json.encode(query), reply=inbox)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await many.ended.wait()
        finally:
            await stop()
        if not many.whole:
            raise Transient(f"read {ARCHIVE}: not all that was asked for arrived: {query}")
        return many

    async def newest(self, subject: str) -> Part | None:
        found = await self._asked({"last_by_subj": subject})
        return None if found is None else _part(found)

    async def _next(self, subject: str, after: int) -> api.Message | None:
        return await self._asked({"seq": after + 1, "next_by_subj": subject})

    async def _asked(self, query: dict[str, Any]) -> api.Message | None:
        with accepting("NotSetUp"):
            return await api.message(self._connection, ARCHIVE, **query)
        return None

    async def store(self, subject: str, seal: Seal, bodies: list[bytes], row: str) -> None:
        """Store a history behind the parts of it that are there.

        Raises `Conflict` if other lines are there, `ValueError` if what is there is damaged, `Transient` if the archive
        is full or away.
        """
        there, last = list[Part](), 0
        # What another process stores after this is refused: what is next comes behind the last one seen here.
        async for part in self.parts(subject):
            last = part.sequence
            if part.seal == seal:
                there.append(part)
        if there:
            # Another release may pack the same lines otherwise.
            lines, rest = chain.from_iterable(map(lines_in, bodies)), Packing()
            if any(next(lines, None) != line for part in there for line in part.lines):
                raise Conflict(f"archive {subject}: another history is there with the same seal")
            for line in lines:
                rest.add(line.decode())
            bodies = [*(part.body for part in there), *rest.bodies()]
        for number, body in enumerate(bodies[len(there) :], len(there) + 1):
            headers = {_PART: f"{number}/{len(bodies)}"} | ({_ROW: row} if number == len(bodies) else {})
            last = await self._publish(subject, body, headers_of(seal, body) | headers, last)

    async def store_people(self, subject: str, seal: Seal, bodies: Iterable[tuple[bytes, int]]) -> None:
        """Store who made the changes of a history, each body for so many seconds (0: for ever), if it is not there.

        The errors are those of `store`.
        """
        there = [part async for part in self.parts(people_of(subject))]
        last = there[-1].sequence if there else 0
        for body, seconds in bodies:
            if body not in (part.body for part in there):
                headers = headers_of(seal, body) | ({wire.TTL: f"{seconds}s"} if seconds else {})
                last = await self._publish(people_of(subject), body, headers, last)

    async def forget(self, subject: str, reason: str) -> Seal | None:
        """Remove a history, as an administrator may, and leave its seal and the reason; None if there is none."""
        newest = await self.newest(subject)
        if newest is None or newest.forgotten:
            return None
        told = " ".join(reason.split()).encode("ascii", "replace").decode()
        headers = headers_of(newest.seal) | {_PART: "1/1", _FORGOTTEN: told}
        last = await self._publish(subject, b"", headers, newest.sequence)
        await self.remove(subject, last)
        return newest.seal

    async def remove(self, subject: str, before: int) -> int:
        """Remove a history up to a sequence, and all who made its changes; return how many messages that were."""
        return await self.purge(ARCHIVE, people_of(subject), 0) + await self.purge(ARCHIVE, subject, before)

    async def purge(self, stream: str, subject: str, before: int) -> int:
        """Remove the messages under a filter that come before a sequence, or all (0); return how many."""
        request = {"filter": subject, "seq": before}
        return (await api.call(self._connection, f"STREAM.PURGE.{stream}", request, _Purged)).purged

    async def keep(self, subject: str, number: int) -> int:
        """Remove all but the newest messages under a filter; return how many."""
        request = {"filter": subject, "keep": number}
        return (await api.call(self._connection, f"STREAM.PURGE.{ARCHIVE}", request, _Purged)).purged

    async def namespaces(self, namespace: str = "") -> set[str]:
        """Those that the archive has histories of, or that one."""
        if namespace:
            return {namespace}
        found, subjects = set[str](), 0
        while True:
            page = (await api.stream_info(self._connection, ARCHIVE, ARCHIVED, offset=subjects)).state.subjects
            if not page:
                return found
            subjects += len(page)
            found |= {archived_of(subject)[0] for subject in page}

    async def purge_older(self, subject: str, since: str) -> int:
        """Remove the events of the log under a filter that it stored before a time; return how many."""
        if not (first := await api.first(self._connection, STREAM, [subject])):
            return 0
        end = await api.end(self._connection, STREAM)
        found = await api.message(self._connection, STREAM, start_time=since, next_by_subj=">")
        before = found.seq if found is not None else end + 1
        return await self.purge(STREAM, subject, before) if first < before else 0

    async def _publish(self, subject: str, body: bytes, headers: dict[str, str], expect: int) -> int:
        headers |= {wire.EXPECTED: str(expect)}

        async def attempt() -> int:
            try:
                return (await api.publish(self._connection, subject, body, headers)).seq
            except Conflict:
                # An earlier try, or an earlier process, may have stored it.
                found = await self._next(subject, expect)
                if found is None or wire.header(found.hdrs, wire.MESSAGE_ID) != headers[wire.MESSAGE_ID]:
                    raise
                return found.seq

        return await insist(attempt, what=f"archive {subject}", patience=_PATIENCE, on=(NotSent, NoAnswer))


class _Many:
    """The answers to a request for many messages."""

    def __init__(self) -> None:
        self.found: list[api.Message] = []
        self.previous = 0
        """The sequence of the last one."""
        self.pending = 0
        """How many match that come after it."""
        self.ended = asyncio.Event()
        self.whole = False

    def take(self, _: bytes, __: bytes, headers: bytes, body: bytes) -> None:
        if (place := wire.place(headers)) is None:
            end = wire.number(headers, "Nats-Last-Sequence")
            self.whole = wire.status(headers) in _ENDED and end == self.previous
            self.ended.set()
        elif place.previous == self.previous and place.stream == ARCHIVE:
            self.previous, self.pending = place.sequence, place.pending
            self.found.append(api.Message(place.subject, place.sequence, headers, body, place.logged))


class _Purged(msgspec.Struct):
    purged: int = 0


def headers_of(seal: Seal, body: bytes = b"") -> dict[str, str]:
    # By its bytes: another archiver may put other lines into the part of this number.
    what = sha256(body).hexdigest()
    return {_SEAL: json.dumps(msgspec.to_builtins(seal)), wire.MESSAGE_ID: f"{seal.hash}.{seal.last}.{what}"}


def _part(message: api.Message) -> Part:
    what = f"read the message {message.seq} of {ARCHIVE}"
    number, _, of = wire.header(message.hdrs, _PART).partition("/")
    try:
        seal = seal_of(wire.header(message.hdrs, _SEAL).encode())
    except ValueError as error:
        raise Refused(f"{what}: {error}", reason="Invalid") from error
    return Part(
        message.subject,
        message.seq,
        seal,
        whole_number(number) or 0,
        whole_number(of) or 0,
        wire.header(message.hdrs, _ROW).encode(),
        message.data,
        message.time,
        wire.header(message.hdrs, _FORGOTTEN),
    )
