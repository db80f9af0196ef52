"""Ctrl-C in a stream of the client without `await`."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from muster.client.client import Client as AsyncClient
from muster.client.sync import Client, _Stream


class Slow(AsyncClient):
    """A client whose stream takes a while to close."""

    closed = False

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.closed = True


class Waiting(Client):
    numbers = _Stream(Slow.numbers)


@pytest.fixture
def _interrupts() -> Iterator[None]:
    """As in a program; a process of the tests may ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_is_what_the_program_gets_and_the_stream_is_closed():
    slow = Slow()
    with Waiting(slow) as client:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            [*client.numbers()]
        timer.join()
        assert slow.closed


def test_a_stream_may_outlive_its_client():
    with Waiting(Slow()) as client:
        numbers = client.numbers()
        assert next(numbers) == 1
    numbers.close()
