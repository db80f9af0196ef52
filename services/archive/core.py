"""What comes next for a sealed history.  Pure."""

from typing import Literal

import msgspec

from shared.eventlog.parts import Seal
from shared.job.naming import JobKey

Step = Literal["copy", "purge", "drop"]
"""Copy it into the archive; purge its events, but not its seal; purge the seal, too."""


class Sealed(msgspec.Struct):
    """A seal of the log, and what was seen since of the log and the archive."""

    key: JobKey
    sequence: int
    """Of the seal."""
    at: float
    """When the log stored the seal, by the server's clock."""
    seal: Seal
    kept: bool = False
    """True once the archive's copy was read back, and is what the seal says."""
    first: int = 0
    """The sequence of the archive's first message with that copy; 0 before."""
    purged: bool = False
    """True once the log has no event of it."""
    trouble: str = ""
    """Why the last step failed; empty if it did not."""
    tries: int = 0
    """How often it failed, one after the other."""
    again: float = 0.0
    """When it is tried again, by the server's clock."""

    def failed(self, why: str, again: float) -> None:
        self.trouble, self.tries, self.again = why, self.tries + 1, again

    @property
    def waits(self) -> bool:
        """True while the log has events of it."""
        return not self.purged


def next_step(sealed: Sealed, now: float, seals: float, *, earlier: bool) -> Step | None:
    """The next step; None while there is nothing to do.

    `seals` are the seconds for which the log keeps a seal; `earlier` is true while an earlier history of the same job
    waits, whose events a purge would remove, too.
    """
    if now < sealed.again or earlier:
        return None
    if sealed.purged:
        # Without a copy the seal is all that is left.
        return "drop" if sealed.kept and now >= sealed.at + seals else None
    return "purge" if sealed.kept else "copy"


def of_namespaces(words: tuple[str, ...], setting: str) -> dict[str, int]:
    """The numbers in `30` and `team-a=7`, by namespace; that of all others has an empty name.  Raises `ValueError`."""
    found: dict[str, int] = {}
    for word in words:
        namespace, _, number = word.rpartition("=")
        if not number.isdecimal():
            raise ValueError(f"{setting}: {word!r} is neither a number nor NAMESPACE=NUMBER")
        found[namespace] = int(number)
    return found
