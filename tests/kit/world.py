"""All four services in one process, on a log and a cluster in memory, with a kubelet that obeys at once.

async with World() as world:
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.until(world.phase_is("resnet", "Running"))
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from services.scaler.core.policy import Policy
from services.watcher.core.cache import Cache
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster import Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.cluster.objects import Object
from shared.errors import Refused
from shared.eventlog import EventLog
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import Histories
from shared.job.naming import JobKey
from shared.job.state import Job
from tests.kit.services import AUTHORS, Services, wall_clock
from tests.memory.cluster import MemoryCluster, Weather
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.memory.watching import Held

NAMESPACE = "team-a"
PATIENCE_SECONDS = 30.0
"""Longer than the first back-off of a restart."""
SERVICES_OF_A_JOB = (SERVICES, CONFIGMAPS, SECRETS)


def a_training_job(name: str = "resnet", *, workers: int = 2, **spec: Any) -> dict[str, Any]:
    """A TrainingJob as a user would apply it."""

    def template() -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "main", "image": "training"}]}}

    worker = {"replicas": workers, "minReplicas": 1, "maxReplicas": 8, "template": template()}
    return {
        "metadata": {"name": name},
        "spec": {"etReplicaSpecs": {"launcher": {"template": template()}, "worker": worker}, **spec},
    }


def a_scale_out(count: int = 1, *, name: str = "out", job: str = "resnet", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"name": job}, "toAdd": {"count": count}, **more}}


def a_scale_in(count: int = 1, *, name: str = "in", job: str = "resnet", **more: Any) -> dict[str, Any]:
    spec = {"selector": {"name": job}, "toDelete": {"count": count}, **more}
    return {"metadata": {"name": name}, "spec": spec}


def must_grow(before: Manifest | None, after: Manifest) -> None:
    """The rule of every definition: the head in a status only grows.  Raises `Refused` otherwise."""
    was, now = (((manifest or {}).get("status") or {}).get("history") for manifest in (before, after))
    if was and now and was["log"] == now["log"] and now["sequence"] < was["sequence"]:
        raise Refused("a newer status was written already", reason="Invalid", field="status.history")


class World(Services):
    """One cluster, one log, and the services that a test starts and kills."""

    def __init__(
        self,
        *,
        drain_seconds: int = 0,
        sharing: "World | None" = None,
        logs: Mapping[str, EventLog] | None = None,
        namespace: str = "",
        kinds: Kinds = BUILT_IN,
        weather: Callable[[str], Weather | None] = lambda _: None,
        takes_over: bool = False,
    ) -> None:
        """`sharing` brings the log and the cluster of another world: a second replica of every service.

        `logs` are other logs than the one in memory, by service; `weather` is what each service meets on the way to
        the cluster.  With a `namespace` the services work there alone.
        """
        super().__init__(kinds, policy=Policy(drain_seconds=drain_seconds), namespace=namespace)
        self.journal = sharing.journal if sharing else MemoryJournal()
        self.store = sharing.store if sharing else MemoryStore(now=wall_clock)
        self._alone = sharing is None
        self._logs = logs
        self._weather = weather
        self.takes_over = takes_over
        """What the next watcher is told: the operators before us are gone."""
        self._kubelet: asyncio.Task[None] | None = None
        self.homes: dict[str, str] = {}
        """The node that each pod, by name, is placed on; node-0 for all others."""
        self.exit_codes: dict[str, int] = {}
        """Pods that end, by name, and how; the kubelet looks here."""
        self.broken_images: set[str] = set()
        """Pods whose command cannot start."""

    async def __aenter__(self) -> Self:
        if self._alone:
            self._kubelet = asyncio.create_task(self._obey())
        for author in AUTHORS:
            await self.start(author)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for author in list(self._running):
            await self.kill(author)
        if self._kubelet is not None:
            self._kubelet.cancel()
            with suppress(asyncio.CancelledError):
                await self._kubelet

    async def cluster(self, author: str) -> MemoryCluster:
        return MemoryCluster(self.store, weather=self._weather(author))

    def log(self, author: str) -> EventLog:
        return self._logs[author] if self._logs else MemoryEventLog(self.journal, user=author)

    def options(self) -> Options:
        return Options(namespace=self.namespace, takes_over=self.takes_over)

    def seen(self) -> Cache:
        """What the watcher keeps of the cluster."""
        watcher = self._running["watcher"][0].service
        assert isinstance(watcher, Watcher)
        return watcher._cache

    def apply(self, resource: Resource[Any], manifest: dict[str, Any], namespace: str = NAMESPACE) -> Held:
        return self.store.create(resource, namespace, manifest)

    def delete(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> None:
        self.store.delete(resource, namespace, name)
        self.store.collect_garbage()

    def status(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        held = self.store.get(resource, namespace, name)
        return (held.manifest.get("status") or {}) if held is not None else {}

    def pods(self, namespace: str = NAMESPACE) -> dict[str, Held]:
        return {held.at[1]: held for held in self.store.find(PODS, namespace)}

    def hosts(self, name: str = "resnet", namespace: str = NAMESPACE) -> list[str]:
        """The workers in the hosts file."""
        held = self.store.get(CONFIGMAPS, namespace, f"{name}-config")
        return [line.partition(":")[0] for line in held.manifest["data"]["hostfile"].splitlines()] if held else []

    def kubernetes_events(self, namespace: str = NAMESPACE) -> list[tuple[str, str]]:
        """(reason, name of the object) of each Kubernetes Event."""
        return [
            (held.manifest["reason"], held.manifest["regarding"]["name"]) for held in self.store.find(EVENTS, namespace)
        ]

    def job(self, name: str = "resnet", namespace: str = NAMESPACE) -> Job:
        """The newest life of a job, from the log alone."""
        histories = Histories()
        for stored in self.journal.events:
            histories.fold(stored)
        lives = [h for h in histories if (h.job.key.namespace, h.job.key.name) == (namespace, name)]
        assert all(not life.held for life in lives), [life.held for life in lives]
        return max(lives, key=lambda life: life.sequence).job if lives else Job(key=JobKey(namespace, name, "none"))  # type: ignore[arg-type]

    def types(self) -> list[str]:
        """The types of all events in the log, in order."""
        return [stored.subject.rpartition(".")[2] for stored in self.journal.events]

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        """Wait until something holds; fail with the state of the world when it never does."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not holds():
            for author, (_, task) in self._running.items():
                if task.done():
                    raise AssertionError(f"the {author} ended") from (
                        task.exception() if not task.cancelled() else None
                    )
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"never: {what or holds}\n{self._describe()}")
            await asyncio.sleep(0.002)

    async def running(self, name: str = "resnet") -> None:
        await self.phase("Running", TRAININGJOBS, name)

    async def phase(self, phase: str, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet") -> None:
        await self.until(lambda: self.status(resource, name).get("phase") == phase, f"{name} is {phase}")

    async def quiet(self, seconds: float = 0.15) -> None:
        """Wait until neither log nor cluster changed for a while."""
        loop = asyncio.get_running_loop()
        before, since, deadline = (-1, -1), loop.time(), loop.time() + PATIENCE_SECONDS
        while loop.time() - since < seconds:
            assert loop.time() < deadline, f"no quiet\n{self._describe()}"
            now = (len(self.journal.events), self.store.version)
            if now != before:
                before, since = now, loop.time()
            await asyncio.sleep(0.005)

    def _describe(self) -> str:
        lines = [
            f"{s.sequence} {s.subject.split('.', 4)[4]} {s.body.decode()[:300]}" for s in self.journal.events[-25:]
        ]
        held = {author: runtime.held() for author, (runtime, _) in self._running.items()}
        return "\n".join([*lines, f"pods {sorted(self.pods())}", f"held {held}"])

    async def _obey(self) -> None:
        """Every pod is placed, started and made Ready, and ended when its deletion asks for that."""
        seen = -1
        while True:
            if self.store.version != seen or self.exit_codes:
                seen = self.store.version
                for held in self.store.find(PODS):
                    self._care(held)
                self.store.collect_garbage()
            await asyncio.sleep(0.002)

    def _care(self, held: Held) -> None:
        namespace, name = held.at
        manifest = held.manifest
        status = manifest.get("status") or {}
        if not manifest["spec"].get("nodeName"):
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


__all__ = ["NAMESPACE", "SCALEINS", "SCALEOUTS", "SERVICES", "TRAININGJOBS", "Object", "World"]
