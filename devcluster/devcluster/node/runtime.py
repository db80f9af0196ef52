"""The agent's side of the zygote: it starts processes in pods, signals them, and gets their exit codes."""

import asyncio
import collections
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devcluster.node.rootfs import Mount
from devcluster.node.zygote import MAX_MESSAGE

BOOT_TIMEOUT = 10.0

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop()); from devcluster.node.zygote import main; main()"

_ROOT = str(Path(__file__).parents[2])


class RuntimeProblem(Exception):  # noqa: N818 - a problem is told to people, and tried again
    """The zygote could not carry out a request; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The user and the rights of a process."""

    user: int = 0
    group: int = 0
    groups: tuple[int, ...] = ()
    privileged: bool = False
    new_privileges: bool = True
    """True if a program may gain rights that its caller lacks, as with sudo."""
    capabilities: bool = True
    """True for the default capabilities of containers; False for none."""
    read_only_root: bool = False


ROOT: Identity = Identity()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The command, environment, folder and identity of a process."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    identity: Identity = ROOT


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The network, mounts and files that make a process a container."""

    pod: str
    hostname: str
    mounts: Sequence[Mount]
    files: Mapping[str, str]
    """Texts of files by path."""


@dataclass(frozen=True)
class Exit:
    code: int
    time: float
    """Seconds since the epoch."""


@dataclass
class Process:
    """A forked process; if `problem` is set, its command never ran."""

    runtime: "Runtime"
    number: int
    exit: asyncio.Future[Exit]
    problem: str = ""
    started: float = 0.0

    def signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        if not self.exit.done():
            self.runtime.tell({"op": "signal", "process": self.number, "signal": number})


@dataclass
class Runtime:
    """One zygote.  If it dies, all containers die with it, and `lost` is called."""

    base: Path
    gateway: str
    lost: Callable[[], None]
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = field(default_factory=dict)
    _exits: dict[int, asyncio.Future[Exit]] = field(default_factory=dict)
    _outbox: collections.deque[tuple[int, ...]] = field(default_factory=collections.deque)

    async def launch(self) -> None:
        """Start the zygote; raises `RuntimeProblem` if this machine does not permit namespaces."""
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        settings = {"agent": os.getpid(), "gateway": self.gateway, "base": str(self.base)}
        number = theirs.fileno()
        with theirs:
            # Without site packages, which the zygote does not need, Python starts in half the time.
            self._process = subprocess.Popen(  # noqa: ASYNC220 - ended by closing the socket, not through asyncio
                [sys.executable, "-I", "-S", "-c", _BOOT, str(number), json.dumps(settings), _ROOT],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                # A Ctrl-C in the terminal reaches only the agent, which ends the containers in order.
                start_new_session=True,
            )
        answer = self._answers[0] = self._loop.create_future()
        self._loop.add_reader(self._socket, self._receive)
        try:
            async with asyncio.timeout(BOOT_TIMEOUT):
                await answer
        except TimeoutError:
            raise RuntimeProblem(f"the zygote did not start within {BOOT_TIMEOUT:g} s") from None

    async def close(self) -> None:
        """Kill the zygote, and with it every container."""
        self.lost = lambda: None
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for descriptors in self._outbox:
            _close(descriptors)
        await asyncio.to_thread(self._process.wait)

    async def add_network(self, pod: str, address: str) -> None:
        await self._ask({"op": "add network", "pod": pod, "address": address})

    def remove_network(self, pod: str) -> None:
        self.tell({"op": "remove network", "pod": pod})

    async def socket(self, kind: str, bound: tuple[str, int] | None = None) -> socket.socket:
        """A non-blocking TCP or UDP socket that reaches all pods."""
        _, [descriptor] = await self._ask({"op": "socket", "kind": kind, "bound": bound})
        made = socket.socket(fileno=descriptor)
        made.setblocking(False)
        return made

    async def start(self, launch: Launch, isolation: Isolation, outputs: Sequence[int]) -> Process:
        """Start a container; `outputs` are the descriptors of its stdout and stderr, which the caller closes."""
        request = {
            "op": "start",
            "terminal": False,
            "pod": isolation.pod,
            "hostname": isolation.hostname,
            "mounts": list(isolation.mounts),
            "files": dict(isolation.files),
        }
        return await self._process_of(request, launch, outputs)

    async def exec(
        self, container: Process, launch: Launch, standard: Sequence[int], *, terminal: bool = False
    ) -> Process:
        """Start another process in the container; `standard` are its stdin, stdout and stderr."""
        request = {"op": "exec", "terminal": terminal, "process": container.number}
        return await self._process_of(request, launch, standard)

    async def _process_of(self, request: dict[str, Any], launch: Launch, descriptors: Sequence[int]) -> Process:
        number = next(self._numbers)
        request |= {
            "id": number,
            "command": list(launch.command),
            "environment": dict(launch.environment),
            "folder": launch.folder,
            "identity": asdict(launch.identity),
        }
        exits = self._exits[number] = self._loop.create_future()
        try:
            answer, _ = await self._ask(request, descriptors)
        except RuntimeProblem:
            del self._exits[number]
            raise
        return Process(self, number, exits, answer["problem"], answer["time"])

    async def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        number = request.setdefault("id", next(self._numbers))
        answer: asyncio.Future[tuple[dict[str, Any], list[int]]] = self._loop.create_future()
        self._answers[number] = answer
        self.tell(request, descriptors)
        return await answer

    def tell(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        memory = os.memfd_create("request", os.MFD_CLOEXEC)
        os.write(memory, json.dumps({"id": 0} | request).encode())
        os.lseek(memory, 0, os.SEEK_SET)
        # Duplicated, because the caller may close its descriptors before they are sent.
        self._outbox.append((memory, *(os.dup(descriptor) for descriptor in descriptors)))
        self._flush()

    def _flush(self) -> None:
        while self._outbox:
            try:
                socket.send_fds(self._socket, [b"."], self._outbox[0])
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._flush)
                return
            except OSError:
                # The zygote is gone; `_receive` handles that.
                pass
            _close(self._outbox.popleft())
        self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, 4, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._loop.remove_reader(self._socket)
                self._fail_all()
                self.lost()
                return
            message = json.loads(data)
            if "exit" in message:
                self._exits.pop(message["exit"]).set_result(Exit(message["code"], message["time"]))
                continue
            answer = self._answers.pop(message["id"], None)
            if answer is None or answer.done():
                _close(descriptors)
            elif "error" in message:
                answer.set_exception(RuntimeProblem(message["error"]))
            else:
                answer.set_result((message, descriptors))

    def _fail_all(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(RuntimeProblem("the zygote died"))
        self._answers.clear()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
