"""Work that goes on beside a test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """A task that is cancelled at the end; what it raised before is raised then."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
