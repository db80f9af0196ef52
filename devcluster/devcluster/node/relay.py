"""TCP relays between the pods' network, which has no route out, and the API server.

A pod finds the API server as in any cluster, by `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`; TLS is end to
end.  The API server reaches pods for `pods/proxy` through a tunnel that takes addresses by HTTP CONNECT, as clusters
have whose control plane has no route to the pods; it also uses that for kubelets.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from devcluster.node.runtime import Runtime, RuntimeProblem

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


DIAL_SECONDS = 5.0
"""The timeout of a connection: a pod that is gone does not answer."""

END = b"\r\n\r\n"


def into(runtime: Runtime, network: str) -> Dial:
    """Connects to pods in this network through the runtime, and to other addresses, such as a kubelet's, directly."""
    pods = ip_network(network)

    async def dial(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ends:
        try:
            host, port = _wanted(await reader.readuntil(END))
            if ip_address(host) in pods:
                made = await runtime.socket("tcp")
                try:
                    await asyncio.wait_for(asyncio.get_running_loop().sock_connect(made, (host, port)), DIAL_SECONDS)
                except BaseException:
                    made.close()
                    raise
                there = await asyncio.open_connection(sock=made)
            else:
                there = await asyncio.open_connection(host, port)
        except (OSError, ValueError, OverflowError, EOFError, asyncio.LimitOverrunError, RuntimeProblem) as error:
            writer.write(b"HTTP/1.1 502 Bad Gateway" + END)
            await writer.drain()
            raise OSError(f"cannot connect: {error}") from error
        writer.write(b"HTTP/1.1 200 Connection established" + END)
        return there

    return dial


def _wanted(head: bytes) -> tuple[str, int]:
    """Host and port of a CONNECT request.  Raises `ValueError` for other requests."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    host, _, port = target.rpartition(":")
    if method != "CONNECT":
        raise ValueError(f"{method} is not CONNECT")
    return host.strip("[]"), int(port)
