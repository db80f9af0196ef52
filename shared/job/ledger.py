"""The ledger: what each place of a job was doing at any moment, from the history alone.  Pure.

A place is one index of a role, over all attempts: worker 3 of a job that began again three times is one place.  It is
held from the moment at which the job wants a pod there until the job gives it up and the pod has ended.  Nothing
changes between two events of a job, so a place stays in the bucket in which the first of them left it, and the seconds
of its buckets sum to those for which it was held.

`training` means that the place's container runs in a group that runs; whether its steps advance is not in the log.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from shared.job.attempt import Vacancy
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.events.scaler import HostsPublished
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobRestarting, JobSuspending
from shared.job.events.watcher import (
    CheckpointTaken,
    LauncherLost,
    NodeLost,
    PodsGone,
    PodsObserved,
    ProgressReported,
)
from shared.job.naming import NO_UID, RESTART_REQUESTED, Slot
from shared.job.policies import quota, replacement
from shared.job.reasons import DISRUPTED, GANG_TOO_LARGE, LAUNCHER_UNSCHEDULABLE, NO_ROOM, PREEMPTED, RENDEZVOUS_LOST
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import PodView, each, occupies
from shared.telemetry.metrics import seconds_between

Bucket = Literal["quota", "node", "start", "gang", "training", "scaling", "draining", "checkpointing", "lost", "ended"]
Cause = Literal["", "node", "preemption", "crash", "deletion", "restart", "hold", "repeat"]

BUCKETS: dict[Bucket, str] = {
    "training": "trained",
    "quota": "waited for quota",
    "node": "waited for a node",
    "start": "pulled its image and started",
    "gang": "ran, and waited for the rest of the group",
    "scaling": "ran, and waited to join the group",
    "draining": "was leaving",
    "checkpointing": "was told to end, and had its time for a checkpoint",
    "lost": "was lost, until it trained again",
    "ended": "ran on after the job's end",
}
"""Every bucket, with what a place did in it."""

CAUSES: dict[Cause, str] = {
    "node": "its node went, or did not answer",
    "preemption": "a more important pod took its room",
    "crash": "a program failed",
    "deletion": "its pod was deleted",
    "restart": "a person asked for another attempt",
    "hold": "the job was on hold, as its history was in doubt",
    "repeat": "it trained steps that it had trained before",
}
"""Why a place was lost."""


class Standing(NamedTuple):
    """What a place does."""

    bucket: Bucket
    cause: Cause = ""
    """Why it was lost; empty in every other bucket."""
    node: str = ""
    """The node of its pod, or of the one that it lost; empty without one."""


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """One index of a role."""

    role: str
    index: int


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """A time in which a place did one thing."""

    bucket: Bucket
    cause: Cause
    node: str
    attempt: int
    """From one."""
    since: str
    until: str
    """Empty while it lasts."""
    sequence: int = 0
    """That of the event with which it began."""


class Standings:
    """What each place of one job does at a moment, and why those that were lost do not train yet."""

    def __init__(self) -> None:
        self._causes: dict[Place, Standing] = {}
        """Of places that were lost and have not trained since."""
        self._furthest = 0
        """The latest step that the training reported since it counts as it does."""
        self._step = 0
        """The newest one."""
        self._left = 0
        """The latest one before a program said that it begins, until its next step."""
        self._regrouped = False
        """True if the group lost or changed something since that report."""
        self.repeats = False
        """True from a report of an earlier step, after a change of the group, until one of the latest."""

    def note(self, before: Job, event: AnyEvent) -> None:
        """Note why the places of the next attempt, or of replacements, will not train for a while."""
        if _regroups(before, event):
            # A program may begin again before the restart of its container is seen.
            self._regrouped, self._furthest, self._left = True, max(self._furthest, self._left), 0
        match event:
            case JobRestarting(reason=reason) if (cause := _of_restart(before, reason)) is not None:
                for place, standing in self.of(before).items():
                    self._causes.setdefault(place, cause._replace(node=standing.node))
            case ProgressReported(step=int(step), backwards=False):
                self._report(step)
            case SlotsAssigned(replaces=replaced, slots=slots) if replaced:
                self.of(before)
                # A replacement is a new place if it has a new index.
                for old, new in zip(each(replaced), each(slots), strict=False):
                    if (cause := self._causes.get(_place(old))) is not None:
                        self._causes[_place(new)] = cause

    def _report(self, step: int) -> None:
        # A program that begins says so before it reads its checkpoint.
        if step == 0 and self._regrouped:
            return
        # Fewer steps in a group that lost nothing are a new beginning: another program, or the next epoch.
        if step >= self._furthest or (step < self._step and not self._regrouped):
            self._left = 0 if step else max(self._furthest, self._left)
            self._furthest, self.repeats = step, False
        elif self._regrouped:
            self.repeats = True
        self._step, self._regrouped = step, False

    def of(self, job: Job) -> dict[Place, Standing]:
        """Every place that the job holds; each state of a job is asked for in its turn, though not all of them."""
        found = {place: self._in_full(place, standing) for place, standing in _standings(job)}
        self._causes = {place: cause for place, cause in self._causes.items() if place in found}
        if _incomplete(job, found):
            cause = next(each for each in found.values() if each.bucket == "lost")
            found = {
                place: cause._replace(node=each.node) if each.bucket == "training" else each
                for place, each in found.items()
            }
        if self.repeats:
            found = {
                place: Standing("lost", "repeat", each.node) if each.bucket == "training" else each
                for place, each in found.items()
            }
        return found

    def _in_full(self, place: Place, standing: Standing) -> Standing:
        """The standing, which is still the loss while a place that was lost is on its way back."""
        match standing.bucket:
            case "lost":
                self._causes[place] = standing
            case "training" | "ended":
                self._causes.pop(place, None)
            case "node" | "start" | "gang" if (cause := self._causes.get(place)) is not None:
                return cause
        return standing


class Ledger:
    """The stretches of the places of one job, told event by event."""

    def __init__(self) -> None:
        self.lanes: dict[Place, list[Stretch]] = {}
        """By place, its stretches in the order of time, without overlap."""
        self._standings = Standings()

    def note(self, before: Job, event: AnyEvent, after: Job, at: At) -> None:
        """Add the job's next event, which changed it from `before` to `after`."""
        repeated = self._standings.repeats
        self._standings.note(before, event)
        if isinstance(event, ProgressReported | CheckpointTaken) and self._standings.repeats == repeated:
            # Most of a long history; of a large job it would take longer than the fold.
            return
        self._set(self._standings.of(after), after.attempt.number + 1, at.logged or at.time, at.sequence)

    def begin_at(self, since: str) -> None:
        """Leave out what was before this time."""
        for place, lane in self.lanes.items():
            self.lanes[place] = [
                msgspec.structs.replace(each, since=since) if seconds_between(each.since, since) else each
                for each in lane
                if not each.until or seconds_between(since, each.until)
            ]
        self.lanes = {place: lane for place, lane in self.lanes.items() if lane}

    def seconds(self, now: str) -> dict[tuple[Bucket, Cause], dict[str, float]]:
        """The seconds of the places of each role in each bucket until `now`; those that were lost by cause."""
        found = defaultdict[tuple[Bucket, Cause], dict[str, float]](dict)
        for place, lane in self.lanes.items():
            for stretch in lane:
                of_roles = found[stretch.bucket, stretch.cause]
                took = seconds_between(stretch.since, stretch.until or now) or 0.0
                of_roles[place.role] = of_roles.get(place.role, 0.0) + took
        return found

    def _set(self, found: dict[Place, Standing], attempt: int, now: str, sequence: int) -> None:
        for place, lane in self.lanes.items():
            last = lane[-1]
            if not last.until and found.get(place) != (last.bucket, last.cause, last.node):
                lane[-1] = msgspec.structs.replace(last, until=now)
        for place, (bucket, cause, node) in found.items():
            lane = self.lanes.setdefault(place, [])
            if not lane or lane[-1].until:
                lane.append(Stretch(bucket, cause, node, attempt, now, "", sequence))


def _standings(job: Job) -> Iterator[tuple[Place, Standing]]:
    """Every place that the job holds, by the job's state alone."""
    if job.spec is None or job.key.uid == NO_UID:
        return
    pods, begins, outgoing = job.by_slot(), _begins(job), job.outgoing
    # A slot that was released for its node is wanted again: its next pod may wait for a back-off.
    wanted = [*begins, *job.attempt.unreleased, *replacement.replaceable(job)]
    slots = dict.fromkeys([*wanted, *(slot for slot, pod in pods.items() if occupies(pod))])
    # Of two attempts in one place the newer one counts.
    places = {_place(slot): slot for slot in sorted(slots, key=lambda slot: slot.attempt)}
    for place, slot in places.items():
        standing = begins.get(slot) or _of_slot(job, slot, pods.get(slot), leaves=slot in outgoing)
        if standing is not None:
            yield place, standing


def _begins(job: Job) -> dict[Slot, Standing]:
    """The slots that the job does not have yet, of its next attempt or of its launcher, and what they wait for."""
    if job.spec is None or not job.status.phase or job.over or job.deleting or job.resource.gone or job.halted:
        return {}
    attempt, waits = job.attempt, quota.waits(job)
    if attempt.begun and not job.between_attempts:
        launcher = Slot(attempt.number, LAUNCHER, 0)
        missing = job.spec.has_launcher and not attempt.launched
        return {launcher: Standing("gang")} if missing else {}
    if job.spec.suspend or (job.suspended and not waits):
        return {}
    number, standing = attempt.number + attempt.begun, Standing("quota" if waits else "node")
    sizes = {role: (job.scaling.size if role.name == WORKER else 0) or role.replicas for role in job.spec.roles}
    return {Slot(number, role.name, index): standing for role, size in sizes.items() for index in range(size)}


def _of_slot(job: Job, slot: Slot, pod: PodView | None, *, leaves: bool) -> Standing | None:
    """What one slot does; None if nothing holds its place any more."""
    node = pod.node if pod is not None else ""
    runs = pod is not None and occupies(pod)
    vacancy = job.attempt.vacancies.get(slot)
    if job.over or job.resource.gone or job.deleting:
        return Standing("ended", node=node) if runs else None
    if job.halted:
        return Standing("lost", "hold", node)
    if vacancy is not None and not vacancy.succeeded:
        return Standing("lost", _of_vacancy(vacancy), node)
    if slot not in job.attempt.slots or job.suspended:
        return Standing("draining", node=node) if runs else None
    if pod is not None and pod.uid in job.pods.lost:
        return Standing("lost", "node", node)
    if pod is None or pod.phase == "Pending":
        return Standing("start" if node else "node", node=node)
    if leaves:
        return Standing("draining", node=node)
    if job.status.phase not in ("Running", "Scaling"):
        return Standing("gang", node=node)
    if pod.deleting:
        # It has SIGTERM and its grace period; the job did not ask for that, and still wants the place.
        return Standing("checkpointing", node=node)
    request = job.scaling.open_request
    joins = request is not None and slot in request.added
    return Standing("scaling" if joins else "training", node=node)


_REGROUPING = frozenset(
    {PodsGone, LauncherLost, NodeLost, JobRestarting, JobSuspending, SlotsAssigned, SlotsReleased, HostsPublished}
)


def _regroups(job: Job, event: AnyEvent) -> bool:
    """True if a group may go back to a checkpoint after the event: it lost or changed something."""
    if not isinstance(event, PodsObserved):
        return type(event) in _REGROUPING
    known = job.pods.views
    return any(
        pod.phase != "Running" or pod.deleting or pod.restarts > known[pod.uid].restarts
        for pod in event.pods
        if pod.uid in known and known[pod.uid].phase == "Running"
    )


def _incomplete(job: Job, found: dict[Place, Standing]) -> bool:
    """True if the others cannot train without a place that was lost."""
    if job.spec is None or not job.spec.handling.strict or job.spec.handling.elastic:
        return False
    spares = job.spec.handling.spares
    return any(each.bucket == "lost" and place.role not in spares for place, each in found.items())


def _of_vacancy(vacancy: Vacancy) -> Cause:
    if vacancy.disrupted:
        return _of_disruption(vacancy.reason)
    return "deletion" if vacancy.taken else "crash"


def _of_disruption(reason: str) -> Cause:
    if reason == PREEMPTED:
        return "preemption"
    # The store of an elastic group went with a pod of it, whose own loss says why.
    return "crash" if reason == RENDEZVOUS_LOST else "node"


def _of_restart(job: Job, reason: str) -> Standing | None:
    """Why the places of a job whose attempt ended do not train; None if they only go on waiting for nodes."""
    if reason in (LAUNCHER_UNSCHEDULABLE, GANG_TOO_LARGE):
        return None
    if reason == RESTART_REQUESTED:
        return Standing("lost", "restart")
    if reason in (DISRUPTED, NO_ROOM):
        vacancies = (each.reason for each in job.attempt.vacancies.values() if each.disrupted)
        why = next(chain(vacancies, job.pods.disrupted.values()), "")
        return None if reason == NO_ROOM and not why else Standing("lost", _of_disruption(why))
    return Standing("lost", "crash")


def _place(slot: Slot) -> Place:
    return Place(slot.role, slot.index)
