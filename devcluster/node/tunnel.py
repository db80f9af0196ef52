"""A tunnel from the API server into the pods' network, for `pods/proxy`: it takes addresses by HTTP CONNECT.

Clusters whose control plane has no route to the pods have such tunnels.  The API server also uses it for kubelets.
"""

import asyncio
from ipaddress import ip_address, ip_network

from devcluster.node.relay import Dial, Ends
from devcluster.node.runtime import Runtime, RuntimeProblem

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
