"""Copies of histories in which somebody changed something: which of them are noticed, by the class of the change.

A history is noticed if its fold is held, or if it does not lead to a head outside it: of a job that is there the
checkpoint and the status, of a deleted one the seal, of both the anchor in the cluster.
`MUSTER_COPIES=2100 python -m tests.properties.test_tampering` prints the figures of docs/reliability.md, and beside
them what a chain of subject, id, time and body alone, without seal and anchor, would have noticed.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
import pytest

from shared.eventlog import Stored
from shared.eventlog.subject import is_decision
from shared.job import fold
from shared.job.chain import Head
from shared.job.fold import Histories
from tests.kit.histories import KEY, chained
from tests.properties.test_laws import a_life

COPIES = int(os.environ.get("MUSTER_COPIES", "240"))
LIVES = 6

replace = msgspec.structs.replace


class Copy(NamedTuple):
    """A history, and the heads that are kept outside it."""

    log: Sequence[Stored]
    checkpoint: Head | None
    status: Head | None
    seal: Head | None
    anchor: Head | None = None
    """What the anchor, a hash over the heads of all jobs and the seals of half a day, says of this one."""


def damaged(event: Stored, part: str, chance: random.Random) -> Stored:
    """The event with another bit in this part, or another word where it is empty."""
    value = getattr(event, part)
    match value:
        case bool():
            return replace(event, **{part: not value})
        case int():
            return replace(event, **{part: value + 1})
        case bytes() | str() if value:
            raw = bytearray(value if isinstance(value, bytes) else value.encode())
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(7)
            return replace(event, **{part: bytes(raw) if isinstance(value, bytes) else raw.decode()})
        case _:
            return replace(event, **{part: "other"})


def a_part(*parts: str) -> Callable[[Copy, random.Random], Copy]:
    def change(copy: Copy, chance: random.Random) -> Copy:
        at = chance.randrange(len(copy.log))
        event = damaged(copy.log[at], chance.choice(parts), chance)
        return copy._replace(log=[*copy.log[:at], event, *copy.log[at + 1 :]])

    return change


def removed(copy: Copy, chance: random.Random) -> Copy:
    at = chance.randrange(len(copy.log) - 1)
    return copy._replace(log=[*copy.log[:at], *copy.log[at + 1 :]])


def cut(copy: Copy, chance: random.Random) -> Copy:
    return copy._replace(log=copy.log[: -chance.randint(1, len(copy.log) // 2)])


def purged(copy: Copy, chance: random.Random) -> Copy:
    return copy._replace(log=[])


def chained_anew(copy: Copy, chance: random.Random) -> Copy:
    """As an administrator can: another word in the body of an event, and each hash after it computed again."""
    at = chance.randrange(len(copy.log) // 2)
    event = replace(copy.log[at], time=copy.log[at].time.replace("2030", "2031"))
    return copy._replace(log=chained([*copy.log[:at], event, *copy.log[at + 1 :]]))


def with_checkpoint(copy: Copy, chance: random.Random) -> Copy:
    copy = chained_anew(copy, chance)
    return copy._replace(checkpoint=head(copy.log))


def with_all(copy: Copy, chance: random.Random) -> Copy:
    copy = with_checkpoint(copy, chance)
    whole = head(copy.log, to_the_end=True) if copy.seal else None
    return copy._replace(status=copy.status and head(copy.log), seal=whole)


def with_anchor(copy: Copy, chance: random.Random) -> Copy:
    """As an administrator of NATS and of the cluster can."""
    copy = with_all(copy, chance)
    return copy._replace(anchor=copy.anchor and head(copy.log, to_the_end=True))


CLASSES: dict[str, Callable[[Copy, random.Random], Copy]] = {
    "a bit of the body, id, time or subject": a_part("body", "event_id", "time", "subject"),
    "sequence, basis, type, source, optional": a_part("sequence", "basis", "type", "source", "optional"),
    "an event removed": removed,
    "the tail cut": cut,
    "the job purged": purged,
    "an administrator changes and chains anew": chained_anew,
    "and the checkpoint": with_checkpoint,
    "and the status or the seal": with_all,
    "and the anchor": with_anchor,
}
ALONE = "and the checkpoint"
"""A class of jobs that are present."""
UNNOTICED = "and the anchor"


def head(log: Sequence[Stored], *, to_the_end: bool = False) -> Head:
    """The head that a status shows, at the last decision; or that of the seal."""
    histories, found = Histories(), Head(0, "")
    for event in log:
        histories.fold(event)
        if to_the_end or is_decision(event.subject):
            found = histories[KEY].head
    return found


def noticed(copy: Copy) -> bool:
    outside = [found for found in (copy.checkpoint, copy.status, copy.seal, copy.anchor) if found is not None]
    histories, reached = Histories(), set[Head]()
    for event in copy.log:
        history = histories.fold(event)
        if history is None or history.job.key != KEY:
            return True
        reached.add(history.head)
    return any(history.held for history in histories) or not reached.issuperset(outside)


def old_link(before: bytes, event: Stored) -> bytes:
    return sha256(before + f"{event.subject}\0{event.event_id}\0{event.time}\0".encode() + event.body).digest()


def table(copies: int, *, before: bool = False) -> dict[str, dict[str, Counter[bool]]]:
    """How many copies of each class are noticed, of jobs that are present and of deleted ones."""
    lives = [chained(a_life(seed).log) for seed in range(LIVES)]
    found = {name: {"present": Counter[bool](), "deleted": Counter[bool]()} for name in CLASSES}
    for number in range(copies):
        chance = random.Random(number)
        name, log = [*CLASSES][number % len(CLASSES)], lives[chance.randrange(LIVES)]
        last, end = head(log), head(log, to_the_end=True)
        present = Copy(log, last, last, None, None if before else end)
        # The checkpoint goes with the job.
        deleted = Copy(log, None, None, *(None, None) if before else (end, end))
        for kind, copy in (("present", present), ("deleted", deleted)):
            if name == ALONE and kind == "deleted":
                continue
            found[name][kind][noticed(CLASSES[name](copy, chance))] += 1
    return found


@pytest.fixture(scope="module")
def after() -> dict[str, dict[str, Counter[bool]]]:
    return table(COPIES)


@pytest.mark.parametrize("kind", ["present", "deleted"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_change_is_noticed(after: dict[str, dict[str, Counter[bool]]], name: str, kind: str):
    """But for who writes every head outside the log."""
    counts = after[name][kind]
    assert counts[True] == (0 if name == UNNOTICED else counts.total())


if __name__ == "__main__":
    new = table(COPIES)
    fold.link = old_link  # type: ignore[attr-defined]
    sys.modules["tests.kit.histories"].link = old_link  # type: ignore[attr-defined]
    old = table(COPIES, before=True)
    for name in CLASSES:
        cells = [
            f"{counts[True]} of {counts.total()}" if (counts := each[name][kind]).total() else ""
            for kind in ("present", "deleted")
            for each in (old, new)
        ]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
    for each in (old, new):
        every = [counts for kinds in each.values() for counts in kinds.values()]
        sys.stdout.write(f"{sum(counts[True] for counts in every)} of {sum(map(Counter.total, every))}\n")
