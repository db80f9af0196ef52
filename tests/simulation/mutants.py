"""Faults planted into the product, each with the rule that a run with it breaks."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from services.archive import archiving
from services.scaler import shell as scaler_shell
from services.scaler.core import commands, membership, scale
from services.scaler.core import decide as scaler_decide
from services.scaler.launcher_commands import LauncherCommands
from services.scheduler import shell as scheduler_shell
from services.scheduler.core import decide as scheduler_decide
from services.scheduler.core import queueing, slots
from services.scheduler.core.effects import DeletePod
from services.status import shell as status_shell
from services.status.checkpoints import Checkpoints
from services.status.core import decide as status_decide
from services.watcher import deadlines
from services.watcher import progress as watcher_progress
from services.watcher.core import heads, observe
from services.watcher.core.questions import Presence
from services.watcher.progress import Reports
from shared.errors import Conflict, Refused
from shared.eventlog import Entry
from shared.eventlog.subject import Subject
from shared.frameworks.runtimes import JobRuntime
from shared.frameworks.trainer_schemas import RUNTIMES
from shared.job import evolve_requests, fold, ledger, timing
from shared.job.attempt import Members, Unknown, Vacancy, Verdict
from shared.job.events import status, watcher
from shared.job.events.event import Cause
from shared.job.fold import History
from shared.job.integrity import Integrity
from shared.job.naming import FORCE_DELETE_AFTER, STALL_TIMEOUT, JobKey, Slot
from shared.job.policies import capacity, nodes, quota, replacement, retries, verdict
from shared.job.policies.retries import FIRST_START_SECONDS
from shared.job.scaling import Scaling
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.steps import Record
from shared.job.timers import TIME_TO_LIVE, Timer
from shared.job.views import Member
from shared.runtime import run as runtime_run
from shared.runtime.appends import Appends
from shared.telling.reading import line_of
from shared.telling.sealed import Copy
from tests.memory.eventlog import MemoryJournal
from tests.simulation.loop import PROCESS
from tests.simulation.network import Rates
from tests.simulation.plan import (
    AnyStep,
    Apply,
    Archive,
    Cut,
    Delete,
    Edit,
    EditRuntime,
    End,
    Hang,
    Node,
    Pause,
    Plan,
    Restore,
    Return,
    Scale,
    plan_of,
)
from tests.simulation.platform import NODE_NAMES, Platform, Workload


class Mutant(msgspec.Struct, frozen=True):
    """One planted fault."""

    name: str
    rule: str
    """How the first sentence of the checker begins."""
    plant: Callable[[pytest.MonkeyPatch], None]
    plan: Plan | None = None
    """The run that shows it, where few seeds do, or not the first one."""


def _steady(*steps: AnyStep, slow_scripts: int = 0) -> Plan:
    """Containers run until something ends them."""
    return Plan(seed=0, steps=steps, workload=Workload(hang=100, fail=0, unready=0, slow_scripts=slow_scripts))


def _job(kind: str = "TrainingJob", workers: int = 1, **more: Any) -> Apply:
    return Apply(at=0.1, job="resnet", kind=kind, workers=workers, more=more)


LATER = Delete(at=12.0, job="none")
"""The weather clears after the last step: until then a plan has time."""

OVER_AND_RESTORED = _steady(
    _job(cleanPodPolicy="All"), End(at=2.0, pod="resnet-launcher", code=0), Restore(at=4.0, lost=20)
)
OVER_BEFORE_THE_WATCHER_LOOKS = _steady(
    *OVER_AND_RESTORED.steps[:2],
    Restore(at=4.0, lost=15),
    Cut(at=4.1, replica="watcher-0", server="cluster", seconds=5.0),
    Cut(at=4.1, replica="watcher-1", server="cluster", seconds=5.0),
)
A_SLOW_SCRIPT = _steady(
    _job(),
    Scale(at=2.0, name="out", job="resnet", by=1, more={"script": "out", "timeout": 2}),
    Delete(at=9.0, job="none"),
    slow_scripts=100,
)
"""It takes longer than its request has time."""
A_CHANGED_RUNTIME = _steady(
    _job("TrainJob"),
    EditRuntime(at=3.0, job="resnet", revision=1),
    Edit(at=4.0, job="resnet", patch={"spec": {"trainer": {"numNodes": 2}}}),
)
A_RESTART = _steady(_job(restartPolicy="OnFailure", backoffLimit=0), End(at=2.0, pod="resnet-launcher", code=137))
TWO_RESTARTS = _steady(
    _job(restartPolicy="OnFailure"),
    *(End(at=at, pod="resnet-launcher", code=1) for at in (3.0, 18.0)),
    Delete(at=50.0, job="none"),
)
A_SCALE_IN = _steady(_job(workers=3), Scale(at=3.0, name="in", job="resnet", by=-1), LATER)
TOO_LARGE = _steady(_job(), Scale(at=2.0, name="out", job="resnet", by=40), LATER)
THREE_REQUESTS = _steady(
    _job(),
    *(
        Scale(at=2.0 + after / 10, name=name, job="resnet", by=1, more={"script": name, "timeout": 20})
        for after, name in enumerate(("first", "second", "third"))
    ),
    LATER,
)


def _sealed(*steps: AnyStep, seal_after: int = 1) -> Plan:
    """A job is deleted while it runs, and sealed."""
    plan = _steady(_job(), *steps, Delete(at=4.0, job="resnet"), Delete(at=30.0, job="none"))
    return msgspec.structs.replace(plan, seal_after=seal_after)


A_LATE_FACT = _sealed(Pause(at=0.1145, replica="scheduler-1", seconds=25.0))
"""A scheduler stands still while it makes a Secret, until its job is sealed."""
A_RETURN = _sealed(Return(at=20.0, job="resnet"))


def an_archive(*steps: AnyStep, seals: float = 0.0) -> Plan:
    """Two jobs are deleted, sealed, archived and purged, one after the other, and a third one lives."""
    others = [msgspec.structs.replace(_job(), job=name) for name in ("other", "lives")]
    plan = _sealed(*others, Delete(at=9.0, job="other"), *steps)
    return msgspec.structs.replace(plan, steps=tuple(sorted(plan.steps, key=lambda step: step.at)), archive=seals)


def _no_limit(patch: pytest.MonkeyPatch) -> None:
    def may_restart(job: Job, end: Verdict) -> bool:
        return job.spec is not None and not end.success and not end.permanent

    patch.setattr(status_decide, "may_restart", may_restart)
    patch.setattr(status_decide, "used_up", lambda job, end: False)


def _deleted_too_early(patch: pytest.MonkeyPatch) -> None:
    surplus = slots.surplus

    def every(job: Job, there: SortedSet[Slot]) -> list[Any]:
        # A worker that is asked to leave is deleted before its release.
        leaving = [pod for pod in job.pods.views.values() if pod.slot in job.outgoing and not pod.deleting]
        return [*surplus(job, there), *(DeletePod(pod.name, pod.uid) for pod in leaving)]

    patch.setattr(slots, "surplus", every)


def _a_worker_not_listed(patch: pytest.MonkeyPatch) -> None:
    make = scaler_shell.hosts_config_map

    def fewer(*args: Any, members: Any, **named: Any) -> Any:
        return make(*args, members=members[:-1], **named)

    patch.setattr(scaler_shell, "hosts_config_map", fewer)


def _another_head(patch: pytest.MonkeyPatch) -> None:
    with_head = status_shell.with_head
    wrong = iter([True])

    def older(document: bytes, log: str, head: Any, time: str) -> Any:
        # Once: each such head is disputed, and a person has to accept it.
        if next(wrong, False):
            head = msgspec.structs.replace(head, sequence=head.sequence - 1)
        return with_head(document, log, head, time)

    patch.setattr(status_shell, "with_head", older)


def _after_the_end(patch: pytest.MonkeyPatch) -> None:
    # Without an end the run would be one of a hundred restarts.
    next_phase, tries = status_decide.next_phase, iter(range(20))

    def again(job: Job) -> Any:
        if job.status.phase == "Failed" and not job.deleting and next(tries, None) is not None:
            return Record(status.JobRunning(reason="Again"))
        return next_phase(job)

    patch.setattr(status_decide, "next_phase", again)


def _no_guard(patch: pytest.MonkeyPatch) -> None:
    append = MemoryJournal.append

    def leaking(self: MemoryJournal, entry: Entry, *, expect: int) -> int:
        try:
            return append(self, entry, expect=expect)
        except Conflict:
            # As three servers did for a guard over several families (facts about NATS).
            last = self.last(Subject.parse(entry.subject).scope)
            assert last is not None
            return append(self, entry, expect=last.sequence)

    patch.setattr(MemoryJournal, "append", leaking)


def _another_fold(patch: pytest.MonkeyPatch) -> None:
    evolve = fold.evolve

    def forgetful(job: Job, event: Any, at: Any) -> Job:
        process = PROCESS.get()
        if process is not None and process.name.startswith("scaler-1") and isinstance(event, watcher.ChildGone):
            return job
        return evolve(job, event, at)

    patch.setattr(fold, "evolve", forgetful)


def _newest_first(patch: pytest.MonkeyPatch) -> None:
    def newest(scaling: Scaling) -> Any:
        waiting = [request for request in scaling.requests.values() if request.phase == "Pending"]
        return waiting[-1] if waiting else None

    patch.setattr(Scaling, "next_request", property(newest))


def _rejected_again(patch: pytest.MonkeyPatch) -> None:
    tries = iter(range(400))

    def unsuccessful(scaling: Scaling) -> Any:
        requests = scaling.requests.values()
        wanted = next((request for request in requests if request.phase in ("Pending", "Failed")), None)
        return wanted if wanted is None or wanted.phase == "Pending" or next(tries, None) is not None else None

    patch.setattr(Scaling, "next_request", property(unsuccessful))


def _another_worker_leaves(patch: pytest.MonkeyPatch) -> None:
    members = scale.members

    def highest(job: Job, indices: Iterable[int]) -> tuple[Member, ...]:
        ranked = sorted((slot.index for slot in scale.removable(job)), reverse=True)
        return members(job, ranked[: len([*indices])])

    patch.setattr(scale, "members", highest)


async def anything(*_: object, **__: object) -> bool:
    """Whose an object is counts for nothing."""
    return True


def _pods_of_others(patch: pytest.MonkeyPatch) -> None:
    surplus, known = slots.surplus, dict[JobKey, Job]()

    def greedy(job: Job, there: SortedSet[Slot]) -> list[Any]:
        known[job.key] = job
        others = [pod for key, other in known.items() if key != job.key for pod in other.pods.views.values()]
        return [*surplus(job, there), *(DeletePod(pod.name, pod.uid) for pod in others)]

    patch.setattr(slots, "surplus", greedy)
    patch.setattr(scheduler_shell, "is_there", anything)


def _whatever_has_the_name(patch: pytest.MonkeyPatch) -> None:
    write = status_shell.Status._patch

    async def to_the_name(self: Any, effect: Any, context: Any, version: str = "") -> None:
        resource = self._kinds.resource(effect.api_version, effect.kind)
        if held := await self._cluster.get(resource, context.job.key.namespace, effect.name):
            await write(self, msgspec.structs.replace(effect, uid=held.metadata.uid), context, version)

    patch.setattr(status_shell.Status, "_patch", to_the_name)
    patch.setattr(status_shell, "must_be_asked_of", anything)


def _another_version(patch: pytest.MonkeyPatch) -> None:
    make = scaler_shell.hosts_config_map

    def newer(*args: Any, version: int, **named: Any) -> Any:
        return make(*args, version=version + 1, **named)

    patch.setattr(scaler_shell, "hosts_config_map", newer)


def _scripts_told(patch: pytest.MonkeyPatch) -> None:
    read = LauncherCommands._read

    async def told(self: LauncherCommands, key: JobKey, effect: Any) -> list[str]:
        words = await read(self, key, effect)
        raise Refused("not started", reason=" ".join(words))

    patch.setattr(LauncherCommands, "_read", told)


def _scripts_again(patch: pytest.MonkeyPatch) -> None:
    run = LauncherCommands.run

    async def twice(self: LauncherCommands, job: Job, effect: Any) -> Any:
        ended = await run(self, job, effect)
        return ended if ended.exit_code is not None else await run(self, job, effect)

    patch.setattr(LauncherCommands, "run", twice)


def _no_answer_is_no(patch: pytest.MonkeyPatch) -> None:
    end = observe._end

    def hasty(job: Job, cache: Any, presence: Any) -> Any:
        return end(job, cache, presence or Presence(there=False))

    patch.setattr(observe, "_end", hasty)


def _over_and_begun_again(patch: pytest.MonkeyPatch) -> None:
    accepted = heads.accepted

    def forgetful(job: Job, resource: Any, pods: Any) -> Any:
        return accepted(job, msgspec.structs.replace(resource, reached=None), pods)

    patch.setattr(heads, "accepted", forgetful)


def _whatever_the_status_shows(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        return None

    patch.setattr(Integrity, "leads_to", lambda self, status, own: True)
    patch.setattr(runtime_run, "astray", nothing)


def _the_present_runtime(patch: pytest.MonkeyPatch) -> None:
    kept = scheduler_shell.Scheduler._runtime

    async def present(self: Any, job: Job, used: Any) -> JobRuntime:
        runtime = await self._cluster.get(RUNTIMES, job.key.namespace, used.name)
        return JobRuntime(used, runtime.spec) if runtime is not None else await kept(self, job, used)

    patch.setattr(scheduler_shell.Scheduler, "_runtime", present)


def _expires_after_its_start(patch: pytest.MonkeyPatch) -> None:
    def of_the_end(job: Job) -> list[Timer]:
        if (
            job.status.ended is None
            or job.status.active is None
            or job.spec is None
            or job.spec.ttl_seconds_after_finished is None
        ):
            return []
        seconds = job.spec.ttl_seconds_after_finished
        return [Timer(job.status.ended.sequence, TIME_TO_LIVE, seconds, since=job.status.active.logged)]

    patch.setattr(timing, "_of_the_end", of_the_end)


A_JOB_THAT_EXPIRES = _steady(_job(ttlSecondsAfterFinished=5), End(at=8.0, pod="resnet-launcher", code=0))


def _the_lowest_leave(patch: pytest.MonkeyPatch) -> None:
    def lowest(job: Job, count: int) -> tuple[Member, ...]:
        return scale.members(job, [slot.index for slot in [*scale.removable(job)][:count]])

    patch.setattr(scale, "victims", lowest)


def _steady_back_off(patch: pytest.MonkeyPatch) -> None:
    def steady(failures: int) -> int:
        return FIRST_START_SECONDS if failures > 0 else 0

    for module in (retries, replacement):
        patch.setattr(module, "before_start", steady)


def _disruptions_count(patch: pytest.MonkeyPatch) -> None:
    def counted(pod: str, why: str, because: Cause) -> Verdict:
        return Verdict(False, "Disrupted", f"{pod}: {why}", because=because)

    patch.setattr(verdict, "_disrupted", counted)


def _lost_workers_stay(patch: pytest.MonkeyPatch) -> None:
    members = membership.next_members

    def with_the_lost(job: Job) -> Any:
        found = members(job)
        return found if isinstance(found, Unknown) else found | job.listed_workers

    patch.setattr(membership, "next_members", with_the_lost)


A_LOST_WORKER = _steady(
    _job(workers=2), End(at=3.0, pod="resnet-worker-1", code=1), Scale(at=45.0, name="out", job="resnet", by=1)
)


def _a_drain(kind: str) -> Plan:
    """The node of one of its pods is drained, and the job may not fail once."""
    drained = (Node(at=3.0, node=node, how="drained") for node in NODE_NAMES)
    return _steady(_job(kind, 3, backoffLimit=0), *drained)


def _silent_nodes(**annotations: str) -> Plan:
    """Kubernetes gives the pods up, and no kubelet ends them."""
    job = msgspec.structs.replace(_job(workers=2), annotations=annotations)
    return _steady(job, *(Node(at=3.0, node=node, how="silent") for node in NODE_NAMES), LATER)


def _replacements_are_growth(patch: pytest.MonkeyPatch) -> None:
    next_members = membership.next_members

    def everybody(job: Job) -> SortedSet[int] | Unknown:
        members, pods = next_members(job), job.by_slot()
        if isinstance(members, Unknown) or not isinstance(job.membership, Members):
            return members
        staying = [slot.index for slot in nodes.in_time(job) if slot.index in job.listed_workers]
        new = [slot.index for slot in job.attempt.workers if membership.ready(pods.get(slot))]
        return members | staying | new

    patch.setattr(membership, "next_members", everybody)


def _those_with_replacements_stay(patch: pytest.MonkeyPatch) -> None:
    def doomed(job: Job) -> SortedSet[Slot]:
        return (
            SortedSet(pod.slot for uid, pod in job.pods.views.items() if uid in job.pods.disrupted)
            & job.attempt.workers
        )

    patch.setattr(membership, "disrupted", doomed)


A_NODE_THAT_GOES = _steady(_job(workers=3), Node(at=3.0, node="node-0", how="announced"), LATER)
A_NODE_THAT_STAYS = _steady(*A_NODE_THAT_GOES.steps, Node(at=3.1, node="node-0", how="opened"))
"""Its notice is withdrawn when the replacements are assigned."""


def _sealed_with_pods(patch: pytest.MonkeyPatch) -> None:
    for module in (status_shell, status_decide, fold, deadlines):
        patch.setattr(module, "closed", lambda job: bool(job.resource.gone))


async def _nothing(*_: object) -> None:
    return None


def _reports(*steps: AnyStep, seconds: float = 0.5) -> Plan:
    """A training that makes a step in so many seconds, and counts as stalled after six."""
    job = msgspec.structs.replace(_job(), annotations={STALL_TIMEOUT: "6"})
    return msgspec.structs.replace(_steady(job, *steps, LATER), reports=seconds)


REPORTS_THAT_MEET = msgspec.structs.replace(_reports(seconds=0.05), to_log=Rates(slow=500))
A_TRAINING_THAT_HANGS = _reports(Hang(at=6.0, job="resnet"))


async def _append_anyway(self: Appends, history: History, event: Any, still: Any = None) -> int:
    return await APPEND(self, history, event)


APPEND = Appends.append_until_stored

BY_CAPACITY = {"elasticity": {"size": "Capacity", "settleSeconds": 1, "growSeconds": 60}}
A_JOB_AT_ITS_MINIMUM = _steady(
    Apply(at=0.1, job="resnet", kind="TrainingJob", workers=2, least=2, more=BY_CAPACITY),
    End(at=3.0, pod="resnet-worker-1", code=1),
    LATER,
)
PLACES_THAT_COME = msgspec.structs.replace(
    _steady(
        Apply(at=0.1, job="other", kind="TrainingJob", workers=1),
        Apply(at=0.1, job="another", kind="TrainingJob", workers=1),
        Apply(at=1.0, job="resnet", kind="TrainingJob", workers=6, more=BY_CAPACITY),
        End(at=6.0, pod="other-launcher", code=0),
        End(at=12.0, pod="another-launcher", code=0),
        LATER,
    ),
    places=7,
)


def _set(*changes: tuple[Any, str, Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """What plants these values: of each an owner, a name, and the value in the place of the product's."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for owner, name, value in changes:
            patch.setattr(owner, name, value)

    return plant


_two_attempts = _set(
    (slots, "_no_other_pod", lambda job: True), (slots, "_waits_for_a_later_attempt", lambda job: False)
)
_left_behind = _set((scheduler_decide, "everything", lambda job: []), (Platform, "_collect", lambda self: None))
_requests_that_never_end = _set((scaler_decide, "after_the_end", lambda job: []))
_above_the_maximum = _set((scaler_decide, "_above_maximum", lambda request, role, workers: None))
_released_too_early = _set(
    (evolve_requests, "hosts_seen", lambda job, version: True),
    (commands, "reason_to_release", lambda job, request, late: "Drained"),
)
_listed_at_once = _set((membership, "ready", lambda pod: pod is not None))
_scripts_that_succeed = _set((evolve_requests, "_failure", lambda event: ""))
_quota_too_early = _set((queueing, "quota", SimpleNamespace(**{**vars(quota), "is_empty": lambda job: True})))
_workload_deleted_too_early = _set((queueing, "_may_go", lambda job, view: True))
_quota_for_ever = _set((queueing, "after_the_end", lambda job: []))
_no_drain = _set((commands, "reason_to_release", lambda job, request, late: "Drained"))
_hurried_drain = _set((membership, "_unused", lambda job, slot: slot.index not in job.listed_workers))
_losses_of_nodes_count = _set((Vacancy, "blameless", property(lambda vacancy: vacancy.taken and not vacancy.disrupted)))
_running_too_early = _set(
    (status_decide, "_leader_started", lambda job, spec: any(pod.ready for pod in job.pods.views.values()))
)
_forced_at_once = _set((nodes, "forced", lambda job: [pod for pod, _, _ in nodes.stuck(job)]))
_never_sealed = _set((status_shell, "sealing", lambda history: None))
_sealed_at_once = _set((deadlines, "Timer", lambda anchor, name, seconds: Timer(anchor, name, 0)))
_sealed_with_a_checkpoint = _set((Checkpoints, "remove", _nothing))
_late_facts_hold = _set((fold, "may_follow_a_seal", lambda subject: False))
_seals_forgotten = _set((fold.Histories, "sealed", lambda self, key: 0))
_next_step = archiving.next_step


def _steps(change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """The archiver takes another step than the next one."""
    return _set((archiving, "next_step", change))


_purged_first = _steps(lambda sealed, *rest, **more: _next_step(sealed, *rest, **more) if sealed.purged else "purge")
_dropped_first = _steps(lambda sealed, *_, **__: "drop")
_never_purged = _steps(lambda *args, **more: None if (step := _next_step(*args, **more)) == "purge" else step)
_never_copied = _steps(lambda *_, **__: None)
_never_compared = _set((Copy, "fault", property(lambda self: "" if self.parts else None)))
_purged_with_all = _set((archiving, "history_filters", lambda key: (f"*.{key.namespace}.>",)))
_another_archived = _set((archiving, "line_of", lambda stored: line_of(stored).replace("2030-", "2031-")))


def _purged_unread(patch: pytest.MonkeyPatch) -> None:
    async def unread(self: Any, sealed: Any, subject: str) -> None:
        await self._store(sealed, subject)
        sealed.kept = True

    patch.setattr(archiving.Archiver, "_copy", unread)


_sealed_and_kept = _set((fold.Histories, "_drop", lambda self, history: None))
_trains_with_any = _set((capacity, "is_enough", lambda job, members: True))
_grows_at_once = _set((capacity, "may_grow", lambda job: True))
_a_rate_for_each_replica = _set((Reports, "_recorded", lambda self, job: 0.0))
_whatever_was_recorded_since = _set(
    (Appends, "append_until_stored", _append_anyway), (Reports, "_recorded", lambda self, job: 0.0)
)
_reports_that_come_too_late = _set((watcher_progress, "interval_of", lambda job, interval: interval))
_never_stalled = _set((timing, "stall_timer", lambda job: None))


def _leaving_places_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    of_slot = ledger._of_slot

    def planted(job: Job, slot: Slot, *args: Any, leaves: bool) -> ledger.Standing | None:
        found = of_slot(job, slot, *args, leaves=leaves)
        return None if found is not None and found.bucket == "draining" else found

    monkeypatch.setattr(ledger, "_of_slot", planted)


MUTANTS = (
    Mutant("the time to live counts from the start", "I34", _expires_after_its_start, A_JOB_THAT_EXPIRES),
    Mutant("the next attempt does not wait for the pods of the last one", "I1", _two_attempts, plan_of(4)),
    Mutant("no restart counts against backoffLimit", "I13", _no_limit, A_RESTART),
    Mutant("a leaving worker is deleted before its release", "I10", _deleted_too_early, plan_of(7)),
    Mutant("the children of a job that is gone stay", "I4", _left_behind),
    Mutant("requests of a finished job are not answered", "I5", _requests_that_never_end, plan_of(5)),
    Mutant("the last worker is missing from the hosts files", "I7", _a_worker_not_listed),
    Mutant("a status shows another head than its own", "I3", _another_head),
    Mutant("a failed job runs again", "I2", _after_the_end),
    Mutant("the log accepts a decision on an old basis", "I11", _no_guard, plan_of(2)),
    Mutant("one replica forgets events of one type", "I23", _another_fold),
    Mutant("a scale-out may go above maxReplicas", "I13", _above_the_maximum, TOO_LARGE),
    Mutant("the newest scale request is taken first", "I14", _newest_first, THREE_REQUESTS),
    Mutant("a request that failed is answered again", "I5", _rejected_again, TOO_LARGE),
    Mutant("workers are released before the hosts files are written", "I7", _released_too_early, plan_of(10)),
    Mutant("a scale-in by names takes another worker", "I13", _another_worker_leaves, plan_of(22)),
    Mutant("the scheduler deletes the pods of other jobs", "I26", _pods_of_others),
    Mutant("a status goes to whatever object has the name", "I8", _whatever_has_the_name, plan_of(5)),
    Mutant("the words of a script are told", "I18", _scripts_told, plan_of(2)),
    Mutant("a script whose end was not seen runs again", "I12", _scripts_again, A_SLOW_SCRIPT),
    Mutant("hosts files have a version that no decision published", "I10", _another_version, A_SCALE_IN),
    Mutant("a worker is listed before it is Ready", "I7", _listed_at_once),
    Mutant("a script that failed counts as a success", "I10", _scripts_that_succeed, plan_of(59)),
    Mutant("a job counts as gone before its GET is answered", "I28", _no_answer_is_no, plan_of(25)),
    Mutant(
        "a new pod follows a runtime that was changed while the job runs",
        "I10",
        _the_present_runtime,
        A_CHANGED_RUNTIME,
    ),
    Mutant(
        "a job that is over begins again after its log was restored", "I25", _over_and_begun_again, OVER_AND_RESTORED
    ),
    Mutant(
        "nobody looks at the status and the checkpoint after a restore",
        "I25",
        _whatever_the_status_shows,
        OVER_BEFORE_THE_WATCHER_LOOKS,
    ),
    Mutant("the quota of an evicted job goes back while it has pods", "I29", _quota_too_early, plan_of(3)),
    Mutant("a Workload is deleted while its job has pods", "I29", _workload_deleted_too_early, plan_of(3)),
    Mutant("the Workload of a job that is over is not finished", "I30", _quota_for_ever, plan_of(3)),
    Mutant("a scale-in by number takes the lowest workers", "I35", _the_lowest_leave, A_SCALE_IN),
    Mutant("the wait before a restart or a replacement does not grow", "I36", _steady_back_off, TWO_RESTARTS),
    Mutant("a restart after a disruption counts", "I37", _disruptions_count, _a_drain("TrainingJob")),
    Mutant(
        "a worker that a disruption took counts against backoffLimit",
        "I37",
        _losses_of_nodes_count,
        _a_drain("PyTorchJob"),
    ),
    Mutant("a job is Running as soon as any pod is Ready", "I38", _running_too_early),
    Mutant("leaving workers are released without a look at the launcher", "I39", _no_drain, plan_of(7)),
    Mutant("disrupted workers are released at once", "I39", _hurried_drain, plan_of(16)),
    Mutant("a lost worker stays in the hosts files", "I40", _lost_workers_stay, A_LOST_WORKER),
    Mutant(
        "a pod of a lost node is deleted by force although nothing asks for it", "I41", _forced_at_once, _silent_nodes()
    ),
    Mutant(
        "a pod of a lost node is deleted by force before its time",
        "I41",
        _forced_at_once,
        _silent_nodes(**{FORCE_DELETE_AFTER: "60"}),
    ),
    Mutant("a job trains with fewer than its minimum", "I45", _trains_with_any, A_JOB_AT_ITS_MINIMUM),
    Mutant("workers join one by one", "I46", _grows_at_once, PLACES_THAT_COME),
    Mutant("a report is recorded after a later one", "I48", _whatever_was_recorded_since, REPORTS_THAT_MEET),
    Mutant("each replica has a rate of reports of its own", "I51", _a_rate_for_each_replica, _reports()),
    Mutant("a step is recorded after it had to be", "I49", _reports_that_come_too_late, _reports()),
    Mutant("a training that hangs is never told", "I50", _never_stalled, A_TRAINING_THAT_HANGS),
    Mutant("a replacement counts as growth", "I42", _replacements_are_growth, A_NODE_THAT_GOES),
    Mutant("a replaced worker whose node stays never leaves", "I42", _those_with_replacements_stay, A_NODE_THAT_STAYS),
    Mutant("a place that is leaving is in no bucket", "I54", _leaving_places_are_forgotten, A_SCALE_IN),
    Mutant("a job that is gone is never sealed", "I43", _never_sealed, _sealed()),
    Mutant("a job is sealed while it has pods", "I43", _sealed_with_pods, _sealed(seal_after=0)),
    Mutant("a job is sealed before its time", "I43", _sealed_at_once, _sealed(seal_after=20)),
    Mutant("a job is sealed while its checkpoint is kept", "I43", _sealed_with_a_checkpoint, _sealed()),
    Mutant("a fact that comes after the seal holds the job", "I11", _late_facts_hold, A_LATE_FACT),
    Mutant("a sealed job whose resource comes back begins again", "I43", _seals_forgotten, A_RETURN),
    Mutant("a service keeps a job that is sealed", "I43", _sealed_and_kept, _sealed()),
    Mutant("a history is purged before it is copied", "I52", _purged_first, an_archive()),
    Mutant("a history is purged before its copy was read back", "I52", _purged_unread, an_archive()),
    Mutant("a copy is not compared with the seal", "I52", _never_compared, an_archive(Archive(at=3.0))),
    Mutant("more is purged than the sealed history", "I52", _purged_with_all, an_archive()),
    Mutant("the archive has other events than the log", "I52", _another_archived, an_archive()),
    Mutant("a seal leaves the log with a history that was never copied", "I52", _dropped_first, an_archive()),
    Mutant("a history stays in the log after it was archived", "I53", _never_purged, an_archive()),
    Mutant("a history is never archived", "I53", _never_copied, an_archive()),
)
