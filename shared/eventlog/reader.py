"""Reads the log in order, without a consumer at the server: live events as the server publishes them again, and gets.

A live event counts only if it directly follows the last one.  After any other, and at the start, a get asks for many
events at once; any server with a copy of the log answers.  A copy may lag, but it is never out of order.
So a slow reader may drop live events, and no event is lost, repeated or reordered.

A mirror that an administrator made in the log's account answers, too, and may have fewer or other events: an answer of
another stream does not count.  A gap in an answer of the log's own copies is taken as purged.

Only the stream's leader says where the log ends.  It is asked every few seconds, so that a reader which is sent nothing
notices, gets what it lacks, and reports if it cannot.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from shared.errors import Refused, Transient
from shared.eventlog import Batch, Stored, api, wire
from shared.eventlog.account import GET_MANY, STORED, STREAM
from shared.eventlog.connection import Connection, Stop
from shared.eventlog.retry import backoff
from shared.eventlog.subject import covering, matches

BATCH = 4_000
"""The most events of one batch, and of one get: with a quarter of it a start waits for the server a second longer."""
_WINDOW = 2 * BATCH
"""The most events that wait for delivery: the next get overlaps the work on the last one, and a bound on memory."""
_WINDOW_BYTES = 8 * 1024 * 1024
"""The most bytes of events that wait before the next get, and of one get; the tighter bound if events are large."""
_LOOK = 1.5
"""Seconds between questions to the leader where the log ends."""
_SILENCE = 3.0
"""Seconds without progress after which a reader that is behind begins anew."""
_LASTING = 3.0
"""Seconds of failed reading until it is reported: an election without trouble is shorter."""
_SHRUNK = 3
"""After so many answers in a row that the log ends before the reader's position, it counts as truncated.

A single answer may come from a former leader that lags.
"""

_BATCH_ENDED = 204
_NOTHING_FOUND = 404
_NO_RESPONDERS = 503
_MISSED = "an event was missed on its way"


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
        self._after = after
        self._subjects = subjects
        self._shrunk = 0
        self._told = False
        self._failing_since: float | None = None

    async def batches(self) -> AsyncGenerator[Batch, None]:
        was_at_end = False
        failures = 0
        while True:
            feed = _Feed(self._connection, self._check_length, after=self._after, subjects=self._subjects)
            try:
                await self._same_log()
                await feed.start()
                while True:
                    batch = await feed.next()
                    self._note_answer()
                    if batch.events:
                        failures = 0
                        self._after = batch.events[-1].sequence
                        yield batch
                    if batch.pending == 0 and not was_at_end:
                        was_at_end = True
                        yield Batch((), 0)
            except Transient as error:
                self._note_failure(str(error), feed.waiting_since)
            except Refused as error:
                if error.reason == "Closed":
                    return
                raise
            finally:
                await feed.close()
            await asyncio.sleep(backoff(failures))
            failures += 1

    def _note_failure(self, why: str, since: float) -> None:
        if self._failing_since is None:
            self._failing_since = since
        if asyncio.get_running_loop().time() - self._failing_since >= _LASTING:
            self._told = True
            self._trouble(why)

    def _note_answer(self) -> None:
        self._failing_since = None
        if self._told:
            self._told = False
            self._trouble("")

    def _check_length(self, end: int, after: int) -> None:
        """Raise if the log ends before the reader's position."""
        if end >= after:
            self._shrunk = 0
            return
        self._shrunk += 1
        words = f"read the log after {after}: it ends at {end}; a part of it was lost"
        if self._shrunk >= _SHRUNK:
            raise Refused(words, reason="LogTruncated")
        raise Transient(words)


class _Feed:
    """The events after a position, until the first fault.

    `check_length` is called with the leader's end and the position.
    """

    def __init__(
        self,
        connection: Connection,
        check_length: Callable[[int, int], None],
        *,
        after: int,
        subjects: tuple[str, ...],
    ) -> None:
        self.waiting_since = asyncio.get_running_loop().time()
        """The time since which nothing proved that the log can be read."""
        self._connection = connection
        self._check_length = check_length
        self._subjects = subjects
        self._cover = covering(subjects)
        self._inbox = ""
        self._stops: list[Stop] = []
        self._events: deque[Stored] = deque()
        self._bytes = 0
        self._position = after
        """The sequence up to which every event was received."""
        self._end = after
        """The newest event that is known to exist."""
        self._pending = 0
        """The number of events beyond the last one, by the last get."""
        self._gets = 0
        self._getting = False
        self._previous = 0
        """The sequence before, in the answer to the get."""
        self._empty = False
        """True if the last get found nothing; the leader is asked before the next one."""
        self._announce_end = False
        self._next_look = 0.0
        self._fault = ""
        self._wake = asyncio.Event()

    async def start(self) -> None:
        self._inbox = self._connection.new_inbox()
        live = [f"{STORED}.{subject}" for subject in self._subjects or (">",)]
        for subject, handler in ((f"{self._inbox}.*", self._got), *((each, self._heard) for each in live)):
            self._stops.append(await self._connection.listen(subject, handler, lost=self._lost))
        end = await api.end(self._connection, STREAM)
        self._check_length(end, self._position)
        if self._subjects:
            end = await api.end(self._connection, STREAM, self._subjects)
        self._end = max(self._end, end)
        self._next_look = asyncio.get_running_loop().time() + _LOOK
        self._announce_end = True

    async def next(self) -> Batch:
        """The events that have arrived, at least one; an empty batch at the log's end.

        Raises `Transient` after a fault.
        """
        loop = asyncio.get_running_loop()
        position, self.waiting_since = self._position, loop.time()
        await self._get()
        while not self._events:
            if self._fault:
                raise Transient(f"read the log: {self._fault}")
            if not self._behind and self._announce_end:
                self._announce_end = False
                return Batch((), 0)
            if position != self._position:
                position, self.waiting_since = self._position, loop.time()
            silent = loop.time() - self.waiting_since
            if self._behind and silent >= _SILENCE:
                self._fault = f"nothing comes after {self._position} of {self._end}"
                continue
            if loop.time() >= self._next_look or self._empty:
                asked = loop.time()
                await self._look()
                if not self._behind:
                    self.waiting_since = asked
            else:
                await self._rest(_SILENCE - silent if self._behind else self._next_look - loop.time())
            await self._get()
        events = tuple([self._events.popleft() for _ in range(min(BATCH, len(self._events)))])
        self._bytes -= sum(len(event.body) for event in events)
        pending = self._pending + len(self._events)
        return Batch(events, pending or int(self._behind))

    async def close(self) -> None:
        for stop in self._stops:
            await stop()

    @property
    def _behind(self) -> bool:
        return self._position < self._end or self._pending > 0

    async def _look(self) -> None:
        """Ask the leader where the log ends, and for the next event if that is not here."""
        self._next_look = asyncio.get_running_loop().time() + _LOOK
        empty, self._empty = self._empty, False
        position, known = self._position, self._end
        end = await api.end(self._connection, STREAM)
        self._check_length(end, position)
        if end <= self._position:
            return
        found = await api.message(self._connection, STREAM, seq=position + 1, next_by_subj=self._cover)
        if found is not None:
            self._end = max(self._end, found.seq)
            if empty:
                # The copy that answered lags.
                await self._rest(backoff(1))
        elif position == self._position and known == self._end:
            # The rest is about other subjects, or the server cannot read it.
            self._end, self._pending = position, 0

    async def _get(self) -> None:
        """Ask for the next events if there are some and there is room for them."""
        room = _WINDOW - len(self._events)
        if self._fault or self._getting or self._empty or not self._behind:
            return
        if room < BATCH or self._bytes >= _WINDOW_BYTES:
            return
        self._gets += 1
        self._getting, self._previous = True, 0
        request = {
            "seq": self._position + 1,
            "next_by_subj": self._cover,
            "batch": BATCH,
            "max_bytes": _WINDOW_BYTES,
        }
        await self._connection.send(GET_MANY, msgspec.json.encode(request), reply=f"{self._inbox}.{self._gets}")

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        # Twice: a loop that was blocked runs its timers before it reads the messages that have arrived.
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds / 2):
                    await self._wake.wait()
            if self._wake.is_set():
                return

    def _got(self, subject: bytes, _: bytes, headers: bytes, body: bytes) -> None:
        """Handle an answer to a get."""
        if not self._getting or not subject.endswith(b".%d" % self._gets):
            return
        place = wire.place(headers)
        if place is None:
            self._got_status(wire.status(headers), headers)
        elif place.stream != STREAM:
            self._fault = f"the stream {place.stream} answers for {STREAM}; delete it, or make it without mirror_direct"
        elif place.previous != self._previous:
            self._fault = self._fault or _MISSED
        else:
            self._previous = place.sequence
            if place.sequence > self._position:
                self._pending = place.pending
                self._take(place, headers, body)
        self._wake.set()

    def _got_status(self, status: int, headers: bytes) -> None:
        self._getting = False
        if status == _BATCH_ENDED:
            if wire.number(headers, "Nats-Last-Sequence") != self._previous:
                self._fault = _MISSED
        elif status == _NOTHING_FOUND:
            self._pending = 0
            self._empty = self._position < self._end
        elif status == _NO_RESPONDERS:
            self._fault = "no server answers; its copies of the log may be catching up"
        else:
            self._fault = wire.status_line(headers) or _MISSED

    def _heard(self, _: bytes, __: bytes, headers: bytes, body: bytes) -> None:
        """Handle a live event."""
        place = wire.place(headers)
        if place is None or place.sequence <= self._position:
            return
        self._end = max(self._end, place.sequence)
        room = len(self._events) < _WINDOW and self._bytes < _WINDOW_BYTES
        if place.sequence == self._position + 1 and room:
            self._pending = max(0, self._pending - 1)
            self._take(place, headers, body)
        self._wake.set()

    def _take(self, place: wire.Place, headers: bytes, body: bytes) -> None:
        self._position = place.sequence
        self._end = max(self._end, place.sequence)
        if len(self._subjects) > 1 and not any(matches(each, place.subject) for each in self._subjects):
            return
        self._events.append(wire.stored(place.sequence, place.subject, headers, body, place.logged))
        self._bytes += len(body)

    def _lost(self) -> None:
        self._fault = "the connection was lost"
        self._wake.set()
