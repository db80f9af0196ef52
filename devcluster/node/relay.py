"""A TCP relay from the pods' network, which has no route out, to the API server.

A pod finds it as in any cluster, by `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`; TLS is end to end.
`tunnel.py` is the way from the API server to the pods.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

APISERVER = "kubernetes.default.svc"
"""A name, not an address: the server's certificate is valid for it."""

PORT = 6443
CHUNK = 65536

APISERVER_VARIABLES = {"KUBERNETES_SERVICE_HOST": APISERVER, "KUBERNETES_SERVICE_PORT": str(PORT)}
"""The variables in the environment of every container."""


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Ends]]
"""Opens the other side of an accepted connection.  Raises `OSError` if it cannot."""


def out_to(url: str) -> Dial:
    parts = urlsplit(url)

    async def dial(*_: object) -> Ends:
        return await asyncio.open_connection(parts.hostname, parts.port or 443)

    return dial


@contextlib.asynccontextmanager
async def relaying(dial: Dial, listen: Callable[["Relay"], Awaitable[asyncio.Server]]) -> AsyncIterator[asyncio.Server]:
    """Relay each connection of the server that `listen` starts to the one that `dial` opens; close all at the end."""
    relay = Relay(dial)
    server = await listen(relay)
    try:
        yield server
    finally:
        server.close()
        await relay.close()


class Relay:
    """The callback of `asyncio.start_server`."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._busy: set[asyncio.Task[None]] = set()

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        # Closed even if the task was cancelled before it began; data already written is still sent.
        task.add_done_callback(lambda _: writer.close())

    async def close(self) -> None:
        """Close the open connections."""
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
        """Pass bytes both ways until one side ends: TLS ends both directions together."""
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
