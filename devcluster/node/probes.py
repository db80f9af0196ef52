"""Readiness probes."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace

from devcluster.node.containers import Container
from devcluster.node.kubernetes import Json
from devcluster.node.runtime import Process, Runtime, RuntimeProblem


async def watch_readiness(
    runtime: Runtime, container: Container, process: Process, address: str, changed: Callable[[], None]
) -> None:
    """Probe one run of a container until the run ends."""
    probe = container.spec["readinessProbe"]
    good, bad = 0, 0
    await _until_over(process, probe.get("initialDelaySeconds", 0))
    while not process.exit.done():
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                well = await _ask(runtime, container, process, address, probe)
        except (OSError, TimeoutError, RuntimeProblem):
            well = False
        good, bad = (good + 1, 0) if well else (0, bad + 1)
        ready = container.ready
        if good >= probe.get("successThreshold", 1):
            ready = True
        elif bad >= probe.get("failureThreshold", 3):
            ready = False
        if ready != container.ready and container.process is process and container.running:
            container.ready = ready
            changed()
        await _until_over(process, probe.get("periodSeconds", 10))


async def _until_over(process: Process, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.exit), seconds)


async def _ask(runtime: Runtime, container: Container, process: Process, address: str, probe: Json) -> bool:
    if command := (probe.get("exec") or {}).get("command"):
        return await _exec(runtime, container, process, command)
    target = probe.get("tcpSocket") or probe.get("httpGet")
    if not target:
        return False
    connection = await runtime.socket("tcp")
    with connection:
        port = _port(container.spec, target["port"])
        await asyncio.get_running_loop().sock_connect(connection, (target.get("host") or address, port))
        return "tcpSocket" in probe or await _get(connection, target, f"{address}:{port}")


async def _exec(runtime: Runtime, container: Container, process: Process, command: list[str]) -> bool:
    assert container.launch is not None, "a container that runs was launched"
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        asked = await runtime.exec(process, replace(container.launch, command=command), [nothing] * 3)
    finally:
        os.close(nothing)
    try:
        return (await asyncio.shield(asked.exit)).code == 0 and not asked.problem
    finally:
        asked.signal(signal.SIGKILL)


async def _get(connection: socket.socket, target: Json, host: str) -> bool:
    """True if an HTTP GET is answered with 2xx or 3xx."""
    headers = {"Host": host, "User-Agent": "kube-probe/1.32", "Accept": "*/*", "Connection": "close"}
    lines = [f"GET {target.get('path') or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    reader, writer = await asyncio.open_connection(sock=connection.dup())
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        words = (await reader.readline()).split()
        return len(words) > 1 and words[1].isdigit() and 200 <= int(words[1]) < 400
    finally:
        writer.transport.abort()


def _port(container: Json, port: int | str) -> int:
    """The number of a port, which may be given by name."""
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    try:
        return int(port)
    except ValueError:
        raise OSError(f"no port is named {port}") from None
