"""The port to the log: append under a guard, read in order, keep small values beside it.

Adapters: `jetstream.py` (NATS JetStream, the product), `memory.py` (tests and simulation), held to one
contract suite, `tests/contract/test_eventlog.py`.

An append expects the last sequence of its *scope* (see `scope_of`) and succeeds only if nothing newer is
there; that guard is the fence between services, replicas and old leaders.
Bodies are opaque here: what an event means is `shared.job`'s business.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

import msgspec

MAX_BODY = 256 * 1024
"""Bytes an event's body may have; a larger one is refused before it is sent."""


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
    """True lets a reader that does not know the type skip it; otherwise it holds the job."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event as the log keeps it.  `sequence` counts the whole log, from 1, without meaning between jobs."""

    sequence: int
    subject: str
    event_id: str
    time: str
    body: bytes
    basis: str = ""
    optional: bool = False


class Batch(msgspec.Struct, frozen=True):
    """Some events in log order, and how many more the log held when the last of them was sent."""

    events: tuple[Stored, ...]
    pending: int
    """0 means that the reader was at the log's end: what the stream's leader had when the reading began is read."""


class Revised(msgspec.Struct, frozen=True):
    """A value of a bucket, with the revision that a guarded write must name."""

    value: bytes
    revision: int


class Bucket(Protocol):
    """Small values by key, beside the log: leases and checkpoints.  Keys are `[-/_=.a-zA-Z0-9]+`."""

    async def get(self, key: str) -> Revised | None:
        """The newest value, or None when there is none, it was deleted, or it has expired."""

    async def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int:
        """Write and return the new revision.

        `expect` is the revision it must still have (0: the key must not be there); None writes over anything.
        `ttl` is in whole seconds, a fraction counts as one more; only `LEASES` allows it.
        Raises `Conflict` when the revision moved, `Transient` when the outcome could not be learnt in time.
        """

    async def delete(self, key: str, *, expect: int | None = None) -> None:
        """Remove a key; missing is success.  Raises `Conflict` when the revision moved."""

    async def below(self, key: str) -> Revised | None:
        """One of the values under keys that begin with `key` and a dot, or None when there is none.

        What is there all the time while it is looked for is found.
        """


def unheard(trouble: str) -> None:
    """For whoever reads and has nobody to tell that it does not get on."""


class EventLog(Protocol):
    """The one log."""

    async def identity(self) -> str:
        """The id of the genesis event: two logs of the same name are told apart by it.

        Raises `Refused(reason="NotSetUp")` when there is no stream or no genesis event.
        """

    async def append(self, entry: Entry, *, expect: int) -> int:
        """Store `entry` if `expect` is still the last sequence of its scope (0: none yet); return its sequence.

        The answer is certain: an unknown outcome is resolved by reading the first event of the scope after
        `expect`, which is this entry if it was accepted, for as long as that takes.  Raises `Conflict` when
        another event is there, `Refused(reason="TooLarge" | "Forbidden" | ...)` when it can never be stored.
        Raises `Transient` when it cannot be stored now, or when the log could not be asked for so long that the
        caller should look around; the entry may then still be stored, and appending the same entry again finds it.
        """

    def read(
        self, *, after: int = 0, subjects: tuple[str, ...] = (), trouble: Callable[[str], None] = unheard
    ) -> AsyncGenerator[Batch, None]:
        """Every event with a sequence greater than `after`, in order, for ever; reconnects by itself.

        `subjects` are NATS filters (`jobs.team-a.>`); none means everything.  Once at the log's end an empty
        `Batch` with `pending == 0` is given at least once, so that a reader of an empty log knows.
        Whoever leaves it before its end closes it (`aclosing`): else it is served until it is collected.
        `trouble` is told, each time, why the log cannot be read once that has lasted for some seconds, and an
        empty word when it is read again.
        Ends after `close()`.  Raises `Refused(reason="LogTruncated")` when the log ends before `after`,
        `"LogReplaced"` when another log has come into its place, `"Unauthorized"` when the server turned us away.
        """

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        """The last sequence of the whole log, or of these subjects, by the stream's leader; 0 when it is empty."""

    async def last(self, scope: str) -> Stored | None:
        """The newest event whose subject matches `scope`."""

    async def bucket(self, name: str) -> Bucket:
        """A bucket by name, such as `LEASES` or `HEADS`.  Raises `Refused(reason="NotSetUp")` when absent."""

    async def close(self) -> None:
        """Stop reading and let go of the connection.  Repeating it is harmless."""


def scope_of(subject: str) -> str:
    """The guard's scope: a decision's is its job's decisions, a fact's is its author's facts about the job."""
    family, namespace, name, uid, author, _ = subject.split(".")
    if family == "jobs":
        return f"jobs.{namespace}.{name}.{uid}.>"
    return f"facts.{namespace}.{name}.{uid}.{author}.>"
