"""A watcher process with a log of its own, undisturbed or behind a proxy."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from devcluster.child import Child
from devcluster.cluster import ADMIN, DevelopmentCluster
from shared.eventlog import Stored
from shared.eventlog.account import READER
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.job.fold import Histories
from shared.job.state import Job
from shared.telling.reading import everything
from tests.kit.faultproxy import FaultProxy, Plan
from tests.kit.nats import connected
from tests.kit.stopping import go_on, stop


class Watched:
    """One watcher process with its log."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], nats: NatsServer, proxy: FaultProxy | None = None
    ) -> None:
        self.nats = nats
        self._folder = folder
        self._environment = environment
        self._proxy = proxy
        self.told("")

    def told(self, word: str) -> None:
        """The next start has this in its environment besides: `NAME=value`."""
        name, _, value = word.partition("=")
        more = {name: value} if name else {}
        command = [sys.executable, "-m", "services.watcher"]
        log = self._folder / "watcher.log"
        self.process = Child(f"the watcher in {self._folder}", command, log, {**self._environment, **more})

    @property
    def proxy(self) -> FaultProxy:
        assert self._proxy is not None, "this watcher is undisturbed"
        return self._proxy

    async def log(self) -> list[Stored]:
        async with connected(self.nats, READER) as reader:
            _, events = await everything(reader)
        return events

    async def histories(self) -> Histories:
        histories = Histories()
        for stored in await self.log():
            histories.fold(stored)
        assert not [history.held for history in histories if history.held], self.last_words()
        return histories

    async def jobs(self) -> list[Job]:
        return [history.job for history in await self.histories()]

    def pause(self) -> None:
        stop(self.process.pid)

    def resume(self) -> None:
        go_on(self.process.pid)

    def kill(self) -> None:
        """And start again."""
        self.process.kill()
        self.process.start()

    def last_words(self) -> str:
        met = "; ".join(self._proxy.met) if self._proxy else ""
        return f"{self._folder.name} met: {met}\n" + "\n".join(self.process.log.read_text().splitlines()[-25:])


@asynccontextmanager
async def a_watcher(
    plane: DevelopmentCluster,
    folder: Path,
    *,
    plan: Plan | None = None,
) -> AsyncIterator[Watched]:
    """`python -m services.watcher`, through a proxy when there is a plan, else straight and as the administrator."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  one system call
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(NatsServer(folder / "nats"))
        await set_up(nats.url, password=nats.users["admin"])
        proxy, kubeconfig = None, plane.kubeconfig(ADMIN)
        if plan is not None:
            proxy = await stack.enter_async_context(FaultProxy(plane.url, plane.authority, plan))
            kubeconfig = proxy.kubeconfig(folder, like=plane.kubeconfig("watcher"))
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "NATS_URL": nats.url,
            "NATS_USER": "watcher",
            "NATS_PASSWORD": nats.users["watcher"],
            "MUSTER_LOG_LEVEL": "debug",
        }
        watched = Watched(folder, environment, nats, proxy)
        watched.process.start()
        try:
            yield watched
        finally:
            # One that is paused would not hear of its end.
            watched.resume()
            await watched.process.stop()
