"""A TCP proxy that breaks connections in chosen ways: cut, stalled, or with the answers dropped."""

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlparse


class Proxy:
    """`async with Proxy(url) as proxy: proxy.url`; whole until told otherwise, and again after `heal()`."""

    def __init__(self, target: str) -> None:
        parsed = urlparse(target)
        assert parsed.hostname is not None
        assert parsed.port is not None
        self._target = (parsed.hostname, parsed.port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._answering = True
        self._refusing = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self._flowing.set()
        await self._server.wait_closed()

    def stall(self) -> None:
        """Bytes wait in both directions; connections look alive."""
        self._flowing.clear()

    def drop_answers(self) -> None:
        """Requests reach the server, its answers are dropped."""
        self._answering = False

    def refuse(self) -> None:
        """Cut, and accept no connection."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Close every connection; new ones are welcome."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def heal(self) -> None:
        """Whole again.  Connections that lost bytes are closed, since the rest would make no sense."""
        if not self._answering:
            self.cut()
        self._answering = True
        self._refusing = False
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, upstream_writer}
            await asyncio.gather(
                self._pump(reader, upstream_writer, answers=False), self._pump(upstream_reader, writer, answers=True)
            )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                if self._answering or not answers:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
