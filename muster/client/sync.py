"""The client for programs without a loop: the same methods, which return what the asynchronous ones give.

A thread runs the one loop; streams are generators.  All is made of the asynchronous client's methods.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from muster.client.client import Client as AsyncClient
from shared.errors import Refused

P = ParamSpec("P")
T = TypeVar("T")


ENDS_SECONDS = 5.0
"""The longest wait for the end of what was interrupted."""


class _Call(Generic[P, T]):
    """A method that returns the result of the asynchronous one."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method

    def __get__(self, client: "Client", _: type["Client"]) -> Callable[P, T]:
        @wraps(self._method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.run(self._method(client.asynchronous, *args, **kwargs))

        return call


class _Stream(Generic[P, T]):
    """A method that returns a generator of what the asynchronous one gives."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]]) -> None:
        self._method = method

    def __get__(self, client: "Client", _: type["Client"]) -> Callable[P, Generator[T, None, None]]:
        @wraps(self._method)
        def stream(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            items = self._method(client.asynchronous, *args, **kwargs)

            async def some() -> Sequence[T]:
                # A `StopAsyncIteration` cannot leave a coroutine.
                async for item in items:
                    return [item]
                return []

            try:
                while found := client.run(some()):
                    yield from found
            finally:
                # A generator that outlives its client was closed with it.
                if client.is_open:
                    client.run(items.aclose())

        return stream


class Client:
    """As `muster.client.Client`, without `await`; a context manager.

    Its methods may be called from several threads.
    """

    create = _Call(AsyncClient.create)
    get = _Call(AsyncClient.get)
    list = _Call(AsyncClient.list)
    wait = _Call(AsyncClient.wait)
    scale = _Call(AsyncClient.scale)
    suspend = _Call(AsyncClient.suspend)
    resume = _Call(AsyncClient.resume)
    restart = _Call(AsyncClient.restart)
    delete = _Call(AsyncClient.delete)
    logs = _Stream(AsyncClient.logs)
    events = _Stream(AsyncClient.events)
    history = _Call(AsyncClient.history)
    why = _Call(AsyncClient.why)
    report = _Call(AsyncClient.report)

    def __init__(self, asynchronous: AsyncClient) -> None:
        self.asynchronous = asynchronous
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="muster.client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    @property
    def is_open(self) -> bool:
        return self._loop is not None and not self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the client's own work in its loop.  An interrupt of this thread cancels it."""
        if self._loop is None or not self.is_open:
            work.close()
            raise Refused(
                "this client is not open: write `with muster.client.sync.connect() as client`", reason="Closed"
            )
        ended = threading.Event()

        async def noted() -> T:
            try:
                return await work
            finally:
                ended.set()

        coming = asyncio.run_coroutine_threadsafe(noted(), self._loop)
        try:
            return coming.result()
        finally:
            if coming.cancel():
                # What it holds is closed before anything else is asked of it.
                ended.wait(ENDS_SECONDS)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.asynchronous:
            self._begun.set()
            await self._end.wait()


def _in_a_thread(make: Callable[P, AsyncClient]) -> Callable[P, Client]:
    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> Client:
        return Client(make(*args, **kwargs))

    return made


connect = _in_a_thread(AsyncClient)
"""A client; its parameters are those of `muster.client.connect`."""
