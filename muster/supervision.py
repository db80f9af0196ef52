"""Starting programs again that ended, as a kubelet does, so that any of them can be killed to see what follows.

For the demo.  What a program does after its restart is its own affair: each keeps its port and its data.
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
"""Between two looks at a program that runs."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""Bounds of the pause after a restart, so that a program which fails at each start does not keep a core busy."""


class Program(Protocol):
    """A process that can be started again."""

    name: str
    log: Path

    @property
    def running(self) -> bool: ...

    async def restart(self) -> None:
        """End it and start it again.  Raises `ChildError` or `Trouble` when it does not serve then."""


@asynccontextmanager
async def supervised(programs: Sequence[Program], say: Callable[[str], None]) -> AsyncIterator[None]:
    """Within it, each program that ended is named in a line and started again."""
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
