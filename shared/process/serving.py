"""What the process of any service serves: probes, metrics, and HTTPS with a certificate that is renewed.

Alive is `/healthz`, ready `/readyz`, both with the reasons as JSON, which readers take from another release too; a
process answers from its start: while it waits for its log it is alive and not ready.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from itertools import accumulate
from typing import Any, NamedTuple

import msgspec
import structlog
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from shared.errors import Refused, Trouble
from shared.process.bounds import REMIND_SECONDS, Budget, Door, sockets_at
from shared.process.http import Asked, BoundedServer, Handler, Trusts, of_nobody
from shared.process.settings import HttpsPort
from shared.runtime.loop_thread import LoopThread
from shared.telemetry.metrics import Count, Histogram, Metric, Series


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one service in one process; another release may leave out any field."""

    service: str = ""
    version: str = ""
    """Its release."""
    ready: bool = False
    """False while the service waits for the log or the cluster, still folds the log, or cannot read or append."""
    owner: bool = False
    position: int = 0
    jobs: int = 0
    held: dict[str, str] = {}
    """The jobs that the service does not act on, and why; without names, how many for which reason."""
    trouble: str = ""
    warnings: tuple[str, ...] = ()


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of all services in one process."""

    ready: bool = False
    services: tuple[Report, ...] = ()


def reports_in(body: bytes) -> tuple[Report, ...]:
    """The reports in an answer, one or several.  Raises one of `MALFORMED`."""
    return msgspec.json.decode(body, type=Reports).services or (msgspec.json.decode(body, type=Report),)


HEALTH = Budget(
    port="health",
    reached_by="the kubelet for probes, and Prometheus; any pod that a NetworkPolicy lets through",
    connections=64,
    strangers=64,
    of_one=16,
    of_network=48,
    head_bytes=2**13,
)
"""A request is answered when its head is there, on a thread of its own, and then the connection is closed.

Without patience: a probe from the very address of a flood is answered 9 times in 10, and with half a second never.
"""

TELL_SECONDS = 1.0
"""Seconds between two snapshots of what the probes and scrapers are told."""

SOON_SECONDS = 0.25
"""Those while the process is not ready."""

STUCK_SECONDS = 5.0
"""A process whose working loop has stood still for so long is not alive, as long as a liveness probe waits."""

QUIET = 50
"""Snapshots take at most one part in so many of the working loop's time, by the processor's clock: a process that was
paused in one makes the next as soon as it goes on."""


class _Told(NamedTuple):
    """One snapshot, made by the working loop; the probes' thread reads it."""

    reports: tuple[Report, ...]
    series: tuple[Series, ...]
    rendered: dict[str, bytes]
    """The metrics, by content type, once a scraper asked."""
    due: float
    """When the next one is to follow, by the monotonic clock."""


class Probes:
    """What the probes' thread answers.  It never waits for the working loop, nor does that wait for it.

    Figures that no snapshot has replaced in time are told no longer.
    """

    def __init__(
        self,
        reports: Callable[[], Sequence[Report]],
        series: Callable[[], Iterable[Series]],
        stalled: Callable[[], str],
    ) -> None:
        self._reports = reports
        self._series = series
        self._stalled = stalled
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        self._told = self._now()

    async def keep(self) -> None:
        """Make snapshots for ever."""
        said = -REMIND_SECONDS
        while True:
            try:
                self._told = self._now()
            except Exception:
                if time.monotonic() - said >= REMIND_SECONDS:
                    said = time.monotonic()
                    log.exception("health and metrics not known")
            await asyncio.sleep(max(SOON_SECONDS, self._told.due - time.monotonic()))

    def _now(self) -> _Told:
        began = time.thread_time()
        reports, series = tuple(self._reports()), tuple(each.copy() for each in self._series())
        took = time.thread_time() - began
        pause = TELL_SECONDS if all(each.ready for each in reports) else SOON_SECONDS
        return _Told(reports, series, {}, time.monotonic() + max(pause, QUIET * took))

    def _stale(self) -> str:
        """Why the last snapshot is not told; empty if it may be."""
        late = time.monotonic() - self._told.due
        why = f"health and metrics could not be told for {late:.0f} s; the log of this process says why"
        return self._stalled() or (why if late >= STUCK_SECONDS else "")

    def answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """The status, the content type and the body for a path."""
        told = self._told
        match path:
            case "/healthz" | "/readyz":
                return self._probed(path, told.reports)
            case "/metrics" if stale := self._stale():
                return 503, "text/plain", stale.encode()
            case "/metrics":
                encoder, media = choose_encoder(accept)
                if media not in told.rendered:
                    registry = CollectorRegistry()
                    registry.register(_Collector(told.series))
                    registry.register(self._process)
                    told.rendered[media] = encoder(registry)
                return 200, media, told.rendered[media]
        return 404, "text/plain", b"here are /healthz, /readyz and /metrics"

    def _probed(self, path: str, reports: tuple[Report, ...]) -> tuple[int, str, bytes]:
        if stale := self._stale():
            reports = tuple(msgspec.structs.replace(each, ready=False, trouble=stale) for each in reports)
        several = Reports(ready=all(each.ready for each in reports), services=reports)
        body = msgspec.json.encode(reports[0] if len(reports) == 1 else several)
        unwell = self._stalled() if path == "/healthz" else not several.ready
        return 503 if unwell else 200, "application/json", body


@asynccontextmanager
async def probes(
    reports: Callable[[], Sequence[Report]], series: Callable[[], Iterable[Series]], host: str, port: int
) -> AsyncIterator[None]:
    """Answer probes and scrapers while the context lasts; port 0 opens none.  Raises `Refused` if the port is taken.

    An empty `host` listens at every address, of IPv4 and of IPv6.  A process with several services is ready when each
    of them is.
    """
    if not port:
        yield
        return
    sockets = _sockets(host, port, "HEALTH")
    async with LoopThread("probes") as thread:
        told = Probes(reports, series, lambda: thread.stalled(STUCK_SECONDS))
        door = Door(HEALTH, lambda client: Asked(client, HEALTH, told.answer))
        await thread.run(door.open(sockets))
        try:
            async with meanwhile(told.keep()):
                yield
        finally:
            await thread.run(door.close())


RENEW_SECONDS = 30.0
"""Seconds between two looks whether a certificate was renewed."""

END_SECONDS = 10.0
"""Seconds for requests under way when the process ends."""

log = structlog.get_logger()


class Certificate:
    """The certificate of a port, and its key, in files that are replaced when it is renewed."""

    def __init__(self, name: str, where: HttpsPort) -> None:
        """`name` is the setting's, such as `audit`.  Raises `Refused` without a certificate."""
        self.name, self.where = name.upper(), where
        if where.cert is None:
            words = f"name the certificate in MUSTER_{self.name}_CERT and its key in MUSTER_{self.name}_KEY"
            raise Refused(words, reason="NoCertificate")
        self._certificate, self._key = where.cert, where.key

    async def read(self) -> object:
        """Both files; what is returned differs once one of them is another.  Raises `Trouble` if one cannot be read."""
        try:
            return self._certificate.read_bytes(), self._key.read_bytes() if self._key is not None else b""
        except OSError as error:
            words = f"the certificate {error.filename} cannot be read: {error.strerror}; mount the Secret there"
            raise Refused(words, reason="NoCertificate") from error

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        return context


@asynccontextmanager
async def listening(
    handler: Handler,
    budget: Budget,
    certificate: Certificate,
    trusts: Trusts = of_nobody,
) -> AsyncIterator[int]:
    """Serve HTTPS while the context lasts, as `budget` allows; `handler` tells `know` of a client that may stay.

    Yields the port.  Once another certificate is read, those who come then get that one.  Raises `Refused` if the port
    is taken, or a certificate cannot be used.
    """
    used = await certificate.read()
    context = _usable(certificate)
    server = BoundedServer(handler, budget, trusts)
    sockets = _sockets(certificate.where.host, certificate.where.port, certificate.name)

    async def renew() -> None:
        nonlocal used
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                if (now := await certificate.read()) != used:
                    door.tls = _usable(certificate)
                    used = now
                    log.info("certificates renewed")
            except Trouble as trouble:
                log.warning("certificates not read", why=str(trouble))
            except Exception:
                log.exception("certificates not renewed")

    async with opened(server, budget, sockets, END_SECONDS, context) as door, meanwhile(renew()):
        yield sockets[0].getsockname()[1]


@asynccontextmanager
async def opened(
    server: BoundedServer,
    budget: Budget,
    sockets: Sequence[socket.socket],
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Door]:
    """Let clients in while the context lasts; at its end requests under way have so many seconds."""
    door = Door(budget, server.protocol)
    door.tls = tls
    await door.open(sockets)
    try:
        yield door
    finally:
        server.pre_shutdown()
        await server.shutdown(seconds)
        await door.close()


def _sockets(host: str, port: int, name: str) -> list[socket.socket]:
    try:
        return sockets_at(host, port)
    except OSError as error:
        words = f"answer on {host}:{port}: {error.strerror}; set MUSTER_{name}_PORT and MUSTER_{name}_HOST"
        raise Refused(words, reason="NoPort") from error


def _usable(certificate: Certificate) -> ssl.SSLContext:
    try:
        return certificate.context()
    except OSError as error:
        files = " and ".join(f"MUSTER_{certificate.name}_{what}" for what in ("CERT", "KEY"))
        raise Refused(f"the certificates of {files} cannot be used: {error}", reason="NoCertificate") from error


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do all of this beside what is done while the context lasts, and end it then."""
    async with _ending([asyncio.create_task(work) for work in works]):
        yield


@asynccontextmanager
async def _ending(tasks: Iterable[asyncio.Future[None]]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def forever(serving: AbstractAsyncContextManager[object]) -> None:
    """Serve until cancelled."""
    async with serving:
        await asyncio.Event().wait()


async def first_of(*works: Awaitable[None]) -> None:
    """Do all of it until one has ended, end the others, and raise what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    async with _ending(tasks):
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()


READY = Metric("muster_ready", "gauge", ("service",), "1 while `/readyz` would answer 200 for this service")
CONNECTED = Metric("muster_log_connected", "gauge", ("service",), "1 while there is a connection to the log")
BUILD = Metric("muster_build_info", "gauge", ("version",), "The release that answers; always 1")


class _Collector(Collector):
    """Prometheus' families of these series: one for each metric; the label `service` separates the services."""

    def __init__(self, series: Iterable[Series]) -> None:
        self._series = series
        self._build = Count(BUILD)
        self._build.add(version("muster"))

    def describe(self) -> Iterable[Family]:
        """Nothing: the metrics are known at scrape time."""
        return ()

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for series in (self._build, *self._series):
            family = families.setdefault(series.metric.name, _family(series.metric))
            _add(family, series)
        yield from families.values()


def _family(metric: Metric) -> Family:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = kinds[metric.type](metric.name, metric.meaning + ".", labels=metric.labels)
    return family


def _add(family: Family, series: Series) -> None:
    match family, series:
        case HistogramMetricFamily(), Histogram():
            bounds = [*(str(bound) for bound in series.metric.buckets), "+Inf"]
            for labels, spread in series.values.items():
                family.add_metric(labels, [*zip(bounds, accumulate(spread.counts), strict=True)], spread.total)
        case ((CounterMetricFamily() | GaugeMetricFamily()), Count()):
            for labels, value in series.values.items():
                family.add_metric(labels, value)
        case _:
            raise AssertionError((family, series))
