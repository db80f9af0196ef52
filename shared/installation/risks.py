"""Warnings about the log's settings, logged at the start and whenever they change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from shared.errors import Trouble
from shared.eventlog.durability import Look
from shared.process.health import Health

EVERY_SECONDS = 10.0
"""What is appended meanwhile has to fit into the log's reserve."""

log = structlog.get_logger()


def warn_unmonitored(monitors: Sequence[str]) -> None:
    if not monitors:
        why = "this service cannot check whether NATS syncs its disk, and how full that is; set NATS_MONITOR"
        log.warning("log not monitored", why=why)


async def watch_risks(health: Health, look: Callable[[], Awaitable[Look]]) -> None:
    """Call `look` for ever and log its findings.  Neither they nor its failures make the service unready."""
    while True:
        try:
            found = await look()
        except Trouble:
            # `readiness.py` reports a log that does not answer.
            pass
        except Exception:
            log.exception("risks not known")
        else:
            _log_changes(health, found.risks)
            health.rooms = tuple(found.rooms)
        await asyncio.sleep(EVERY_SECONDS)


def _log_changes(health: Health, found: list[str]) -> None:
    for why in found:
        if why not in health.warnings:
            log.warning("log at risk", why=why)
    for why in health.warnings:
        if why not in found:
            log.info("log no longer at risk", why=why)
    health.warnings = tuple(found)
