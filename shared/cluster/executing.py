"""Runs a command in a container, over a WebSocket: its streams are channels, its end is a Status.

Each message begins with the number of its channel.  `calls.py` opens the socket.

A command may hold secrets, such as the environment of a script.  An API server that cannot reach the kubelet names the
URL that it called, and so the whole command: no error here repeats a word of it.
"""

import asyncio
from collections.abc import Sequence

import aiohttp
import msgspec

from shared.cluster import Execution
from shared.cluster.answers import LONGEST_MESSAGE, FailedRequest, Status, trouble, without
from shared.cluster.calls import FAREWELL_SECONDS, Caller, path_of
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient, Trouble
from shared.untrusted import MALFORMED, whole_number

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""The subprotocols that are offered.  They differ only in how standard input is closed."""
STDOUT, ERROR = 1, 3

CANNOT_EXECUTE = "CannotExecute"
"""The reason of a refusal by the kubelet, which gives none itself."""

LONGEST_END = 65536
"""The most bytes of the final Status."""
LONGEST_CODE = 9
"""Digits of an exit code."""
GRACE_SECONDS = 5.0
"""Seconds for the server to close after the command's end; output may still follow it."""

NEVER_STARTED = (
    "oci runtime exec failed",
    "executable file not found",
    "no such file or directory",
    "permission denied",
    "exec format error",
    "failed to create exec",
    "container is in",
    "not running",
)
"""Messages of container runtimes when the command did not start, in lower case.  Other failures leave that open."""

IN_BETWEEN = (408, 502, 504)
"""Answers of a proxy that timed out or lost the connection after it had passed the request on."""


class _End(Status, frozen=True):
    status: str = ""


class _Received:
    """The messages so far."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._output = bytearray()
        self._error = bytearray()
        self.wrote = False
        """True if the command wrote anything, which proves that it started."""

    @property
    def output(self) -> bytes:
        return bytes(self._output)

    @property
    def end(self) -> _End | None:
        """The Status of the command's end, if it arrived whole."""
        try:
            return msgspec.json.decode(self._error, type=_End)
        except MALFORMED:
            return None

    @property
    def nonsense(self) -> str:
        """What came in place of that Status."""
        return self._error.decode(errors="replace")

    def take(self, message: bytes) -> bool:
        """Keep a message up to the bounds; return True at the command's end."""
        channel, data = message[:1], message[1:]
        if channel == bytes([STDOUT]):
            self.wrote = self.wrote or bool(data)
            self._output += data[: max(self._most - len(self._output), 0)]
        elif channel == bytes([ERROR]):
            self._error += data[: LONGEST_END - len(self._error)]
            return bool(data)
        return False


async def execute(
    caller: Caller, namespace: str, pod: str, container: str, command: Sequence[str], *, timeout: float, most: int
) -> Execution:
    """See `Cluster.execute`."""
    what = f"execute {command[0] if command else 'nothing'} in {namespace}/{pod} {container}"
    query = [*(("command", word) for word in command), ("container", container), ("stdout", "true")]
    received = _Received(most)
    try:
        async with asyncio.timeout(timeout) as deadline:
            socket = await caller.open_socket(path_of(PODS, namespace, pod, "exec"), query, PROTOCOLS, what=what)
            try:
                await _listen(socket, received, deadline)
            finally:
                await _leave(socket)
    except FailedRequest as failure:
        told = msgspec.structs.replace(failure.status, message=without(failure.status.message, command))
        raise _refusal(told, what) from None
    except TimeoutError as error:
        if received.end is None:
            raise Transient(f"{what}: timed out after {timeout:g} s; it may still be running") from error
    except (aiohttp.ClientError, OSError) as error:
        if received.end is None:
            raise Transient(f"{what}: {error}") from error
    return Execution(_exit_code(received, what, command), received.output)


async def _listen(socket: aiohttp.ClientWebSocketResponse, received: _Received, deadline: asyncio.Timeout) -> None:
    """Read messages until the server closes, or `GRACE_SECONDS` after the command's end."""
    async for message in socket:
        if message.type == aiohttp.WSMsgType.BINARY and received.take(message.data) and received.end is not None:
            soon = asyncio.get_running_loop().time() + GRACE_SECONDS
            deadline.reschedule(min(soon, deadline.when() or soon))


async def _leave(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close the socket without waiting for a command that never stops writing."""
    try:
        async with asyncio.timeout(FAREWELL_SECONDS):
            await socket.close()
    except TimeoutError:
        pass


def _refusal(status: Status, what: str) -> Trouble:
    found = trouble(status, what)
    if status.code in IN_BETWEEN or isinstance(found, Refused):
        return found
    # Too many requests, an unreachable node, a container that is not running: no command started.
    return Refused(str(found), reason=status.reason or CANNOT_EXECUTE)


def _exit_code(received: _Received, what: str, command: Sequence[str]) -> int:
    end = received.end
    if end is not None and end.status == "Success":
        return 0
    codes = [cause.message for cause in end.causes if cause.reason == "ExitCode"] if end is not None else []
    if codes and (code := whole_number(codes[0], LONGEST_CODE)) is not None:
        return code
    if end is None and not received.nonsense:
        raise Transient(f"{what}: the connection was lost before the end; it may still be running")
    if end is None or end.status != "Failure" or codes:
        nonsense = without(received.nonsense, command)[:LONGEST_MESSAGE]
        raise Transient(f"{what}: its final status is malformed: {nonsense}")
    message, told = f"{what}: {without(end.message, command)[-LONGEST_MESSAGE:]}", end.message.lower()
    if received.wrote or not any(words in told for words in NEVER_STARTED):
        raise Transient(message)
    raise Refused(message, reason=CANNOT_EXECUTE)
