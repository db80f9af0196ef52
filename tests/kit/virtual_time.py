"""Virtual time: a loop whose clock jumps to the next timer instead of waiting, so that a lease's minute costs nothing.

A folder has it by its conftest, which imports `pytest_asyncio_loop_factories`; elsewhere a test by `@in_virtual_time`.
"""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest


class _Jumping(selectors.DefaultSelector):
    """Where the loop would sleep, the clock goes on."""

    now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("everything waits for ever")
            self.now += max(timeout, 0.0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without waiting; for code without connections out of this process."""

    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    def stand_still(self, seconds: float) -> None:
        """This process is paused: time goes on, and nothing is done meanwhile."""
        self._clock.now += seconds


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        async def work() -> None:
            await test(*args, **named)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(work())

    return run


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A folder whose conftest imports this runs its tests in virtual time, but for those marked `real_time`."""
    return {"loop": asyncio.new_event_loop if item.get_closest_marker("real_time") else VirtualLoop}


async def until(holds: Callable[[], bool], what: str = "it", seconds: float = 60.0) -> None:
    """Wait until something holds, looking every hundredth of a (virtual) second."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        assert loop.time() < deadline, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.01)
