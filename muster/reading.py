"""Reading the log for a command: connect, fold up to the end, follow."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import uvloop

from muster.targets import fail
from shared.cluster.kube import KubeCluster
from shared.errors import Transient, Trouble
from shared.eventlog import EventLog, Stored
from shared.eventlog.jetstream import JetStreamEventLog
from shared.job.fold import Histories
from shared.process.settings import Settings

PATIENCE_SECONDS = 10.0
"""How long a command waits for an answer before it says that there is none."""

CONNECT_SECONDS = 3.0
"""How long it tries to reach the log before it says that it cannot."""

T = TypeVar("T")


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncIterator[JetStreamEventLog]:
    """The log as the environment names it."""
    log = await JetStreamEventLog.connect(
        settings.nats_url,
        name="muster",
        user=settings.nats_user or "",
        password=settings.nats_password or "",
        password_file=settings.nats_password_file,
        credentials=settings.nats_creds,
        tls=settings.nats_tls,
        patience=PATIENCE_SECONDS,
        wait=CONNECT_SECONDS,
    )
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[KubeCluster]:
    """The cluster as kubectl would find it."""
    cluster = await KubeCluster.connect(settings.kubeconfig)
    try:
        yield cluster
    finally:
        await cluster.close()


async def everything(log: EventLog) -> tuple[Histories, list[Stored]]:
    """The whole log, folded and as it is; raises `Transient` when it goes silent before its end."""
    histories, kept = Histories(), []
    end, loop = await log.end(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS) as patience:
            async with aclosing(log.read()) as batches:
                async for batch in batches:
                    for stored in batch.events:
                        if stored.sequence <= end:
                            histories.fold(stored)
                            kept.append(stored)
                    if (batch.events and batch.events[-1].sequence >= end) or not batch.pending:
                        break
                    patience.reschedule(loop.time() + PATIENCE_SECONDS)
    except TimeoutError as silence:
        words = f"read the log: it ends at {end}, and after {histories.position} nothing came"
        raise Transient(f"{words} for {PATIENCE_SECONDS:g} s; is a NATS server behind?") from silence
    return histories, kept


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; trouble is one line and exit code 1, Ctrl-C exit code 130."""
    try:
        return uvloop.run(work())
    except Trouble as trouble:
        raise fail(str(trouble)) from trouble
    except (KeyboardInterrupt, asyncio.CancelledError) as stop:
        raise SystemExit(130) from stop
