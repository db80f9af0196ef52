"""What the process of any service serves: probes, metrics, and HTTPS with a certificate that is renewed.

Alive is `/healthz`, ready `/readyz`, both with the reasons as JSON, which readers take from another release too; a
process answers from its start: while it waits for its log it is alive and not ready.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from shared.errors import Refused, Trouble
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

    async def probed(request: web.Request) -> web.Response:
        found = tuple(reports())
        several = Reports(ready=all(each.ready for each in found), services=found)
        body = msgspec.json.encode(found[0] if len(found) == 1 else several)
        status = 503 if request.path == "/readyz" and not several.ready else 200
        return web.Response(body=body, content_type="application/json", status=status)

    app = web.Application()
    scrape = _scraped(series)
    app.add_routes([web.get("/healthz", probed), web.get("/readyz", probed), web.get("/metrics", scrape)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Refused(
                f"answer probes on {host}:{port}: {error.strerror}; set MUSTER_HEALTH_PORT and MUSTER_HEALTH_HOST",
                reason="NoPort",
            ) from error
        yield
    finally:
        await runner.cleanup()


STRANGER_SECONDS = 30.0
"""Seconds that a client has for the head of its first request, with what shows who it is."""

_LOOK_SECONDS = 1.0

RENEW_SECONDS = 30.0
"""Seconds between two looks whether a certificate was renewed."""

log = structlog.get_logger()


class Strangers:
    """The clients of one server that are not known yet."""

    def __init__(self) -> None:
        self._known: set[RequestHandler] = set()
        self._since: dict[RequestHandler, float] = {}

    def know(self, request: web.BaseRequest) -> None:
        """The client of this connection has shown who it is."""
        self._known.add(request.protocol)

    async def keep_out(self, runner: web.BaseRunner) -> None:
        """Close, until cancelled, what has not become known in time; aiohttp waits for the rest of a head for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now, open_now = loop.time(), set(runner.server.connections if runner.server is not None else ())
            self._known &= open_now
            self._since = {each: self._since.get(each, now) for each in open_now - self._known}
            for each, since in self._since.items():
                if now - since >= STRANGER_SECONDS:
                    each.force_close()


class Certificate:
    """The server's certificate and its key, in files that are replaced when it is renewed."""

    def __init__(self, setting: str, certificate: Path | None, key: Path | None) -> None:
        """`setting` is in the names of the variables.  Raises `Refused` without a certificate."""
        if certificate is None:
            words = f"name the certificate in MUSTER_{setting}_CERT and its key in MUSTER_{setting}_KEY"
            raise Refused(words, reason="NoCertificate")
        self._certificate, self._key = certificate, key

    async def read(self) -> tuple[bytes, bytes]:
        """Both files.  Raises `Refused` if one cannot be read."""
        try:
            return self._certificate.read_bytes(), self._key.read_bytes() if self._key is not None else b""
        except OSError as error:
            words = f"the certificate {error.filename} cannot be read: {error.strerror}; mount the Secret there"
            raise Refused(words, reason="NoCertificate") from error

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        return context


class Listening:
    """An open port for HTTPS; `setting` is in the names of the variables about it, such as `AUDIT`."""

    def __init__(
        self, runner: web.AppRunner, host: str, port: int, setting: str, tls: Callable[[], ssl.SSLContext]
    ) -> None:
        self._runner = runner
        self._host = host
        self._setting = setting
        self._tls = tls
        self._site: web.TCPSite | None = None
        self.port = port

    @property
    def open(self) -> bool:
        return self._site is not None

    async def begin(self) -> None:
        """Accept connections with the certificates of now; those that are open go on.

        Raises `Refused` if the port is taken, or a certificate cannot be used.
        """
        try:
            tls = self._tls()
        except OSError as error:
            files = " and ".join(f"MUSTER_{self._setting}_{what}" for what in ("CERT", "KEY"))
            raise Refused(f"the certificates of {files} cannot be used: {error}", reason="NoCertificate") from error
        if self._site is not None:
            before, self._site = self._site, None
            await before.stop()
        site = web.TCPSite(self._runner, self._host or None, self.port, ssl_context=tls, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            words = f"answer on {self._host}:{self.port}: {error.strerror}; set MUSTER_{self._setting}_PORT"
            raise Refused(words, reason="NoPort") from error
        self._site = site
        self.port = int(self._runner.addresses[0][1])


@asynccontextmanager
async def listening(
    app: web.Application,
    strangers: Strangers,
    address: tuple[str, int],
    setting: str,
    *,
    read: Callable[[], Awaitable[object]],
    tls: Callable[[], ssl.SSLContext],
) -> AsyncIterator[Listening]:
    """Serve HTTPS while the context lasts, and keep out clients that do not say who they are.

    `tls` makes the context of the certificates of now, and once `read` gives something else, it is made anew.
    Raises as `Listening.begin`.
    """
    used = await read()
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = Listening(runner, *address, setting, tls)

    async def renew() -> None:
        nonlocal used
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                if (now := await read()) != used:
                    await port.begin()
                    used = now
                    log.info("certificates renewed")
            except Trouble as trouble:
                log.warning("certificates not read", why=str(trouble))
            except Exception:
                log.exception("certificates not renewed")

    try:
        async with meanwhile(strangers.keep_out(runner), renew()):
            await port.begin()
            yield port
    finally:
        await runner.cleanup()


@asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do all of this beside what is done while the context lasts, and end it then."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


READY = Metric("muster_ready", "gauge", ("service",), "1 while `/readyz` would answer 200 for this service")
CONNECTED = Metric("muster_log_connected", "gauge", ("service",), "1 while there is a connection to the log")
BUILD = Metric("muster_build_info", "gauge", ("version",), "The release that answers; always 1")


def _scraped(current: Callable[[], Iterable[Series]]) -> Handler:
    """The handler of `/metrics`: Prometheus text or OpenMetrics, as the scraper asks.

    One registry for each process, with the kernel's figures of the process; the label `service` separates its services.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(current))
    ProcessCollector(registry=registry)
    return make_aiohttp_handler(registry)


class _Collector(Collector):
    def __init__(self, current: Callable[[], Iterable[Series]]) -> None:
        self._current = current
        self._build = Count(BUILD)
        self._build.add(version("muster"))

    def describe(self) -> Iterable[Family]:
        """Nothing: the metrics are known at scrape time."""
        return ()

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for series in (self._build, *self._current()):
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
