"""All four services in one process, on a log and a cluster in memory, which a test directs.

async with World() as world:
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.running()

Its kubelet obeys at once; pods that hang, a garbage collector that waits and servers that fail are a test's to order.
It holds status writes to the rule of the definitions (a head only grows), and remembers what was written.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pytest

from services.scaler.core import Policy
from services.status.core.documents import canonical, document_of, with_head
from services.watcher.core.cache import Cache
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster import Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.eventlog import EventLog
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS, SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.fold import Histories, History
from shared.job.naming import JobKey
from shared.job.policies.retries import LONGEST_EFFECT_SECONDS
from shared.job.state import Job
from shared.runtime.queue import LONGEST_RETRY_SECONDS
from tests.kit.histories import folded
from tests.kit.kubelet import NAMESPACE, Kubelet
from tests.kit.services import AUTHORS, Services, wall_clock
from tests.memory.cluster import MemoryCluster, Weather
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.memory.watching import At, Held

Document = dict[str, Any]

PATIENCE_SECONDS = 2 * max(1.5 * LONGEST_RETRY_SECONDS, LONGEST_EFFECT_SECONDS)
"""Longer than any retry, with its jitter: what holds after a retry is no failure."""
MOST_EVENTS = 5_000
"""More than any story here has."""


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


async def a_scaled_life(world: "World") -> None:
    """Two workers, two more, one less, success."""
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2))
    # The two kinds have a watch each: which of two requests made at once is seen first is not defined.
    await world.until(lambda: "ScaleRequested" in world.types())
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.running()
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    await world.until(lambda: list(world.pods()) == ["resnet-launcher"], "the workers are cleaned up")


class World(Services, Kubelet):
    """One cluster, one log, and the services that a test starts and kills."""

    def __init__(
        self,
        *,
        drain_seconds: int = 0,
        sharing: "World | None" = None,
        of: "World | None" = None,
        log: str = "memory",
        journal: MemoryJournal | None = None,
        logs: Mapping[str, EventLog] | None = None,
        namespace: str = "",
        kinds: Kinds = BUILT_IN,
        weather: Callable[[str], Weather | None] = lambda _: None,
        takes_over: bool = False,
        seal_after: int | None = None,
    ) -> None:
        """`sharing` brings the log and the cluster of another world: a second replica of every service.

        `of` brings its cluster alone: the log is another one, named `log`, or `journal`.  `logs` are other logs than
        the one in memory, by service; `weather` is what each service meets on the way to the cluster.  With a
        `namespace` the services work there alone.
        """
        known = sharing or of
        self.journal = sharing.journal if sharing else journal or MemoryJournal(identity=log, most=MOST_EVENTS)
        self.journal.wall = lambda: wall_clock().timestamp()
        Services.__init__(self, kinds, policy=Policy(drain_seconds=drain_seconds), namespace=namespace)
        Kubelet.__init__(self, known.store if known else MemoryStore(now=wall_clock))
        # No API server counts from zero.
        self.store.version = max(self.store.version, 1)
        self._alone = sharing is None
        self._logs = logs
        self._weather = weather
        self.takes_over = takes_over
        """What the next watcher is told: the operators before us are gone."""
        self._seal_after = seal_after
        self._kubelet: asyncio.Task[None] | None = None
        self.statuses: defaultdict[tuple[str, str, str], list[Document]] = defaultdict(list)
        """Every status that was written, by (kind, namespace, name)."""
        self.hosts_files: defaultdict[At, list[Document]] = defaultdict(list)
        """Every content of a ConfigMap that was written."""
        for resource in (*(kind.resource for kind in kinds), SCALEINS, SCALEOUTS):
            self.store.admit(resource, self._admit_status)
        self.store.admit(CONFIGMAPS, self._note_hosts)

    async def __aenter__(self) -> Self:
        if self._alone:
            self._kubelet = asyncio.create_task(self.obey())
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
        if kind is None:
            self._every_status_is_replayed()

    def _every_status_is_replayed(self) -> None:
        """Each status that was written is what the log says at the head that it shows, as `--verify` asks.

        A head that this log does not lead to was written by a person.
        """
        identity, shown = self.journal.events[0].event_id, defaultdict[int, list[Document]](list)
        for (kind, _, _), written in self.statuses.items():
            for status in written if kind not in REQUESTS else ():
                head = status.get("history") or {}
                if head.get("log") == identity:
                    shown[head["sequence"]].append(status)
        histories = Histories()
        for stored in self.journal.events:
            history = histories.fold(stored)
            assert history is not None
            for status in shown[stored.sequence]:
                if status["history"]["hash"] == history.head.hash and self._kinds.knows(history.job):
                    document = document_of(history.job, self._kinds)
                    replayed = with_head(document, identity, history.head, history.time)
                    assert canonical(replayed) == canonical(status), f"at event {stored.sequence}"

    async def cluster(self, author: str) -> MemoryCluster:
        return MemoryCluster(self.store, weather=self._weather(author))

    def log(self, author: str) -> EventLog:
        return self._logs[author] if self._logs else MemoryEventLog(self.journal, user=author)

    def options(self) -> Options:
        return Options(namespace=self.namespace, takes_over=self.takes_over, seal_after=self._seal_after)

    async def restart(self, *authors: str) -> None:
        """End these services, or all of them, before the first is started again."""
        for author in authors or AUTHORS:
            await self.kill(author)
        for author in authors or AUTHORS:
            await self.start(author)

    def seen(self) -> Cache:
        """What the watcher keeps of the cluster."""
        watcher = self._running["watcher"][0].service
        assert isinstance(watcher, Watcher)
        return watcher._cache

    def apply(self, resource: Resource[Any], manifest: dict[str, Any], namespace: str = NAMESPACE) -> Held:
        return self.store.create(resource, namespace, manifest)

    def delete(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> None:
        self.store.delete(resource, namespace, name)

    def annotate(self, name: str, annotations: Mapping[str, str], namespace: str = NAMESPACE) -> None:
        self.store.patch(TRAININGJOBS, namespace, name, {"metadata": {"annotations": dict(annotations)}})

    def status(self, resource: Resource[Any], name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        held = self.store.get(resource, namespace, name)
        return (held.manifest.get("status") or {}) if held is not None else {}

    def condition(
        self, resource: Resource[Any], name: str, kind: str, namespace: str = NAMESPACE
    ) -> tuple[str, str] | None:
        """(status, reason) of a condition, None without one."""
        for known in self.status(resource, name, namespace).get("conditions", ()):
            if known["type"] == kind:
                return known["status"], known["reason"]
        return None

    def pods(self, namespace: str = NAMESPACE) -> dict[str, Held]:
        return {held.at[1]: held for held in self.store.find(PODS, namespace)}

    def hosts(self, name: str = "resnet", namespace: str = NAMESPACE) -> list[str]:
        """The workers in the hosts file."""
        held = self.store.get(CONFIGMAPS, namespace, f"{name}-config")
        return [line.partition(":")[0] for line in held.manifest["data"]["hostfile"].splitlines()] if held else []

    def kubernetes_events(self, namespace: str = NAMESPACE) -> list[tuple[str, str]]:
        """(reason, name of the object) of each Kubernetes Event."""
        return [
            (held.manifest["reason"], held.manifest["involvedObject"]["name"])
            for held in self.store.find(EVENTS, namespace)
        ]

    def owned_by(self, uid: str) -> list[Held]:
        """Pods, Services, ConfigMaps and Secrets with this owner."""
        return [
            held
            for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS)
            for held in self.store.find(resource)
            if any(owner["uid"] == uid for owner in held.metadata.get("ownerReferences") or ())
        ]

    def job(self, name: str = "resnet", namespace: str = NAMESPACE) -> Job:
        """The newest life of a job, from the log alone."""
        lives = [h for h in folded(self.journal.events) if (h.job.key.namespace, h.job.key.name) == (namespace, name)]
        assert all(not life.held for life in lives), [life.held for life in lives]
        return max(lives, key=lambda life: life.sequence).job if lives else Job(key=JobKey(namespace, name, "none"))  # type: ignore[arg-type]

    def life(self, uid: str) -> Job:
        """The job with this uid, from the log alone."""
        return self.history(uid).job

    def history(self, uid: str) -> History:
        (found,) = (history for history in folded(self.journal.events) if history.job.key.uid == uid)
        assert not found.held, found.held
        return found

    def types(self) -> list[str]:
        """The types of all events in the log, in order."""
        return [stored.subject.rpartition(".")[2] for stored in self.journal.events]

    def count(self, kind: str) -> int:
        return self.types().count(kind)

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        """Wait until something holds; fail with the state of the world when it never does."""
        deadline, wait = asyncio.get_running_loop().time() + PATIENCE_SECONDS, 0.002
        while not holds():
            for author, (_, task) in self._running.items():
                if task.done():
                    raise AssertionError(f"the {author} ended") from (
                        task.exception() if not task.cancelled() else None
                    )
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"never: {what or holds}\n{self._describe()}")
            await asyncio.sleep(wait)
            wait = min(wait * 1.2, 0.02)

    async def running(self, name: str = "resnet") -> None:
        await self.phase("Running", TRAININGJOBS, name)

    async def trains(self, *, workers: int, **spec: Any) -> Held:
        """Apply the job `resnet`, and wait until it runs; it as it was applied."""
        job = self.apply(TRAININGJOBS, a_training_job(workers=workers, **spec))
        await self.running()
        return job

    async def waits_in_a_scale_out(self, pod: str) -> None:
        """The job is scaled by one worker, whose pod does not start."""
        self.stuck.add(pod)
        self.apply(SCALEOUTS, a_scale_out(1))
        await self.phase("Scaling", SCALEOUTS, "out")

    async def phase(
        self, phase: str, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet", namespace: str = NAMESPACE
    ) -> None:
        await self.until(
            lambda: self.status(resource, name, namespace).get("phase") == phase,
            f"{resource.kind} {namespace}/{name} is {phase} and not {self.status(resource, name, namespace)}",
        )

    async def shows(self, kind: str, reason: str, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet") -> None:
        """Wait for a condition with this reason."""
        await self.until(
            lambda: (self.condition(resource, name, kind) or ("", ""))[1] == reason, f"{name} shows {kind} {reason}"
        )

    async def quiet(self, seconds: float = 0.4) -> None:
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

    def _admit_status(self, before: Manifest | None, after: Manifest) -> None:
        old, new = ((manifest or {}).get("status") or {} for manifest in (before, after))
        if old != new:
            self.statuses[after["kind"], after["metadata"]["namespace"], after["metadata"]["name"]].append(new)

    def _note_hosts(self, before: Manifest | None, after: Manifest) -> None:
        if before is None or before.get("data") != after.get("data"):
            self.hosts_files[after["metadata"]["namespace"], after["metadata"]["name"]].append(after.get("data"))


@pytest.fixture(name="world")
async def a_world() -> AsyncIterator[World]:
    """With all four services; at the end each status that was written is compared with the log."""
    async with World() as world:
        yield world
