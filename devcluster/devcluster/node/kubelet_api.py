"""The kubelet's own API over HTTPS: logs and exec, for an API server with the token.

Exec is a WebSocket: a process in a container, with its streams as channels and its end as a status.  Each message
begins with the number of its channel; `v5.channel.k8s.io` adds a message that closes one.
"""

import asyncio
import contextlib
import fcntl
import hmac
import json
import os
import pty
import ssl
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from aiohttp import web

from devcluster.client import Json
from devcluster.node.containers import Container
from devcluster.node.logs import Log, Wanted
from devcluster.node.pods import Pod
from devcluster.node.runtime import Process, Runtime, RuntimeProblem

TRUE = ("1", "true")

LONGEST_LINE = 1 << 20
"""The most bytes of a URL, which for an exec has the whole command."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeletApi:
    def __init__(self, pods: Callable[[], Iterable[Pod]], runtime: Runtime, token: str) -> None:
        self._pods = pods
        self._runtime = runtime
        self._token = token

    @contextlib.asynccontextmanager
    async def serving(self, address: str, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve for as long as the context lasts; yields the port."""
        application = web.Application(middlewares=[self._authenticated])
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            application.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5, max_line_size=LONGEST_LINE)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, 0, ssl_context=tls).start()
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        # A client certificate was verified in the TLS handshake.
        certificate = request.transport and request.transport.get_extra_info("peercert")
        known = bool(certificate) or (self._token and hmac.compare_digest(given.encode(), self._token.encode()))
        if not known:
            raise web.HTTPUnauthorized(text="Unauthorized")
        return await handler(request)

    def _container(self, request: web.Request) -> tuple[Pod, Container]:
        asked = request.match_info
        # The newest pod of the name: an older one, deleted at the API server, may still be ending.
        for pod in reversed([*self._pods()]):
            if (pod.namespace, pod.name) == (asked["namespace"], asked["pod"]):
                container = pod.find(asked["container"])
                if container is None:
                    raise web.HTTPNotFound(text=f'container "{asked["container"]}" not found in pod "{pod.name}"')
                return pod, container
        raise web.HTTPNotFound(text=f'pod "{asked["pod"]}" does not exist')

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod, container = self._container(request)
        wanted = _wanted(request)
        previous = request.query.get("previous") in TRUE
        log = _log(pod, container, previous=previous)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for text in log.read(wanted):
                await response.write(text)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if "*/*" not in request.headers.get("Accept", "*/*"):
            raise web.HTTPNotAcceptable(text="406: Not Acceptable\n\nAvailable representations: ")
        _, container = self._container(request)
        return await serve_exec(request, self._runtime, container)


def _log(pod: Pod, container: Container, *, previous: bool) -> Log:
    log = container.logs.previous if previous else container.logs.present
    if log:
        return log
    if previous:
        raise web.HTTPBadRequest(text=f'previous terminated container "{container.name}" in pod "{pod.name}" not found')
    reason = (container.state.get("waiting") or {}).get("reason", "ContainerCreating")
    if pod.over:
        raise web.HTTPBadRequest(text=f'container "{container.name}" in pod "{pod.name}" is terminated')
    raise web.HTTPBadRequest(text=f'container "{container.name}" in pod "{pod.name}" is waiting to start: {reason}')


def _wanted(request: web.Request) -> Wanted:
    query = request.query
    try:
        since = None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        elif "sinceTime" in query:
            since = datetime.fromisoformat(query["sinceTime"])
        return Wanted(
            follow=query.get("follow") in TRUE,
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            since=since,
            timestamps=query.get("timestamps") in TRUE,
            limit=int(query["limitBytes"]) if "limitBytes" in query else None,
        )
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error


PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
OUTPUTS = {STDOUT: "output", STDERR: "error"}
"""The query parameters of the kubelet API that ask for each output."""
CHUNK = 65536


class Streams:
    """The agent's ends of a process's stdin, stdout and stderr."""

    def __init__(self, *, terminal: bool, stdin: bool) -> None:
        self.terminal = terminal
        self._open: set[int] = set()
        if terminal:
            ours, theirs = pty.openpty()
            self.standard = [theirs] * 3
            self.outputs = {STDOUT: ours}
            self.stdin: int | None = os.dup(ours) if stdin else None
        else:
            theirs_in, self.stdin = os.pipe2(os.O_CLOEXEC)
            out, theirs_out = os.pipe2(os.O_CLOEXEC)
            err, theirs_err = os.pipe2(os.O_CLOEXEC)
            self.standard = [theirs_in, theirs_out, theirs_err]
            self.outputs = {STDOUT: out, STDERR: err}
            if not stdin:
                self.close_stdin()
        for descriptor in [*self.outputs.values(), *([self.stdin] if self.stdin is not None else [])]:
            os.set_blocking(descriptor, False)

    def close_theirs(self) -> None:
        for descriptor in {*self.standard}:
            os.close(descriptor)

    def close_stdin(self) -> None:
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        self.close_stdin()
        for descriptor in self.outputs.values():
            os.close(descriptor)

    def resize(self, size: Json) -> None:
        if self.terminal:
            packed = struct.pack("HHHH", int(size["Height"]), int(size["Width"]), 0, 0)
            fcntl.ioctl(self.outputs[STDOUT], termios.TIOCSWINSZ, packed)


async def serve_exec(request: web.Request, runtime: Runtime, container: Container) -> web.StreamResponse:
    process, launch = container.process, container.launch
    if process is None or launch is None or not container.running:
        raise web.HTTPInternalServerError(text=f'container not found ("{container.name}")')
    query = request.query
    asked = {channel for channel, name in OUTPUTS.items() if query.get(name) in TRUE}
    if not asked and query.get("input") not in TRUE:
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    if "command" not in query:
        raise web.HTTPBadRequest(text="you must specify at least one command for the container")
    terminal = query.get("tty") in TRUE
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
    await socket.prepare(request)
    streams = Streams(terminal=terminal, stdin=query.get("input") in TRUE)
    variables = {**launch.environment, **({"TERM": "xterm"} if terminal else {})}
    command = replace(launch, command=query.getall("command"), environment=variables)
    try:
        try:
            inside = await runtime.exec(process, command, streams.standard, terminal=terminal)
        finally:
            streams.close_theirs()
        await _attend(socket, streams, inside, asked)
    except RuntimeProblem as problem:
        await _say(socket, ERROR, json.dumps(_failure(str(problem))).encode())
    finally:
        streams.close()
        await socket.close()
    return socket


async def _attend(socket: web.WebSocketResponse, streams: Streams, process: Process, asked: Collection[int]) -> None:
    if process.problem:
        # runc's message: clients recognize by it that the process never started.
        problem = f"OCI runtime exec failed: exec failed: unable to start container process: {process.problem}"
        await _say(socket, ERROR, json.dumps(_failure(problem)).encode())
        return
    listening = asyncio.ensure_future(_listen(socket, streams))
    pumps = [
        asyncio.ensure_future(_pump(socket if channel in asked else None, channel, pipe))
        for channel, pipe in streams.outputs.items()
    ]
    everything = asyncio.gather(asyncio.shield(process.exit), *pumps)
    ends: list[asyncio.Future[Any]] = [everything, listening]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # Otherwise the client has left.  The process goes on, as with containerd; only a terminal hangs up.
        if everything.done():
            await _say(socket, ERROR, json.dumps(_end(process.exit.result().code)).encode())
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def _pump(socket: web.WebSocketResponse | None, channel: int, pipe: int) -> None:
    """Send the pipe's data to the client; without a socket drop it, because a full pipe would block the process."""
    while data := await _read(pipe):
        if socket is not None:
            await _say(socket, channel, data)


async def _listen(socket: web.WebSocketResponse, streams: Streams) -> None:
    async for message in socket:
        if message.type != aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == STDIN and streams.stdin is not None:
            await _write(streams, data)
        elif channel == RESIZE:
            with contextlib.suppress(ValueError, KeyError, OSError):
                streams.resize(json.loads(data))
        elif channel == CLOSE and data == bytes([STDIN]) and not streams.terminal:
            streams.close_stdin()


async def _say(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(bytes([channel]) + data)


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(descriptor, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(descriptor)
        except OSError:
            # The end of a terminal is an error, not an empty read.
            return b""


async def _write(streams: Streams, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    while data and streams.stdin is not None:
        try:
            data = data[os.write(streams.stdin, data) :]
        except BlockingIOError:
            writable = asyncio.Event()
            loop.add_writer(streams.stdin, writable.set)
            try:
                await writable.wait()
            finally:
                loop.remove_writer(streams.stdin)
        except OSError:
            # The process has closed its stdin.
            streams.close_stdin()


def _end(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure(message: str) -> Json:
    text = f"Internal error occurred: error executing command in container: {message}"
    return {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": text, "code": 500}
