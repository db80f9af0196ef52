"""The collector of cyclic garbage, kept from stopping a service that has folded a long log.

A full collection walks over every container in the heap and stops all threads meanwhile: half a second with 20,000
jobs.  The histories of the first fold stay for as long as the process and hold no cycles; no collection walks over
them.
"""

import asyncio
import contextlib
import gc

LONGEST_SECONDS = 120.0
"""For which nothing is collected at most: a log that cannot be read leaves errors behind, whose frames are cycles."""


async def leave_out(folded: asyncio.Event) -> None:
    """Collect nothing until the log is `folded`, and then only what comes after.

    What an earlier fold of this process left out is collected first.
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
