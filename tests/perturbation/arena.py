"""One disturbed watcher and an undisturbed one, the administrator, and who notes what really was."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.cluster.kube import KubeCluster
from shared.errors import Refused
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.clusters import NAMESPACES
from tests.kit.faultproxy import Plan
from tests.perturbation.agreement import PATIENCE_SECONDS, agreement, sees_everything
from tests.perturbation.driver import Driver
from tests.perturbation.watched import Watched, a_watcher
from tests.perturbation.witness import Witness


class Arena:
    """A disturbed watcher and an undisturbed one, the administrator, and who notes what really was."""

    def __init__(self, plane: ControlPlane, admin: KubeCluster, witness: Witness, namespace: str) -> None:
        self.plane = plane
        self.admin = admin
        self.witness = witness
        self.namespace = namespace
        self.driver = Driver(admin, witness, namespace, seed=1)
        self.disturbed: Watched
        self.undisturbed: Watched

    async def jobs(self, count: int) -> list[Any]:
        return [await self.driver.create_job(f"job-{number}") for number in range(count)]

    async def drive(self, steps: int) -> None:
        for _ in range(steps):
            await self.driver.step()

    async def agree(self) -> None:
        await sees_everything(self.undisturbed, self.witness)
        await agreement(self.disturbed, self.undisturbed, self.witness)

    async def ended(self) -> set[str]:
        """Uids of the jobs that the disturbed watcher believes gone."""
        return {
            stored.subject.split(".")[3]
            for stored in await self.disturbed.log()
            if stored.subject.endswith(".watcher.JobGone")
        }

    async def until(self, holds: Callable[[], Awaitable[bool]] | Callable[[], bool], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            assert asyncio.get_running_loop().time() < deadline, f"never {what}\n{self.disturbed.last_words()}"
            await asyncio.sleep(0.1)

    def said(self, words: str) -> Callable[[], bool]:
        """The disturbed watcher's own log says so, from now on."""
        begin = self.disturbed.process.log.stat().st_size
        return lambda: words.encode() in self.disturbed.process.log.read_bytes()[begin:]


@asynccontextmanager
async def an_arena(plane: ControlPlane, folder: Path) -> AsyncIterator[Arena]:
    async with AsyncExitStack() as stack:
        witness = await stack.enter_async_context(Witness(plane))
        admin = await KubeCluster.connect(plane.kubeconfig(ADMIN))
        stack.push_async_callback(admin.close)
        namespace = f"blind-{uuid4().hex[:8]}"
        await admin.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        arena = Arena(plane, admin, witness, namespace)
        stack.push_async_callback(_clean, arena)
        arena.undisturbed = await stack.enter_async_context(a_watcher(plane, folder / "undisturbed"))
        arena.disturbed = await stack.enter_async_context(a_watcher(plane, folder / "disturbed", plan=Plan()))
        yield arena


async def _clean(arena: Arena) -> None:
    """No test counts the jobs of another."""
    for job in [*arena.witness.there["TrainingJob"].values()]:
        at = job.metadata.namespace, job.metadata.name
        with suppress(Refused):
            await arena.admin.patch(TRAININGJOBS, *at, {"metadata": {"finalizers": None}})
        await arena.driver.delete(TRAININGJOBS, job)
