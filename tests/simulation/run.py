"""Lets a plan happen: two replicas of each service, one log, one cluster, on a virtual clock.

outcome = simulate(plan_of(7))
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import structlog

from shared.cluster import Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.errors import Refused
from shared.eventlog import Entry, Stored
from shared.frameworks.kinds import Kinds
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.job.naming import JobKey
from tests.memory.eventlog import MemoryJournal
from tests.memory.watching import Held
from tests.simulation import plan as steps
from tests.simulation.invariants import Checker
from tests.simulation.loop import SimulatedLoop, outside
from tests.simulation.network import Link, Rates
from tests.simulation.platform import ObservedStore, Platform
from tests.simulation.pretence import nothing_real
from tests.simulation.replica import Replica

NAMESPACE = "team-a"
KINDS = Kinds((TRAININGJOB, TFJOB, PYTORCHJOB, MPIJOB, MXJOB))
RESOURCES: dict[str, Resource[Any]] = {kind.resource.kind: kind.resource for kind in KINDS}

AFTERMATH_SECONDS = 90.0
"""Three back-offs of a restart."""
QUIET_SECONDS = 40.0
"""Longer than the longest back-off of an effect."""
BACK_OFF_SECONDS = 310.0
"""Longer than the longest back-off of a restart."""
LONGEST_CALM_SECONDS = 900.0
"""After this much clear weather all must have come to rest."""
DOWN_SECONDS = 0.3
"""How long a replica is down that was killed at an event."""
STILL_SECONDS = 5.0
"""How long a replica stands still: longer than its lease."""
MOST_SLOW_CHANGES = 8
"""Of each job that is not over, within one back-off."""
CALM_TTL_SECONDS = 60.0
MOST_EVENTS = 5_000
MOST_VERSIONS = 50_000


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to."""

    faults: tuple[str, ...]
    events: int
    settled: int
    """The number of events when the weather cleared."""
    versions: int
    seconds: float
    """Virtual ones."""
    callbacks: int
    trace: str
    """The hash of all events and all changes of the cluster, in their order."""
    reached: frozenset[str]


def simulate(plan: steps.Plan) -> Outcome:
    """Run a plan; the same plan gives the same outcome in every process."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner, _silence(), nothing_real():
        return runner.run(Simulation(plan).run())


@contextmanager
def _silence() -> Iterator[None]:
    """Drop the lines of the services: they would be most of the run's time."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


class Journal(MemoryJournal):
    """A journal that tells of each event at the moment of its append."""

    def __init__(self, told: Callable[[Stored], None], clock: Callable[[], float]) -> None:
        self._told: Callable[[Stored], None] = lambda stored: None
        super().__init__(identity="log", clock=clock)
        self._told = told

    def append(self, entry: Entry, *, expect: int) -> int:
        before = len(self.events)
        sequence = super().append(entry, expect=expect)
        if len(self.events) > before:
            self._told(self.events[-1])
        return sequence


class Simulation:
    """One run."""

    def __init__(self, plan: steps.Plan) -> None:
        self._plan = plan
        self._chance = Random(plan.seed)
        self._hash = hashlib.sha256()
        self._actor = ""
        self._acts_for: JobKey | None = None
        self._stopping = False

    async def run(self) -> Outcome:
        plan, loop = self._plan, asyncio.get_running_loop()
        begun = loop.time()
        self._loop = loop
        loop.set_exception_handler(self._broken)
        self._checker = Checker("log", KINDS)
        self._journal = Journal(self._appended, loop.time)
        self._store = ObservedStore(now=self._now)
        self._store.observers.append(self._changed)
        for resource in RESOURCES.values():
            self._store.admit(resource, _head_grows)
        self._platform = Platform(self._store, Random(plan.seed + 1), plan.workload)
        self._replicas = {
            f"{author}-{number}": self._replica(author, number) for author in steps.AUTHORS for number in range(2)
        }
        for replica in self._replicas.values():
            replica.start()
        for step in plan.steps:
            loop.call_later(step.at, self._take, step)
        await asyncio.sleep(plan.seconds + 0.1)
        settled = len(self._journal.events)
        self._clear()
        await asyncio.sleep(AFTERMATH_SECONDS)
        self._end_well()
        quiet = await self._quiet()
        self._end(quiet)
        outcome = Outcome(
            faults=tuple(self._checker.faults),
            events=len(self._journal.events),
            settled=settled,
            versions=self._store.version,
            seconds=loop.time() - begun,
            callbacks=sum(replica.steps() for replica in self._replicas.values()),
            trace=self._hash.hexdigest(),
            reached=frozenset(self._checker.reached),
        )
        await self._stop()
        return outcome

    def _replica(self, author: Any, number: int) -> Replica:
        plan = self._plan
        chance = Random(f"{plan.seed} {author} {number}")
        links = Link(chance, plan.to_cluster), Link(chance, plan.to_log)
        return Replica(
            author,
            number,
            journal=self._journal,
            store=self._store,
            kinds=KINDS,
            chance=chance,
            links=links,
            acting=lambda work, key: self._as(author, key, work),
            now=self._now,
        )

    def _now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._loop.time())

    def _as(self, author: str, key: JobKey | None, work: Callable[[], Any]) -> Any:
        """The store does the work of a service's call for a job."""
        self._actor, self._acts_for = author, key
        try:
            return work()
        finally:
            self._actor, self._acts_for = "", None

    def _appended(self, stored: Stored) -> None:
        self._hash.update(f"{stored.sequence} {stored.subject} {stored.time} ".encode() + stored.body)
        if len(self._journal.events) > MOST_EVENTS:
            self._break_off(f"I15 a hot loop appends {stored.subject}")
        self._checker.appended(stored)
        for strike in self._plan.strikes:
            if strike.event == stored.sequence:
                self._strike(strike)

    def _break_off(self, why: str) -> None:
        """The run proves nothing more: no service reaches anything from now on."""
        self._checker.fault(why)
        for replica in self._replicas.values():
            replica.to_cluster.closed = replica.to_log.closed = True

    def _broken(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._stopping:
            self._break_off(f"a callback failed: {context['message']}: {error!r}")

    def _strike(self, strike: steps.Strike) -> None:
        replica = self._acting(strike.author)
        match strike.how:
            case "crash":
                replica.kill()
                self._later(DOWN_SECONDS, replica.start)
            case "lose":
                replica.to_log.losing = replica.to_cluster.losing = True
            case "delete":
                self._later(0.0, lambda: self._take(steps.Delete(at=0.0, job=strike.job)))
            case "pause":
                self._take(steps.Pause(at=0.0, replica=replica.name, seconds=STILL_SECONDS))

    def _acting(self, author: str) -> Replica:
        """The replica that holds the lease, or the first one."""
        both = [self._replicas[f"{author}-{number}"] for number in range(2)]
        return next((each for each in both if each.lease is not None and each.lease.held()), both[0])

    def _changed(self, resource: Resource[Any], before: Held | None, after: Held | None) -> None:
        self._hash.update(f"{self._actor} {self._store.version} {resource.plural} {(before or after).at}".encode())  # type: ignore[union-attr]
        if self._store.version > MOST_VERSIONS:
            self._break_off(f"I15 a hot loop writes {resource.kind} {(after or before).at}")  # type: ignore[union-attr]
        self._checker.changed(self._actor, self._acts_for, resource, before, after)
        if resource.plural == PODS.plural and before is None:
            self._checker.pods(self._store.find(PODS))

    def _take(self, step: steps.AnyStep) -> None:
        with suppress(Refused):
            self._happen(step)

    def _happen(self, step: steps.AnyStep) -> None:
        store, platform = self._store, self._platform
        match step:
            case steps.Apply():
                store.create(RESOURCES[step.kind], NAMESPACE, manifest_of(step))
            case steps.Scale():
                resource = SCALEOUTS if step.by > 0 else SCALEINS
                store.create(resource, NAMESPACE, request_of(step))
            case steps.Edit():
                if (resource := self._resource(step.job)) is not None:
                    store.patch(resource, NAMESPACE, step.job, step.patch)
            case steps.Delete(pod="", request=""):
                if (resource := self._resource(step.job)) is not None:
                    store.delete(resource, NAMESPACE, step.job, cascade=not step.orphan)
            case steps.Delete():
                if step.pod:
                    store.delete(PODS, NAMESPACE, f"{step.job}-{step.pod}")
                for resource in (SCALEINS, SCALEOUTS) if step.request else ():
                    store.delete(resource, NAMESPACE, step.request)
            case steps.End():
                platform.end(NAMESPACE, step.pod, step.code)
            case steps.Node(how="lost"):
                platform.lose_node(step.node)
            case steps.Node(how="drained"):
                platform.drain_node(step.node)
            case steps.Node():
                platform.open_node(step.node)
            case steps.Kill():
                self._kill(step)
            case steps.Pause():
                self._pause(step)
            case steps.Cut():
                self._cut([self._replicas[step.replica]], step.server, step.seconds)
            case steps.Outage():
                self._cut([*self._replicas.values()], step.server, step.seconds)
            case steps.Watches():
                if step.compacted:
                    store.compact()
                store.outage.cut_watches()
            case steps.Quota():
                store.pod_quota[NAMESPACE] = step.most
                self._later(step.seconds, store.pod_quota.clear)
            case steps.Skew():
                self._replicas[step.replica].skew += step.by

    def _resource(self, job: str) -> Resource[Any] | None:
        return next((each for each in RESOURCES.values() if self._store.get(each, NAMESPACE, job) is not None), None)

    def _kill(self, step: steps.Kill) -> None:
        replica = self._replicas[step.replica]
        process = replica.process
        if process is None:
            return

        def killed() -> None:
            if replica.process is process:
                replica.kill()
            self._later(step.down, replica.start)

        process.dies_at, process.killed = process.steps + step.after, killed

    def _pause(self, step: steps.Pause) -> None:
        process = self._replicas[step.replica].process
        if process is not None and not process.paused:
            process.pause()
            self._later(step.seconds, process.go_on)

    def _cut(self, replicas: list[Replica], server: steps.Server, seconds: float) -> None:
        links = [replica.to_cluster if server == "cluster" else replica.to_log for replica in replicas]

        def mend() -> None:
            for link in links:
                link.cut = False

        for link in links:
            link.cut = True
        self._later(seconds, mend)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._loop.call_later(seconds, what, context=outside())

    def _clear(self) -> None:
        """The weather clears: network, servers and replicas are well; containers still fail."""
        self._store.pod_quota.clear()
        for replica in self._replicas.values():
            for link in (replica.to_cluster, replica.to_log):
                link.cut, link.rates = False, Rates()
            replica.skew = 0.0
            if replica.lease is not None:
                # Renewals are most of what happens in calm weather, and prove nothing there.
                replica.lease.ttl = CALM_TTL_SECONDS
            if replica.process is not None:
                replica.process.dies_at = None
                if replica.process.paused:
                    replica.process.go_on()
            replica.start()

    def _end_well(self) -> None:
        """From now on every container ends well, and users resume their jobs."""
        for kind, resource in RESOURCES.items():
            for held in self._store.find(resource):
                self._store.patch(resource, *held.at, {"spec": steps.suspended(kind, suspend=False)})
        self._platform.clear()

    async def _quiet(self) -> bool:
        """Wait until neither the log nor the cluster changes for a while; False if that never comes about."""
        loop = self._loop
        changes = [(loop.time(), self._changes())]
        deadline = loop.time() + LONGEST_CALM_SECONDS
        while loop.time() < deadline:
            await asyncio.sleep(1.0)
            if self._changes() != changes[-1][1]:
                changes.append((loop.time(), self._changes()))
            still = loop.time() - changes[-1][0]
            if still >= BACK_OFF_SECONDS or (still >= QUIET_SECONDS and self._checker.over()):
                return True
        # What is refused for ever is tried again, and recorded, after each longest back-off.
        since = next(known for at, known in changes if at >= deadline - BACK_OFF_SECONDS)
        return self._changes() - since <= MOST_SLOW_CHANGES * self._checker.unfinished()

    def _changes(self) -> int:
        return len(self._journal.events) + self._store.version

    def _end(self, quiet: bool) -> None:
        held = [
            (name, why)
            for name, replica in self._replicas.items()
            if replica.runtime is not None
            for why in replica.runtime.held().values()
        ]
        resources = (PODS, SERVICES, CONFIGMAPS, SECRETS, SCALEINS, SCALEOUTS, *RESOURCES.values())
        objects = [(resource, held) for resource in resources for held in self._store.find(resource)]
        self._checker.ended(objects=objects, held=held, quiet=quiet)
        for name, replica in self._replicas.items():
            for why in replica.ended:
                self._checker.fault(f"the {name} ended by itself: {why}")
            if replica.runtime is None:
                self._checker.fault(f"the {name} does not run")
            else:
                self._compare(name, replica)

    def _compare(self, name: str, replica: Replica) -> None:
        """I23: every replica has folded the log to the same jobs."""
        assert replica.runtime is not None
        for history in replica.runtime.histories:
            expected = self._checker.histories.get(history.job.key)
            if history.sequence <= 1:
                # The log's own first event, and names that were only asked for.
                continue
            if expected is None or (expected.job, expected.head) != (history.job, history.head):
                self._checker.fault(f"I23 the {name} folds {history.job.key} to something else")

    async def _stop(self) -> None:
        """End every task, those of killed processes too."""
        self._stopping = True
        for replica in self._replicas.values():
            replica.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _head_grows(before: Manifest | None, after: Manifest) -> None:
    """The rule of every definition: the head in a status only grows."""
    was, now = (((manifest or {}).get("status") or {}).get("history") for manifest in (before, after))
    if was and now and was["log"] == now["log"] and now["sequence"] < was["sequence"]:
        raise Refused("a newer status was written already", reason="Invalid", field="status.history")


def manifest_of(step: steps.Apply) -> dict[str, Any]:
    """The job as a user would apply it."""

    def role(replicas: int | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {"template": {"spec": {"containers": [{"name": name, "image": "training"}]}}}
        if replicas is not None:
            found["replicas"] = replicas
        if step.policy:
            found["restartPolicy"] = step.policy
        return found

    name = {"TFJob": "tensorflow", "PyTorchJob": "pytorch", "MXJob": "mxnet"}.get(step.kind, "main")
    more = step.more
    match step.kind:
        case "TrainingJob":
            worker = role(step.workers) | {"minReplicas": 1, "maxReplicas": 6}
            spec: dict[str, Any] = {"etReplicaSpecs": {"launcher": role(), "worker": worker}}
        case "TFJob":
            spec = {"tfReplicaSpecs": {"Chief": role(1), "Worker": role(step.workers)}}
        case "PyTorchJob":
            spec = {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(step.workers)}}
        case "MPIJob":
            spec = {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(step.workers)}}
        case _:
            spec = {
                "jobMode": "MXTrain",
                "mxReplicaSpecs": {"Scheduler": role(1), "Server": role(1), "Worker": role(step.workers)},
            }
    if step.kind != "TrainingJob":
        more = {"runPolicy": dict(more)}
    return {"metadata": {"name": step.job}, "spec": {**spec, **more}}


def request_of(step: steps.Scale) -> dict[str, Any]:
    wish: dict[str, Any] = {"count": abs(step.by)}
    if step.pods:
        wish = {"podNames": list(step.pods)}
    field = "toAdd" if step.by > 0 else "toDelete"
    return {"metadata": {"name": step.name}, "spec": {"selector": {"name": step.job}, field: wish, **step.more}}
