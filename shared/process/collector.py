"""Keeps the garbage collector from walking over the folded histories.

A full collection visits every container in the heap and stops all threads: half a second with 20,000 jobs.  The
histories of the first fold live as long as the process and hold no cycles, so they are frozen.
"""

import asyncio
import contextlib
import gc

LONGEST_SECONDS = 120.0
"""The collector is off for at most so long: failed reads of the log leave errors, whose frames are cycles."""


async def freeze_after(folded: asyncio.Event) -> None:
    """Turn the collector off until the log is `folded`, then freeze the heap and turn the collector on.

    What an earlier fold of this process froze is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await folded.wait()
        gc.freeze()
    finally:
        gc.enable()
