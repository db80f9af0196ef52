"""Retries for a bounded time, with jitter."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.backoff import doubled
from shared.errors import Transient

_T = TypeVar("_T")


def backoff(attempt: int, *, slowest: float = 1.0, chance: Callable[[], float] = random.random) -> float:
    """Seconds to wait after the failed `attempt` (0, 1, ...): growing, with jitter by `chance`, from 0 to 1."""
    return doubled(0.02, attempt + 1, slowest) * (0.5 + chance() / 2)


async def insist(
    attempt: Callable[[], Awaitable[_T]],
    *,
    what: str,
    patience: float,
    on: tuple[type[Transient], ...] = (Transient,),
) -> _T:
    """Repeat `attempt` while it raises one of `on`; raise `Transient` after `patience` seconds."""
    deadline = asyncio.get_running_loop().time() + patience
    tries = 0
    while True:
        try:
            return await attempt()
        except on as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise Transient(f"{what}: given up after {patience:g} s: {error}") from error
        await asyncio.sleep(backoff(tries))
        tries += 1
