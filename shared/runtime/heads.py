"""Whether a log leads to what was kept of it outside: the checkpoint of a job, and the anchor of all jobs that live.

A checkpoint is the newest head that a job's status was given, kept beside the log.  The anchor is a hash over the heads
of all jobs that live, kept outside NATS.  The events of a sealed job leave the log, and so does its seal, after a day:
the anchor has the seals of half a day, and one that is older than a day cannot tell a job that left from one that was
removed.
"""

from collections.abc import Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Self

import msgspec

from shared.eventlog import Bucket, EventLog, Stored
from shared.eventlog.parts import seal_of
from shared.eventlog.subject import Subject
from shared.job.chain import Head, checkpointed
from shared.job.fold import OF_SEAL, OF_TIME, Histories, History
from shared.job.naming import JobKey, Uid, history_filters, key_of
from shared.telling.reading import fold_to_end, is_seal
from shared.untrusted import MALFORMED

SEALS_SECONDS = 12 * 3600.0
"""The age of the oldest seal in an anchor."""
OLD_SECONDS = 24 * 3600.0
"""A seal that followed an anchor may have left the log after that."""

ANNOTATION = "muster.dev/anchor"


async def read_checkpoint(heads: Bucket, uid: Uid) -> tuple[str, Head | None]:
    """The log and the head of this job's checkpoint; None without one.  Raises the bucket's errors."""
    found = await heads.get(uid)
    return checkpointed(found.value.decode(errors="replace") if found is not None else "")


async def hash_read_again(log: EventLog, key: JobKey, sequence: int) -> str:
    """The hash of a job's history up to a sequence, from the log itself; empty without such an event."""
    again = History(key)
    async with aclosing(log.read(subjects=history_filters(key))) as batches:
        async for batch in batches:
            for stored in batch.events:
                if stored.sequence <= sequence:
                    again.fold(stored)
            if not batch.pending or (batch.events and batch.events[-1].sequence >= sequence):
                break
    return again.head.hash if again.sequence == sequence else ""


async def astray(heads: Bucket, log: EventLog, history: History) -> Head | None:
    """The checkpoint to which this fold does not lead, or not yet; None if it does, and of a job without a checkpoint.

    After a person accepted a loss, the checkpoint may stay ahead.  One of another log is the watcher's to judge: it
    knows whether the resource is older than the log.
    """
    named, head = await read_checkpoint(heads, history.job.key.uid)
    if head is None or history.job.integrity.accepted or named != await log.identity():
        return None
    known = history.hash_at(head.sequence)
    if known is None and head.sequence <= history.sequence:
        known = await hash_read_again(log, history.job.key, head.sequence)
    return head if known != head.hash else None


class Anchor(msgspec.Struct, frozen=True):
    """The log, an event of it, and the hashes over the heads after that event, and over seals before it."""

    log: str
    sequence: int
    hash: str
    seals: str
    """The sequence after which they come, how many there are, and their hash."""
    time: float
    """When it was made, in seconds since 1970 by the log server's clock."""
    fault: str = ""
    """Why a log did not lead to it, once that was found: it stays so until a person removes the anchor."""

    @classmethod
    def of(cls, log: str, histories: Histories, now: float) -> Self:
        """The anchor of this fold; each head covers all that the events of its job are."""
        begin = datetime.fromtimestamp(now - SEALS_SECONDS, UTC).isoformat()[:OF_TIME].encode()
        kept = [sequence for sequence, seal in histories.seals.items() if seal[:-OF_SEAL] >= begin]
        return cls(log, histories.position, _heads(histories), _seals(histories, min(kept, default=1) - 1), now)

    @classmethod
    def read(cls, annotations: Mapping[str, str]) -> Self | None:
        """The one in a Lease; None if it has none that can be read."""
        try:
            return msgspec.json.decode(annotations.get(ANNOTATION, ""), type=cls)
        except MALFORMED:
            return None

    @property
    def annotations(self) -> dict[str, str]:
        """Those of a Lease."""
        return {ANNOTATION: msgspec.json.encode(self).decode()}


def _heads(histories: Histories) -> str:
    heads = [(history.job.key, history.sequence, history.digest) for history in histories if history.sequence]
    digest = sha256()
    for key, sequence, link in sorted(heads):
        digest.update(f"{key.namespace}/{key.name}/{key.uid}\0{sequence}\0".encode() + link)
    return digest.hexdigest()


def _seals(histories: Histories, after: int) -> str:
    found = [seal[-OF_SEAL:] for sequence, seal in histories.seals.items() if sequence > after]
    return f"{after}/{len(found)}/{sha256(b''.join(found)).hexdigest()}"


async def differs(log: EventLog, anchor: Anchor, subjects: tuple[str, ...] = ()) -> str | None:
    """Why this log does not lead to the anchor; empty if it does; None if that cannot be said.

    It cannot if a job of the anchor was sealed since, and its events have left the log, or if seals have, or may have.
    Raises the log's errors.
    """
    if anchor.fault:
        return anchor.fault
    if (identity := await log.identity()) != anchor.log:
        return f"it is of the log {anchor.log}, and this one is {identity}"
    histories, left = Histories(), False

    def fold(stored: Stored) -> None:
        nonlocal left
        if stored.sequence <= anchor.sequence:
            histories.fold(stored)
        elif is_seal(stored):
            with suppress(ValueError):
                key = key_of(Subject.parse(stored.subject))
                left = left or (seal_of(stored.body).first <= anchor.sequence and histories.get(key) is None)

    await fold_to_end(log, fold, subjects)
    if (end := await log.end()) < anchor.sequence:
        return f"it is of the event {anchor.sequence}, and the log ends at {end}"
    after, count, _ = anchor.seals.split("/")
    found = _seals(histories, int(after))
    fewer = int(found.split("/")[1]) < int(count)
    if (left or _heads(histories) == anchor.hash) and (fewer or found == anchor.seals):
        return None if left or fewer else ""
    if (now := log.now()) is None or now - anchor.time > OLD_SECONDS:
        return None
    return f"up to {anchor.sequence} the log has other events"
