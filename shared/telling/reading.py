"""Reads the log up to its end: what the command line and the history service fold."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from shared.errors import Transient
from shared.eventlog import EventLog, Stored
from shared.eventlog.subject import Subject, of_type
from shared.job.events.catalog import Malformed, UnknownEvent, read_event
from shared.job.events.watcher import ScaleRequested
from shared.job.fold import Histories
from shared.job.naming import JobKey, history_filters, key_of
from shared.telling.targets import Asked, find, subjects_of

PATIENCE_SECONDS = 10.0
"""Seconds without an event after which a reader gives up."""

REQUESTED = "ScaleRequested"
MOST_JOBS_OF_A_REQUEST = 16
"""The most jobs of requests of one name that are read one by one; with more the whole namespace is read."""


async def fold_to_end(log: EventLog, fold: Callable[[Stored], object], subjects: tuple[str, ...] = ()) -> int:
    """Call `fold` with each event that the log has now, in order; return the last sequence.

    `subjects` are filters, as for `EventLog.read`.  Raises `Transient` if the log's end is not reached.
    """
    end, position, loop = await log.end(subjects), 0, asyncio.get_running_loop()
    if not end:
        return 0
    try:
        async with asyncio.timeout(PATIENCE_SECONDS) as patience, aclosing(log.read(subjects=subjects)) as batches:
            async for batch in batches:
                for stored in batch.events:
                    if stored.sequence <= end:
                        position = stored.sequence
                        fold(stored)
                if position >= end or not batch.pending:
                    break
                patience.reschedule(loop.time() + PATIENCE_SECONDS)
            else:
                raise Transient(f"read the log: it ends at {end}, and the connection was closed after {position}")
    except TimeoutError as silence:
        words = f"read the log: it ends at {end}, and after {position} nothing came"
        raise Transient(f"{words} for {PATIENCE_SECONDS:g} s; is a NATS server behind?") from silence
    return end


async def everything(log: EventLog, subjects: tuple[str, ...] = ()) -> tuple[Histories, list[Stored]]:
    """The histories and the events under `subjects`, or of the whole log without them."""
    histories, kept = Histories(), list[Stored]()

    def fold(stored: Stored) -> None:
        if histories.fold(stored) is not None:
            kept.append(stored)

    await fold_to_end(log, fold, subjects)
    return histories, kept


async def found_subjects(log: EventLog, asked: Asked, namespace: str, *, uid: str = "") -> tuple[str, ...]:
    """The filters of all events about these objects: of a request those of the jobs that it names.

    Raises `Refused` if the log has no such request, or for a word that cannot be a name in the log.
    """
    subjects = subjects_of(asked, namespace, uid=uid)
    if not asked.is_request:
        return subjects
    meant, kinds = dict[JobKey, None](), {target.resource.kind for target in asked.targets}

    def note(stored: Stored) -> None:
        with suppress(ValueError, UnknownEvent, Malformed):
            subject, event = Subject.parse(stored.subject), read_event(stored.body, REQUESTED)
            if subject.author != "watcher":
                return
            if isinstance(event, ScaleRequested) and (event.name, event.kind) in {(asked.name, kind) for kind in kinds}:
                meant.setdefault(key_of(subject))

    await fold_to_end(log, note, (of_type(namespace, REQUESTED),))
    if not meant:
        find(Histories(), asked, namespace)
    if len(meant) > MOST_JOBS_OF_A_REQUEST:
        return subjects
    return tuple(subject for key in meant for subject in history_filters(key))
