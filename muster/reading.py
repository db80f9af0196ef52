"""Reads the log for a command: connects, folds up to the end, follows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import typer
import uvloop

from muster.following import WAITED_TOO_LONG, WaitedTooLong
from muster.targets import Asked, find, subjects_of
from muster.terminal import fail
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog, Stored
from shared.eventlog.account import FOR_CLIENTS, SUBSCRIBER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.subject import Subject, of_type
from shared.job.events.watcher import ScaleRequested
from shared.job.fold import Histories
from shared.job.naming import JobKey, history_filters, key_of
from shared.job.upcast import Malformed, UnknownEvent, read_event
from shared.process.settings import Settings

PATIENCE_SECONDS = 10.0
"""Seconds without an event after which a command gives up."""

REQUESTED = "ScaleRequested"
MOST_JOBS_OF_A_REQUEST = 16
"""The most jobs of requests of one name that are read one by one; with more the whole namespace is read."""

CONNECT_SECONDS = 3.0
"""Seconds for the first connection to the log."""

T = TypeVar("T")


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncIterator[JetStreamEventLog]:
    """The log of the environment's settings.  Raises `Refused` for a subscriber's user, who sees a copy alone."""
    if (settings.nats_user or "").partition("-")[0] == SUBSCRIBER:
        raise Refused(f"NATS_USER={settings.nats_user}: {FOR_CLIENTS}", reason="Forbidden")
    log = await JetStreamEventLog.connect(
        settings.nats_url, name="muster", patience=PATIENCE_SECONDS, wait=CONNECT_SECONDS, **settings.nats_login
    )
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[KubeCluster]:
    """The cluster of kubectl's current context."""
    cluster = await KubeCluster.connect(settings.kubeconfig, context=settings.context)
    try:
        yield cluster
    finally:
        await cluster.close()


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


@contextmanager
def told() -> Iterator[None]:
    """`Trouble` becomes one line, and exit code 1, or 3 after a wait that was too long."""
    try:
        yield
    except Trouble as trouble:
        ended = fail(str(trouble))
        raise (typer.Exit(WAITED_TOO_LONG) if isinstance(trouble, WaitedTooLong) else ended) from trouble


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; `Trouble` is `told`, and Ctrl-C is exit code 130."""
    try:
        with told():
            return uvloop.run(work())
    except (KeyboardInterrupt, asyncio.CancelledError) as stop:
        raise SystemExit(130) from stop
