"""The archive: the stream `ARCHIVE`, with a message for each sealed history, or a few in order.

Messages of one job have one subject, and are never replaced: a part expects the one before it.  A forgotten history is
one message without lines.
"""

import json
from collections.abc import AsyncGenerator, Iterable
from itertools import chain
from typing import Any

import msgspec

from shared.errors import Conflict, Refused
from shared.eventlog import api, wire
from shared.eventlog.account import ARCHIVE, ARCHIVED, STREAM
from shared.eventlog.connection import Connection, NoAnswer, NotSent
from shared.eventlog.parts import Packing, Part, Seal, lines_in, seal_of
from shared.eventlog.retry import insist
from shared.eventlog.streams import StreamInfo
from shared.eventlog.subject import archived_of
from shared.untrusted import whole_number

_SEAL, _PART, _ROW, _FORGOTTEN = "Muster-Seal", "Muster-Part", "Muster-Row", "Muster-Forgotten"
_PATIENCE = 10.0


class Archive:
    """The archive beside a log, with the rights of the connection's user."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def parts(self, subject: str, after: int = 0) -> AsyncGenerator[Part, None]:
        """The messages under a subject, or a filter, in order; none without an archive.

        Raises `Refused(reason="Invalid")` for a message that is no part of it.
        """
        while (found := await self._next(subject, after)) is not None:
            after = found.seq
            yield _part(found)

    async def newest(self, subject: str) -> Part | None:
        found = await self._asked({"last_by_subj": subject})
        return None if found is None else _part(found)

    async def _next(self, subject: str, after: int) -> api.Message | None:
        return await self._asked({"seq": after + 1, "next_by_subj": subject})

    async def _asked(self, query: dict[str, Any]) -> api.Message | None:
        try:
            return await api.message(self._connection, ARCHIVE, **query)
        except Refused as refusal:
            if refusal.reason != "NotSetUp":
                raise
            return None

    async def store(self, subject: str, seal: Seal, bodies: list[bytes], row: str) -> None:
        """Store a history behind the parts of it that are there.

        Raises `Conflict` if other lines are there, `ValueError` if what is there is damaged, `Transient` if the archive
        is full or away.
        """
        there = [part async for part in self.parts(subject) if part.seal == seal]
        newest = await self.newest(subject)
        last = newest.sequence if newest is not None else 0
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
            last = await self._publish(subject, body, _headers(seal, f"{number}") | headers, last)

    async def forget(self, subject: str, reason: str) -> Seal | None:
        """Remove a history, as an administrator may, and leave its seal and the reason; None if there is none."""
        newest = await self.newest(subject)
        if newest is None or newest.forgotten:
            return None
        told = " ".join(reason.split()).encode("ascii", "replace").decode()
        headers = _headers(newest.seal, "forgotten") | {_PART: "1/1", _FORGOTTEN: told}
        last = await self._publish(subject, b"", headers, newest.sequence)
        await self.purge(ARCHIVE, subject, last)
        return newest.seal

    async def purge(self, stream: str, subject: str, before: int) -> int:
        """Remove the messages under a filter that come before a sequence; return how many."""
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
            query = {"subjects_filter": ARCHIVED, "offset": subjects}
            page = (await api.call(self._connection, f"STREAM.INFO.{ARCHIVE}", query, StreamInfo)).state.subjects
            if not page:
                return found
            subjects += len(page)
            found |= {archived_of(subject)[0] for subject in page}

    async def first(self, subjects: Iterable[str]) -> int:
        """The sequence of the first event of the log under one of these filters; 0 if there is none."""
        found = [await api.message(self._connection, STREAM, seq=1, next_by_subj=each) for each in subjects]
        return min((message.seq for message in found if message is not None), default=0)

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


class _Purged(msgspec.Struct):
    purged: int = 0


def _headers(seal: Seal, what: str) -> dict[str, str]:
    # Of two histories with one seal the bytes are the same.
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
