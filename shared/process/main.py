"""A service as a process: settings, log, cluster, lease, runtime, signals."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import structlog
import uvloop
from pydantic import ValidationError

from shared.cluster import Resource
from shared.cluster.examination import Right, examine
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog.durability import look
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.setup import must_fit
from shared.eventlog.subjects import HEADS, LEASES
from shared.installation.apart import Apart, lease_key
from shared.installation.permissions import definitions, necessary
from shared.installation.plugins import chosen, in_served_versions, kinds, tell
from shared.installation.risks import tell_risks, tell_unmonitored
from shared.installation.scope import Scope
from shared.job.events.event import Author
from shared.job.measures import Measures
from shared.process.collector import leave_out
from shared.process.dependencies import Dependencies
from shared.process.health import Health
from shared.process.health import serve as probes
from shared.process.readiness import REMIND_SECONDS, Waiting, look_after
from shared.process.settings import Settings, complaint
from shared.runtime.beside import Beside, Ownership
from shared.runtime.ownership import Lease
from shared.runtime.run import Runtime, Service
from shared.telemetry.logs import configure
from shared.telemetry.meters import Meters

VERSIONS_SECONDS = 30.0
"""How often it is asked which versions of a kind the cluster serves: a definition may be exchanged at any time."""

LOG_SECONDS = 2.0
"""How long one try to reach the log takes before its trouble is told."""

log = structlog.get_logger()


Build = Callable[[Dependencies], Service]


def main(author: Author, build: Build) -> None:
    """`muster-<name>`: run one service until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    try:
        settings = Settings()
    except ValidationError as error:
        sys.exit(f"{author}: {complaint(error)}")
    configure(author, style=settings.log_format, level=settings.log_level)
    tell()
    try:
        uvloop.run(until_stopped(_alone(author, build, settings)))
    except Trouble as trouble:
        log.error("ended", why=str(trouble))
        sys.exit(1)


async def _alone(author: Author, build: Build, settings: Settings) -> None:
    health = Health(author)
    tell_unmonitored(settings.nats_monitor)
    async with probes([health], settings.health_host, settings.health_port):
        await serve(author, build, settings, health)


async def serve(author: Author, build: Build, settings: Settings, health: Health) -> None:
    """Run one service until cancelled; what it needs and cannot use yet, it waits for.

    When the log turns it away, or another log is in the old one's place, it begins anew and looks at that afresh.
    """
    loop, waiting = asyncio.get_running_loop(), Waiting(health)
    log.info("starting")
    while True:
        began = loop.time()
        try:
            async with opened(author, settings, health.meters) as found:
                health.trouble = ""
                await _run(author, build(found.dependencies), found, health)
        except (Transient, Refused) as trouble:
            health.runtime, health.owner, health.connected = None, lambda: False, lambda: True
            health.failing = lambda: ""
            if loop.time() - began > REMIND_SECONDS:
                # It had worked: this is another trouble than the last one.
                waiting = Waiting(health)
            await waiting.after(trouble)


class Found(NamedTuple):
    """What a service works with, as the port sees it, and the adapters behind."""

    dependencies: Dependencies
    eventlog: JetStreamEventLog
    cluster: KubeCluster
    scope: Scope
    leases: Apart

    async def must_do(self, author: Author) -> None:
        """Raise `Trouble` when this service could not work with it now, with what to do."""
        await must_fit(self.eventlog)
        settings = self.dependencies.settings
        wanted = {kind.resource: definitions(kind) for kind in self.dependencies.kinds}

        def rights(served: Sequence[Resource[Any]]) -> list[Right]:
            there = [kind for kind in self.dependencies.kinds if kind.resource in served]
            found = necessary(author, there, taking_over=settings.take_over)
            return [Right(need.verb, need.group, need.resource) for need in found]

        served = await examine(self.cluster, wanted, rights, settings.namespace, taking_over=settings.take_over)
        if not settings.namespace:
            await self.scope.must_be_ours(served)
        await self.leases.must_be_alone()


@asynccontextmanager
async def opened(author: Author, settings: Settings, meters: Meters | None = None) -> AsyncIterator[Found]:
    """The log and the cluster, connected and found fit.  Raises `Trouble` otherwise."""
    eventlog = await _connect(author, settings)
    try:
        identity, heads = await eventlog.identity(), await eventlog.bucket(HEADS)
        cluster = await KubeCluster.connect(settings.kubeconfig, answered=(meters or Meters(author)).request)
        try:
            known = await in_served_versions(cluster, chosen(kinds(), settings.kinds))
            dependencies = Dependencies(settings, cluster, eventlog, heads, identity, known)
            leases = Apart(await eventlog.bucket(LEASES), author, settings.namespace)
            found = Found(dependencies, eventlog, cluster, Scope(cluster, identity), leases)
            await found.must_do(author)
            yield found
        finally:
            await cluster.close()
    finally:
        await eventlog.close()


async def _run(author: Author, service: Service, found: Found, health: Health) -> None:
    async with Beside() as beside:
        log_beside = await beside.run(_connect(author, found.dependencies.settings))
        try:
            leases = Apart(await beside.run(log_beside.bucket(LEASES)), author, found.dependencies.settings.namespace)
            await _own(author, service, found, health, leases, beside)
        finally:
            await beside.run(log_beside.close())


async def _own(author: Author, service: Service, found: Found, health: Health, leases: Apart, beside: Beside) -> None:
    """Fold the log, and act on it while the lease is ours, until cancelled or in trouble."""
    holder = f"{socket.gethostname()}/{uuid4().hex[:8]}"
    settings, eventlog = found.dependencies.settings, found.eventlog
    key = lease_key(author, settings.namespace)
    kept = Lease(leases, key, holder, unwell=lambda: health.trouble or beside.still(), clock=time.monotonic)
    lease = Ownership(kept, beside)
    found.cluster.change_only_while(lease.held)
    runtime = Runtime(
        service,
        eventlog,
        namespace=settings.namespace,
        owns=lease.held,
        meters=health.meters,
        # The author of phases tells of jobs: every service folds the same log, and one of them is enough.
        measures=Measures() if author == "status" else None,
    )
    health.runtime, health.owner, health.connected = runtime, lease.held, lambda: eventlog.connected
    health.failing = lambda: runtime.trouble or lease.trouble

    collecting = asyncio.create_task(leave_out(runtime.folded))
    running = asyncio.create_task(runtime.run())
    keeping = asyncio.create_task(lease.keep(runtime.owned))
    looking = asyncio.create_task(look_after(health, runtime.alarm, lambda: found.must_do(author)))
    turning = asyncio.create_task(_until_another_version(found))
    health.warnings, health.rooms = (), ()
    telling = asyncio.create_task(tell_risks(health, lambda: look(eventlog, settings.nats_monitor)))
    try:
        log.info("started", holder=holder, log=found.dependencies.identity)
        done, _ = await asyncio.wait((keeping, running, looking, turning, telling), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        # The lease outlives what is in hand, and goes before the process does.
        running.cancel()
        looking.cancel()
        turning.cancel()
        telling.cancel()
        collecting.cancel()
        await asyncio.gather(running, looking, turning, telling, collecting, return_exceptions=True)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lease.release()
        log.info("stopped")


async def _until_another_version(found: Found) -> None:
    """Raise `Transient` once the cluster serves a kind in other versions than those that are watched."""
    while True:
        await asyncio.sleep(VERSIONS_SECONDS)
        try:
            known = await in_served_versions(found.cluster, chosen(kinds(), found.dependencies.settings.kinds))
        except Trouble:
            # Whoever looks after the cluster tells of it.
            continue
        before = {kind.resource for kind in found.dependencies.kinds}
        if other := [kind.name for kind in known if kind.resource not in before]:
            raise Transient(f"{found.cluster.url} serves other versions of {', '.join(other)} now")


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
        password_file=settings.nats_password_file,
        credentials=settings.nats_creds,
        tls=settings.nats_tls,
        wait=LOG_SECONDS,
    )
