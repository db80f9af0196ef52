"""What the cluster must show that has a decision: a leader that ran, and workers that nothing uses any more.

Each fault begins with the number of the rule; `invariants.py` asks at every event and change.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime

from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScaleAccepted, WorkersReleased
from shared.job.events.status import JobRunning
from shared.job.events.watcher import JobAdopted
from shared.job.evolve_requests import DRAIN_FORCED
from shared.job.naming import JobKey, Slot, Uid
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import each, indices
from tests.kit.demands import NEARLY
from tests.memory.watching import Held

TOO_LATE_TO_DRAIN = "HostsWrittenLate"
"""The reason of a release after a request whose time was over before."""


LISTED_SECONDS = 30.0
"""How long hosts files may list a worker that is lost: longer than any fault of a plan lasts."""


class ClusterDemands:
    """The demands of one run."""

    def __init__(self) -> None:
        self.in_use: Callable[[str, str], bool] = lambda namespace, pod: False
        """True if the launcher of a pod's job still runs a process on it."""
        self._ran: set[tuple[str, str, str]] = set()
        """By job and attempt, the names of the pods whose training container ever ran."""
        self._running: dict[Uid, int] = {}
        """By job, the attempt that was Running last."""
        self._published: dict[Uid, frozenset[int]] = defaultdict(frozenset)
        """By job, the members of the newest hosts files."""
        self._left: dict[tuple[Uid, Slot], tuple[str, int]] = {}
        """The workers that left the hosts files, since when, and the seconds that they get."""
        self._grew: dict[Uid, tuple[int, str]] = {}
        """By job, the attempt whose members are known, and when they became more; empty before."""
        self._accepted: dict[tuple[JobKey, Uid], tuple[str, int, int]] = {}
        """By request, when it was accepted, its time in seconds, and those that its workers get."""
        self._lost: dict[Uid, dict[int, str]] = defaultdict(dict)
        """By job, the members that were lost, and since when the services may act upon that."""

    def restored(self) -> None:
        """The log shows its events again, from the first one on."""
        self._grew.clear()

    def seen(self, job: str, attempt: str, pod: Held) -> None:
        """A pod of a job is as the kubelet shows it now."""
        first = pod.manifest["spec"]["containers"][0]["name"]
        for known in pod.manifest["status"].get("containerStatuses") or ():
            if known["name"] == first and not (known.get("state") or {}).get("waiting"):
                self._ran.add((job, attempt, pod.at[1]))

    def after(self, job: Job, event: AnyEvent, logged: str, sequence: int) -> Iterator[str]:
        """The rules that an event breaks, which the log stored then; `job` is the fold with it."""
        uid = job.key.uid
        yield from self._of_lost_members(job, logged, sequence)
        match event:
            case JobAdopted():
                self._running[uid] = job.attempt.number
                self._published[uid] = frozenset(job.listed_workers)
            case JobRunning() if self._running.get(uid) != job.attempt.number:
                self._running[uid] = job.attempt.number
                yield from self._of_leader(job, sequence)
            case ScaleAccepted():
                self._accepted[job.key, event.request] = logged, event.deadline, event.drain
            case HostsPublished():
                now = frozenset(indices(event.members))
                yield from self._of_growth(job, event, now, logged, sequence)
                _, _, drain = self._accepted.get((job.key, event.request), ("", 0, event.drain))
                for index in self._published[uid] - now:
                    self._left[uid, job.attempt.worker_slot(index)] = logged, drain
                self._published[uid] = now
            case WorkersReleased():
                for slot in each(event.slots):
                    yield from self._of_release(job, slot, event, logged, sequence)
            case _:
                pass

    def _of_growth(
        self, job: Job, event: HostsPublished, now: frozenset[int], logged: str, sequence: int
    ) -> Iterator[str]:
        """Workers of a job with elasticity join together, and not soon after the last that joined."""
        uid, attempt = job.key.uid, job.attempt.number
        if self._grew.get(uid, (-1, ""))[0] != attempt:
            # Its first members.
            self._grew[uid] = attempt, ""
            return
        if len(now) <= len(self._published[uid]):
            return
        before, self._grew[uid] = self._grew[uid][1], (attempt, logged)
        elasticity = job.spec.elasticity if job.spec is not None else None
        if job.spec is None or elasticity is None or not job.spec.handling.hosts_files:
            # Agents that find each other train with all that are there.
            return
        if event.request or not before:
            return
        # After a restore of the log its time begins anew.
        if 0 <= (seconds := _seconds(before, logged)) < NEARLY * elasticity.grow_seconds:
            yield f"I46 {job.key} grows at {sequence}, {seconds:.1f} s after it grew"

    def _of_lost_members(self, job: Job, logged: str, sequence: int) -> Iterator[str]:
        since, slots = self._lost[job.key.uid], job.attempt.slots
        lost = [index for index in job.listed_workers if job.attempt.worker_slot(index) not in slots]
        # Some kinds have no hosts files: what lists members there is their size.
        files = job.spec is not None and job.spec.handling.hosts_files
        rests = not files or job.halted or job.resource.gone or job.deleting or job.over or job.between_attempts
        if job.spec is not None and job.spec.elasticity is not None:
            # It never trains below its minimum: as long as it has fewer, or until its attempt ends, it keeps its files.
            rests = rests or len(job.listed_workers) - len(lost) < job.spec.worker.min_replicas
        self._lost[job.key.uid] = {} if rests else {index: since.get(index, logged) for index in lost}
        for index in () if rests else lost:
            if (seconds := _seconds(since.get(index, logged), logged)) > LISTED_SECONDS:
                yield f"I40 the hosts files of {job.key} list worker {index} at {sequence}, lost for {seconds:.0f} s"

    def _of_leader(self, job: Job, sequence: int) -> Iterator[str]:
        assert job.spec is not None
        handling = job.spec.handling
        role = LAUNCHER if job.spec.has_launcher else handling.leader
        if any(pod.role == role and not pod.claimed for pod in job.pods.views.values()):
            # Another operator's pod, whose labels tell of no attempt.
            return
        slots = [slot for slot in job.attempt.unreleased if slot.role == role]
        if not job.spec.has_launcher and handling.succeeds == "First":
            slots = [slot for slot in slots if not slot.index]
        if not any((job.key.uid, str(slot.attempt), job.pod_name(slot)) in self._ran for slot in slots):
            yield f"I38 {job.key} is Running at {sequence}, and no {role} of attempt {job.attempt.number} ever ran"

    def _of_release(self, job: Job, slot: Slot, event: WorkersReleased, logged: str, sequence: int) -> Iterator[str]:
        left = self._left.pop((job.key.uid, slot), None)
        if left is None or event.reason == TOO_LATE_TO_DRAIN:
            return
        name, used = job.pod_name(slot), self.in_use(job.key.namespace, job.pod_name(slot))
        accepted, deadline, _ = self._accepted.get((job.key, event.request), ("", 0, 0))
        if used and event.reason == "Drained":
            yield f"I39 {name} is released at {sequence} as drained, and the launcher uses it"
        elif event.reason == DRAIN_FORCED and _seconds(accepted, logged) < deadline:
            yield f"I39 {name} is released at {sequence} before the {deadline} s of its request are over"
        elif event.reason not in ("Drained", DRAIN_FORCED) and _seconds(left[0], logged) < left[1]:
            yield f"I39 {name} is released at {sequence}, and left the hosts files less than {left[1]} s before"


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
