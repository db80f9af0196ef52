"""Telling what could go wrong with the log while all is well: once each start, and whenever it changes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from shared.errors import Trouble
from shared.eventlog.durability import Look
from shared.process.health import Health

EVERY_SECONDS = 60.0

log = structlog.get_logger()


def tell_unmonitored(monitors: Sequence[str]) -> None:
    """Of somebody else's server, at the start."""
    if not monitors:
        unknown = "whether NATS has on its disk what it acknowledges, and how full that is"
        why = f"nobody here can ask {unknown}; set NATS_MONITOR"
        log.warning("log not monitored", why=why)


async def tell_risks(health: Health, look: Callable[[], Awaitable[Look]]) -> None:
    """`look` for ever; what it finds is a warning and no reason not to be ready, and neither is what it fails at."""
    while True:
        try:
            found = await look()
        except Trouble:
            # Whoever looks after readiness tells of a log that cannot be asked.
            pass
        except Exception:
            log.exception("risks not known")
        else:
            _tell(health, found.risks)
            health.rooms = tuple(found.rooms)
        await asyncio.sleep(EVERY_SECONDS)


def _tell(health: Health, found: list[str]) -> None:
    for why in found:
        if why not in health.warnings:
            log.warning("log at risk", why=why)
    for why in health.warnings:
        if why not in found:
            log.info("log no longer at risk", why=why)
    health.warnings = tuple(found)
