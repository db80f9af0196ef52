"""The process that forks containers into namespaces: small, single-threaded, and the ancestor of all containers.

It is the init of its own pid namespace, so the kernel ends every container with it, and it dies with the agent.
A request is JSON in a memory file, which comes over a socket with the descriptors that it needs; answers and exits go
back as JSON.  `runtime.py` is the agent's side.
"""

# The zygote has few and small imports.
# ruff: noqa: PTH103, PTH112, PTH115, PTH123

import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import termios
import time
from typing import Any, NamedTuple

from devcluster.node import kernel, rootfs
from devcluster.node.network import PodNetworks

MAX_MESSAGE = 65536
"""The most bytes of a header or an answer; a request in a memory file may have any size."""

CANNOT_START = 128
"""The exit code of a container whose command never ran, as with containerd."""

DEFAULT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""The default capabilities of root in containers (chown, kill, bind to low ports, ...)."""


class Start(NamedTuple):
    """A process between fork and exec; its pipe ends empty if the exec succeeds, or else has the error."""

    request: int
    pipe: int


class Zygote:
    def __init__(self, agent: socket.socket, base: str, gateway: str) -> None:
        self._agent = agent
        self._base = base
        self._networks = PodNetworks(gateway)
        self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._processes: dict[int, int] = {}
        """The request that started each pid."""
        self._starts: dict[int, Start] = {}
        """By pid."""
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        readable, writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writable)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._agent, selectors.EVENT_READ, self._serve)
        self._selector.register(readable, selectors.EVENT_READ, lambda: self._reap(readable))
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._agent, [json.dumps(message).encode()], descriptors)

    def _serve(self) -> None:
        header, descriptors, _, _ = socket.recv_fds(self._agent, 1, 8, socket.MSG_CMSG_CLOEXEC)
        if not header:
            # The agent is gone; the kernel ends all containers with this process.
            os._exit(0)
        memory, *passed = descriptors
        with open(memory, "rb") as file:
            request = json.loads(file.read())
        try:
            self._handle(request, passed)
        except OSError as error:
            self._send({"id": request["id"], "error": str(error)})
        for descriptor in passed:
            os.close(descriptor)

    def _handle(self, request: dict[str, Any], passed: list[int]) -> None:
        match request["op"]:
            case "start":
                self._start(request, passed)
            case "exec":
                self._exec(request, passed)
            case "signal":
                for pid, process in self._processes.items():
                    if process == request["process"]:
                        os.kill(pid, request["signal"])
            case "add network":
                self._networks.add(request["pod"], request["address"])
                self._send({"id": request["id"]})
            case "remove network":
                self._networks.remove(request["pod"])
            case "socket":
                bound = tuple(request["bound"]) if request["bound"] else None
                with self._networks.socket(request["kind"], bound) as made:
                    self._send({"id": request["id"]}, (made.fileno(),))
            case other:
                raise OSError(f"no such request: {other}")

    def _start(self, request: dict[str, Any], passed: list[int]) -> None:
        readable, writable = os.pipe2(os.O_CLOEXEC)
        kernel.unshare(kernel.NEWPID)
        pid = os.fork()
        if pid == 0:
            self._become_container(request, passed, writable)
        os.close(writable)
        # The new pid namespace is only for this container; later forks use the zygote's own again.
        kernel.setns(self._pid_namespace, kernel.NEWPID)
        self._await_start(request["id"], pid, readable)

    def _become_container(self, request: dict[str, Any], passed: list[int], problems: int) -> None:
        try:
            _forget_the_zygote()
            os.setsid()
            self._networks.enter(request["pod"])
            kernel.unshare(kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC)
            kernel.set_hostname(request["hostname"])
            mounts, files, identity = request["mounts"], request["files"], request["identity"]
            read_only, for_any_user = identity["read_only_root"], bool(identity["user"])
            rootfs.enter(self._base, mounts, files, read_only=read_only, for_any_user=for_any_user)
            _change_folder(request["folder"])
            _take_on(identity)
            _become(request, [os.open("/dev/null", os.O_RDONLY), *passed], problems)
        except BaseException as error:  # noqa: BLE001 - whatever it is, this process may not go on as a zygote
            os.write(problems, str(error).encode())
        finally:
            os._exit(CANNOT_START)

    def _exec(self, request: dict[str, Any], passed: list[int]) -> None:
        """Start another process in a running container; its parent exits with its exit code."""
        container = next((pid for pid, process in self._processes.items() if process == request["process"]), None)
        if container is None:
            raise ProcessLookupError("the container is not running")
        readable, writable = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                _forget_the_zygote()
                kernel.die_with_parent(signal.SIGKILL)
                _enter_namespaces(container)
                inner = os.fork()
                if inner:
                    os.close(writable)
                    for descriptor in passed:
                        os.close(descriptor)
                    code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
                    os._exit(code if code >= 0 else 128 - code)
                kernel.die_with_parent(signal.SIGKILL)
                os.setsid()
                _change_folder(request["folder"])
                _take_on(request["identity"])
                _become(request, passed, writable)
            except BaseException as error:  # noqa: BLE001 - whatever it is, this process may not go on as a zygote
                os.write(writable, str(error).encode())
            finally:
                os._exit(CANNOT_START)
        os.close(writable)
        self._await_start(request["id"], pid, readable)

    def _await_start(self, request: int, pid: int, pipe: int) -> None:
        self._processes[pid] = request
        self._starts[pid] = Start(request, pipe)
        self._selector.register(pipe, selectors.EVENT_READ, lambda: self._started(pid))

    def _started(self, pid: int) -> None:
        start = self._starts.pop(pid, None)
        if start is None:
            # `_reap` has handled it in this round of the loop.
            return
        problem = os.read(start.pipe, MAX_MESSAGE // 2).decode(errors="replace")
        self._selector.unregister(start.pipe)
        os.close(start.pipe)
        self._send({"id": start.request, "problem": problem, "time": time.time()})

    def _reap(self, wakeups: int) -> None:
        os.read(wakeups, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._started(pid)
            # Other pids are orphans, whose parent is now this init.
            if pid in self._processes:
                code = os.waitstatus_to_exitcode(status)
                code = code if code >= 0 else 128 - code
                self._send({"exit": self._processes.pop(pid), "code": code, "time": time.time()})


def _forget_the_zygote() -> None:
    signal.set_wakeup_fd(-1)
    # Python ignores SIGPIPE and SIGXFSZ, and ignored signals stay ignored after an exec.
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _take_on(identity: dict[str, Any]) -> None:
    """Set user, groups and capabilities, in an order in which each step is still permitted."""
    if not identity["privileged"]:
        kernel.keep_capabilities(DEFAULT_CAPABILITIES if identity["capabilities"] else frozenset())
    if not identity["new_privileges"]:
        kernel.no_new_privileges()
    if identity["groups"] or identity["group"] or identity["user"]:
        os.setgroups(identity["groups"])
        os.setgid(identity["group"])
        os.setuid(identity["user"])


def _change_folder(folder: str) -> None:
    # A missing working folder is made if possible, as by runc.
    if not os.path.isdir(folder):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise OSError(f"the working folder {folder} does not exist and cannot be made: {error.strerror}") from error
    os.chdir(folder)


def _enter_namespaces(container: int) -> None:
    descriptors = []
    for name in ("pid", "net", "uts", "ipc", "mnt"):
        theirs = f"/proc/{container}/ns/{name}"
        # The kernel refuses to enter a namespace in which the process already is.
        if os.readlink(theirs) != os.readlink(f"/proc/self/ns/{name}"):
            descriptors.append(os.open(theirs, os.O_RDONLY | os.O_CLOEXEC))
    for descriptor in descriptors:
        kernel.setns(descriptor)


def _become(request: dict[str, Any], standard: list[int], problems: int) -> None:
    """Replace this process by the command; a successful exec closes `problems`."""
    # Moved above 2 first, so that no descriptor is overwritten before it is moved to its place.
    high = [os.dup(descriptor) for descriptor in standard]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(3, problems)
    os.closerange(problems + 1, 65536)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    command = request["command"]
    try:
        os.execvpe(command[0], command, request["environment"])  # noqa: S606 - there is no shell in between
    except FileNotFoundError:
        raise OSError(f'exec: "{command[0]}": executable file not found in $PATH') from None
    except OSError as error:
        raise OSError(f'exec: "{command[0]}": {error.strerror}') from None


def become_zygote(agent: socket.socket, settings: dict[str, Any]) -> None:
    """Separate this process from the host, and serve until the agent is gone; it never returns."""
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != settings["agent"]:
        os._exit(1)
    try:
        _separate()
        zygote = Zygote(agent, settings["base"], settings["gateway"])
    except OSError as error:
        agent.send(json.dumps({"id": 0, "error": str(error)}).encode())
        os._exit(1)
    agent.send(json.dumps({"id": 0}).encode())
    zygote.run()


def _separate() -> None:
    user, group = os.getuid(), os.getgid()
    apart = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET
    if user:
        kernel.unshare(kernel.NEWUSER | apart)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        # The change of credentials has cleared the parent-death signal.
        kernel.die_with_parent(signal.SIGKILL)
    else:
        kernel.unshare(apart)
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    init = os.fork()
    if init:
        # The outer process only waits: its child is the init of the namespaces.
        os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]) & 255)
    kernel.die_with_parent(signal.SIGKILL)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def main() -> None:
    agent = socket.socket(fileno=int(sys.argv[1]))
    agent.set_inheritable(False)
    become_zygote(agent, json.loads(sys.argv[2]))
