"""Restarts programs that ended, as a kubelet does, so that a person can kill any of them and watch.

For the demo.  Each program keeps its port and its data over a restart.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from devcluster.child import ChildError
from shared.backoff import Backoff
from shared.errors import Trouble

LOOK_SECONDS = 0.5
"""Seconds between two checks of a running program."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""The bounds of the pause after a restart: a program that fails at each start must not use up a core."""


class Program(Protocol):
    """A process that can be restarted."""

    name: str
    log: Path

    @property
    def running(self) -> bool: ...

    async def restart(self) -> None:
        """End the process and start it again.  Raises `ChildError` or `Trouble` if it does not serve then."""


@asynccontextmanager
async def supervised(programs: Sequence[Program], say: Callable[[str], None]) -> AsyncIterator[None]:
    """While the context lasts, restart each program that ended, with a line about it."""
    tasks = [asyncio.create_task(_keep(program, say)) for program in programs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _keep(program: Program, say: Callable[[str], None]) -> None:
    backoff = Backoff(
        first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS, clock=time.monotonic, random=random.random
    )
    while True:
        if program.running:
            await asyncio.sleep(LOOK_SECONDS)
            continue
        say(f"{program.name} ended; starting it again, its log is {program.log}")
        try:
            await program.restart()
        except (ChildError, Trouble) as error:
            say(f"{program.name} does not start: {error}")
        else:
            say(f"{program.name} runs again")
        await asyncio.sleep(backoff.next())
