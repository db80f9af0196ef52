"""The JetStream requests of the log's adapter, and the translation of their errors."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from shared.errors import Conflict, Refused, Transient
from shared.eventlog.connection import Connection, NoAnswer
from shared.eventlog.streams import StreamInfo
from shared.untrusted import MALFORMED

_T = TypeVar("_T")

TIMEOUT = 3.0
"""Seconds for one request: more than the slowest fsync takes, less than the election of a leader."""

API = "$JS.API"
"""The prefix of JetStream's requests in an account of its own."""

OVERLAP = 1_000
"""Subjects that two answers share: so many may leave the log between them, and none of the others is left out."""

_WRONG_SEQUENCE = 10071
_IN_FLIGHT = (10158, 10164)
"""This message, or another one of its scope, waits for the stream's replicas: it may be stored or lost."""
_TOO_LARGE = (10054, 10097)
_NO_MESSAGE = 10037
_NO_STREAM = 10059
_NO_PEERS = 10005
"""Fewer servers than copies: the servers of a starting cluster join one after the other."""
_NO_ROOM = (10002, 10023, 10047, 10077)
_NOTHING_THERE = 404


class NoRoom(Transient):
    """The disk, the server's or the account's share of it, or the stream is full."""


class Fault(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Acknowledged(msgspec.Struct, frozen=True):
    """The server's answer to a publish: stored, on as many servers as the stream has replicas."""

    seq: int = 0
    error: Fault | None = None


class Message(msgspec.Struct, frozen=True):
    """A stored message; bytes travel as base64."""

    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""
    time: str = ""
    """When the server stored it."""


class _MessageAnswer(msgspec.Struct, frozen=True):
    message: Message | None = None
    error: Fault | None = None


class _FaultOnly(msgspec.Struct, frozen=True):
    error: Fault | None = None


_acknowledged = msgspec.json.Decoder(Acknowledged)
_message = msgspec.json.Decoder(_MessageAnswer)
_fault = msgspec.json.Decoder(_FaultOnly)


async def publish(
    connection: Connection, subject: str, body: bytes, headers: dict[str, str], *, timeout: float = TIMEOUT
) -> Acknowledged:
    """Store a message.

    Raises `Conflict` if the expected sequence moved, perhaps by this very message; `NoAnswer` if the message or an
    earlier one may be stored; `Transient` if it is not stored now; `Refused` if it never will be.
    """
    what = f"publish {subject}"
    answer = await connection.request(subject, body, headers, timeout=timeout)
    acknowledged = _decoded(_acknowledged, answer.body, what)
    if (fault := acknowledged.error) is None:
        return acknowledged
    if fault.err_code == _WRONG_SEQUENCE:
        raise Conflict(f"{what}: {fault.description}")
    if fault.err_code in _IN_FLIGHT:
        raise NoAnswer(f"{what}: {fault.description}")
    raise trouble(fault, what)


async def message(
    connection: Connection, stream: str, *, prefix: str = API, timeout: float = TIMEOUT, **query: str | int
) -> Message | None:
    """One stored message, read from the stream's leader: a direct get would be answered by a follower that may lag."""
    what = f"read {query} of the stream {stream}"
    answer = await connection.request(f"{prefix}.STREAM.MSG.GET.{stream}", msgspec.json.encode(query), timeout=timeout)
    result = _decoded(_message, answer.body, what)
    if result.error is None:
        return result.message
    if result.error.err_code == _NO_MESSAGE:
        return None
    raise trouble(result.error, what)


async def stream_info(connection: Connection, stream: str, subjects: str = "", *, offset: int = 0) -> StreamInfo:
    """With a filter of `subjects`, the number of messages by subject, too, beyond the first `offset` subjects."""
    body = {"subjects_filter": subjects, "offset": offset} if subjects else None
    info = await call(connection, f"STREAM.INFO.{stream}", body, StreamInfo)
    if info.ts is not None:
        connection.clock.note(info.ts.timestamp(), asyncio.get_running_loop().time())
    return info


async def counted(connection: Connection, stream: str, subjects: str) -> dict[str, int]:
    """The number of messages by subject, of all subjects that match, however many answers that takes."""
    found, offset = dict[str, int](), 0
    while True:
        info = await stream_info(connection, stream, subjects, offset=offset)
        page = info.state.subjects or {}
        found |= page
        if not page or offset + len(page) >= info.total:
            return found
        offset += max(1, len(page) - OVERLAP)


async def end(connection: Connection, stream: str, subjects: tuple[str, ...] = ()) -> int:
    """The last sequence of the stream, or of these subjects, from its leader; 0 if there is none."""
    if not subjects:
        return (await stream_info(connection, stream)).state.last_seq
    newest = await asyncio.gather(*(message(connection, stream, last_by_subj=subject) for subject in subjects))
    return max((found.seq for found in newest if found is not None), default=0)


async def first(connection: Connection, stream: str, subjects: Iterable[str]) -> int:
    """The first sequence of these subjects, from the stream's leader; 0 if there is none."""
    found = [await message(connection, stream, seq=1, next_by_subj=subject) for subject in subjects]
    return min((each.seq for each in found if each is not None), default=0)


async def call(
    connection: Connection,
    request: str,
    body: Any,
    answer: type[_T],
    *,
    prefix: str = API,
    timeout: float = TIMEOUT,
) -> _T:
    """Any other request of the JetStream API; `prefix` is that of the account."""
    payload = b"" if body is None else msgspec.json.encode(body)
    received = await connection.request(f"{prefix}.{request}", payload, timeout=timeout)
    fault = _decoded(_fault, received.body, request).error
    if fault is not None:
        raise trouble(fault, request)
    return _decoded(msgspec.json.Decoder(answer), received.body, request)


def trouble(fault: Fault, what: str) -> Refused | Transient:
    """The error to raise for a fault of JetStream."""
    if fault.err_code in _NO_ROOM:
        # The message does not name the call, so that all calls log one trouble and not many.
        return NoRoom(
            f"the log is full: {fault.description} ({fault.err_code}); make room with "
            "`nats stream edit JOBS --max-bytes`, or with a larger disk and `max_file_store` for the server, "
            "or with a larger `max_file` of its account"
        )
    words = f"{what}: {fault.description} ({fault.err_code})"
    if fault.err_code == _NO_STREAM:
        return Refused(f"{words}; run `muster setup`", reason="NotSetUp")
    if fault.err_code == _NO_PEERS:
        return Transient(words)
    if fault.err_code in _TOO_LARGE:
        return Refused(words, reason="TooLarge")
    if fault.code in (400, _NOTHING_THERE):
        return Refused(words, reason="Invalid" if fault.code == 400 else "NotFound")
    # Out of memory, no leader, shutting down: nothing was stored, and a later try may succeed.
    return Transient(words)


def _decoded(decoder: msgspec.json.Decoder[_T], body: bytes, what: str) -> _T:
    try:
        return decoder.decode(body)
    except MALFORMED as error:
        raise Transient(f"{what}: the server's answer is malformed: {error}") from error
