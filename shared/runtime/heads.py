"""Whether a fold leads to the checkpoint of a job: the newest head that its status was given, kept beside the log."""

from contextlib import aclosing

from shared.eventlog import Bucket, EventLog
from shared.job.chain import Head, checkpointed
from shared.job.fold import History
from shared.job.naming import JobKey, Uid, history_filters


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
