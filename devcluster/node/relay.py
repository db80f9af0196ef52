"""The way from the pods' network, which has no route out, to the API server: bytes passed on, and nothing else.

A pod finds it as in any cluster, by `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`; TLS is between the two.
The way in is `tunnel.py`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

APISERVER = "kubernetes.default.svc"
"""A name, not an address: the server's certificate says it."""

PORT = 6443
CHUNK = 65536

APISERVER_VARIABLES = {"KUBERNETES_SERVICE_HOST": APISERVER, "KUBERNETES_SERVICE_PORT": str(PORT)}
"""What every container is told."""


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Ends]]
"""Given who came, where they are to be led.  Raises `OSError` where that cannot be."""


def out_to(url: str) -> Dial:
    parts = urlsplit(url)

    async def dial(*_: object) -> Ends:
        return await asyncio.open_connection(parts.hostname, parts.port or 443)

    return dial


@contextlib.asynccontextmanager
async def leading(dial: Dial, listen: Callable[["Relay"], Awaitable[asyncio.Server]]) -> AsyncIterator[asyncio.Server]:
    """Relay each connection to the server of `listen` to where `dial` leads; at the end, open ones are closed."""
    relay = Relay(dial)
    server = await listen(relay)
    try:
        yield server
    finally:
        server.close()
        await relay.close()


class Relay:
    """To be given to `asyncio.start_server`."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._busy: set[asyncio.Task[None]] = set()

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        # Also of one that was broken off before it began; what was written is still sent.
        task.add_done_callback(lambda _: writer.close())

    async def close(self) -> None:
        """Break off what is open."""
        tasks = [*self._busy]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there = await self._dial(reader, writer)
            try:
                await self._both(reader, writer, *there)
            finally:
                there[1].close()

    async def _both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter,
    ) -> None:
        """Until one side is done: who speaks TLS ends both ways together."""
        ways = [
            asyncio.ensure_future(_pass_on(reader, their_writer)),
            asyncio.ensure_future(_pass_on(their_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
