"""A child process with a log file; it can be killed and started again, and ends with its parent."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL."""

POLL = 0.02
"""Seconds between two looks at what is waited for."""

LOG_TAIL = 2000
PR_SET_PDEATHSIG = 1


class ChildError(Exception):
    """The process ended, or was not ready in time; the message ends with the end of its log."""


class Child:
    orphaned = signal.SIGTERM
    """The signal that the kernel sends to the child when the parent is killed."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.command = [*command]
        """The command that the next `start` runs."""
        self.log = log
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert not self.running, f"{self.name} runs already as {self.pid}"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # A Ctrl-C in the terminal reaches only the parent, which ends its children in order.
                start_new_session=True,
                # With threads, code between fork and exec must not take locks; this code makes two system calls.
                preexec_fn=_bound_to_parent(self.orphaned),  # noqa: PLW1509
            )

    async def line(self, prefix: str, timeout: float) -> str:
        """Wait for the first line since the last start that begins with `prefix`; return the rest of it."""
        found = list[str]()

        async def printed() -> bool:
            lines = self._output().splitlines(keepends=True)
            found.extend(line for line in lines if line.startswith(prefix) and line.endswith("\n"))
            return bool(found)

        await self.until(printed, timeout)
        return found[0].removeprefix(prefix).strip()

    async def until(self, ready: Callable[[], Awaitable[bool]], timeout: float) -> None:
        """Wait until `ready` is true.  Raises `ChildError` if the program ends, or is not ready in time."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not await ready():
            if not self.running or asyncio.get_running_loop().time() > deadline:
                raise self.error(f"was not ready within {timeout:g} s")
            await asyncio.sleep(POLL)

    def error(self, what: str) -> ChildError:
        how = "" if self.running else f" (it ended with {self._process.returncode if self._process else 'no start'})"
        return ChildError(f"{self.name} {what}{how}; the end of {self.log}:\n{self._output()[-LOG_TAIL:]}")

    def _output(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL, as crash tests do; the process is gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def restart(self) -> None:
        """Kill the process if it runs, and start it again."""
        self.kill()
        self.start()

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after `GRACE` seconds; the process is gone when this returns."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, GRACE)
        self.kill()


def _bound_to_parent(number: signal.Signals) -> Callable[[], None] | None:
    """The code to run before exec, so that the kernel signals the child when its parent dies; None without Linux."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: between fork and exec only system calls are safe.
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number)
        # The parent may have died before the call above.
        if os.getppid() != parent:
            os._exit(1)

    return bind
