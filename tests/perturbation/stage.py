"""One namespace of a real control plane with four services of its own, each behind a proxy, and its users.

Pods are played by `fakenodes`: they run and are ready as soon as they are bound, and end when a user says so.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from devcluster.cluster import DevelopmentCluster
from devcluster.controlplane import ControlPlane
from muster.stack import Stack
from services.scaler.core import Policy
from shared.cluster import Resource
from shared.cluster.calls import Timeouts
from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.cluster.kube import KubeCluster
from shared.eventlog import EventLog
from shared.frameworks.kinds import Kinds
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.job.naming import JobKey, Uid
from tests.kit.clusters import NAMESPACES
from tests.kit.controlplane import UNLIMITED, fake_nodes
from tests.kit.faultproxy import to_server
from tests.kit.invariants import faults_of
from tests.kit.operator import must_be_the_logs
from tests.kit.services import AUTHORS, Services
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.perturbation.calls import Call, CallProxy, Strike
from tests.perturbation.ends import Manifest, State, end_state
from tests.perturbation.sight import Sight

KINDS = Kinds((TRAININGJOB,))
SEEN = (TRAININGJOBS, SCALEINS, SCALEOUTS, PODS, SERVICES, CONFIGMAPS, SECRETS, EVENTS)

TIMEOUTS = Timeouts(total=8.0)
"""A service gives up sooner than by default, so that a run with an answer that never comes is soon over."""
PATIENCE_SECONDS = 60.0
"""Without an event, a change or a call, after which what is waited for never comes: several back-offs and timeouts."""
LONGEST_SECONDS = 900.0
"""For one wait in which something changes all the time, on a machine that is busy with other things."""
QUIET_SECONDS = 0.5
"""Without an event, a change or a call, after which a run that has come to the expected end is over."""
REFERENCE_QUIET_SECONDS = 3.0
"""The same of a run whose end is not known before: several cool-downs of a service."""

Connect = Callable[..., Awaitable[KubeCluster]]
Connects = Callable[[str], Connect]
"""By service, what connects it to the cluster."""


class Never(Exception):  # noqa: N818  a user waited in vain
    """What a user waited for did not come."""


def by_default(_: str) -> Connect:
    return KubeCluster.connect


class Ground(Stack):
    """A control plane with Muster installed and no service: stages bring their own."""

    cluster: ControlPlane

    def __init__(self, data: Path) -> None:
        super().__init__(data, partial(ControlPlane, nodes=0, more=UNLIMITED))

    async def _start_services(self) -> None:
        await self._stack.enter_async_context(fake_nodes(self.cluster, self.data, nodes=1))
        self.through = await self._stack.enter_async_context(to_server(self.cluster.authority))
        self.sight = await self._stack.enter_async_context(Everything(self.cluster))


class Everything(Sight):
    """All objects, by namespace."""

    def __init__(self, plane: DevelopmentCluster) -> None:
        super().__init__(plane, SEEN)
        self.objects: defaultdict[str, dict[tuple[str, str], Manifest]] = defaultdict(dict)
        """By namespace, and by kind and name."""
        self.changes = Counter[str]()
        """By namespace, how often anything changed."""

    def relisted(self, resource: Resource[Any]) -> None:
        for things in self.objects.values():
            for at in [at for at in things if at[0] == resource.kind]:
                del things[at]

    def shown(self, resource: Resource[Any], manifest: Any) -> None:
        meta = manifest["metadata"]
        self.objects[meta["namespace"]][resource.kind, meta["name"]] = manifest
        self.changes[meta["namespace"]] += 1

    def gone(self, resource: Resource[Any], manifest: Any) -> None:
        meta = manifest["metadata"]
        self.objects[meta["namespace"]].pop((resource.kind, meta["name"]), None)


class Stage(Services):
    """`async with Stage(ground, namespace, folder, strike) as stage`: the services run."""

    def __init__(
        self,
        ground: Ground,
        namespace: str,
        folder: Path,
        strike: Strike | None = None,
        *,
        connects: Connects = by_default,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`connects` gives what connects a service to the cluster; `patience` is how long a user waits in vain."""
        super().__init__(KINDS, policy=Policy(drain_seconds=0), namespace=namespace, now=lambda: datetime.now(UTC))
        self.journal = MemoryJournal()
        self._ground = ground
        self._folder = folder
        self._connects = connects
        self._patience = patience
        self._clusters: dict[str, KubeCluster] = {}
        self._crashes: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self.calls: list[Call] = []
        self._proxies = {
            author: CallProxy(
                ground.cluster.url,
                ground.cluster.authority,
                ground.through,
                author,
                strike if strike is not None and strike.call.service == author else None,
                self.calls,
                crash=partial(self._crash, author),
                remember=self._remember,
            )
            for author in AUTHORS
        }

    async def __aenter__(self) -> Self:
        try:
            await self._ground.kube.create(NAMESPACES, "", {"metadata": {"name": self.namespace}})
            self._stack.push_async_callback(self._tidy)
            for proxy in self._proxies.values():
                await self._stack.enter_async_context(proxy)
            self._stack.push_async_callback(self._kill_all)
            for author in AUTHORS:
                await self.start(author)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def cluster(self, author: str) -> KubeCluster:
        folder = self._folder / author
        folder.mkdir(parents=True, exist_ok=True)
        kubeconfig = self._proxies[author].kubeconfig(folder, like=self._ground.cluster.kubeconfig(author))
        self._clusters[author] = await self._connects(author)(kubeconfig, timeouts=TIMEOUTS)
        return self._clusters[author]

    def log(self, author: str) -> EventLog:
        return MemoryEventLog(self.journal, user=author)

    async def kill(self, author: str) -> None:
        try:
            await super().kill(author)
        finally:
            await self._clusters.pop(author).close()

    @property
    def struck(self) -> bool:
        """The strike happened."""
        return any(proxy.struck for proxy in self._proxies.values())

    async def apply(self, resource: Resource[Any], manifest: Manifest) -> None:
        await self._ground.kube.create(resource, self.namespace, manifest)

    async def edit(self, resource: Resource[Any], name: str, patch: Manifest) -> None:
        await self._ground.kube.patch(resource, self.namespace, name, patch)

    async def delete(self, resource: Resource[Any], name: str) -> None:
        held = self.shown(resource, name)
        await self._ground.kube.delete(resource, self.namespace, name, uid=held["metadata"]["uid"])

    async def end_pod(self, name: str, code: int) -> None:
        """Its container exits with this code."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        container = {"name": "main", "state": {"terminated": ended}, "image": "training", "imageID": ""}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**container, "ready": False, "restartCount": 0}],
        }
        await self._ground.kube.patch(PODS, self.namespace, name, {"status": status}, subresource="status")

    def shown(self, resource: Resource[Any], name: str) -> Manifest:
        """An object, empty if there is none."""
        return self._objects().get((resource.kind, name), {})

    def status(self, resource: Resource[Any], name: str) -> Manifest:
        status: Manifest = self.shown(resource, name).get("status") or {}
        return status

    async def phase(self, resource: Resource[Any], name: str, phase: str) -> None:
        await self.until(
            lambda: self.status(resource, name).get("phase") == phase, f"{resource.kind} {name} is {phase}"
        )

    async def announced(self, reason: str) -> None:
        """A Kubernetes Event says so."""
        await self.until(
            lambda: any(kind == EVENTS.kind and it["reason"] == reason for (kind, _), it in self._objects().items()),
            f"{reason} is announced",
        )

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Raises `Never`."""
        if not holds():
            async for _ in self._changing(what):
                if holds():
                    return

    async def quiet(self, seconds: float, wanted: Callable[[], bool] = lambda: True) -> None:
        """Wait until nothing changes for so long, and all is as wanted.  Raises `Never`."""
        found: bool | None = None
        async for still in self._changing("quiet at the expected end"):
            if still < seconds:
                found = None
            elif found is None and (found := wanted()):
                return

    async def _changing(self, what: str) -> AsyncIterator[float]:
        """Again and again, for how many seconds nothing changed.  Raises `Never`."""
        loop = asyncio.get_running_loop()
        began = since = loop.time()
        before = self._changes()
        while True:
            await asyncio.sleep(0.05)
            if (now := self._changes()) != before:
                before, since = now, loop.time()
            still = loop.time() - since
            if still > self._patience or loop.time() - began > LONGEST_SECONDS:
                raise Never(f"never: {what}")
            yield still

    def end(self) -> State:
        return end_state(((kind, thing) for (kind, _), thing in self._objects().items()), self.namespace)

    def faults(self) -> list[str]:
        """What is wrong now, whatever the reference."""
        found = faults_of(self.journal.events)
        found += [f"the {author} ended: {task}" for author, (_, task) in self._running.items() if task.done()]
        found += [why for runtime in self.runtimes() for why in runtime.held().values()]
        for kind, name in [at for at in self._objects() if at[0] == TRAININGJOBS.kind]:
            meta, status = self._objects()[kind, name]["metadata"], self.status(TRAININGJOBS, name)
            try:
                must_be_the_logs(status, self.journal.events, JobKey(self.namespace, name, Uid(meta["uid"])))
            except (AssertionError, KeyError) as error:
                found.append(f"I3 the status of {name} is not the log's: {error!r}")
        return found

    def told(self) -> list[str]:
        """The last events of the log and what the proxies met, for people."""
        events = [
            f"{stored.sequence} {stored.subject.split('.', 4)[4]} {stored.body.decode()[:200]}"
            for stored in self.journal.events[-30:]
            if stored.sequence > 1
        ]
        return [*events, *(met for proxy in self._proxies.values() for met in proxy.met)]

    def _objects(self) -> dict[tuple[str, str], Manifest]:
        return self._ground.sight.objects[self.namespace]

    def _changes(self) -> tuple[int, int, int]:
        return len(self.journal.events), self._ground.sight.changes[self.namespace], len(self.calls)

    def _crash(self, author: str) -> None:
        self._crashes.append(asyncio.create_task(self._restart(author)))

    async def _restart(self, author: str) -> None:
        await self.kill(author)
        await self.start(author)

    async def _remember(self, plural: str) -> Callable[[], None]:
        """What is there now, for the watcher to list it once more."""
        watcher = self._proxies["watcher"]
        listed = await watcher.list_again(plural)

        def recall() -> None:
            if listed:
                watcher.list_back(plural, listed)

        return recall

    async def _kill_all(self) -> None:
        for crash in self._crashes:
            await crash
        for author in list(self._running):
            await self.kill(author)

    async def _tidy(self) -> None:
        """No pod is left for the nodes; the namespace itself stays until the control plane ends."""
        for _, name in [at for at in self._objects() if at[0] == TRAININGJOBS.kind]:
            await self.delete(TRAININGJOBS, name)
        self._ground.sight.objects.pop(self.namespace, None)
