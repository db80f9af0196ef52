"""The port to the log: append under a guard, read in order, keep small values beside it.

The adapter is `jetstream.py` (NATS JetStream); it and the log in memory of the tests are held to one contract suite,
`tests/contract/test_eventlog.py`.

An append expects the last sequence of its *scope* (see `Subject.scope`) and succeeds only if nothing newer is
there; that guard is the fence between services, replicas and old leaders.
Bodies are opaque here: `shared.job` decodes them.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from shared.eventlog.parts import Part

MAX_BODY = 256 * 1024
"""The most bytes of an event's body; a larger one is refused before it is sent."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way into the log."""

    subject: str
    """`facts.<namespace>.<name>.<uid>.<author>.<Type>` or `jobs.<...>`."""
    event_id: str
    time: str
    """RFC 3339, UTC, milliseconds: when the author recorded it (the CloudEvents `time`)."""
    body: bytes
    basis: str = ""
    """`<sequence>:<hash>` of the last event folded when a decision was taken; facts have none."""
    optional: bool = False
    """A reader that does not know the type skips the event if this is true, and holds the job if not."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event as the log keeps it.  `sequence` counts the whole log, from 1, without meaning between jobs."""

    sequence: int
    subject: str
    event_id: str
    time: str
    body: bytes
    basis: str = ""
    optional: bool = False
    logged: str = ""
    """When the log stored it, by the server's clock; empty where that is not known.

    It is no part of the event: `time` is, which is its author's.
    """
    source: str = ""
    """The log and the author, by its headers: the CloudEvents `source`."""
    type: str = ""
    """The CloudEvents `type` where it is not that of the subject; empty for every event that a service wrote."""


class Batch(msgspec.Struct, frozen=True):
    """Some events in the order of the log."""

    events: tuple[Stored, ...]
    pending: int
    """How many more events the log held when the last of these was sent, by the copy that sent it.

    A copy that lags knows of fewer; it is 0 only if the reader has read all that the stream's leader had when the
    reading began.
    """


class Revised(msgspec.Struct, frozen=True):
    """A value of a bucket, with the revision that a guarded write must name."""

    value: bytes
    revision: int


REMOVED_SECONDS = 600
"""How long the marker of a deleted key stays: markers without an end would fill the bucket."""


class Bucket(Protocol):
    """Small values by key, beside the log: leases and checkpoints.  Keys are `[-/_=.a-zA-Z0-9]+`."""

    async def get(self, key: str) -> Revised | None:
        """The newest value; None if there is none, or it was deleted or has expired."""

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        """Write and return the new revision.

        `expect` is the revision that the key must have (0: the key must not exist); None writes over anything.
        `ttl` is in seconds, rounded up to whole ones.
        Raises `Conflict` if the revision moved, `Transient` if the outcome is still unknown after some seconds.
        """

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        """Remove a key; a missing key is success.  Raises `Conflict` if the revision moved.

        For `REMOVED_SECONDS` the server refuses a guarded write that was sent before and arrives late.
        """

    async def below(self, key: str) -> Revised | None:
        """One of the values under keys that begin with `key` and a dot, or None.

        A value that exists during the whole call is found.
        """


class Extent(NamedTuple):
    """How much an archive has."""

    messages: int = 0
    end: int = 0
    """The sequence of the last one."""
    created: str = ""
    """When its stream was made."""

    @property
    def gone(self) -> int:
        """How many messages it had, and has no more."""
        return self.end - self.messages


class ReadableArchive(Protocol):
    """Sealed histories, which the log need not have any more."""

    def parts(self, subject: str, after: int = 0) -> "AsyncGenerator[Part, None]":
        """The messages under a subject, or a filter, in order; none without an archive."""

    async def newest(self, subject: str) -> "Part | None":
        """The last of them."""

    async def extent(self) -> Extent:
        """That of the whole; an empty one without an archive."""

    def scan(self, after: int = 0, subject: str = ..., since: str = "") -> "AsyncGenerator[Part, None]":
        """The messages after a sequence, under a filter, or since a time, in order; many at once.

        Raises `Transient` if one was missed, or without an archive.
        """

    async def removed(self) -> tuple[int, list[int]]:
        """The sequence of its first message, and those behind it whose messages are gone."""


def ignore_trouble(trouble: str) -> None:
    """The default of `EventLog.read`: ignore trouble."""


class EventLog(Protocol):
    """The one log."""

    @property
    def archive(self) -> ReadableArchive:
        """The histories that the log had, and need not have any more."""

    async def identity(self) -> str:
        """The id of the genesis event, by which two logs of the same name differ.

        Raises `Refused(reason="NotSetUp")` if there is no stream or no genesis event.
        """

    async def append(self, entry: Entry, *, expect: int) -> int:
        """Store `entry` if `expect` is still the last sequence of its scope (0: none yet); return its sequence.

        The answer is certain: an unknown outcome is resolved by reading the first event of the scope after
        `expect`, which is this entry if it was accepted.  Raises `Conflict` if another event is there,
        `Refused(reason="TooLarge" | "Forbidden" | ...)` if the log can never store the entry.
        Raises `Transient` if it cannot be stored now, or if the log did not answer for long; the entry may then still
        be stored, and appending the same entry again finds it.
        """

    def read(
        self, *, after: int = 0, subjects: tuple[str, ...] = (), trouble: Callable[[str], None] = ignore_trouble
    ) -> AsyncGenerator[Batch, None]:
        """Every event with a sequence greater than `after`, in order, for ever; reconnects by itself.

        `subjects` are NATS filters (`jobs.team-a.>`); none means everything.  Once at the log's end an empty
        `Batch` with `pending == 0` is given at least once, so that a reader of an empty log knows.
        A caller that stops before the end closes the generator (`aclosing`).
        `trouble` is called with the reason when the log could not be read for some seconds, and with an empty string
        when it can be read again.
        Ends after `close()`.  Raises `Refused(reason="LogTruncated")` if the log ends before `after`,
        `"LogReplaced"` if another log has replaced it, `"Unauthorized"` if the server rejects the user.
        """

    def now(self) -> float | None:
        """The server's clock in seconds since 1970, never ahead of it; None before its first answer.

        Between its answers, which a reader asks for every few seconds, it goes on as this process' own does.
        """

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        """The last sequence of the log, or of these subjects, from the stream's leader; 0 if there is none."""

    async def first(self, subjects: tuple[str, ...]) -> int:
        """The first sequence of these subjects that the log still has, from the stream's leader; 0 if there is none."""

    async def last(self, scope: str) -> Stored | None:
        """The newest event whose subject matches `scope`."""

    async def counted(self, scope: str) -> Mapping[str, int]:
        """By subject, how many events the log has under a filter."""

    async def bucket(self, name: str) -> Bucket:
        """A bucket by name, such as `LEASES` or `HEADS`.  Raises `Refused(reason="NotSetUp")` when absent."""

    async def close(self) -> None:
        """Stop reading and close the connection; a second call does nothing."""
