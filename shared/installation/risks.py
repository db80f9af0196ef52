"""Warnings about the log's settings, logged at the start and whenever they change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from shared.errors import Trouble
from shared.eventlog.durability import Look
from shared.eventlog.room import SOONEST_SECONDS, LastKnown, seconds_to_next_check
from shared.process.health import Health

log = structlog.get_logger()


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
            # `readiness.py` reports a log that does not answer.
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
