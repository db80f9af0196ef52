"""The health and the metrics of one of the four services; `serving.py` answers probes and scrapers with them.

Log and cluster are checked once before a service begins and then while it runs.  One line says what is wrong and what
to do, another that it is fixed; neither is repeated often.  Risks of the log's settings are warnings, logged at the
start and whenever they change.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import get_args

import structlog

from shared.backoff import doubled
from shared.cluster.examination import Unfinished
from shared.errors import Refused, Transient, Trouble
from shared.eventlog.inspection import SOONEST_SECONDS, LastKnown, Look, Room, seconds_to_next_check
from shared.eventlog.subject import without_jobs
from shared.flow import Limiter
from shared.job.events.event import Author
from shared.job.fold import Held
from shared.job.text import counted
from shared.process.serving import CONNECTED, READY, Report, probes
from shared.release import this_release
from shared.runtime.appends import stamp
from shared.runtime.queue import Late
from shared.runtime.run import Runtime
from shared.telemetry.metrics import Count, Labels, Metric, Series
from shared.telemetry.process_metrics import ProcessMetrics

OWNER = Metric("muster_owner", "gauge", ("service",), "1 in the replica that acts")
POSITION = Metric("muster_log_position", "gauge", ("service",), "The last sequence of the log that was folded")
PENDING = Metric("muster_log_pending_events", "gauge", ("service",), "Events of the log that were not folded yet")
BEHIND = Metric(
    "muster_log_lag_seconds",
    "gauge",
    ("service",),
    "Age of the oldest of them at the most; 0 also without a connection",
)
LOG_BYTES = Metric(
    "muster_log_bytes",
    "gauge",
    ("service", "store"),
    "Bytes in each stream of the log and on each NATS server's disk",
)
LOG_MAX_BYTES = Metric(
    "muster_log_max_bytes", "gauge", ("service", "store"), "How many there may be; left out where nothing bounds them"
)
HISTORIES = Metric("muster_histories", "gauge", ("service",), "Histories in memory")
HELD = Metric(
    "muster_histories_held", "gauge", ("service", "reason"), "Histories on which this process does not act, and why"
)
IN_FLIGHT = Metric("muster_effects_in_flight", "gauge", ("service",), "Effects whose turn has come, under way")
REQUESTS_IN_FLIGHT = Metric(
    "muster_kubernetes_requests_in_flight",
    "gauge",
    ("service", "work"),
    "Requests that the API server has not answered yet, without watches",
)
REQUESTS_MOST = Metric(
    "muster_kubernetes_requests_in_flight_limit",
    "gauge",
    ("service", "work"),
    "The bound on them, which a 429 and an error of the server lower",
)
REQUESTS_WAITING = Metric(
    "muster_kubernetes_requests_waiting", "gauge", ("service", "work"), "Requests that wait for a place"
)
WAITING = Metric(
    "muster_jobs_over_budget",
    "gauge",
    ("service", "job_namespace", "budget"),
    "Jobs with facts that wait for a budget, or for room in the log",
)
USED = Metric(
    "muster_namespace_budget_used_ratio",
    "gauge",
    ("service", "job_namespace", "budget"),
    "The part of a budget that a namespace has used; without names the greatest one",
)
OUTSIDE = Metric(
    "muster_jobs_outside",
    "gauge",
    ("service", "job_namespace"),
    "Jobs that do not begin, as their namespace lacks labels of the selector or is the system's",
)
ANCHOR = Metric(
    "muster_anchor_differs",
    "gauge",
    ("service",),
    "1 if the log does not lead to its anchor: something changed events outside of Muster",
)
BUDGETS = {
    "log": "changes of {jobs} wait to be recorded, as MUSTER_LOG_MIB_PER_MINUTE allows their namespaces",
    "memory": "{jobs} wait to be taken on, or with requests: each service keeps as much of their namespaces as "
    "MUSTER_NAMESPACE_MIB allows; raise it with the limit of memory",
    "total": "{jobs} wait to be taken on, or with requests: each service keeps as much of all namespaces as "
    "MUSTER_MEMORY_MIB allows; raise it with the limit of memory",
    "share": "changes of {jobs} wait, as their namespaces have filled their share of the log (MUSTER_NAMESPACE_SHARE); "
    "raise it, or give the log room",
    "room": "changes of {jobs} wait for room in the log: the rest is for decisions (MUSTER_LOG_RESERVE); give it room",
}
"""What jobs wait for, with a sentence about them."""
LATE = "{documents} not written for up to {seconds:.0f} s: the API server answers too slowly, or fails"


class Health:
    """The health of one service of this process."""

    def __init__(self, service: Author) -> None:
        self.service = service
        self.trouble = "starting"
        """Why the last check found the service not ready, in one sentence; empty if it found nothing."""
        self.warnings: tuple[str, ...] = ()
        """Risks of the log's settings, a sentence each; the service is ready all the same."""
        self.rooms: tuple[Room, ...] = ()
        """The log's use of its space at the last check."""
        self.names = False
        """True to name jobs and namespaces."""
        self.runtime: Runtime | None = None
        """None until the service runs."""
        self.failing: Callable[[], str] = lambda: ""
        """Why the service cannot read the log or append to it; empty if it can."""
        self.owner: Callable[[], bool] = lambda: False
        self.connected: Callable[[], bool] = lambda: True
        """True while there is a connection to the log."""
        self.metrics = ProcessMetrics(service)
        self.limiter = Limiter()
        """That of the service's requests to the API server."""

    @property
    def _ailing(self) -> str:
        return self.trouble or self.failing() or ("" if self.connected() else "no connection")

    @property
    def _ready(self) -> bool:
        return self.runtime is not None and self.runtime.current and not self._ailing

    def report(self) -> Report:
        runtime, trouble = self.runtime, self._ailing
        return Report(
            service=self.service,
            version=this_release(),
            ready=self._ready,
            owner=self.owner(),
            position=runtime.histories.position if runtime else 0,
            jobs=len(runtime.histories) if runtime else 0,
            held=self._held(runtime) if runtime else {},
            trouble=trouble if self.names else without_jobs(trouble),
            warnings=(*self.warnings, *self._anchor(), *self._waiting(), *self._late()),
        )

    def _waits(self) -> dict[tuple[str, str], int]:
        """What the owner has waiting; a replica that was one keeps what it had."""
        return self.metrics.waiting if self.owner() else {}

    def _outside(self) -> dict[str, int]:
        return self.metrics.outside if self.owner() else {}

    def _anchor(self) -> Iterator[str]:
        if self.metrics.anchor:
            yield f"the log does not lead to its anchor in the cluster: {self.metrics.anchor}"

    def _waiting(self) -> Iterator[str]:
        for budget, sentence in BUDGETS.items():
            waiting = {of: number for (of, known), number in self._waits().items() if known == budget}
            if waiting:
                names = f"{', '.join(sorted(waiting))}: " if self.names else ""
                yield names + sentence.format(jobs=counted(sum(waiting.values()), "job"))
        if outside := self._outside():
            names = f"{', '.join(sorted(outside))}: " if self.names else ""
            jobs = counted(sum(outside.values()), "job")
            yield f"{names}{jobs} will not begin: Muster does not work in their namespaces; `muster why JOB` says why"

    def _late(self) -> Iterator[str]:
        late = self.runtime.late() if self.runtime is not None else Late()
        if late.targets:
            yield LATE.format(documents=counted(late.targets, "status document"), seconds=late.seconds)

    def _held(self, runtime: Runtime) -> dict[str, str]:
        if self.names:
            return runtime.held()
        return {reason: counted(number, "job") for reason, number in runtime.held_for().items()}

    def current_metrics(self) -> list[Series]:
        """The metrics of this process; from the lease holder also those of jobs, once it has folded the whole log.

        Only one replica reports jobs, so that sums are right.  It reports none while it folds from the beginning:
        a counter would go back and grow again.
        """
        runtime, metrics, me = self.runtime, self.metrics, (self.service,)
        position, histories = (runtime.histories.position, len(runtime.histories)) if runtime else (0, 0)
        gauges = {
            READY: self._ready,
            OWNER: self.owner(),
            CONNECTED: runtime is not None and self.connected(),
            POSITION: position,
            PENDING: metrics.pending,
            BEHIND: metrics.seconds_behind(stamp(datetime.now(UTC))),
            HISTORIES: histories,
            IN_FLIGHT: metrics.effects_in_flight,
        }
        held = runtime.held_for() if runtime else {}
        waiting: Counter[Labels] = Counter({(self.service, "", budget): 0 for budget in BUDGETS})
        for (namespace, budget), number in self._waits().items():
            waiting[self.service, namespace if self.names else "", budget] += number
        outside: Counter[Labels] = Counter({(self.service, ""): 0})
        for namespace, number in self._outside().items():
            outside[self.service, namespace if self.names else ""] += number
        used: dict[Labels, float] = {}
        for (namespace, budget), part in metrics.used.items() if self.owner() else ():
            of = (self.service, namespace if self.names else "", budget)
            used[of] = max(used.get(of, 0.0), part)
        bounds = {"interactive": self.limiter.interactive, "bulk": self.limiter.bulk}
        found: list[Series] = [
            *metrics.series,
            *(Count.now(metric, {me: float(value)}) for metric, value in gauges.items()),
            Count.now(HELD, {(self.service, reason): held.get(reason, 0) for reason in get_args(Held)}),
            Count.now(REQUESTS_IN_FLIGHT, {(self.service, work): bound.in_flight for work, bound in bounds.items()}),
            Count.now(REQUESTS_MOST, {(self.service, work): bound.limit for work, bound in bounds.items()}),
            Count.now(REQUESTS_WAITING, {(self.service, work): bound.waiting for work, bound in bounds.items()}),
            Count.now(ANCHOR, {} if metrics.anchor is None else {me: float(bool(metrics.anchor))}),
            Count.now(WAITING, waiting),
            Count.now(OUTSIDE, outside),
            Count.now(USED, used),
            Count.now(LOG_BYTES, {(self.service, room.of): room.used for room in self.rooms}),
            Count.now(LOG_MAX_BYTES, {(self.service, room.of): room.most for room in self.rooms if room.most}),
        ]
        if runtime is not None and runtime.current and self.owner():
            found += runtime.measured()
        return found


def serve(services: Sequence[Health], host: str, port: int) -> AbstractAsyncContextManager[None]:
    """Answer probes and scrapers for these services while the context lasts, as `probes` does."""
    return probes(
        lambda: [service.report() for service in services],
        lambda: (series for service in services for series in service.current_metrics()),
        host,
        port,
    )


EVERY_SECONDS = 60.0
"""Seconds between two checks while nothing fails; a failure brings the next check forward."""

CALM_SECONDS = 5.0
"""The fewest seconds between two checks: failures of a single job must not cause many."""

TICK_SECONDS = 1.0
"""Seconds between two looks at the connection to the log."""

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
"""The longest back-off between two tries while something is wrong."""

REMIND_SECONDS = 60.0
"""The same trouble is logged again after so long."""

log = structlog.get_logger()


class Reminder:
    """The line `not ready`: at once for a new trouble, and again while the same one lasts."""

    def __init__(self) -> None:
        self._said = ("", 0.0)

    def remind(self, why: str) -> None:
        """Log what is wrong, unless it was just logged."""
        now = asyncio.get_running_loop().time()
        said, at = self._said
        if said != why or now - at >= REMIND_SECONDS:
            self._said = why, now
            log.warning("not ready", why=why)

    def over(self) -> None:
        """The trouble is over: the next one is logged at once."""
        self._said = ("", 0.0)


class Waiting:
    """The back-off of the checks, and its log lines."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = 0
        self._reminder = Reminder()

    async def after(self, trouble: Trouble) -> None:
        """Log what is wrong, unless it was just logged, and wait for the next try."""
        self._health.trouble = str(trouble)
        self._reminder.remind(str(trouble))
        self._failures += 1
        await asyncio.sleep(doubled(FIRST_WAIT_SECONDS, self._failures, LONGEST_WAIT_SECONDS))

    def over(self) -> None:
        """Log that the trouble is over."""
        self._health.trouble, self._failures = "", 0
        self._reminder.over()


async def look_after(health: Health, alarm: asyncio.Event, look: Callable[[], Awaitable[None]]) -> None:
    """Call `look` for ever: regularly, and soon after an `alarm` or a failure of the log.

    The service is not ready while `look` raises or the log fails.  An `Unfinished` look counts as one that found
    nothing, unless something was refused at the last one.
    """
    loop, waiting = asyncio.get_running_loop(), Waiting(health)
    while True:
        until = loop.time() + EVERY_SECONDS
        while health.connected() and not health.failing() and not alarm.is_set() and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await alarm.wait()
        # This check may miss a failure after this point; its alarm starts the next check.
        alarm.clear()
        last: Trouble | None = None
        while True:
            try:
                await _look(look, last)
                _must_not_fail(health)
            except (Transient, Refused) as trouble:
                last = trouble
                await waiting.after(trouble)
            else:
                break
        if health.trouble:
            log.info("ready again")
        waiting.over()
        await asyncio.sleep(CALM_SECONDS)


async def _look(look: Callable[[], Awaitable[None]], last: Trouble | None) -> None:
    """Look; what was refused at the `last` look stays so until a look shows that it is fixed."""
    try:
        await look()
    except Unfinished:
        if isinstance(last, Refused):
            raise Refused(str(last), reason=last.reason) from None


def _must_not_fail(health: Health) -> None:
    if failing := health.failing():
        raise Transient(failing)


def warn_unmonitored(monitors: Sequence[str]) -> None:
    if not monitors:
        why = "this service cannot check whether NATS syncs its disk, and how full that is; set NATS_MONITOR"
        log.warning("log not monitored", why=why)


async def watch_risks(health: Health, look: Callable[[], Awaitable[Look]], reserve: float) -> None:
    """Call `look` for ever and log its findings.  Neither they nor its failures make the service unready.

    The emptier the log, the rarer the calls; `reserve` is the share of its room for decisions and ends.
    """
    known = LastKnown()
    while True:
        seconds = SOONEST_SECONDS
        try:
            found = await look()
        except Trouble:
            # `look_after` reports a log that does not answer.
            pass
        except Exception:
            log.exception("risks not known")
        else:
            _log_changes(health, found.risks)
            health.rooms = known.rooms(found.rooms, asyncio.get_running_loop().time())
            seconds = seconds_to_next_check(health.rooms, reserve)
        await asyncio.sleep(seconds)


def _log_changes(health: Health, found: list[str]) -> None:
    for why in found:
        if why not in health.warnings:
            log.warning("log at risk", why=why)
    for why in health.warnings:
        if why not in found:
            log.info("log no longer at risk", why=why)
    health.warnings = tuple(found)
