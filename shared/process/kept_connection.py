"""A process that works on without the log, the history service or the audit service: its connection, and its health.

The log is away or not: such a service is ready while its port is open, as the readiness of its pods decides whether it
is asked at all.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import structlog

from shared.errors import Refused, Transient, Trouble
from shared.eventlog.jetstream import JetStreamEventLog
from shared.process.serving import CONNECTED, READY, Report, probes
from shared.process.settings import Settings
from shared.release import this_release
from shared.telemetry.metrics import Count, Metric, Series

LOG_SECONDS = 2.0
"""Seconds for a connection to the log."""
LOG_LOOK_SECONDS = 5.0
"""Seconds between two looks whether the log lets this process in."""
PAUSE_SECONDS = 2.0
"""Seconds after a failed one until the next call tries again; those meanwhile are told the same."""

log = structlog.get_logger()


class KeptConnection:
    """The connection to the log, made when it is asked for; it reconnects by itself until the log turns it away."""

    def __init__(self, name: str, settings: Settings) -> None:
        """`name` is shown in the server's lists."""
        self._name = name
        self._settings = settings
        self._log: JetStreamEventLog | None = None
        self._connecting = asyncio.Lock()
        self._trouble: Trouble | None = None
        self._again = 0.0
        self._asked = False

    @property
    def connected(self) -> bool:
        return self._log is not None and self._log.connected

    @property
    def turned_away(self) -> str:
        """Why the log cannot be read until an administrator changes something, such as a password.

        Empty while the log is read, and while it is merely away.
        """
        if not self._asked:
            return "the log was not asked yet"
        return str(self._trouble) if isinstance(self._trouble, Refused) else ""

    async def keep(self) -> None:
        """Look now and then whether the log lets this process in, also while no one asks anything."""
        while True:
            try:
                await self.log()
            except Trouble:
                # `turned_away` and each question tell it.
                pass
            except Exception:
                log.exception("cannot look at the log")
            await asyncio.sleep(LOG_LOOK_SECONDS)

    async def log(self) -> JetStreamEventLog:
        """The log.  Raises `Trouble` if it cannot be reached."""
        async with self._connecting:
            if self._log is not None and self._log.ended:
                await self.close()
            if self._log is None:
                self._log = await self._connect(asyncio.get_running_loop())
            return self._log

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> JetStreamEventLog:
        if self._trouble is not None and loop.time() < self._again:
            raise Transient(str(self._trouble))
        try:
            connected = await JetStreamEventLog.connect(
                self._settings.nats_url, name=self._name, patience=LOG_SECONDS, **self._settings.nats_login
            )
        except Trouble as trouble:
            if str(trouble) != str(self._trouble):
                log.warning("log not reached", why=str(trouble))
            self._trouble, self._again = trouble, loop.time() + PAUSE_SECONDS
            raise
        finally:
            self._asked = True
        if self._trouble is not None:
            log.info("log reached again")
        self._trouble = None
        return connected

    async def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.close()


class Figures:
    """The report and the metrics of such a process."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.trouble: Callable[[], str] = lambda: "starting"
        """Why the service is not ready; empty if it is."""
        self.refused = ""
        """What else keeps it from its work until a person fixes that; empty if nothing does."""
        self.connected: Callable[[], bool] = lambda: False
        self.gauges: dict[Metric, Callable[[], float]] = {}
        """What is looked at when it is asked for; what is counted is a `Count` or a `Histogram` of a subclass."""

    def report(self) -> Report:
        trouble = self.trouble() or self.refused
        return Report(service=self.service, version=this_release(), ready=not trouble, trouble=trouble)

    def series(self) -> list[Series]:
        values = {READY: self.report().ready, CONNECTED: self.connected()}
        return [
            *(Count.now(metric, {(self.service,): float(value)}) for metric, value in values.items()),
            *(each for each in vars(self).values() if isinstance(each, Series)),
            *(Count.now(metric, {(): value()}) for metric, value in self.gauges.items()),
        ]

    def probes(self, settings: Settings) -> AbstractAsyncContextManager[None]:
        """Answer probes and scrapers while the context lasts."""
        return probes(lambda: [self.report()], self.series, settings.health_host, settings.health_port)
