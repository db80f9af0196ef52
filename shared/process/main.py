"""A service as a process: settings, log, cluster, lease, runtime, signals."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import msgspec
import structlog
import uvloop
from pydantic import ValidationError

from shared.cluster import Cluster, Resource
from shared.cluster.examination import Right, examine, granting, served
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import Bucket, EventLog
from shared.eventlog.account import HEADS, LEASES
from shared.eventlog.inspection import look, reserved, space
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.setup import must_fit
from shared.frameworks.gangs import NOT_SERVED, POD_GROUPS
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.installation.permissions import Powers, necessary
from shared.installation.plugins import chosen, in_served_versions, kinds, log_frameworks
from shared.installation.scope import ExclusiveLeases, Scope, lease_key
from shared.job.events.event import Author
from shared.job.metrics import JobMetrics
from shared.process.health import REMIND_SECONDS, Health, Waiting, look_after, warn_unmonitored, watch_risks
from shared.process.health import serve as probes
from shared.process.serving import first_of, meanwhile
from shared.process.settings import Settings, complaint
from shared.release import this_release
from shared.runtime.lease import Lease, ThreadedLease
from shared.runtime.loop_thread import LoopThread
from shared.runtime.losses import notice_losses
from shared.runtime.run import Runtime, Service
from shared.telemetry.logs import configure
from shared.telemetry.process_metrics import ProcessMetrics


class Dependencies(msgspec.Struct, frozen=True):
    """The settings and connections that a service is built from."""

    settings: Settings
    cluster: Cluster
    eventlog: EventLog
    heads: Bucket
    """The checkpoint bucket: the newest head of each job."""
    identity: str
    """The id of the log."""
    kinds: Kinds = BUILT_IN
    """The frameworks whose jobs this service acts on."""
    pod_groups: Resource[Object] | None = None
    """The served version of PodGroups; None without one, and where gangs are switched off."""


VERSIONS_SECONDS = 30.0
"""Seconds between two checks of the served versions of each kind: a definition may change at any time."""

LOG_SECONDS = 2.0
"""The timeout of one try to connect to the log."""

LONGEST_SECONDS = 120.0
"""The garbage collector is off for at most so long: failed reads of the log leave errors, whose frames are cycles."""

log = structlog.get_logger()

T = TypeVar("T")
Build = Callable[[Dependencies], Service]


def main(author: Author, build: Build) -> None:
    """`muster-<name>`: run one of the four services as `run_process` does."""
    run_process(author, lambda settings: _alone(author, build, settings))


def run_process(name: str, work: Callable[[Settings], Coroutine[Any, Any, None]]) -> None:
    """Do the work of this process until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault, 2 if it has arguments."""
    if sys.argv[1:]:
        words = "it takes no arguments; its settings are environment variables (docs/settings.md)"
        sys.stderr.write(f"muster-{name}: {words}\n")
        sys.exit(2)
    try:
        settings = Settings()
    except ValidationError as error:
        sys.exit(f"{name}: {complaint(error)}")
    configure(name, style=settings.log_format, level=settings.log_level)
    log_frameworks()
    try:
        uvloop.run(until_stopped(work(settings)))
    except Trouble as trouble:
        log.error("ended", why=str(trouble))
        sys.exit(1)


async def _alone(author: Author, build: Build, settings: Settings) -> None:
    health = Health(author)
    warn_unmonitored(settings.nats_monitor)
    async with probes([health], settings.health_host, settings.health_port):
        await serve(author, build, settings, health)


async def serve(author: Author, build: Build, settings: Settings, health: Health) -> None:
    """Run one service until cancelled; wait for the log and the cluster while they are unusable.

    After a refusal of the log, or when another log has replaced it, the service begins anew with new connections.
    """
    loop, waiting = asyncio.get_running_loop(), Waiting(health)
    log.info("starting")
    while True:
        began = loop.time()
        try:
            async with opened(author, settings, health.metrics) as found:
                health.trouble = ""
                await _run(author, build(found.dependencies), found, health)
        except (Transient, Refused) as trouble:
            health.runtime, health.owner, health.connected = None, lambda: False, lambda: True
            health.failing = lambda: ""
            if loop.time() - began > REMIND_SECONDS:
                # The service had worked: this is a new trouble, with a new back-off.
                waiting = Waiting(health)
            await waiting.after(trouble)


class Found(NamedTuple):
    """A service's dependencies, and the adapters behind them."""

    dependencies: Dependencies
    eventlog: JetStreamEventLog
    cluster: KubeCluster
    scope: Scope
    leases: ExclusiveLeases

    async def must_be_usable(self, author: Author) -> None:
        """Raise `Trouble` if this service cannot work now; the message says what to do."""
        await must_fit(self.eventlog)
        await self.leases.must_be_exclusive()
        settings = self.dependencies.settings
        wanted = {kind.resource: kind.requests for kind in self.dependencies.kinds}
        selector = settings.namespace_selector if not settings.namespace else ()
        powers = Powers(
            settings.take_over,
            keys=settings.ssh,
            kueue=settings.kueue,
            gangs=settings.gangs,
            namespaces=selector,
            reports=bool(settings.progress_url),
        )

        def rights(those: Sequence[Resource[Any]]) -> list[Right]:
            there = [kind for kind in self.dependencies.kinds if kind.resource in those]
            found = necessary(author, there, powers)
            return [Right(need.verb, need.group, need.resource) for need in found]

        remedy = granting(settings.namespace, taking_over=settings.take_over, selector=selector)
        those = await examine(self.cluster, wanted, rights, settings.namespace, remedy=remedy)
        if not settings.namespace:
            await self.scope.must_be_ours(those)


@asynccontextmanager
async def opened(author: Author, settings: Settings, metrics: ProcessMetrics | None = None) -> AsyncIterator[Found]:
    """Connect to the log and the cluster and check both.  Raises `Trouble` otherwise."""
    eventlog = await _connect(author, settings)
    try:
        identity, heads = await eventlog.identity(), await eventlog.bucket(HEADS)
        cluster = await KubeCluster.connect(
            settings.kubeconfig, context=settings.context, answered=(metrics or ProcessMetrics(author)).request
        )
        try:
            known = await in_served_versions(cluster, chosen(kinds(), settings.kinds))
            groups = await _pod_groups(cluster, settings)
            if settings.gangs and groups is None:
                log.warning("jobs run without gangs", why=NOT_SERVED)
            dependencies = Dependencies(settings, cluster, eventlog, heads, identity, known, groups)
            leases = ExclusiveLeases(await eventlog.bucket(LEASES), author, settings.namespace)
            found = Found(dependencies, eventlog, cluster, Scope(cluster, identity), leases)
            await found.must_be_usable(author)
            yield found
        finally:
            await cluster.close()
    finally:
        await eventlog.close()


async def _run(author: Author, service: Service, found: Found, health: Health) -> None:
    async with LoopThread("lease") as thread:
        thread_log = await thread.run(_connect(author, found.dependencies.settings))
        try:
            leases = ExclusiveLeases(
                await thread.run(thread_log.bucket(LEASES)), author, found.dependencies.settings.namespace
            )
            await _own(author, service, found, health, leases, thread)
        finally:
            await thread.run(thread_log.close())


async def _own(
    author: Author, service: Service, found: Found, health: Health, leases: ExclusiveLeases, thread: LoopThread
) -> None:
    """Fold the log, and act while this replica holds the lease, until cancelled or in trouble."""
    holder = f"{socket.gethostname()}/{uuid4().hex[:8]}"
    settings, eventlog = found.dependencies.settings, found.eventlog
    key = lease_key(author, settings.namespace)
    kept = Lease(leases, key, holder, unready=lambda: health.trouble or thread.stalled(), clock=time.monotonic)
    lease = ThreadedLease(kept, thread)
    found.cluster.change_only_while(lease.held)
    runtime = Runtime(
        service,
        eventlog,
        heads=found.dependencies.heads if author != "watcher" else None,
        namespace=settings.namespace,
        release=f"{this_release()} {settings.deciding}".rstrip(),
        owns=lease.held,
        reserved=lambda: reserved(health.rooms, settings.log_reserve),
        space=lambda: space(health.rooms),
        limiter=found.cluster.limiter,
        metrics=health.metrics,
        # Every service folds the same log; the status service alone reports metrics of jobs.
        job_metrics=JobMetrics(names=settings.tell_names, devices=settings.devices) if author == "status" else None,
    )
    health.names, health.limiter = settings.tell_names, found.cluster.limiter
    health.runtime, health.owner, health.connected = runtime, lease.held, lambda: eventlog.connected
    health.failing = lambda: runtime.trouble or lease.trouble

    keeping = asyncio.create_task(lease.keep(runtime.owned))
    health.warnings, health.rooms = (), ()
    try:
        log.info("started", holder=holder, log=found.dependencies.identity)
        async with meanwhile(freeze_after(runtime.folded)):
            await first_of(
                runtime.run(),
                look_after(health, runtime.alarm, lambda: found.must_be_usable(author)),
                _until_another_version(found),
                watch_risks(health, lambda: look(eventlog, settings.nats_monitor), settings.log_reserve),
                notice_losses(runtime),
                asyncio.shield(keeping),
            )
    finally:
        # The lease is kept until the effects in flight have ended, and released before the process ends.
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await lease.release()
        log.info("stopped")


async def _pod_groups(cluster: KubeCluster, settings: Settings) -> Resource[Object] | None:
    """The newest served version of PodGroups, if gangs are switched on."""
    return next(iter(await served(cluster, POD_GROUPS)), None) if settings.gangs else None


async def _until_another_version(found: Found) -> None:
    """Raise `Transient` once the cluster serves a kind in other versions than those that are watched."""
    while True:
        await asyncio.sleep(VERSIONS_SECONDS)
        try:
            known = await in_served_versions(found.cluster, chosen(kinds(), found.dependencies.settings.kinds))
            groups = await _pod_groups(found.cluster, found.dependencies.settings)
        except Trouble:
            # `look_after` reports the trouble.
            continue
        before = {kind.resource for kind in found.dependencies.kinds}
        if other := [kind.name for kind in known if kind.resource not in before]:
            raise Transient(f"{found.cluster.url} serves other versions of {', '.join(other)} now")
        if groups != found.dependencies.pod_groups:
            raise Transient(f"{found.cluster.url} serves {groups.api_version if groups else 'no'} PodGroups now")


async def until_stopped(work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None once the process is asked to stop and it has ended by that."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        return None


async def _connect(author: Author, settings: Settings) -> JetStreamEventLog:
    return await JetStreamEventLog.connect(settings.nats_url, name=author, wait=LOG_SECONDS, **settings.nats_login)


async def freeze_after(folded: asyncio.Event) -> None:
    """Turn the collector off until the log is `folded`, then freeze the heap and turn the collector on.

    A full collection visits every container in the heap and stops all threads: half a second with 20,000 jobs.  The
    histories of the first fold live as long as the process and hold no cycles.  What an earlier fold of this process
    froze is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await folded.wait()
        gc.freeze()
    finally:
        gc.enable()
