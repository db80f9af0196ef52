"""Checks the log and the cluster for a service, once before it begins and then while it runs.

One line says what is wrong and what to do, another that it is fixed; neither is repeated often.  Risks of the log's
settings are warnings, logged at the start and whenever they change.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import structlog

from shared.backoff import doubled
from shared.cluster.examination import Unfinished
from shared.errors import Refused, Transient, Trouble
from shared.eventlog.inspection import SOONEST_SECONDS, LastKnown, Look, seconds_to_next_check
from shared.process.health import Health

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


class Waiting:
    """The back-off of the checks, and its log lines."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._failures = 0
        self._said = ("", 0.0)

    async def after(self, trouble: Trouble) -> None:
        """Log what is wrong, unless it was just logged, and wait for the next try."""
        self._health.trouble = why = str(trouble)
        now = asyncio.get_running_loop().time()
        said, at = self._said
        if said != why or now - at >= REMIND_SECONDS:
            self._said = why, now
            log.warning("not ready", why=why)
        self._failures += 1
        await asyncio.sleep(doubled(FIRST_WAIT_SECONDS, self._failures, LONGEST_WAIT_SECONDS))

    def over(self) -> None:
        """Log that the trouble is over."""
        self._health.trouble, self._failures, self._said = "", 0, ("", 0.0)


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
