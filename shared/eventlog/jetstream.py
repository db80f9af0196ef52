"""The log in NATS JetStream: appends whose outcome is known, and buckets of small values beside it.

Buckets have the layout of NATS' key-value stores, and are written by guarded publishes: nats-py's key-value client has
no lifetime on updates.  Reading is in `reader.py`, NATS itself is in `connection.py` and `api.py`.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Self, Unpack

import msgspec

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import MAX_BODY, REMOVED_SECONDS, Batch, Bucket, Entry, Revised, Stored, api, ignore_trouble, wire
from shared.eventlog.account import FOR_CLIENTS, GENESIS, STREAM, stream_of, subject_of
from shared.eventlog.archive import Archive
from shared.eventlog.connection import Connection, NoAnswer, NotSent
from shared.eventlog.reader import Reader
from shared.eventlog.retry import backoff, insist
from shared.eventlog.subject import Subject
from shared.eventlog.tls import Login
from shared.untrusted import MALFORMED

_IN_FLIGHT = 1.0
"""Seconds for which a conflict may name a message that cannot be read yet, because a new leader still applies it."""


LAYOUT = 1
"""The version of the layout of streams, subjects and headers; raised when an older release would misread them."""


class _Genesis(msgspec.Struct):
    layout: int = LAYOUT


class JetStreamEventLog:
    """One user's client of the log, from `connect()` to `close()`."""

    def __init__(self, connection: Connection, *, patience: float = 30.0) -> None:
        self._connection = connection
        self._patience = patience
        self._timeout = min(api.TIMEOUT, patience)
        self._identity = ""

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        patience: float = 30.0,
        wait: float | None = None,
        **login: Unpack[Login],
    ) -> Self:
        """Connect to one server of `url` (several are separated by commas).

        `name` is shown in the server's lists, and names the inbox without a `user`.
        An append waits up to `patience` seconds for a server, this call up to `wait`, or `patience` without it.
        Raises `Refused` with reason `Unauthorized` if the server does not know the user, `Untrusted` if one side does
        not trust the other's certificate.
        """
        connection = await Connection.open(url, name=name, patience=patience if wait is None else wait, **login)
        return cls(connection, patience=patience)

    @property
    def connection(self) -> Connection:
        """The connection; `setup.py` reads the streams with it."""
        return self._connection

    @property
    def url(self) -> str:
        """The address of the server, without secrets."""
        return self._connection.url

    @property
    def connected(self) -> bool:
        """True while there is a connection; for the health report, since every call waits for one by itself."""
        return self._connection.connected

    @property
    def ended(self) -> bool:
        """True once every call is refused: it was closed, or the server rejected the user."""
        return self._connection.ended

    @property
    def archive(self) -> Archive:
        return Archive(self._connection)

    async def identity(self) -> str:
        if not self._identity:
            self._identity = await self._genesis()
        return self._identity

    async def append(self, entry: Entry, *, expect: int) -> int:
        if len(entry.body) > MAX_BODY:
            raise Refused(f"append {entry.subject}: {len(entry.body)} bytes, at most {MAX_BODY}", reason="TooLarge")
        return await insist(
            lambda: self._attempt(entry, expect),
            what=f"append {entry.subject}",
            patience=self._patience,
            on=(NotSent, NoAnswer),
        )

    def read(
        self, *, after: int = 0, subjects: tuple[str, ...] = (), trouble: Callable[[str], None] = ignore_trouble
    ) -> AsyncGenerator[Batch, None]:
        reader = Reader(self._connection, self._same_log, after=after, subjects=subjects, trouble=trouble)
        return reader.batches()

    def now(self) -> float | None:
        return self._connection.clock.now(asyncio.get_running_loop().time())

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        return await api.end(self._connection, STREAM, subjects)

    async def first(self, subjects: tuple[str, ...]) -> int:
        return await api.first(self._connection, STREAM, subjects)

    async def last(self, scope: str) -> Stored | None:
        return _stored(await api.message(self._connection, STREAM, last_by_subj=scope))

    async def counted(self, scope: str) -> Mapping[str, int]:
        return await api.counted(self._connection, STREAM, scope)

    async def bucket(self, name: str) -> Bucket:
        await api.stream_info(self._connection, stream_of(name))
        return JetStreamBucket(self._connection, name)

    async def close(self) -> None:
        await self._connection.close()

    async def _attempt(self, entry: Entry, expect: int) -> int:
        """Publish once and learn the outcome.  Raises `NoAnswer` or `NotSent` if it is still unknown."""
        # Only the genesis comes before the log has an identity, and gives it.
        identity = entry.event_id if entry.subject == GENESIS else await self.identity()
        headers = wire.headers(entry, log=identity, expect=expect)
        try:
            answer = await api.publish(self._connection, entry.subject, entry.body, headers, timeout=self._timeout)
        except Conflict as error:
            return await self._ours_after(entry, expect, error)
        except NoAnswer as error:
            sequence = await self._found_after(entry, expect)
            if sequence is None:
                # The entry is not stored now.  If it is stored late, the guard refuses the next attempt, which then
                # finds it.
                raise NotSent(str(error)) from error
            return sequence
        return answer.seq

    async def _ours_after(self, entry: Entry, expect: int, conflict: Conflict) -> int:
        """After a conflict: the sequence of this entry if an earlier try stored it; raise `Conflict` otherwise."""
        give_up = asyncio.get_running_loop().time() + _IN_FLIGHT
        attempt = 0
        while True:
            sequence = await self._found_after(entry, expect)
            if sequence is not None:
                return sequence
            if asyncio.get_running_loop().time() >= give_up:
                raise conflict
            await asyncio.sleep(backoff(attempt))
            attempt += 1

    async def _found_after(self, entry: Entry, expect: int) -> int | None:
        """The entry's sequence if it is stored, None if no event is; raise `Conflict` if another event is.

        An accepted entry is the first of its scope after `expect`, even if others have followed it.
        """
        scope = Subject.parse(entry.subject).scope
        try:
            found = await api.message(
                self._connection, STREAM, timeout=self._timeout, seq=expect + 1, next_by_subj=scope
            )
        except Transient as error:
            raise NoAnswer(f"append {entry.subject}: outcome unknown: {error}") from error
        first = _stored(found)
        if first is None:
            return None
        if first.event_id != entry.event_id:
            raise Conflict(f"append {entry.subject}: {first.sequence} in {scope} came first; read on and decide again")
        return first.sequence

    async def _same_log(self) -> None:
        """Raise if another log has replaced the stream since the first call."""
        known = await self.identity()
        found = await self._genesis()
        if found != known:
            raise Refused(f"read the log {known}: another log, {found}, is in its place", reason="LogReplaced")

    async def _genesis(self) -> str:
        genesis = _stored(await api.message(self._connection, STREAM, last_by_subj=GENESIS))
        if genesis is None:
            if (await api.stream_info(self._connection, STREAM)).config.get("mirror"):
                raise Refused(f"read the log's identity: {FOR_CLIENTS}", reason="Forbidden")
            raise Refused("read the log's identity: no genesis event; run `muster setup`", reason="NotSetUp")
        if (layout := _layout(genesis.body)) > LAYOUT:
            raise Refused(
                f"read the log {genesis.event_id}: a newer release made it (layout {layout}, this one reads {LAYOUT}); "
                "upgrade this service",
                reason="TooNew",
            )
        return genesis.event_id


def _layout(genesis: bytes) -> int:
    """The layout of a log by its genesis event; the first layout is not named there."""
    try:
        return msgspec.json.decode(genesis, type=_Genesis).layout
    except MALFORMED as error:
        raise Refused(f"read the log's genesis event: {error}; a newer release made it?", reason="TooNew") from error


def _stored(message: api.Message | None) -> Stored | None:
    if message is None:
        return None
    return wire.stored(message.seq, message.subject, message.hdrs, message.data, message.time)


_PATIENCE = 5.0
"""Seconds to learn an outcome; a lease whose renewal takes longer has expired."""

_REMOVED = ("DEL", "PURGE")


class JetStreamBucket:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._stream = stream_of(name)

    async def get(self, key: str) -> Revised | None:
        message = await self._message(key)
        return None if message is None or _removed(message) else Revised(message.data, message.seq)

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        headers = {} if ttl is None else {wire.TTL: f"{math.ceil(ttl)}s"}
        try:
            return await self._write(key, value, headers, expect)
        except Conflict:
            # A deletion leaves a marker with a revision of its own; such a key does not exist.
            marker = await self._message(key) if expect == 0 else None
            if marker is None or not _removed(marker):
                raise
            return await self._write(key, value, headers, marker.seq)

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        if expect is not None and await self.get(key) is None:
            return
        try:
            # A missing key gets a marker, too: the write that makes it may be on its way.
            await self._write(key, b"", {wire.OPERATION: "DEL", wire.TTL: f"{REMOVED_SECONDS}s"}, expect)
        except Conflict:
            if await self.get(key) is not None:
                raise

    async def below(self, key: str) -> Revised | None:
        scope, after = subject_of(self._name, f"{key}.>"), 0
        # In ascending order: a value that is written meanwhile moves ahead, and is still found.
        while message := await api.message(self._connection, self._stream, seq=after + 1, next_by_subj=scope):
            if not _removed(message):
                return Revised(message.data, message.seq)
            after = message.seq
        return None

    async def _write(self, key: str, value: bytes, headers: dict[str, str], expect: int | None) -> int:
        """Publish until the outcome is known; an id identifies this write among others with the same value."""
        ours = secrets.token_hex(8)
        headers = headers | {wire.MESSAGE_ID: ours}
        if expect is not None:
            headers[wire.EXPECTED] = str(expect)
        subject = subject_of(self._name, key)
        tried = False

        async def attempt() -> int:
            nonlocal tried
            again, tried = tried, True
            try:
                return (await api.publish(self._connection, subject, value, headers)).seq
            except Conflict:
                sequence = await self._written(key, ours) if again else None
                if sequence is None:
                    raise
                return sequence

        return await insist(attempt, what=f"write {key} in {self._name}", patience=_PATIENCE, on=(NotSent, NoAnswer))

    async def _written(self, key: str, ours: str) -> int | None:
        message = await self._message(key)
        return message.seq if message and wire.header(message.hdrs, wire.MESSAGE_ID) == ours else None

    async def _message(self, key: str) -> api.Message | None:
        return await api.message(self._connection, self._stream, last_by_subj=subject_of(self._name, key))


def _removed(message: api.Message) -> bool:
    return wire.header(message.hdrs, wire.OPERATION) in _REMOVED
