"""Looking after what a service needs outside of itself: once before it begins, and while it runs.

One line says that something is wrong and what to do, another that it is mended; neither comes often.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from shared.errors import Refused, Transient, Trouble
from shared.process.health import Health

EVERY_SECONDS = 60.0
"""Between two looks while all is well and nothing fails; whatever fails brings the next one forward."""

CALM_SECONDS = 5.0
"""Between two looks at the least, however much fails: it may be one job's story."""

TICK_SECONDS = 1.0
"""How soon a lost connection to the log is noticed."""

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
"""Between tries while something is wrong: it doubles from the first to the longest."""

REMIND_SECONDS = 60.0
"""The same trouble is said again after so long."""

log = structlog.get_logger()


class Waiting:
    """Back-off, and the words that go with it."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._wait = FIRST_WAIT_SECONDS
        self._said = ("", 0.0)

    async def after(self, trouble: Trouble) -> None:
        """Say what is wrong, unless it was just said, and wait for the next try."""
        self._health.trouble = why = str(trouble)
        now = asyncio.get_running_loop().time()
        said, at = self._said
        if said != why or now - at >= REMIND_SECONDS:
            self._said = why, now
            log.warning("not ready", why=why)
        await asyncio.sleep(self._wait)
        self._wait = min(self._wait * 2, LONGEST_WAIT_SECONDS)

    def over(self) -> None:
        """All is well."""
        self._health.trouble, self._wait, self._said = "", FIRST_WAIT_SECONDS, ("", 0.0)


async def look_after(health: Health, alarm: asyncio.Event, look: Callable[[], Awaitable[None]]) -> None:
    """`look` for ever, now and then and soon after each `alarm` or failure at the log; what it raises makes the
    service not ready, and so does a log that goes on failing."""
    loop, waiting = asyncio.get_running_loop(), Waiting(health)
    while True:
        until = loop.time() + EVERY_SECONDS
        while health.connected() and not health.failing() and not alarm.is_set() and loop.time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await alarm.wait()
        # What fails from now on, this look may not see.
        alarm.clear()
        while True:
            try:
                await look()
                _must_not_fail(health)
            except (Transient, Refused) as trouble:
                await waiting.after(trouble)
            else:
                break
        if health.trouble:
            log.info("ready again")
        waiting.over()
        await asyncio.sleep(CALM_SECONDS)


def _must_not_fail(health: Health) -> None:
    if failing := health.failing():
        raise Transient(failing)
