"""Buckets of small values in JetStream, in the layout of NATS' key-value stores.

They are written by guarded publishes: nats-py's key-value client has no lifetime on updates.
"""

import math
import secrets

from shared.errors import Conflict
from shared.eventlog import Revised, api, wire
from shared.eventlog.account import stream_of, subject_of
from shared.eventlog.connection import Connection, NoAnswer, NotSent
from shared.eventlog.retry import insist

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
        current = await self.get(key)
        if current is None:
            return
        try:
            await self._write(key, b"", {wire.OPERATION: "DEL"}, expect)
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
