"""Telling what could go wrong with the log while all is well: once each start, and whenever it changes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from shared.errors import Trouble
from shared.service.health import Health

EVERY_SECONDS = 60.0

log = structlog.get_logger()


async def tell_risks(health: Health, look: Callable[[], Awaitable[list[str]]]) -> None:
    """`look` for ever; what it finds is a warning and no reason not to be ready."""
    while True:
        # Whoever looks after readiness tells of a log that cannot be asked.
        with contextlib.suppress(Trouble):
            found = await look()
            for why in found:
                if why not in health.warnings:
                    log.warning("log at risk", why=why)
            for why in health.warnings:
                if why not in found:
                    log.info("log no longer at risk", why=why)
            health.warnings = tuple(found)
        await asyncio.sleep(EVERY_SECONDS)
