"""A command in a container, over a WebSocket: its streams are channels, its end is a Status.

Each message begins with the number of its channel.  Opening the socket is the business of `calls.py`.
"""

import asyncio
from collections.abc import Sequence

import aiohttp
import msgspec

from shared.cluster import Execution
from shared.cluster.answers import LONGEST_MESSAGE, FailedRequest, Status, trouble
from shared.cluster.calls import FAREWELL_SECONDS, Caller, path_of
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient, Trouble

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""What we speak.  They differ in how standard input is closed, which we never open."""
STDOUT, ERROR = 1, 3

CANNOT_EXECUTE = "CannotExecute"
"""The reason when it is the node that says no, for it has no words of that kind."""

LONGEST_END = 65536
"""Bytes of the Status at the end."""
GRACE_SECONDS = 5.0
"""How long the other side may take to close once the command's end is told; output may still come behind it."""

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
"""How container runtimes say that there is no process, in lower case; of other failures nobody knows when they were."""

IN_BETWEEN = (408, 502, 504)
"""Answers of somebody on the way who lost patience or the connection, but had passed the request on."""


class _End(Status, frozen=True):
    status: str = ""


class _Heard:
    """What came so far."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._output = bytearray()
        self._error = bytearray()
        self.spoke = False
        """Whether the command wrote anything, which proves that it started."""

    @property
    def output(self) -> bytes:
        return bytes(self._output)

    @property
    def end(self) -> _End | None:
        """How the command ended, when that was told whole."""
        try:
            return msgspec.json.decode(self._error, type=_End)
        except msgspec.MsgspecError:
            return None

    @property
    def nonsense(self) -> str:
        return self._error[:LONGEST_MESSAGE].decode(errors="replace")

    def take(self, message: bytes) -> bool:
        """Keep what is to be kept; whether it told of the end."""
        channel, data = message[:1], message[1:]
        if channel == bytes([STDOUT]):
            self.spoke = self.spoke or bool(data)
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
    heard = _Heard(most)
    try:
        async with asyncio.timeout(timeout) as deadline:
            socket = await caller.open_socket(path_of(PODS, namespace, pod, "exec"), query, PROTOCOLS, what=what)
            try:
                await _listen(socket, heard, deadline)
            finally:
                await _leave(socket)
    except FailedRequest as failure:
        raise _refusal(failure.status, what) from failure
    except TimeoutError as error:
        if heard.end is None:
            raise Transient(f"{what}: timed out after {timeout:g} s; it may still be running") from error
    except (aiohttp.ClientError, OSError) as error:
        if heard.end is None:
            raise Transient(f"{what}: {error}") from error
    return Execution(_exit_code(heard, what), heard.output)


async def _listen(socket: aiohttp.ClientWebSocketResponse, heard: _Heard, deadline: asyncio.Timeout) -> None:
    """Until the other side closes, or has had the time for it."""
    async for message in socket:
        if message.type == aiohttp.WSMsgType.BINARY and heard.take(message.data) and heard.end is not None:
            soon = asyncio.get_running_loop().time() + GRACE_SECONDS
            deadline.reschedule(min(soon, deadline.when() or soon))


async def _leave(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close; a command that never stops writing does not keep us."""
    try:
        async with asyncio.timeout(FAREWELL_SECONDS):
            await socket.close()
    except TimeoutError:
        pass


def _refusal(status: Status, what: str) -> Trouble:
    found = trouble(status, what)
    if status.code in IN_BETWEEN or isinstance(found, Refused):
        return found
    # Too many requests, an unreachable node, a container that is not running: whatever it was, there was no stream.
    return Refused(str(found), reason=status.reason or CANNOT_EXECUTE)


def _exit_code(heard: _Heard, what: str) -> int:
    end = heard.end
    if end is not None and end.status == "Success":
        return 0
    codes = [cause.message for cause in end.causes if cause.reason == "ExitCode"] if end is not None else []
    if codes and codes[0].isdecimal():
        return int(codes[0])
    if end is None and not heard.nonsense:
        raise Transient(f"{what}: the connection was lost before the end; it may still be running")
    if end is None or end.status != "Failure" or codes:
        raise Transient(f"{what}: its end makes no sense: {heard.nonsense}")
    message, told = f"{what}: {end.message[-LONGEST_MESSAGE:]}", end.message.lower()
    if heard.spoke or not any(words in told for words in NEVER_STARTED):
        raise Transient(message)
    raise Refused(message, reason=CANNOT_EXECUTE)
