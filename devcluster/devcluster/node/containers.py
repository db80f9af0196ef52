"""One container of a pod: its state in the API, its runs, and the delay before the next one."""

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from devcluster.client import Json
from devcluster.clock import NEVER, doubled, now, timestamp
from devcluster.node.dns import Named
from devcluster.node.logs import Log, Logs
from devcluster.node.machine import Machine
from devcluster.node.runtime import Launch, Process
from devcluster.node.volumes import Volumes

SCHEME = "process"
"""The scheme of container ids, which names the container runtime."""

LONGEST_DELAY = 300.0
FORGIVEN_AFTER = 600.0
"""Seconds of running after which earlier crashes no longer count."""

DRAIN_TIMEOUT = 1.0
"""Seconds to wait after a container's end for the end of its log."""

MESSAGE_LIMIT = 4096
LOG_LINES = 80
LOG_BYTES = 2048
"""The most lines, and the most bytes, of a termination message from the log."""


class OnNode(Named, Protocol):
    """The parts of a pod that its containers need."""

    object: Json
    uid: str
    machine: Machine
    volumes: Volumes
    field_values: dict[str, str]
    stopping: asyncio.Event
    """Set when no container of the pod may start any more."""

    def changed(self) -> None: ...
    async def fetch(self, plural: str, name: str) -> Json | None: ...


@dataclass
class Container:
    spec: Json
    first_delay: float
    """Seconds before the second restart; the first is at once, and each further one waits twice as long."""
    logs: Logs
    message_file: Path
    """The file whose text becomes the termination message."""
    probed: bool = False
    """True if the container is ready only after its probe succeeds."""
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Json = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    process: Process | None = None
    launch: Launch | None = None
    """The command, environment and identity of the present run; exec uses them too."""
    _id: str = ""
    _ends: int = 0
    """The ends since the last long run; the back-off grows with each."""
    _started: float = 0.0
    _run: bool = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last run; None unless the container has terminated."""
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    @property
    def running(self) -> bool:
        return "running" in self.state

    def wait(self, reason: str, message: str = "") -> bool:
        """Set the state to waiting with this reason; return True if that changed it."""
        waiting = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        if self.state == waiting:
            return False
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = waiting
        self.ready = False
        return True

    def recover(self, status: Json) -> None:
        """Take over the counts and the last state from the status that an earlier agent wrote."""
        self.restarts = int(status.get("restartCount", 0))
        self.last_state = dict(status.get("lastState") or {})
        self._id = str(status.get("containerID", "")).removeprefix(f"{SCHEME}://")
        state: Json = status.get("state") or {}
        if "terminated" in state:
            self.state = state
        elif "running" in state:
            lost: dict[str, Any] = {"exitCode": 255, "reason": "Unknown", "containerID": status.get("containerID", "")}
            self.state = {
                "terminated": lost | {"startedAt": state["running"].get("startedAt"), "finishedAt": now()},
            }
        elif self.last_state:
            self.state = {"waiting": state.get("waiting") or {"reason": "CrashLoopBackOff"}}
        self._run = "terminated" in self.state or bool(self.last_state)

    def began(self, process: Process, launch: Launch) -> None:
        if "terminated" in self.state:
            self.last_state = self.state
        if self._run:
            self.restarts += 1
        self._run = True
        self._id = secrets.token_hex(32)
        self.process, self.launch = process, launch
        self._started = process.started
        if not process.problem:
            self.state = {"running": {"startedAt": timestamp(process.started)}}
            self.ready = not self.probed

    async def ended(self, process: Process) -> None:
        """Wait for the end of the run, and set the state to terminated."""
        end = await process.exit
        log = self.logs.present
        if log:
            # The log is complete before the status says that the container has terminated.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(log.ended.wait(), DRAIN_TIMEOUT)
            log.close()
        terminated: Json = {
            "exitCode": end.code,
            "reason": "StartError" if process.problem else "Completed" if end.code == 0 else "Error",
            "startedAt": NEVER if process.problem else timestamp(process.started),
            "finishedAt": timestamp(end.time),
            "containerID": f"{SCHEME}://{self._id}",
        }
        if message := process.problem or self._message() or (self._last_lines(log) if end.code else ""):
            terminated["message"] = message
        self.state = {"terminated": terminated}
        self.ready = False
        self.process = None
        if end.time - self._started > FORGIVEN_AFTER:
            self._ends = 0

    def _message(self) -> str:
        with contextlib.suppress(OSError), self.message_file.open("rb") as file:
            return file.read(MESSAGE_LIMIT).decode(errors="replace")
        return ""

    def _last_lines(self, log: Log | None) -> str:
        """The end of the log, if the container asked for it; as much as a kubelet takes."""
        if log is None or self.spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        return log.end(LOG_LINES)[-LOG_BYTES:].decode(errors="replace")

    def next_delay(self) -> float:
        """Seconds to wait before the next run; each call returns a longer delay."""
        delay = doubled(self.first_delay, self._ends, LONGEST_DELAY)
        self._ends += 1
        return delay

    def status(self, *, init: bool = False) -> Json:
        return {
            "name": self.name,
            "image": self.spec.get("image", ""),
            "imageID": f"{SCHEME}://{self.spec.get('image', '')}" if self._id else "",
            **({"containerID": f"{SCHEME}://{self._id}"} if self._id else {}),
            "restartCount": self.restarts,
            "ready": self.exit_code == 0 if init else self.ready,
            "started": self.running,
            "state": self.state,
            "lastState": self.last_state,
        }
