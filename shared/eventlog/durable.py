"""A durable pull consumer of the subscribers' copy: events come again until they are acknowledged, also after an end of
the process.

At most `IN_HAND` events are with the process at a time, however many are behind.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Self, Unpack

import msgspec

from shared.errors import Refused, Transient
from shared.eventlog import Stored, api, wire
from shared.eventlog.account import STREAM, SUBSCRIBER
from shared.eventlog.connection import Connection
from shared.eventlog.parts import seal_of
from shared.eventlog.retry import backoff
from shared.eventlog.streams import ConsumerInfo
from shared.eventlog.subject import SEALED, Subject, matches, of_chain, of_type, split
from shared.eventlog.tls import Login
from shared.untrusted import whole_number

IN_HAND = 256
"""The most events that are sent for one request; the bound on memory, with `IN_HAND_BYTES`."""
IN_HAND_BYTES = 8 * 1024 * 1024
KEEP_SECONDS = 60.0
"""Seconds between two times that the server is told how far a position has come without an event."""
REACHED, ENDED = "muster.dev/reached", "."
"""The metadata of a consumer with the sequence that its position had reached some time ago; with a dot at its end that
was when its last process ended in order.
"""
ACK_SECONDS = 60
"""Seconds after which an event comes again that was neither acknowledged nor kept."""
_MOST_PENDING = 4 * IN_HAND
"""The most events that all processes on the consumer have in hand."""
_EXPIRES = 2.0
"""Seconds for which a request for events waits at the server."""
_LATE = 2.0
"""Seconds more, after which a request without an end counts as lost."""
_DOUBLINGS = 5
"""Of the wait after a request that could not be answered: about half a second."""
_NANOSECONDS = 1_000_000_000
_ENDED = (404, 408)
"""Nothing there, and the request's time is over: its regular ends."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """An event, until it is acknowledged."""

    stored: Stored
    behind: int
    """How many more events there were when it was sent."""
    reply: str
    """The subject of its acknowledgement."""


class Lost(msgspec.Struct, frozen=True):
    """The sequences of events that cannot be delivered any more; both ends count.

    Of these events the position wanted those that its subjects match: all without any, and otherwise some or none.
    """

    first: int
    last: int
    of_job: int = 0
    """How many of them are lost, if they are of one job; 0 if all are."""
    job: str = ""
    """The job whose events left the log before the copy had them, as `NAMESPACE/NAME`; empty if they left the copy."""

    @property
    def most(self) -> int:
        """The most events that are lost."""
        return self.of_job or self.last - self.first + 1


class Durable:
    """A named position in the copy.  Two processes with one name share its events."""

    def __init__(self, connection: Connection, name: str, subjects: tuple[str, ...], *, everything: bool) -> None:
        self.name = name
        self._connection = connection
        self._subjects = subjects
        self._filters = (*subjects, *_seals_beside(subjects))
        self._everything = everything
        self._inbox = connection.new_inbox()
        self._there = False
        self._floor = 0
        """Each wanted event up to this sequence was acknowledged: a consumer that is made again begins behind it."""
        self.begins = True
        """True if the position was made by `connect`; False if it goes on where an earlier process was."""
        self._reached = 0
        """Each wanted event up to this sequence was delivered, or is told as lost."""
        self._gaps: list[Lost] = []
        self._seals: deque[Stored] = deque()
        """Those that have arrived, and whose histories were not counted."""
        self._newest_seal = 0
        """One that is sent again was counted."""
        self._unwanted: list[Delivered] = []
        """Seals that were read for what they count alone: acknowledged by the next call, once their losses are told."""
        self._idle = False
        """True if the last request was open until its time was over: there was nothing more that it could bring."""
        self._config: dict[str, Any] = {}
        """The consumer's."""
        self._keep_at = 0.0
        self._created = ""
        """When the copy was made: another one may be of another log."""
        self._arrived: deque[Delivered] = deque()
        self._requests = 0
        self._open = 0
        """How many events the open request may still bring."""
        self._until = 0.0
        self._fault = ""
        self._wake = asyncio.Event()

    @classmethod
    async def connect(
        cls, url: str, *, name: str, subjects: tuple[str, ...], everything: bool, **login: Unpack[Login]
    ) -> Self:
        """Connect, and make the consumer unless it is there.

        A new one begins with the first event if `everything` is true, and with the next one otherwise.
        Raises `Refused` with the reason `NotSetUp` if there is no copy.
        """
        connection = await Connection.open(url, name="muster forward", patience=3.0, **login)
        durable = cls(connection, name, subjects, everything=everything)
        try:
            await connection.listen(f"{durable._inbox}.*", durable._got, lost=durable._lost)
            await durable._ensure()
        except BaseException:
            await connection.close()
            raise
        return durable

    async def close(self) -> None:
        """Give the events that are in hand back, for the next process, and close the connection."""
        await self.give_back(self._arrived)
        if self._there:
            with contextlib.suppress(Transient, Refused):
                await self._acknowledge_unwanted()
                await self._keep(ENDED)
        await self._connection.close()

    async def fetch(self, most: int) -> list[Delivered]:
        """The events that have arrived, in the order of their arrival and at most so many; none if nothing came for
        some seconds.

        Raises `Transient` while the log is away; a later call goes on.  What was lost before these events is in `lost`.
        """
        await self._acknowledge_unwanted()
        if not self._arrived and self._open <= 0:
            await self._ask()
        loop = asyncio.get_running_loop()
        while not self._arrived and self._open > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._until):
                    await self._wake.wait()
            except TimeoutError:
                if loop.time() >= self._until:
                    self._open = 0
        if not self._arrived:
            self._tell()
        await self._note_gaps()
        await self._note_purged()
        wanted = list[Delivered]()
        for _ in range(min(most, len(self._arrived))):
            event = self._arrived.popleft()
            (wanted if self._wants(event) else self._unwanted).append(event)
        return wanted

    async def _acknowledge_unwanted(self) -> None:
        """Raises `Transient` as `acknowledge`: those come again, and count no more."""
        if self._unwanted and not self._gaps:
            unwanted, self._unwanted = self._unwanted, []
            await self.acknowledge(unwanted)

    def _wants(self, event: Delivered) -> bool:
        return not self._subjects or any(matches(each, event.stored.subject) for each in self._subjects)

    def lost(self) -> list[Lost]:
        """What was lost since the last call."""
        found, self._gaps = self._gaps, []
        return found

    async def _note_gaps(self) -> None:
        """Note what left the copy after the request for the events that arrived, and before the server sent them."""
        new = [event.stored.sequence for event in self._arrived if event.stored.sequence > self._reached]
        before = [self._reached, *new]
        if all(later - earlier == 1 for earlier, later in itertools.pairwise(before)):
            self._reached = before[-1]
            return
        try:
            first = (await api.stream_info(self._connection, STREAM)).state.first_seq
        except Transient:
            await asyncio.sleep(backoff(_DOUBLINGS))
            raise
        for sequence in new:
            self._note_lost(min(sequence, first))
            self._reached = sequence

    async def _note_position(self) -> None:
        """Note what left the copy since the last request, and keep how far this position has come at the server."""
        state = (await api.stream_info(self._connection, STREAM)).state
        known = await api.call(self._connection, f"CONSUMER.INFO.{STREAM}.{self.name}", None, ConsumerInfo)
        self._floor = max(self._floor, known.ack_floor.stream_seq)
        if self._idle and not known.num_pending:
            # What came while a request was open would have been sent at once: none of it is wanted.
            self._reached = max(self._reached, state.last_seq)
            if asyncio.get_running_loop().time() >= self._keep_at:
                await self._keep()
        self._note_lost(state.first_seq)
        self._reached = max(self._reached, state.first_seq - 1)

    def _note_lost(self, there: int) -> None:
        """Note that no event before this sequence can come any more."""
        if self._reached + 1 < there:
            self._gaps.append(Lost(self._reached + 1, there - 1))

    async def _note_purged(self) -> None:
        """Note whose events left the log, once they were sealed, before the copy had them."""
        while self._seals:
            stored = self._seals[0]
            try:
                seal, subject = seal_of(stored.body), Subject.parse(stored.subject)
            except ValueError:
                # An administrator planted it.
                self._seals.popleft()
                continue
            copy = await api.stream_info(self._connection, STREAM, subject.scope)
            has = of_chain(copy.state.subjects or {})
            first = max(seal.first, int(self._config.get("opt_start_seq", 1)))
            # What left a full copy is noted elsewhere; what left the log before there was a copy is not missed.
            if has < seal.count and copy.state.first_seq <= first <= seal.last and stored.logged > copy.created:
                number = min(seal.count - has, seal.last - first + 1)
                self._gaps.append(Lost(first, seal.last, number, f"{subject.namespace}/{subject.name}"))
            self._seals.popleft()

    async def acknowledge(self, events: Iterable[Delivered]) -> None:
        """Tell the server that these events are dealt with.  Raises `Transient` if that is not certain: they may come
        again.
        """
        await self._answer(events, b"+ACK")

    async def keep(self, events: Iterable[Delivered]) -> None:
        """Tell the server that these events are still worked on, so that none comes again within `ACK_SECONDS`."""
        with contextlib.suppress(Transient, Refused):
            for event in events:
                await self._connection.send(event.reply, b"+WPI", reply="")

    async def give_back(self, events: Iterable[Delivered]) -> None:
        """Tell the server to send these events again in some seconds; unheard, it does so after `ACK_SECONDS`."""
        events = [*events]
        self._reached = min([self._reached, *(event.stored.sequence - 1 for event in events)])
        # At once, they would come to the request of this process that is still open.
        later = int((_EXPIRES + 0.5) * _NANOSECONDS)
        with contextlib.suppress(Transient, Refused):
            await self._answer(events, b'-NAK {"delay": %d}' % later)

    async def _answer(self, events: Iterable[Delivered], word: bytes) -> None:
        await asyncio.gather(*(self._connection.request(event.reply, word, timeout=api.TIMEOUT) for event in events))

    async def _ensure(self) -> None:
        try:
            known = await api.call(self._connection, f"CONSUMER.INFO.{STREAM}.{self.name}", None, ConsumerInfo)
            if not self._created:
                self.begins, self._reached = False, _reached(known)
                self._created = (await api.stream_info(self._connection, STREAM)).created
        except Refused as refusal:
            if refusal.reason == "NotSetUp":
                words = (
                    f"there is no copy of the log for subscribers: run `muster setup --subscribers BYTES` ({refusal})"
                )
                raise Refused(words, reason="NotSetUp") from refusal
            if refusal.reason == "Forbidden":
                words = f"these events are for NATS_USER={SUBSCRIBER} and its password: {refusal}"
                raise Refused(words, reason="Forbidden") from refusal
            if refusal.reason != "NotFound":
                raise
            known = ConsumerInfo(await self._beginning())
        self._floor = max(self._floor, known.ack_floor.stream_seq)
        self._config = known.config | {
            "durable_name": self.name,
            "description": "muster forward",
            "ack_policy": "explicit",
            "ack_wait": ACK_SECONDS * _NANOSECONDS,
            "max_ack_pending": _MOST_PENDING,
            "filter_subjects": list(self._filters),
        }
        self._config.pop("filter_subject", None)
        await self._keep()
        self._there = True

    async def _keep(self, ended: str = "") -> None:
        """Make or change the consumer, which keeps for the next process how far this one has come."""
        self._keep_at = asyncio.get_running_loop().time() + KEEP_SECONDS
        kept = {**(self._config.get("metadata") or {}), REACHED: f"{self._reached}{ended}"}
        request = {"stream_name": STREAM, "config": self._config | {"metadata": kept}}
        await api.call(self._connection, f"CONSUMER.DURABLE.CREATE.{STREAM}.{self.name}", request, dict)

    async def _beginning(self) -> dict[str, Any]:
        """Where a consumer that is not there begins: none of the copy that this process knows may be passed over."""
        copy = await api.stream_info(self._connection, STREAM)
        known, self._created = self._created, copy.created
        if known and known != copy.created:
            self._reached = min(self._reached, copy.state.last_seq)
            self._floor = self._newest_seal = 0
            self._fault = "the copy was made anew, and is sent from its first event on"
            return {"deliver_policy": "all"}
        if known:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self._floor + 1}
        if self._everything:
            self._reached = max(copy.state.first_seq - 1, 0)
            return {"deliver_policy": "all"}
        self._floor = self._reached = copy.state.last_seq
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": self._floor + 1}

    async def _ask(self) -> None:
        if not self._there:
            await asyncio.sleep(backoff(_DOUBLINGS))
            await self._ensure()
            self._tell()
        self._requests += 1
        request = {
            "batch": IN_HAND,
            "max_bytes": IN_HAND_BYTES,
            "expires": int(_EXPIRES * _NANOSECONDS),
        }
        try:
            await self._note_position()
        except Refused as refusal:
            if refusal.reason != "NotFound":
                raise
            self._there = False
            return
        except Transient:
            await asyncio.sleep(backoff(_DOUBLINGS))
            raise
        self._idle = False
        self._open, self._until = IN_HAND, asyncio.get_running_loop().time() + _EXPIRES + _LATE
        subject = f"{api.API}.CONSUMER.MSG.NEXT.{STREAM}.{self.name}"
        try:
            await self._connection.send(subject, msgspec.json.encode(request), reply=f"{self._inbox}.{self._requests}")
        except Transient:
            self._open = 0
            await asyncio.sleep(backoff(_DOUBLINGS))
            raise

    def _tell(self) -> None:
        """Raise what is to be told, once."""
        if self._fault:
            fault, self._fault = self._fault, ""
            raise Transient(f"read the events of {self.name}: {fault}")

    def _got(self, subject: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        """Handle a message: an event, or the end of a request."""
        status = wire.status(headers)
        if not status and not reply.startswith(b"$JS.ACK."):
            # No event of a consumer.
            return
        if not status:
            delivered = _delivered(subject.decode("utf-8", "replace"), reply.decode(), headers, body)
            self._arrived.append(delivered)
            stored = delivered.stored
            if split(stored.subject)[-1] == SEALED and stored.sequence > self._newest_seal:
                self._newest_seal = stored.sequence
                self._seals.append(stored)
            self._open -= 1
        elif subject.endswith(b".%d" % self._requests):
            self._idle = status in _ENDED
            self._open = 0
            if status not in _ENDED:
                # 409 also tells of a request that was too large or of a leader that changed; looking does no harm.
                self._there = False
                self._fault = "" if status == 409 else wire.status_line(headers) or "no answer"
        self._wake.set()

    def _lost(self) -> None:
        self._open, self._fault = 0, "the connection was lost"
        self._wake.set()


def _seals_beside(subjects: Iterable[str]) -> list[str]:
    """The filters of the seals that these do not cover: a seal says how many events its job had."""
    of_types = [subject.split(".") for subject in subjects]
    types = {(tokens[1], tokens[-1]) for tokens in of_types}
    spaces = sorted({namespace for namespace, _ in types})
    return [of_type(each, SEALED) for each in spaces if not types & {(each, SEALED), (each, "*"), (each, ">")}]


def _delivered(subject: str, reply: str, headers: bytes, body: bytes) -> Delivered:
    # `$JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.COUNT.TIME.PENDING`; newer servers put a domain and an account before the
    # stream, and a token at the end.
    words = reply.split(".")
    at = 2 if len(words) == 9 else 4
    sequence, nanoseconds, behind = (whole_number(words[at + offset]) or 0 for offset in (3, 5, 6))
    logged = datetime.fromtimestamp(nanoseconds / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return Delivered(wire.stored(sequence, subject, headers, body, logged), behind, reply)


def _reached(known: ConsumerInfo) -> int:
    """How far the last process on a position has come.

    The server sends events to a process that has just ended, too, so its own word counts where it ended in order.
    """
    kept = str((known.config.get("metadata") or {}).get(REACHED, ""))
    reached = whole_number(kept.removesuffix(ENDED)) or 0
    if kept.endswith(ENDED):
        return reached
    return max(known.delivered.stream_seq, int(known.config.get("opt_start_seq", 1)) - 1, reached)
