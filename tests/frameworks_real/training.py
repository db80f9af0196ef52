"""What a test does with a job that trains: apply its example, wait for its end, read what it said."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from shared.errors import Trouble
from tests.frameworks_real.environments import EXAMPLES
from tests.kit.operator import Operator

PATIENCE_SECONDS = 300.0
"""Several processes import a framework at once, and a group of PyTorch is formed again after the loss of a worker."""

WANTED_LOSS = 0.25
"""Below which each program ends; a coin's is 0.69."""


class Training:
    """The operator, as a person who trains uses it."""

    def __init__(self, operator: Operator, folder: Path) -> None:
        self.operator = operator
        self.folder = folder
        self.images: Mapping[str, str] = {}
        """The images of this test in the place of those that an example names."""

    async def start(self, example: str, changes: Mapping[str, str] = MappingProxyType({})) -> str:
        """Apply `FOLDER/FILE.yaml` of the examples as it is, but for its images and `changes`, old text → new text.

        Returns the job as kubectl names it.
        """
        text = (EXAMPLES / example).read_text()
        for old, new in changes.items():
            assert old in text, f"{example} has no {old}"
            text = text.replace(old, new)
        for theirs, ours in self.images.items():
            text = re.sub(rf"image: {theirs}$", f"image: {ours}", text, flags=re.MULTILINE)
        file = str(self.folder / Path(example).name)
        await asyncio.to_thread(Path(file).write_text, text)
        await self.operator.kubectl("apply", "-f", file)
        return (await self.operator.kubectl("get", "-f", file, "-o", "name")).strip()

    async def succeeds(self, job: str) -> dict[str, Any]:
        """Wait for the job's success in its own kind's words; the status.  Its failure, and silence, fail the test."""
        status: dict[str, Any] = {}
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not succeeded(status):
            late = asyncio.get_running_loop().time() > deadline
            if late or failed(status):
                raise AssertionError(f"{job}: {json.dumps(status)}\n{await self._evidence()}")
            await asyncio.sleep(0.2)
            status = json.loads(await self.operator.kubectl("get", job, "-o", "json")).get("status") or {}
        return status

    async def log(self, pod: str) -> str:
        return await self.operator.kubectl("logs", pod)

    async def says(self, pod: str, pattern: str) -> re.Match[str]:
        """Wait until the pod's log has it."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not (found := re.search(pattern, text := await self._log_so_far(pod), re.MULTILINE)):
            late = asyncio.get_running_loop().time() > deadline
            assert not late, f"{pod} does not say {pattern}: {text[-3000:]}"
            await asyncio.sleep(0.2)
        return found

    async def learnt(self, pod: str, *, processes: str) -> None:
        """Assert that this pod, whose log is still there, says what a model says that learns."""
        assert_learnt((await self.log(pod)).splitlines(), processes=processes)

    async def heard(self, pod: str) -> list[str]:
        """Follow the log of a pod that may be removed at its end, from the beginning; the lines."""
        lines: list[str] = []
        while not lines:
            # Until its container runs there is no log; and when it ends in the middle, what came before is enough.
            with suppress(Trouble):
                async for line in self.operator.stack.logs("default", pod):
                    lines.append(line)
            await asyncio.sleep(0.1)
        return lines

    async def appear(self, count: int, *parts: str) -> list[str]:
        """Wait for that many pods that have all of this in their names; their names."""
        found: list[str] = []

        async def so() -> bool:
            nonlocal found
            found = await self.pods(*parts)
            return len(found) == count

        await self.operator.until(so, lambda: f"{found} are there")
        return found

    async def pods(self, *parts: str) -> list[str]:
        """Names of the pods that have all of this in their names, sorted."""
        names = (await self.operator.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}")).split()
        return sorted(name for name in names if all(part in name for part in parts))

    async def has_no_pods(self, *stems: str) -> None:
        """Wait until no pod's name begins so."""

        async def so() -> bool:
            return not [name for name in await self.pods() if name.startswith(stems)]

        await self.operator.until(so, lambda: f"pods of {stems} are left")

    async def lose(self, pod: str) -> None:
        """End a pod as a node that is gone does, and wait until another one has its name."""
        lost = await self.uid(pod)
        await self.operator.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

        async def replaced() -> bool:
            return await self.uid(pod) not in ("", lost)

        await self.operator.until(replaced, lambda: f"nothing is there in the place of {pod}")

    async def uid(self, pod: str) -> str:
        """The uid of a pod; empty if there is none."""
        return await self.operator.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

    async def end(self, job: str) -> None:
        await self.operator.kubectl("delete", job, "--wait=false")

    async def _log_so_far(self, pod: str) -> str:
        try:
            return await self.log(pod)
        except AssertionError:
            # Not there yet, or its container is only being made.
            return ""

    async def _evidence(self) -> str:
        """What a person would look at first."""
        pods = json.loads(await self.operator.kubectl("get", "pods", "-o", "json"))["items"]
        logs = [
            f"-- {name} {pod['status'].get('phase')}\n{(await self._log_so_far(name))[-2000:]}"
            for pod in pods
            if (name := pod["metadata"]["name"])
        ]
        return "\n".join([self.operator.last_words(), *logs])


def assert_learnt(said: list[str], *, processes: str) -> None:
    """What a model says that learns, in a group of that size."""
    lines = [line for line in said if " loss=" in line]
    losses = [float(match[1]) for line in lines if (match := re.search(r" loss=(\S+)", line))]
    assert len(losses) > 5, said
    assert losses[-1] < WANTED_LOSS, lines
    assert losses[-1] < 0.7 * losses[0], lines
    assert processes in lines[-1].split(), lines[-1]


def succeeded(status: dict[str, Any]) -> bool:
    return _has(status, "Succeeded") or status.get("state") == "Succeeded"


def failed(status: dict[str, Any]) -> bool:
    return _has(status, "Failed") or status.get("state") == "Failed"


def _has(status: dict[str, Any], wanted: str) -> bool:
    return any(one["type"] == wanted and one["status"] == "True" for one in status.get("conditions") or ())


PACKAGES = {
    "mpirun": "openmpi-bin",
    "pdsh": "pdsh",
    "ssh": "openssh-client",
    "/usr/sbin/sshd": "openssh-server",
}
"""By program, the package of Debian that has it."""


def require_ssh(*others: str) -> None:
    """Skip the test where its launcher cannot reach workers by ssh, or one of the other programs is missing."""
    programs = [*others, "ssh", "/usr/sbin/sshd"]
    lacking = [program for program in programs if shutil.which(program) is None]
    if lacking:
        packages = " ".join(PACKAGES[program] for program in programs)
        pytest.skip(f"{', '.join(lacking)} must be installed: apt-get install {packages}")
    if os.geteuid() != 0:
        pytest.skip("sshd lets others in as itself only where it is root")
