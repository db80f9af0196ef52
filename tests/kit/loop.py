"""A closed loop of the pure core: decisions become events, effects become objects, objects become facts.

No tasks, no clock: one seed chooses which of all possible steps happens next, how far each watch lags behind, when
pods start, end or vanish, and when timers run out.  Services have no memory here, so that every step is also a
restart of all of them.
"""

import random
from collections.abc import Callable, Iterator

import msgspec

from services.scaler.core import Policy
from services.scaler.core import effects as scaler_effects
from services.scaler.core.decide import decide as scaler
from services.scheduler.core import effects as scheduler_effects
from services.scheduler.core import keys
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from services.watcher.core.cache import Cache
from services.watcher.core.lists import question
from services.watcher.core.observe import observe
from services.watcher.core.observed import ObservedJob, ObservedNode, ObservedRequest
from services.watcher.core.questions import UNANSWERED, Answers, Presence
from shared.cluster.objects import Taint
from shared.eventlog import Stored
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.frameworks.training_job import TRAININGJOB
from shared.job.attempt import Unknown
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import DrainChecked, ScriptFinished
from shared.job.events.scheduler import SecretGone, SecretMade
from shared.job.events.watcher import TimePassed
from shared.job.fold import History
from shared.job.naming import Uid, config_name
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem, ScaleKind, ScaleSpec
from shared.job.state import Job
from shared.job.steps import Effect, Record, Step
from shared.job.timing import next_due
from shared.job.views import ChildView, Exit, PodView
from tests.kit.builders import observed
from tests.kit.histories import KEY, stored
from tests.kit.invariants import LogChecker

replace = msgspec.structs.replace

Move = Callable[[], None]

GOING = ObservedNode(reason="SpotInterruption", taints=(Taint(key="spot", effect="NoSchedule"),))


class Loop:
    """One job, its cluster, and the four deciders."""

    def __init__(self, seed: int, job: JobSpec | ObservedJob, framework: Framework = TRAININGJOB) -> None:
        """`job` is what was observed of a job of this kind; with a spec alone it is that of `KEY`."""
        self.chance = random.Random(seed)
        self.resource: ObservedJob | None = job if isinstance(job, ObservedJob) else _observed(job)
        self.key, self.kind = self.resource.key, framework.resource
        self.history = History(self.key)
        self._checker = LogChecker()
        self.events: list[AnyEvent] = []
        self.log: list[Stored] = []
        self.version = self.resource.observed.version
        self.pods: dict[str, PodView] = {}
        self.children: dict[tuple[str, str], ChildView] = {}
        self.secrets: dict[str, Uid] = {}
        self.listed_in_hosts: frozenset[int] = frozenset()
        self.requests: dict[Uid, ObservedRequest] = {}
        self.ran: list[Uid] = []
        """The requests whose script ran, time after time."""
        self._claimed: set[int] = set()
        self.cache = Cache(Kinds([framework]))
        self.calm = False
        """No more trouble: nothing breaks by itself."""
        self.crashes = 0
        """How often still the launcher may fail."""
        self.uids = 0
        self.notices = 0
        """How often still the node of all pods may be about to go."""
        self.node = 0
        """Where pods are placed, by number."""
        self.cache.nodes.version = 1

    @property
    def job(self) -> Job:
        return self.history.job

    def request(self, kind: ScaleKind, *, count: int | None = None, script: bool = False) -> Uid:
        """A user applies a scale request."""
        uid = Uid(f"request-{len(self.requests)}")
        nothing = Problem(reason="NothingToDelete", field="spec.toDelete", message="say count or podNames")
        self.requests[uid] = ObservedRequest(
            kind=kind,
            namespace=self.key.namespace,
            name=uid,
            uid=uid,
            version=self._next(),
            created="2030-01-01T00:00:00Z",
            job=self.key.name,
            owner=Uid(""),
            spec=ScaleSpec(kind=kind, job=self.key.name, count=count, script=script) if count is not None else None,
            problems=(nothing,) if count is None else (),
        )
        return uid

    def edit(self, spec: JobSpec) -> None:
        """A user changes the job."""
        assert self.resource is not None
        newer = observed(spec, generation=self.resource.observed.generation + 1)
        self.resource = replace(self.resource, observed=replace(newer, version=self._next()))

    def run(self, until: Callable[["Loop"], bool] = lambda _: False, limit: int = 4_000) -> None:
        """Take steps until `until` holds, or nothing is left to do."""
        for _ in range(limit):
            if until(self):
                return
            moves = list(self._moves())
            if not moves:
                # Only time is left to pass; in calm lives the clock is right, in others it may be anything.
                due = sorted(next_due(self.job), key=lambda timer: timer.anchor + timer.seconds)
                moves = [self._pass(timer.anchor, timer.name) for timer in (due[:1] if self.calm else due)]
            if not moves:
                return
            self.chance.choice(moves)()
        raise AssertionError(f"no end after {limit} steps: {self.job}")

    def end_launcher(self, code: int) -> None:
        """The training ends."""
        pod = next(pod for pod in self.pods.values() if pod.role == LAUNCHER)
        name = pod.name
        phase = "Succeeded" if code == 0 else "Failed"
        self.pods[name] = replace(pod, phase=phase, ready=False, exits=(Exit("main", code),), version=self._next())

    def delete(self) -> None:
        """A user deletes the job; the garbage collector follows at its own pace."""
        self.resource = None

    def _moves(self) -> Iterator[Move]:
        yield from self._syncs()
        facts = observe(self.job, self.cache, self._answers()).facts
        if facts:
            yield lambda: self._append(facts[0])
        for decider in (scheduler, lambda job: scaler(job, Policy()), status):
            steps = decider(self.job)
            record = next((step for step in steps if isinstance(step, Record)), None)
            if record is not None:
                yield self._appending(record.event)
            yield from (self._doing(step) for step in steps if isinstance(step, Effect) and self._matters(step))
        yield from self._kubelet()
        if self.notices and self.chance.random() < 0.02:
            yield self._notice

    def _notice(self) -> None:
        """The node where pods are placed is about to go, and is closed; no other caller gets its name."""
        self.notices -= 1
        self.cache.set_node(f"node-{self.node}", GOING)
        self.node += 1

    def _syncs(self) -> Iterator[Move]:
        """Each watch catches up by itself."""
        cache = self.cache
        at = (self.key.namespace, self.key.name)
        if cache.jobs[self.kind].get(at) != self.resource or not cache.jobs[self.kind].listed:
            yield self._sync_job
        if {k: v for listing in cache.requests.values() for k, v in listing.items()} != {
            (self.key.namespace, request.name): request for request in self.requests.values()
        } or not all(listing.listed for listing in cache.requests.values()):
            yield self._sync_requests
        if {name: pod for (_, name), (_, pod) in cache.pods.items()} != self.pods or not cache.pods.listed:
            yield self._sync_pods
        if cache.children_of(self.key) != self.children:
            yield self._sync_children

    def _sync_job(self) -> None:
        self.cache.jobs[self.kind].version, self.cache.held_back = self.version, False
        self.cache.set_job(self.kind, (self.key.namespace, self.key.name), self.resource)

    def _answers(self) -> Answers:
        """A GET of the job finds out that it is gone once its watch has."""
        asked = question(self.job, self.cache) if self.cache.job(self.key) is None else None
        return Answers(presence=(asked, Presence(there=False))) if asked is not None else UNANSWERED

    def _sync_requests(self) -> None:
        for kind, listing in self.cache.requests.items():
            now = {request.name: request for request in self.requests.values() if request.kind == kind}
            for at in [at for at in listing if at[1] not in now]:
                self.cache.set_request(kind, at, None)
            for name, request in now.items():
                self.cache.set_request(kind, (self.key.namespace, name), request)
            listing.version = self.version

    def _sync_pods(self) -> None:
        for at in [at for at in self.cache.pods if at[1] not in self.pods]:
            self.cache.set_pod(at, None)
        for name, pod in self.pods.items():
            self.cache.set_pod((self.key.namespace, name), (self.key, pod))
        self.cache.pods.version = self.version

    def _sync_children(self) -> None:
        for kind, listing in self.cache.children.items():
            now = {name: child for (known, name), child in self.children.items() if known == kind}
            for at in [at for at in listing if at[1] not in now]:
                self.cache.set_child(kind, at, None)
            for name, child in now.items():
                self.cache.set_child(kind, (self.key.namespace, name), (self.key, child))
            listing.version = self.version

    def _kubelet(self) -> Iterator[Move]:
        for name, pod in self.pods.items():
            if pod.deleting or self.resource is None:
                yield lambda name=name: self._drop(name)  # type: ignore[misc]
            elif pod.phase == "Pending":
                yield self._turning(pod, phase="Running", node=f"node-{self.node}")
            elif pod.phase == "Running" and not pod.ready:
                yield self._turning(pod, ready=True)
            elif pod.role == LAUNCHER and pod.phase == "Running" and self.crashes and self.chance.random() < 0.02:
                yield self._crash
            elif pod.role == WORKER and not self.calm and self.chance.random() < 0.01:
                yield self._turning(pod, phase="Failed", ready=False, exits=(Exit("main", 1),))
        if self.resource is None:
            for child in self.children:
                yield lambda child=child: self._collect(child)  # type: ignore[misc]

    def _crash(self) -> None:
        self.crashes -= 1
        self.end_launcher(1)

    def _drop(self, name: str) -> None:
        self.version += 1
        del self.pods[name]

    def _collect(self, child: tuple[str, str]) -> None:
        self.version += 1
        del self.children[child]

    def _turning(self, pod: PodView, **changes: object) -> Move:
        def turn() -> None:
            self.pods[pod.name] = replace(pod, **changes, version=self._next())

        return turn

    def _matters(self, effect: Effect) -> bool:
        """Carrying it out would change something; the real shell remembers that it just did."""
        match effect:
            case scheduler_effects.CreatePod():
                return self.job.pod_name(effect.slot) not in self.pods and self.resource is not None
            case scheduler_effects.CreateService():
                return ("Service", self._service(effect)) not in self.children and self.resource is not None
            case scheduler_effects.CreateSecret():
                return self.resource is not None
            case scheduler_effects.DeleteSecret():
                return True
            case scheduler_effects.DeletePod():
                return any(pod.uid == effect.uid and not pod.deleting for pod in self.pods.values())
            case scaler_effects.WriteHosts():
                known = self.children.get(("ConfigMap", config_name(self.key.name)))
                return self.resource is not None and (known is None or known.hosts < effect.version)
            case scaler_effects.NudgeLauncher():
                return any(pod.uid == effect.uid and pod.hosts < effect.version for pod in self.pods.values())
            case scaler_effects.RunScript():
                return effect.once not in self._claimed
            case scaler_effects.CheckDrain():
                return True
            case scaler_effects.OwnRequest():
                return effect.uid in self.requests and not self.requests[effect.uid].owner
        return False

    def _service(self, effect: scheduler_effects.CreateService) -> str:
        return self.key.name if effect.slot is None else self.job.pod_name(effect.slot)

    def _doing(self, effect: Effect) -> Move:
        return lambda: self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case scheduler_effects.CreatePod(slot=slot):
                self.uids += 1
                name = self.job.pod_name(slot)
                mounts = self.job.spec is not None and self.job.spec.attach_mode == "ssh"
                assert not mounts or keys.secret(self.job) in self.secrets, f"{name} mounts a Secret that is not there"
                others = [pod.name for pod in self.pods.values() if pod.attempt != slot.attempt]
                assert not others, f"{name} of attempt {slot.attempt} beside {others} of another one"
                self.pods[name] = PodView(
                    uid=Uid(f"pod-{self.uids}"),
                    name=name,
                    version=self._next(),
                    attempt=slot.attempt,
                    role=slot.role,
                    index=slot.index,
                )
            case scheduler_effects.CreateService():
                name = self._service(effect)
                self.children["Service", name] = ChildView(
                    kind="Service", name=name, uid=Uid(f"service-{name}"), version=self._next(), ours=True
                )
            case scheduler_effects.CreateSecret():
                self.uids += 1
                uid = self.secrets.setdefault(effect.name, Uid(f"secret-{self.uids}"))
                self._append(SecretMade(attempt=effect.attempt, uid=uid))
            case scheduler_effects.DeleteSecret():
                if self.secrets.get(effect.name) == effect.uid:
                    del self.secrets[effect.name]
                self._append(SecretGone(attempt=effect.attempt))
            case scheduler_effects.DeletePod(uid=uid):
                pod = next(pod for pod in self.pods.values() if pod.uid == uid)
                # Before a launcher of this attempt reads them, the files are those of the one before.
                nobody_reads = (
                    isinstance(self.job.membership, Unknown)
                    or not self.job.attempt.launched
                    or self.job.between_attempts
                    or pod.attempt != self.job.attempt.number
                )
                going_in_peace = self.job.over or self.job.resource.gone or pod.phase == "Failed" or nobody_reads
                assert going_in_peace or pod.index not in self.listed_in_hosts, f"{pod.name} is still listed"
                self.pods[pod.name] = replace(pod, deleting=True, version=self._next())
            case scaler_effects.WriteHosts(version=version, members=members):
                name = config_name(self.key.name)
                self.listed_in_hosts = frozenset(members)
                self.children["ConfigMap", name] = ChildView(
                    kind="ConfigMap", name=name, uid=Uid("config"), version=self._next(), ours=True, hosts=version
                )
            case scaler_effects.NudgeLauncher(uid=uid, version=version):
                pod = next(pod for pod in self.pods.values() if pod.uid == uid)
                self.pods[pod.name] = replace(pod, hosts=version, version=self._next())
            case scaler_effects.OwnRequest(uid=uid):
                self.requests[uid] = replace(self.requests[uid], owner=self.key.uid, version=self._next())

            case scaler_effects.RunScript():
                self._run(effect)
            case scaler_effects.CheckDrain(workers=workers):
                still = tuple(index for index, _ in workers if not self.calm and self.chance.random() < 0.5)
                unknown = "" if still or self.calm or self.chance.random() < 0.7 else "Forbidden"
                self._append(DrainChecked(request=effect.request, in_use=still, reason=unknown))

    def _run(self, effect: scaler_effects.RunScript) -> None:
        """The script ends well or not, or its end is lost with the process that saw it; or it did not run at all."""
        self._claimed.add(effect.once)
        fate = 1.0 if self.calm else self.chance.random()
        if fate < 0.1:
            return
        self.ran.append(effect.request)
        if fate > 0.2:
            self._append(ScriptFinished(request=effect.request, exit_code=0 if fate > 0.4 else 1))

    def _appending(self, event: AnyEvent) -> Move:
        return lambda: self._append(event)

    def _pass(self, anchor: int, timer: str) -> Move:
        return lambda: self._append(TimePassed(anchor=anchor, timer=timer))

    def _append(self, event: AnyEvent) -> None:
        self.log.append(stored(self.history, event))
        self.history.fold(self.log[-1])
        self.events.append(event)
        self._checker.appended(self.log[-1])
        assert not self._checker.faults, self._checker.faults

    def _next(self) -> int:
        self.version += 1
        return self.version


def _observed(spec: JobSpec) -> ObservedJob:
    return ObservedJob(key=KEY, observed=observed(spec), deleting=False, orphan=False, log="", head=None, accept="")


def steps_of(job: Job) -> list[Step]:
    """What all services owe, in one list."""
    return [*scheduler(job), *scaler(job, Policy()), *status(job)]
