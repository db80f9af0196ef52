"""Trouble, sorted by what to do next; adapters translate every library error into one of these.

Nothing above an adapter imports a library's errors.
A broken invariant is an `AssertionError` and means a bug of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Trouble(Exception):  # noqa: N818  the field says trouble, and it is never raised itself
    """What an adapter could not do; its message says what was tried, on what, and what to do next."""


class Transient(Trouble):
    """It may work later: a timeout, a lost connection, 429, 5xx.  Try again with a growing delay."""

    def __init__(self, message: str, *, retry_after: float | None = None, reason: str = "", words: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the server asked the client to wait; None if it did not."""
        self.reason = reason
        """One CamelCase word if the server answered, and about this very object; empty if it was silent or overloaded.

        A job is told of such an answer once it has lasted.
        """
        self.words = words
        """The other side's own sentence about the object, or ours; empty without a reason."""


class Withheld(Transient):
    """The request was not sent: this replica does not hold the lease, or the job no longer wants the object.

    The lease holder repeats what is still wanted.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"not sent: {why}")


class Conflict(Trouble):
    """Another writer was first: the expected sequence moved, or an update got 409.  Read on, then decide again."""


class Refused(Trouble):
    """The same call would fail again: invalid, forbidden, not found, undecodable.  Record it and go on."""

    def __init__(self, message: str, *, reason: str, field: str = "", words: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        """One CamelCase word, such as `Forbidden`, `Invalid`, `NotFound`, `AlreadyExists`."""
        self.field = field
        """The path of the offending field, when the other side named one."""
        self.words = words
        """The other side's own sentence, whole, or ours where we refuse; empty where it may hold a secret."""


@contextmanager
def accepting(*reasons: str) -> Iterator[None]:
    """Go on after the block when it was refused for one of these reasons."""
    try:
        yield
    except Refused as refusal:
        if refusal.reason not in reasons:
            raise
