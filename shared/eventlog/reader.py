"""Reads the log in order, by overlapping pulls from a consumer that is replaced after any fault.

The consumer is ephemeral and unacknowledged; the reader keeps the position.  After a lost connection, a gap or a
silence a new consumer begins after the last event that was delivered, so no event is lost, repeated or reordered.
nats-py's ordered consumer and its key-value watch lose messages when they overflow; a pull never overflows, because the
server sends no more than was requested.

A consumer lives on one of the stream's servers, which may lag after a restart or a restore.  So the stream's leader,
and not the consumer, says where the log ends.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from shared.errors import Refused, Transient
from shared.eventlog import Batch, Stored, api, wire
from shared.eventlog.account import STREAM
from shared.eventlog.connection import Connection, Listener
from shared.eventlog.retry import backoff

BATCH = 1_000
"""The most events of one batch."""
_WINDOW = 2_000
"""Events requested or waiting for delivery: enough that the next pull overlaps the last, and a bound on memory."""
_WINDOW_BYTES = 8 * 1024 * 1024
"""The most bytes of one pull; the tighter bound if events are large."""
_EXPIRES = 30.0
_HEARTBEAT = 1.0
_SILENCE = 3.0
"""Seconds without event or heartbeat after which the consumer counts as gone.

A consumer that sends heartbeats but no event for so long, while the leader has more, is replaced too.
"""
_FORGOTTEN = 60.0
"""Seconds without a pull after which the server removes a consumer."""
_LASTING = 3.0
"""Seconds of failed reading until it is reported: a consumer that was lost with its server is replaced sooner."""
_SHRUNK = 3
"""After so many answers in a row that the log ends before the reader's position, it counts as truncated.

A single answer may come from a former leader that lags.
"""

_NANOSECONDS = 1_000_000_000

_HEARTBEAT_STATUS = 100
_PULL_EXPIRED = 408
_PULL_ENDED = 409
_NO_RESPONDERS = 503
"""The status of a pull without responders: the consumer is gone."""
_IN_ORDER = (b"Batch Completed", b"Exceeds MaxBytes")
"""The ends of a pull after which the consumer can be used again."""
_MISSED = "an event of its consumer was missed"


class Reader:
    """One reader and its position.

    `same_log` raises if another log has replaced the stream.  `trouble` is called with the reason why the log cannot be
    read, and with an empty string once it can.
    """

    def __init__(
        self,
        connection: Connection,
        same_log: Callable[[], Awaitable[None]],
        *,
        after: int,
        subjects: tuple[str, ...],
        trouble: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._same_log = same_log
        self._trouble = trouble
        self._failing_since: float | None = None
        self._told = False
        self._after = after
        self._subjects = subjects
        self._shrunk = 0

    async def batches(self) -> AsyncGenerator[Batch, None]:
        was_at_end = False
        failures = 0
        while True:
            consumer = _Consumer(self._connection, after=self._after, subjects=self._subjects, well=self._note_answer)
            try:
                await self._same_log()
                await consumer.start(end=await self._end())
                while True:
                    batch = await consumer.next()
                    if batch.events:
                        failures = 0
                        self._after = batch.events[-1].sequence
                        yield batch
                    if batch.pending == 0 and not was_at_end:
                        was_at_end = True
                        yield Batch((), 0)
            except Transient as error:
                # Without the consumer's name, so that the same trouble has the same message each time.
                self._note_failure(str(error).replace(consumer.name, "*"))
            except Refused as error:
                if error.reason == "Closed":
                    return
                raise
            finally:
                await consumer.close()
            await asyncio.sleep(backoff(failures))
            failures += 1

    def _note_failure(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= _LASTING:
            self._told = True
            self._trouble(why)

    def _note_answer(self) -> None:
        self._failing_since = None
        if self._told:
            self._told = False
            self._trouble("")

    async def _end(self) -> int:
        """The end of the log for this reader; raises if the reader's position is beyond it."""
        end = await api.end(self._connection, STREAM)
        if end >= self._after:
            self._shrunk = 0
            return await api.end(self._connection, STREAM, self._subjects) if self._subjects else end
        # A consumer that begins beyond the end would skip the events that are written until the end gets there.
        self._shrunk += 1
        words = f"read the log after {self._after}: it ends at {end}; a part of it was lost"
        if self._shrunk >= _SHRUNK:
            raise Refused(words, reason="LogTruncated")
        raise Transient(words)


class _Consumer:
    """One consumer at the server, until its first fault; `well` is called for each of its answers."""

    def __init__(
        self, connection: Connection, *, after: int, subjects: tuple[str, ...], well: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._note_answer = well
        self.name = f"reader-{connection.name}-{secrets.token_hex(6)}"
        self._after = after
        self._subjects = subjects
        self._listener: Listener | None = None
        self._events: deque[Stored] = deque()
        self._end = 0
        self._pending = 0
        self._unreadable = 0
        """Events that the consumer counts as pending and that its server cannot read: it never delivers them."""
        self._delivered = 0
        self._outstanding = 0
        self._fault = ""
        """The consumer's fault; empty while it can be used."""
        self._wake = asyncio.Event()
        self._announce_end = False

    async def start(self, *, end: int) -> None:
        """Create the consumer; `end` is the log's end by the stream's leader."""
        self._end = end
        config = {
            "name": self.name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_FORGOTTEN * _NANOSECONDS),
            "filter_subjects": list(self._subjects),
        }
        request = {"stream_name": STREAM, "config": config, "action": "create"}
        self._listener = await self._connection.listen(self._receive, lost=self._lost)
        info = await api.call(self._connection, f"CONSUMER.CREATE.{STREAM}.{self.name}", request, api.ConsumerInfo)
        self._announce_end = info.num_pending == 0 and self._after >= end

    async def next(self) -> Batch:
        """The events that have arrived, at least one; an empty batch at the log's end.

        Raises `Transient` after a fault of this consumer.
        """
        await self._pull()
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _SILENCE
        while not self._events:
            if self._announce_end:
                self._announce_end = False
                return Batch((), 0)
            behind = self._after < self._end
            if behind and loop.time() >= give_up:
                self._fault = f"its server is behind: nothing after {self._after} of {self._end}"
            elif not self._fault and not await self._heard_something():
                self._fault = f"no word of its consumer for {_SILENCE:g} s"
            if self._fault:
                raise Transient(f"read the log: {self._fault}")
            if not behind:
                self._note_answer()
            await self._pull()
        self._note_answer()
        take = min(BATCH, len(self._events))
        events = tuple([self._events.popleft() for _ in range(take)])
        pending = self._pending + len(self._events)
        return Batch(events, pending or int(self._after < self._end))

    async def close(self) -> None:
        # The server removes the consumer by itself: the right to delete it would include consumers of others.
        if self._listener is not None:
            await self._listener.close()

    async def _pull(self) -> None:
        waiting = self._outstanding + len(self._events)
        if self._fault or waiting > _WINDOW // 2:
            return
        assert self._listener is not None, "pulled before it was started"
        request = {
            "batch": _WINDOW - waiting,
            "max_bytes": _WINDOW_BYTES,
            "expires": int(_EXPIRES * _NANOSECONDS),
            "idle_heartbeat": int(_HEARTBEAT * _NANOSECONDS),
        }
        self._outstanding += _WINDOW - waiting
        await self._connection.send(
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{self.name}", msgspec.json.encode(request), reply=self._listener.inbox
        )

    async def _heard_something(self) -> bool:
        self._wake.clear()
        # Twice: a loop that was blocked runs its timers before it reads the messages that have arrived.
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SILENCE / 2):
                    await self._wake.wait()
            if self._wake.is_set():
                return True
        return False

    def _receive(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        position = wire.position(reply)
        if position is None:
            self._told(wire.status(headers), headers)
        elif position.delivery == self._delivered + 1 and position.sequence > self._after and not self._fault:
            self._delivered = position.delivery
            self._after = position.sequence
            self._unreadable = min(self._unreadable, position.pending)
            self._pending = position.pending - self._unreadable
            self._outstanding -= 1
            self._events.append(wire.stored(position.sequence, subject.decode("utf-8", "replace"), headers, body))
        else:
            self._fault = self._fault or _MISSED
        self._wake.set()

    def _told(self, status: int, headers: bytes) -> None:
        """Handle a status message of the server about a pull."""
        if status == _HEARTBEAT_STATUS:
            if wire.number(headers, "Nats-Last-Consumer") > self._delivered:
                self._fault = _MISSED
            elif self._pending and self._after >= self._end:
                # A consumer that is idle has delivered all that its server can read.
                self._unreadable += self._pending
                self._pending = 0
                self._announce_end = True
        elif status == _PULL_EXPIRED or (status == _PULL_ENDED and any(end in headers for end in _IN_ORDER)):
            self._outstanding -= wire.number(headers, "Nats-Pending-Messages")
        elif status == _NO_RESPONDERS:
            self._fault = "its consumer is gone"
        else:
            self._fault = wire.status_line(headers) or _MISSED

    def _lost(self) -> None:
        self._fault = "the connection was lost"
        self._wake.set()
