"""What the nodes and the garbage collector of a cluster in memory do: at once, unless a test says otherwise."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from shared.cluster.kinds import PODS
from shared.errors import Refused
from tests.memory.store import MemoryStore
from tests.memory.watching import Held

NAMESPACE = "team-a"

QUICK_SECONDS = 0.002
IDLE_SECONDS = 0.02
SLOW_SECONDS = 5.0
"""How often the kubelet looks: after a change, while something is waited for, and while hours pass."""


class Kubelet:
    """Every pod is placed, started and made Ready, and ended when its deletion asks for that."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.homes: dict[str, str] = {}
        """The node that each pod, by name, is placed on; node-0 for all others."""
        self.room: int | None = None
        """How many pods there is room for; None for any number."""
        self.exit_codes: dict[str, int] = {}
        """Pods that end, by name, and how; the kubelet looks here."""
        self.broken_images: set[str] = set()
        """Pods whose command cannot start."""
        self.stuck: set[str] = set()
        """Pods, by name, that are placed and do not start."""
        self.odd: set[str] = set()
        """Pods, by name, that no kubelet looks at."""
        self.lingering: set[str] = set()
        """Pods, by uid, that do not end when they are deleted."""
        self.collecting = True
        """The garbage collector works."""
        self._pace = QUICK_SECONDS

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass: what is tested is what does not follow from it."""
        self._pace = min(seconds / 10, SLOW_SECONDS)
        await asyncio.sleep(seconds)
        self._pace = QUICK_SECONDS

    async def obey(self) -> None:
        seen, wait = 0, QUICK_SECONDS
        while True:
            for held in self.store.find(PODS):
                if not self._left_alone(held):
                    self._care(held)
            if self.collecting:
                self.store.collect_garbage()
            wait = min(wait * 2, IDLE_SECONDS) if seen == self.store.version else QUICK_SECONDS
            seen = self.store.version
            await asyncio.sleep(max(wait, self._pace))

    def _left_alone(self, held: Held) -> bool:
        (namespace, name), going = held.at, held.metadata.get("deletionTimestamp")
        if name in self.odd:
            return True
        if going:
            return held.metadata["uid"] in self.lingering
        # Pods end by name in one namespace; their namesakes elsewhere go on.
        spared = name in self.exit_codes and namespace != NAMESPACE
        return spared or bool(name in self.stuck and held.manifest["spec"].get("nodeName"))

    def _care(self, held: Held) -> None:
        namespace, name = held.at
        manifest = held.manifest
        status = manifest.get("status") or {}
        if not manifest["spec"].get("nodeName") and self._is_full():
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
            self.store.patch(PODS, namespace, name, {"status": {"conditions": [condition]}}, subresource="status")
        elif not manifest["spec"].get("nodeName"):
            self.store.bind(namespace, name, self.homes.get(name, "node-0"))
        elif held.metadata.get("deletionTimestamp"):
            self.store.remove(PODS, namespace, name)
        elif name in self.broken_images and status.get("phase") == "Pending":
            self._report(held, "Failed", 128, reason="StartError")
        elif name in self.exit_codes and status.get("phase") == "Running":
            # As a kubelet does: first how the container ended, then what that makes of the pod.
            self._report(held, "Running", self.exit_codes.pop(name))
        elif (code := _exit_code(status)) is not None and status.get("phase") == "Running":
            self._report(held, "Succeeded" if code == 0 else "Failed", code)
        elif status.get("phase") == "Pending":
            self._report(held, "Running")

    def _is_full(self) -> bool:
        if self.room is None:
            return False
        placed = (held.manifest for held in self.store.find(PODS) if held.manifest["spec"].get("nodeName"))
        ended = ("Succeeded", "Failed")
        return sum((pod.get("status") or {}).get("phase") not in ended for pod in placed) >= self.room

    def _report(self, held: Held, phase: str, code: int | None = None, *, reason: str = "") -> None:
        ready = phase == "Running" and code is None
        first = next(iter(held.manifest["spec"]["containers"]), {"name": "main"})
        container = {"name": first["name"], "ready": ready, "state": {}}
        if code is not None:
            reason = reason or ("Error" if code else "Completed")
            container["state"] = {"terminated": {"exitCode": code, "reason": reason}}
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        }
        with suppress(Refused):
            self.store.patch(PODS, *held.at, {"status": status}, subresource="status")


def _exit_code(status: Mapping[str, Any]) -> int | None:
    """Of the first container, once it has ended."""
    for container in status.get("containerStatuses") or ():
        if "terminated" in container["state"]:
            return int(container["state"]["terminated"]["exitCode"])
    return None
