"""What a log must show that has a decision: the right victims, a wait that grows, and the blame where it belongs.

Counted from the facts alone, apart from the policies that decide.  `invariants.py` asks it at every event; each fault
begins with the number of the rule.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import ScaleAccepted
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobFailed, JobRestarting
from shared.job.events.watcher import (
    DisruptionNoticed,
    JobAdopted,
    LauncherLost,
    NodeBack,
    NodeLost,
    PodsGone,
    PodsObserved,
    TimePassed,
)
from shared.job.naming import Slot, Uid
from shared.job.policies.retries import ASKED_FOR
from shared.job.spec import LAUNCHER, RENDEZVOUS
from shared.job.state import Job
from shared.job.timers import STALL
from shared.job.views import PodView, each

FIRST_SECONDS, LONGEST_SECONDS = 10, 300
"""Of the wait after a failure, which doubles."""
NEARLY = 0.9
"""Of a wait must have passed: a watcher knows the time of the log's server to within the way there."""
ENDED = ("Succeeded", "Failed")


def least_wait(failures: int) -> float:
    """Seconds that must lie between a failure and the next try, after so many failures."""
    return NEARLY * min(FIRST_SECONDS * 2 ** (failures - 1), LONGEST_SECONDS) if failures > 0 else 0.0


def victims(basis: Job, event: ScaleAccepted, sequence: int) -> Iterator[str]:
    """A scale-in by number takes the workers with the highest indices, as many as it asks for."""
    request = basis.scaling.requests.get(event.request)
    if request is None or event.kind != "ScaleIn" or (request.spec is not None and request.spec.workers):
        return
    leaving = {member.index for member in event.leaving}
    staying = {slot.index for slot in basis.attempt.workers - basis.attempt.replaced_ahead} - leaving
    if basis.spec is not None and basis.spec.elasticity is not None:
        trains = {*basis.listed_workers}
        if leaving & trains and staying - trains:
            yield f"I35 {sorted(leaving & trains)} leave {basis.key} at {sequence}, and {staying - trains} do not train"
    elif leaving and staying and min(leaving) < max(staying):
        yield f"I35 {sorted(leaving)} leave {basis.key} at {sequence}, and {max(staying)} stays"
    count = request.spec.count if request.spec is not None and request.resize is None else None
    if count is not None and (len(leaving) > count or (staying and len(leaving) < count)):
        yield f"I35 {request.name} asked for {count} workers less at {sequence}, and {sorted(leaving)} leave"


class _Life(msgspec.Struct):
    """What one job's log has shown."""

    attempt: int = 0
    restarting: str = ""
    """When the log stored the newest `JobRestarting`."""
    restarts: int = 0
    """Those that counted."""
    disrupted: set[Uid] = msgspec.field(default_factory=set)
    silent: set[Uid] = msgspec.field(default_factory=set)
    """Pods whose node was lost."""
    over: dict[Uid, str] = msgspec.field(default_factory=dict)
    """The pods of this attempt that ended or vanished before their release, with their roles."""
    failures: set[tuple[Uid, int]] = msgspec.field(default_factory=set)
    """Each end of a pod by itself, and each restart in place before it, from 1 on; a stall for which the job begins
    again is one more."""
    lost: dict[Slot, tuple[str, int]] = msgspec.field(default_factory=dict)
    """The slots of those that wait to be replaced: since when, and after how many replacements."""
    replaced: int = 0
    """The number of replacements of such pods in this attempt."""
    adopted: bool = False
    """True once a history began with the job as it was: what its pods did before is not known."""


class Demands:
    """The demands on the histories of one log, in the order of its events."""

    def __init__(self) -> None:
        self._lives: dict[Uid, _Life] = {}

    def after(self, before: Job, job: Job, event: AnyEvent, stored: Stored) -> Iterator[str]:
        """The rules that an event breaks; `before` and `job` are the folds without it and with it."""
        life, sequence = self._lives.setdefault(job.key.uid, _Life()), stored.sequence
        if job.attempt.number != life.attempt:
            life.attempt, life.over, life.failures, life.lost, life.replaced = job.attempt.number, {}, set(), {}, 0
        match event:
            case PodsObserved():
                _note_pods(life, before, job, event, stored)
            case PodsGone() | LauncherLost():
                uids = event.uids if isinstance(event, PodsGone) else (event.uid,)
                _note_over(life, before, [pod for uid in uids if (pod := before.pods.views.get(uid)) is not None])
            case DisruptionNoticed():
                life.disrupted.update(before.pods.views.keys() & {*event.uids})
            case NodeBack(stays=True):
                life.disrupted -= {
                    uid for uid in event.uids if uid in before.pods.views and not before.pods.views[uid].disruption
                }
            case NodeLost():
                life.silent.update(event.uids)
            case TimePassed(timer=name) if name == STALL and before.spec is not None and before.spec.stall_restarts:
                life.failures.add((Uid(STALL), 1))
            case JobAdopted():
                life.adopted = True
            case SlotsAssigned():
                yield from _of_replacements(life, before, event, stored)
            case JobRestarting():
                life.restarting = stored.logged
                yield from _of_disruption(life, before, event, sequence)
            case JobRestarted(counted=True):
                life.restarts += 1
                waited, least = _between(life.restarting, stored.logged), least_wait(life.restarts)
                if waited is not None and waited < least and not before.retries.restart_wanted:
                    yield f"I36 {job.key} restarts at {sequence}, the {life.restarts}. time, after {waited:.1f} s"
            case JobFailed():
                yield from _of_disruption(life, before, event, sequence)
                limit = before.spec.backoff_limit if before.spec is not None else 0
                if event.reason == "BackoffLimitExceeded" and not life.adopted and len(life.failures) <= limit:
                    own = f"its pods failed {len(life.failures)} times by themselves"
                    yield f"I37 {job.key} fails at {sequence} by backoffLimit {limit}, and {own}"
            case _:
                pass


def _note_pods(life: _Life, before: Job, job: Job, event: PodsObserved, stored: Stored) -> None:
    for pod in event.pods:
        known = before.pods.views.get(pod.uid)
        if pod.disruption:
            life.disrupted.add(pod.uid)
        elif known is not None and known.disruption and not pod.deleting and pod.uid not in before.pods.notices:
            life.disrupted.discard(pod.uid)
    _note_over(life, before, [pod for pod in event.pods if _ended(pod)])
    for pod in event.pods:
        vacancy = job.attempt.vacancies.get(pod.slot)
        if vacancy is None or vacancy.at.sequence != stored.sequence:
            continue
        life.lost.pop(pod.slot, None)
        # The agents of a group end without their rendezvous, and begin again with it.
        alone = all(slot.role != RENDEZVOUS for slot in before.attempt.unreleased)
        if alone and _ended(pod) and not pod.deleting and pod.uid not in life.disrupted:
            life.lost[pod.slot] = stored.logged, life.replaced
    life.failures.update(
        (pod.uid, number)
        for pod in event.pods
        if not pod.deleting and pod.attempt == life.attempt and pod.uid not in life.disrupted
        for number in range(1, pod.restarts + _ended(pod) + 1)
    )


def _note_over(life: _Life, before: Job, pods: list[PodView]) -> None:
    life.over |= {pod.uid: pod.role for pod in pods if pod.slot in before.attempt.slots}
    for pod in pods:
        life.lost.pop(pod.slot, None)


def _of_replacements(life: _Life, before: Job, event: SlotsAssigned, stored: Stored) -> Iterator[str]:
    # A scale-out counts the workers that it replaces itself.
    for slot in sorted(each(event.replaces) - before.scaling.arriving):
        if (known := life.lost.pop(slot, None)) is None:
            continue
        since, failures = known
        waited = _between(since, stored.logged)
        if waited is not None and waited < least_wait(failures):
            name = before.pod_name(slot)
            yield f"I36 {name} is replaced at {stored.sequence}, after {waited:.1f} s and {failures} failures before it"
        life.replaced += 1


def _of_disruption(life: _Life, before: Job, event: JobRestarting | JobFailed, sequence: int) -> Iterator[str]:
    """A disruption of the leader ends no job, and the restart after it counts against no limit; any other one does."""
    if before.spec is None or before.between_attempts or before.retries.restart_wanted or event.reason in ASKED_FOR:
        return
    handling = before.spec.handling
    role = LAUNCHER if before.spec.has_launcher else handling.leader
    over = [uid for uid, of in life.over.items() if of == role]
    counts = isinstance(event, JobFailed) or event.counted
    if counts and over and life.disrupted.issuperset(over) and handling.restarts == "Job":
        yield f"I37 {before.key} has {type(event).__name__} at {sequence} with a count, and its {role} was disrupted"
    crowded = any(pod.reason == "Unschedulable" for pod in before.pods.views.values())
    if not counts and not (life.disrupted or life.silent or crowded):
        yield f"I37 {before.key} restarts at {sequence} without a count, and nothing disrupted it"


def _ended(pod: PodView) -> bool:
    return pod.phase in ENDED


def _between(since: str, until: str) -> float | None:
    """Seconds between two times of the log's server; None where it told none."""
    if not (since and until):
        return None
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
