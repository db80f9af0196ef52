"""A service as a process: settings, log, cluster, lease, machine, signals."""

import asyncio
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

import structlog
import uvloop
from pydantic import ValidationError

from shared.cluster import Cluster
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.subjects import HEADS, LEASES
from shared.job.events import Author
from shared.service import health
from shared.service.ownership import Lease
from shared.service.parts import Parts
from shared.service.run import Machine, Service
from shared.service.settings import Settings, complaint
from shared.service.telemetry import configure

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 15.0

log = structlog.get_logger()


Build = Callable[[Parts], Service]


def main(author: Author, build: Build) -> None:
    """`python -m services.<name>`: run one service until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    try:
        settings = Settings()
    except ValidationError as error:
        sys.exit(f"{author}: {complaint(error)}")
    configure(author, style=settings.log_format, level=settings.log_level)
    try:
        uvloop.run(until_stopped(serve(author, build, settings)))
    except Trouble as trouble:
        # Such as another log in the old one's place: a new process looks at it afresh.
        log.error("ended", why=str(trouble))
        sys.exit(1)


async def serve(author: Author, build: Build, settings: Settings) -> None:
    """Run one service until cancelled; what it needs and cannot reach yet, it waits for."""
    # A log that does not answer is complained of only after half a minute; until then this line says who waits.
    log.info("starting", on="the log")
    eventlog = await _patiently(lambda: _connect(author, settings), "the log")
    try:
        cluster = await _patiently(lambda: KubeCluster.connect(settings.kubeconfig), "Kubernetes")
        try:
            parts = await _patiently(lambda: _parts(settings, cluster, eventlog), "the log")
            await _run(author, build(parts), parts)
        finally:
            await cluster.close()
    finally:
        await eventlog.close()


async def _run(author: Author, service: Service, parts: Parts) -> None:
    holder = f"{socket.gethostname()}/{uuid4().hex[:8]}"
    settings = parts.settings
    # Installations of single namespaces share a log without sharing a lease.
    key = f"{author}.{settings.namespace}" if settings.namespace else author
    leases = await parts.eventlog.bucket(LEASES)
    lease = Lease(leases, key, holder)
    machine = Machine(service, parts.eventlog, owns=lease.held)
    keeping = asyncio.create_task(lease.keep(machine.owned))
    running = asyncio.create_task(machine.run())
    try:
        async with health.serve(machine, lease.held, settings.health_host, settings.health_port):
            log.info("started", holder=holder, log=parts.identity)
            done, _ = await asyncio.wait((keeping, running), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        # The lease outlives what is in hand, and goes before the process does.
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lease.release()
        log.info("stopped")


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or the process is asked to stop."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


async def _connect(author: Author, settings: Settings) -> JetStreamEventLog:
    return await JetStreamEventLog.connect(
        settings.nats_url,
        name=author,
        user=settings.nats_user or "",
        password=settings.nats_password or "",
        credentials=settings.nats_creds,
    )


async def _parts(settings: Settings, cluster: Cluster, eventlog: EventLog) -> Parts:
    return Parts(settings, cluster, eventlog, await eventlog.bucket(HEADS), await eventlog.identity())


async def _patiently(attempt: Callable[[], Awaitable[T]], what: str) -> T:
    """Try until it works: what is missing today may be there in a minute, and the log says what it is."""
    wait = FIRST_WAIT_SECONDS
    while True:
        try:
            return await attempt()
        except (Transient, Refused) as trouble:
            log.warning("waiting", on=what, why=str(trouble))
        await asyncio.sleep(wait)
        wait = min(wait * 2, LONGEST_WAIT_SECONDS)
