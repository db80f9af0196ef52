"""Reads the log for a command: connects, folds up to the end, follows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import typer
import uvloop

from muster.following import WAITED_TOO_LONG, WaitedTooLong
from muster.terminal import fail
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Trouble
from shared.eventlog.account import FOR_CLIENTS, SUBSCRIBER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.process.settings import Settings
from shared.telling.reading import PATIENCE_SECONDS

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
