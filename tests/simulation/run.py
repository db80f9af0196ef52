"""Lets a plan happen: two replicas of each service, one log, one cluster, on a virtual clock.

outcome = simulate(plan_of(7))
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import structlog

from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Entry, Stored, parts
from shared.eventlog.account import HEADS
from shared.eventlog.subject import Subject
from shared.frameworks.queueing import WORKLOADS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.trainer_schemas import RUNTIMES
from shared.job.naming import ACCEPT_HISTORY, JobKey, Uid
from tests.kit.gangs import POD_GROUP
from tests.kit.services import AUTHORS, wall_clock
from tests.memory.eventlog import MemoryJournal
from tests.memory.store import MemoryStore
from tests.memory.watching import Held
from tests.simulation import plan as steps
from tests.simulation.archives import ARCHIVERS, ArchiverReplica, Archives
from tests.simulation.invariants import Checker
from tests.simulation.kueue import Kueue, beyond_quota, kept_after_the_end, quota_twice
from tests.simulation.loop import SimulatedLoop, outside
from tests.simulation.manifests import KINDS, RESOURCES, inherited, manifest_of, request_of, runtime_of
from tests.simulation.network import Link, Rates
from tests.simulation.platform import Platform
from tests.simulation.pretence import nothing_real
from tests.simulation.replica import Replica
from tests.simulation.training import Trainers, TrainingDemands
from tests.takeover.recorded import put

AFTERMATH_SECONDS = 90.0
"""Three back-offs of a restart."""
QUIET_SECONDS = 40.0
"""Longer than the longest wait after a call that failed."""
BACK_OFF_SECONDS = 310.0
"""Longer than the longest back-off."""
LONGEST_CALM_SECONDS = 1_200.0
"""After this much clear weather all must have come to rest: ten doubled back-offs, and the longest one."""
DOWN_SECONDS = 0.3
"""How long a replica is down that was killed at an event."""
STILL_SECONDS = 5.0
"""How long a replica stands still: longer than its lease."""
IN_THE_WAY: dict[str, Resource[Any]] = {kind.kind: kind for kind in (PODS, SERVICES, CONFIGMAPS)}
CALM_TTL_SECONDS = 60.0
MOST_EVENTS = 5_000
MOST_VERSIONS = 50_000


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to."""

    faults: tuple[str, ...]
    events: int
    settled: int
    """The number of events when the weather cleared."""
    trace: str
    """The hash of all events and all changes of the cluster, in their order."""
    reached: frozenset[str]


def simulate(plan: steps.Plan, *listeners: Callable[[Stored], None]) -> Outcome:
    """Run a plan; the same plan gives the same outcome in every process.

    Each event of the log is told to `listeners`.
    """
    # A history has several parts in the archive.
    small = patch.object(parts, "PART_BYTES", 1_000)
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner, _silence(), nothing_real(), small:
        return runner.run(Simulation(plan, listeners).run())


@contextmanager
def _silence() -> Iterator[None]:
    """Drop the lines of the services: they would be most of the run's time."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


class Simulation:
    """One run."""

    def __init__(self, plan: steps.Plan, listeners: Sequence[Callable[[Stored], None]] = ()) -> None:
        self._plan = plan
        self._listeners = listeners
        self._hash = hashlib.sha256()
        self._actor = ""
        self._acts_for: JobKey | None = None
        self._stopping = False
        self._trainer: dict[tuple[str, str], steps.Apply] = {}
        """By namespace and name, the step that applied a TrainJob last."""
        self._went: dict[tuple[str, str], tuple[Resource[Any], Held]] = {}
        """By namespace and name, the resource of the job that went last."""
        self._restored = False
        """True once the log was restored: what it lost the services may do again, with pods that they do not know."""

    async def run(self) -> Outcome:
        plan, loop = self._plan, asyncio.get_running_loop()
        self._loop = loop
        loop.set_exception_handler(self._broken)
        self._checker = Checker("log", KINDS, plan.seal_after)
        self._journal = MemoryJournal(identity="log", clock=loop.time, wall=lambda: wall_clock().timestamp())
        self._journal.listeners += [self._appended, *self._listeners]
        self._store = MemoryStore(now=wall_clock)
        # No API server counts from zero.
        self._store.version = 1
        self._store.listeners.append(self._changed)
        self._platform = Platform(self._store, plan.seed, plan.workload, self._checker)
        self._platform.places = plan.places
        self._checker.demands.in_use = self._platform.in_use
        self._kueue = Kueue(self._store, plan.seed, plan.room, self._later) if plan.room else None
        self._replicas = {
            f"{author}-{number}": self._replica(author, number) for author in AUTHORS for number in range(2)
        }
        self._trainers = None
        if plan.reports:
            watchers = [self._replicas[f"watcher-{number}"] for number in range(2)]
            self._trainers = Trainers(self._store, plan.seed, plan.reports, watchers)
            self._platform.last_words = self._trainers.last_words
            self._checker.trainings = TrainingDemands(self._trainers)
        self._archives = Archives(self._journal, self._checker.fault)
        self._archivers = {name: self._archiver(number) for number, name in enumerate(ARCHIVERS)}
        self._processes = self._replicas | (self._archivers if plan.archive is not None else {})
        for replica in self._processes.values():
            replica.start()
        for step in plan.steps:
            loop.call_later(step.at, self._take, step)
        await asyncio.sleep(plan.seconds + 0.1)
        settled = len(self._journal.events)
        self._clear()
        await self._aftermath()
        self._end_well()
        quiet = await self._quiet()
        self._end(quiet)
        outcome = Outcome(
            faults=tuple(self._checker.faults),
            events=len(self._journal.events),
            settled=settled,
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
            acting=lambda key: self._as(author, key),
            kueue=bool(plan.room),
            gangs=plan.gangs,
            seal_after=plan.seal_after,
        )

    def _archiver(self, number: int) -> Replica:
        plan, chance = self._plan, Random(f"{self._plan.seed} archiver {number}")
        return ArchiverReplica(
            self._archives,
            plan.archive or 0.0,
            number,
            journal=self._journal,
            store=self._store,
            kinds=KINDS,
            chance=chance,
            links=(Link(chance, plan.to_cluster), Link(chance, plan.to_log)),
            acting=lambda key: lambda work: work(),
        )

    def _as(self, author: str, key: JobKey | None) -> Callable[[Callable[[], Any]], Any]:
        """A service sends a call for a job, whose work the store does later.

        It gives up what was sent before the job's seal, and comes after it: by default a minute lies between the end of
        a job and its seal, and the API server's own limit for a call is 34 s.
        """
        before = not self._is_sealed(key)

        def carry_out(work: Callable[[], Any]) -> Any:
            if before and self._is_sealed(key):
                raise Transient("the server gave the call up")
            self._actor, self._acts_for = author, key
            try:
                return work()
            finally:
                self._actor, self._acts_for = "", None

        return carry_out

    def _is_sealed(self, key: JobKey | None) -> bool:
        return key is not None and key.uid in self._checker.sealed

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
        for replica in self._processes.values():
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
        if resource in RESOURCES.values() and before is not None and after is None:
            self._went[before.at] = resource, before
        self._checker.changed(self._actor, self._acts_for, resource, before, after)
        if resource.plural == PODS.plural and before is None:
            self._checker.pods(self._store.find(PODS))
        if resource.plural in (PODS.plural, WORKLOADS.plural) and not self._checker.faults and not self._restored:
            for why in beyond_quota(self._store, self._is_over):
                self._checker.fault(why)

    def _is_over(self, uid: str) -> bool:
        """True if the log has the end of a job, or its deletion."""
        jobs = [history.job for history in self._checker.known if history.job.key.uid == uid]
        return any(job.over or job.resource.gone for job in jobs)

    def _take(self, step: steps.AnyStep) -> None:
        with suppress(Refused):
            self._happen(step)

    def _happen(self, step: steps.AnyStep) -> None:
        store, platform = self._store, self._platform
        match step:
            case steps.Apply():
                if step.kind == "TrainJob":
                    self._trainer[step.namespace, step.job] = step
                    self._supply(step)
                store.create(RESOURCES[step.kind], step.namespace, manifest_of(step))
            case steps.Scale():
                resource = SCALEOUTS if step.by > 0 else SCALEINS
                store.create(resource, step.namespace, request_of(step))
            case steps.Edit():
                if (resource := self._resource(step)) is not None:
                    store.patch(resource, step.namespace, step.job, step.patch, subresource=step.subresource)
            case steps.EditRuntime(revision=None):
                store.delete(RUNTIMES, step.namespace, step.job)
            case steps.EditRuntime():
                if (applied := self._trainer.get((step.namespace, step.job))) is not None:
                    spec = runtime_of(applied, step.revision)["spec"]
                    store.patch(RUNTIMES, step.namespace, step.job, {"spec": spec})
            case steps.Delete(pod="", request=""):
                if (resource := self._resource(step)) is not None:
                    store.delete(resource, step.namespace, step.job, cascade=not step.orphan)
            case steps.Delete():
                if step.pod:
                    store.delete(PODS, step.namespace, f"{step.job}-{step.pod}")
                for resource in (SCALEINS, SCALEOUTS) if step.request else ():
                    store.delete(resource, step.namespace, step.request)
            case steps.Strip():
                owner = {"ownerReferences": None} if step.owner else {}
                store.patch(PODS, step.namespace, step.pod, {"metadata": {"labels": None, **owner}})
            case steps.Foreign():
                spec = {"containers": [{"name": "main", "image": "other"}]} if step.kind == "Pod" else {}
                store.create(IN_THE_WAY[step.kind], step.namespace, {"metadata": {"name": step.name}, "spec": spec})
            case steps.Terminate():
                store.terminate_namespace(step.namespace)
            case steps.End():
                platform.end(step.namespace, step.pod, step.code)
            case steps.Node(how="lost"):
                platform.lose_node(step.node)
            case steps.Node(how="silent"):
                platform.silence_node(step.node)
            case steps.Node(how="drained"):
                platform.drain_node(step.node)
            case steps.Node(how="announced"):
                platform.announce_node(step.node)
            case steps.Node(how="deleted"):
                platform.delete_node(step.node)
            case steps.Node():
                platform.open_node(step.node)
            case steps.Kill():
                self._kill(step)
            case steps.Pause():
                self._pause(step)
            case steps.Cut():
                self._cut([self._processes[step.replica]], step.server, step.seconds)
            case steps.Outage():
                self._cut([*self._processes.values()], step.server, step.seconds)
            case steps.Watches():
                if step.compacted:
                    store.compact()
                for replica in self._replicas.values():
                    replica.to_cluster.lag(store.version - step.behind)
                store.outage.cut_watches()
            case steps.Ungroup():
                for held in self._store.find(POD_GROUP, step.namespace):
                    if held.at[1].startswith(f"{step.job}-"):
                        self._store.delete(POD_GROUP, *held.at)
            case steps.Preempt():
                self._platform.preempt(step.namespace, f"{step.job}-worker-", step.count)
            case steps.Hang() if self._trainers is not None:
                self._trainers.hang(step.namespace, step.job)
            case steps.Lie() if self._trainers is not None:
                self._trainers.lie(step.namespace, step.job, step.step, step.another)
            case steps.Requeue():
                if self._kueue is not None:
                    take = self._kueue.delete if step.deleted else self._kueue.evict
                    take(step.namespace, step.job)
            case steps.Quota():
                store.pod_quota[step.namespace] = step.most
                self._later(step.seconds, store.pod_quota.clear)
            case steps.Skew():
                self._replicas[step.replica].skew += step.by
            case steps.Inherit():
                put(store, inherited(step))
            case steps.Restore():
                self._restore(step)
            case steps.Return():
                resource, held = self._went.get((step.namespace, step.job), (None, None))
                if resource is not None and held is not None and held.metadata["uid"] in self._checker.sealed:
                    store.bring_back(resource, held)
            case steps.Archive(lost=0):
                self._archives.damaging = True
            case steps.Archive():
                self._archives.restore(step.lost)
            case steps.Nonsense():
                if (resource := self._resource(step)) is not None:
                    self._garble(step, store.get(resource, step.namespace, step.job))

    def _supply(self, step: steps.Apply) -> None:
        """An administrator makes the runtime of a TrainJob if there is none."""
        if self._store.get(RUNTIMES, step.namespace, step.job) is None:
            self._store.create(RUNTIMES, step.namespace, runtime_of(step))

    def _restore(self, step: steps.Restore) -> None:
        self._restored = True
        for replica in self._processes.values():
            replica.kill()
            replica.disconnect()
            self._later(DOWN_SECONDS, replica.start)
        self._journal.restore(max(len(self._journal.events) - step.lost, 1))
        self._checker.restored(self._journal.events)

    def _garble(self, step: steps.Nonsense, held: Held | None) -> None:
        """What a later release or a mistaken person wrote about the job, once the log has it."""
        assert held is not None
        uid = held.metadata["uid"]
        if self._checker.histories.get(JobKey(step.namespace, step.job, uid)) is None:
            return
        author, tag = ("status" if step.how == "foreign" else "watcher"), "PodsGone"
        body = b'{"type":"PodsGone","uids":[]}' if step.how == "foreign" else b"{"
        if step.how in ("unknown", "optional"):
            tag, body = "PodsCounted", b'{"type":"PodsCounted"}'
        subject = Subject("facts", step.namespace, step.job, uid, author, tag)
        if step.how != "optional":
            self._checker.unreadable.add(uid)
        last = self._journal.last(subject.scope)
        time, optional = "2030-01-01T00:00:00.000Z", step.how == "optional"
        entry = Entry(subject=str(subject), event_id=f"nonsense {step.at}", time=time, body=body, optional=optional)
        self._journal.append(entry, expect=last.sequence if last is not None else 0)

    def _resource(self, step: steps.Edit | steps.Delete | steps.Nonsense) -> Resource[Any] | None:
        kinds = RESOURCES.values()
        return next((kind for kind in kinds if self._store.get(kind, step.namespace, step.job) is not None), None)

    def _kill(self, step: steps.Kill) -> None:
        replica = self._processes[step.replica]
        process = replica.process
        if process is None:
            return

        def killed() -> None:
            if replica.process is process:
                replica.kill()
            self._later(step.down, replica.start)

        process.dies_at, process.killed = process.steps + step.after, killed

    def _pause(self, step: steps.Pause) -> None:
        process = self._processes[step.replica].process
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

    async def _aftermath(self) -> None:
        trainings = self._checker.trainings
        if trainings is None:
            await asyncio.sleep(AFTERMATH_SECONDS)
            return
        trainings.clear()
        for _ in range(int(AFTERMATH_SECONDS)):
            await asyncio.sleep(1.0)
            for history in self._checker.histories:
                for why in trainings.late(history.job, self._store.find(PODS, history.job.key.namespace)):
                    self._checker.fault(why)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._loop.call_later(seconds, what, context=outside())

    def _clear(self) -> None:
        """The weather clears: network, servers and replicas are well; containers still fail.

        People remove what is in a job's way: objects that were never a job's, and those that an orphaned job left.
        """
        self._store.pod_quota.clear()
        self._store.terminating.clear()
        for resource in IN_THE_WAY.values():
            for held in self._store.find(resource):
                labels, owners = held.metadata.get("labels") or {}, held.metadata.get("ownerReferences")
                # What another operator made has its labels and its owner.
                if not (labels and owners):
                    self._store.remove(resource, *held.at)
        self._archives.repair()
        for replica in self._processes.values():
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
        """From now on every container ends well, users resume their jobs, and every runtime is there."""
        for applied in self._trainer.values():
            self._supply(applied)
        for kind, resource in RESOURCES.items():
            for held in self._store.find(resource):
                kept = {"metadata": {"finalizers": None}}
                self._store.patch(resource, *held.at, {**kept, "spec": steps.suspended(kind, suspend=False)})
        self._platform.clear()
        if self._kueue is not None:
            self._kueue.clear()

    async def _quiet(self) -> bool:
        """Wait until neither the log nor the cluster changes for a while; False if that never comes about."""
        loop = self._loop
        since, changes = loop.time(), self._changes()
        deadline = since + LONGEST_CALM_SECONDS
        while loop.time() < deadline:
            await asyncio.sleep(1.0)
            self._accept()
            if self._changes() != changes:
                since, changes = loop.time(), self._changes()
            still = loop.time() - since
            over = still >= QUIET_SECONDS and self._checker.over() and not self._unarchived()
            if over or still >= BACK_OFF_SECONDS:
                return True
        return False

    def _unarchived(self) -> list[str]:
        """What the archiver has still to do; after a loss nothing is asked for."""
        if self._plan.archive is None or self._restored or self._archives.lost:
            return []
        return self._archives.left(sealed.job.key for sealed in self._checker.sealed.values())

    def _accept(self) -> None:
        """A person accepts every head that the log does not lead to."""
        for history in self._checker.histories:
            job = history.job
            if (doubt := job.integrity.doubt) is not None and (
                resource := RESOURCES.get(job.resource.kind)
            ) is not None:
                accepted = {"uid": job.key.uid, "annotations": {ACCEPT_HISTORY: str(doubt.head)}}
                with suppress(Refused, Conflict):
                    self._store.patch(resource, job.key.namespace, job.key.name, {"metadata": accepted})

    def _changes(self) -> int:
        return len(self._journal.events) + len(self._journal.purged) + self._store.version

    def _end(self, quiet: bool) -> None:
        held = [
            (name, history.job.key, history.held or history.job.integrity.sentence)
            for name, replica in self._replicas.items()
            if replica.runtime is not None
            for history in replica.runtime.histories.held()
        ]
        resources = (PODS, SERVICES, CONFIGMAPS, SECRETS, WORKLOADS, SCALEINS, SCALEOUTS, *RESOURCES.values())
        objects = [(resource, held) for resource in resources for held in self._store.find(resource)]
        witnessed = {*map(Uid, self._journal.buckets[HEADS])} if self._restored else ()
        self._checker.ended(objects=objects, held=held, quiet=quiet, witnessed=witnessed)
        for uid in () if self._restored else self._checker.sealed:
            if uid in self._journal.buckets[HEADS]:
                self._checker.fault(f"I43 the checkpoint of {uid} is kept, and its history is sealed")
        for why in self._unarchived():
            self._checker.fault(why)
        over = [history.job.key.uid for history in self._checker.known if history.job.over]
        # A job on hold keeps its quota until a person accepts its history.
        for why in kept_after_the_end(self._store, {*over} - self._checker.unreadable):
            self._checker.fault(why)
        for why in quota_twice(self._store):
            self._checker.fault(why)
        for name, replica in self._processes.items():
            for why in replica.ended:
                self._checker.fault(f"the {name} ended by itself: {why}")
            if name in ARCHIVERS:
                continue
            if replica.runtime is None:
                self._checker.fault(f"the {name} does not run")
            else:
                self._compare(name, replica)

    def _compare(self, name: str, replica: Replica) -> None:
        """I23: every replica has folded the log to the same jobs."""
        assert replica.runtime is not None
        for sealed in self._checker.sealed.values():
            kept = replica.runtime.histories.get(sealed.job.key)
            if kept is not None and kept.held_for != "Sealed":
                self._checker.fault(f"I43 the {name} keeps {sealed.job.key}, which is sealed")
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
        for replica in self._processes.values():
            replica.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
