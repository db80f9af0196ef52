"""Services killed and started again during a life, at random moments or at every event."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.kit.world import AUTHORS, World

Life = Callable[[World], Awaitable[None]]


async def killed_at_any_moment(world: World, life: Life, seed: int) -> None:
    """One service, or all of them, again and again until the life is over; it is quiet when this returns."""
    chance = random.Random(seed)
    living = asyncio.ensure_future(life(world))
    while not living.done():
        await asyncio.sleep(chance.random() * 0.05)
        for author in chance.sample(AUTHORS, chance.choice([1, 1, 1, 4])):
            await world.kill(author)
            await asyncio.sleep(chance.random() * 0.02)
            await world.start(author)
    await living
    await world.quiet()


async def killed_at_every_event(world: World, life: Life, author: str) -> None:
    """The service dies right after each event of the log, one after the other; it is quiet when this returns."""
    living = asyncio.ensure_future(life(world))
    seen = 0
    while not living.done():
        if len(world.journal.events) > seen:
            seen = len(world.journal.events)
            await world.kill(author)
            await world.start(author)
        await asyncio.sleep(0)
    await living
    await world.quiet()
