"""What a log must show (FAULTS, section 1): a checker that folds it for itself and trusts no service's fold.

Of a simulation while it runs, and of what the services of a real run have written.  Each fault that it keeps begins
with the number of the rule.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from shared.eventlog import Stored
from shared.job.events.catalog import AnyEvent, UnknownEvent, read_event
from shared.job.events.event import At
from shared.job.events.scaler import (
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
)
from shared.job.events.scheduler import JobRestarted
from shared.job.fold import Histories, History
from shared.job.naming import JobKey, Uid
from shared.job.policies import nodes, replacement
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.text import range_words
from shared.job.views import each, indices, ranges
from shared.job.waiting import waiting
from tests.kit.accounts import Account
from tests.kit.demands import Demands, victims

ENDED = ("Succeeded", "Failed")

_AT_ANY_TIME = {"Restarting", "Suspending", "Suspended", "Failed"}
PATHS = {
    "": {"Created"},
    "Created": {"Running", *_AT_ANY_TIME},
    "Running": {"Scaling", "Succeeded", *_AT_ANY_TIME},
    "Scaling": {"Running", "Succeeded", *_AT_ANY_TIME},
    "Restarting": {"Running", "Suspending", "Suspended", "Failed"},
    "Suspending": {"Created", "Suspended"},
    "Suspended": {"Created", "Failed"},
    "Succeeded": set[str](),
    "Failed": set[str](),
}
"""Whence each phase may lead (FAULTS, section 2)."""

LAST = ("JobSucceeded", "JobFailed", "JobGone", "JobSealed")
"""The events at which a life is counted."""

MOST_FAULTS = 20
"""The first ones tell the cause."""


def faults_of(log: Iterable[Stored]) -> list[str]:
    """The rules that a whole log breaks."""
    checker = LogChecker()
    for stored in log:
        checker.appended(stored)
    return checker.faults


def unexplained(job: Job) -> str:
    """What an attempt lacks and nothing tells; empty if it lacks nothing, or if there is a reason for it."""
    if job.halted or job.resource.gone or job.deleting or job.over or not job.status.phase:
        return ""
    if job.between_attempts or not job.attempt.begun:
        return ""
    running = {pod.slot for pod in job.pods.views.values() if pod.phase == "Running" and not pod.deleting}
    lacks = len(job.attempt.slots - running) + len(replacement.replaceable(job))
    wait = waiting(job)
    if lacks and (wait is None or not (wait.reason and wait.message)):
        return f"lacks {lacks} pods, and nothing says why"
    return ""


def left_of(job: Job) -> list[str]:
    """What the log says that a job has whose resource is gone."""
    requests = [request.name for request in job.scaling.requests.values() if request.shown]
    secrets = [] if job.resource.orphan else [f"Secret {attempt}" for attempt in job.objects.secrets]
    opened = [job.scaling.open_request.name] if job.scaling.open_request is not None else []
    return [*job.pods.views, *(name for _, name in job.objects.children), *secrets, *requests, *opened]


class LogChecker:
    """The events of one log, in their order."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.unreadable: set[str] = set()
        """The uids of the jobs that are rightly held: their histories have events that no service can read."""
        self.begin()

    def begin(self) -> None:
        """A log without events."""
        self.histories = Histories()
        self.reached: set[str] = set()
        """Types of events that the log has: one in which nothing happens proves nothing."""
        self._at: dict[Uid, dict[int, tuple[Job, str, str]]] = defaultdict(dict)
        """By job and sequence: the job, the hash and the time of its head."""
        self._by_uid: dict[str, History] = {}
        self.sealed: dict[Uid, History] = {}
        """By job, the history that its seal ended, which services forget."""
        self._outcomes: dict[tuple[JobKey | None, Uid], tuple[str, JobKey]] = {}
        """By request, its outcome, and the job whose history has it."""
        self._restarts = Counter[Uid]()
        """By job, the restarts that count, by the log's events alone."""
        self._demands = Demands()
        self._accounts = defaultdict[Uid, Account](Account)

    def fault(self, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)

    @property
    def known(self) -> list[History]:
        """Every history, those of sealed jobs, too."""
        return [*self.histories, *self.sealed.values()]

    def appended(self, stored: Stored) -> None:
        """The log has one event more."""
        history, tag = self.histories.fold(stored), stored.subject.rpartition(".")[2]
        if history is None:
            if any(f".{uid}." in stored.subject for uid in self.sealed):
                self.reached.add("late")
            return
        job = history.job
        uid = job.key.uid
        if tag == "JobSealed" and not history.held:
            self.sealed[uid] = history
            self._check_seal(job, stored.sequence)
        if history.held:
            if uid not in self.unreadable:
                self.fault(f"I11 {job.key} is held: {history.held}")
            return
        before = self._newest(uid)
        self._at[uid][history.sequence] = (job, history.head.hash, history.time)
        try:
            event = read_event(stored.body, tag)
        except UnknownEvent:
            # The fold would hold the job if it were not optional.
            return
        self.reached.add(tag)
        self._by_uid[uid] = history
        self._check(job, event, tag, stored.sequence)
        for why in self._demands.after(before or Job(key=job.key), job, event, stored):
            self.fault(why)
        if why := unexplained(job):
            self.fault(f"I32 {job.key} {why} at {stored.sequence}")
        account = self._accounts[uid]
        at = At(stored.sequence, stored.time, stored.logged)
        why = account.note(before or Job(key=job.key), event, job, at)
        if why or (tag in LAST and (why := account.fault())):
            self.fault(f"I54 {job.key} at {stored.sequence}: {why}")
        if before is None:
            return
        # An adopted job has the end that another operator, or a lost history, gave it.
        if job.status.phase not in (before.status.phase, *PATHS[before.status.phase]) and (
            tag != "JobAdopted" or before.status.phase in ENDED
        ):
            self.fault(f"I2 {job.key}: {before.status.phase or 'nothing'} -> {job.status.phase} at {stored.sequence}")
        if before.status.phase in ENDED and tag in ("SlotsAssigned", "JobRestarted", "ScaleAccepted", "HostsPublished"):
            self.fault(f"I25 {job.key} is {before.status.phase}, and {tag} follows at {stored.sequence}")
        if isinstance(event, JobRestarted):
            self._restarts[uid] += event.counted
        if job.spec is not None and self._restarts[uid] > max(job.spec.backoff_limit, 0):
            self.fault(f"I13 {job.key} restarted {self._restarts[uid]} times at {stored.sequence}")
        if isinstance(event, ScaleAccepted):
            self._check_accepted(self._basis(uid, stored), event, stored.sequence)
        if isinstance(event, HostsPublished):
            self._check_published(self._basis(uid, stored), event, stored.sequence)
        if isinstance(event, ScaleSucceeded | ScaleFailed | ScaleCancelled | ScaleRejected):
            known = before.scaling.requests.get(event.request)
            if known is not None and known.over:
                self.fault(f"I5 request {known.name} is {known.phase}, and {tag} follows at {stored.sequence}")
        if isinstance(event, ScaleSucceeded):
            request = job.scaling.requests[event.request]
            script = request.script
            if request.spec is not None and request.spec.script and (script is None or script.exit_code != 0):
                self.fault(f"I10 request {request.name} succeeded at {stored.sequence}, and its script did not")
        for request in job.scaling.requests.values():
            # An edit has no uid of its own.
            who = (job.key if request.resize is not None else None, request.uid)
            if request.over:
                self._outcomes.setdefault(who, (request.phase, job.key))
            outcome, key = self._outcomes.get(who, (request.phase, job.key))
            # A request that waits when its job goes serves the next one, and waits in the old history for ever.
            if outcome != request.phase and (request.over or key == job.key):
                self.fault(f"I5 request {request.name} was {outcome} and is {request.phase}")

    def _check_seal(self, job: Job, sequence: int) -> None:
        if not job.resource.gone or left_of(job):
            self.fault(f"I43 {job.key} is sealed at {sequence}: gone at {job.resource.gone}, it has {left_of(job)}")

    def _check(self, job: Job, event: AnyEvent, tag: str, sequence: int) -> None:
        """What else must hold after an event; `job` is the fold with it."""

    def _newest(self, uid: Uid) -> Job | None:
        known = self._at[uid]
        return known[next(reversed(known))][0] if known else None

    def _basis(self, uid: Uid, stored: Stored) -> Job:
        """What the decision was taken on: facts since may have changed the workers."""
        sequence, _, _ = stored.basis.partition(":")
        return self._at[uid][int(sequence)][0]

    def _check_accepted(self, job: Job, event: ScaleAccepted, sequence: int) -> None:
        """`job` is the basis of the decision."""
        for why in victims(job, event, sequence):
            self.fault(why)
        assert job.spec is not None
        if job.scaling.open:
            self.fault(f"I14 {job.key} accepted {event.request} at {sequence} during {job.scaling.open}")
        waiting = [request for request in job.scaling.requests.values() if request.phase == "Pending"]
        first = min(waiting, key=lambda request: request.order, default=None)
        if first is None or first.uid != event.request:
            name = first.name if first is not None else "any that waits"
            self.fault(f"I14 {job.key} accepted {event.request} at {sequence} before {name}")
        leaving = {job.attempt.worker_slot(member.index) for member in event.leaving}
        if strangers := leaving - {*job.attempt.workers, *job.attempt.vacancies}:
            self.fault(f"I13 {job.key} accepted at {sequence} that {sorted(strangers)} leave, which are no workers")
        if twice := leaving & job.attempt.replaced_ahead:
            self.fault(f"I13 {job.key} accepted at {sequence} that {sorted(twice)} leave, which are being replaced")
        request = job.scaling.requests[event.request]
        named = range_words(ranges(slot.index for slot in leaving))
        if request.spec is not None and request.spec.workers not in ("", named):
            self.fault(f"I13 {request.name} asked for {request.spec.workers}, and {named} leave")
        role, workers = job.spec.worker, len(job.attempt.workers - job.attempt.replaced_ahead)
        size = workers + len(each(event.added)) - len(leaving)
        replaceable = sum(slot.role == WORKER for slot in job.attempt.vacancies)
        if event.added and role.max_replicas is not None and size > role.max_replicas:
            self.fault(f"I13 {job.key} accepted {size} workers at {sequence}, and may have {role.max_replicas}")
        if leaving and size + replaceable < role.min_replicas:
            self.fault(f"I13 {job.key} accepted {size} workers at {sequence}, and needs {role.min_replicas}")

    def _check_published(self, job: Job, event: HostsPublished, sequence: int) -> None:
        """`job` is the basis of the decision: a disruption that was noticed since is the next one's to answer."""
        pods, slot_of, members = job.by_slot(), job.attempt.worker_slot, indices(event.members)
        for index in members - job.listed_workers - job.leaving:
            if (pod := pods.get(slot_of(index))) is None or not pod.ready:
                self.fault(f"I7 the hosts files published at {sequence} list worker {index}, which is not Ready")
        # The first files of an attempt may list workers of a growth that began before them.
        most = max(job.scaling.size + len(job.scaling.arriving), len(job.listed_workers))
        if not event.request and members - job.listed_workers and len(members) > most:
            self.fault(
                f"I42 the hosts files published at {sequence} list {len(members)} workers without a request, "
                f"and {job.key} has {most}"
            )
        by_capacity = job.spec is not None and job.spec.elasticity is not None
        if by_capacity and len(members) < min(job.spec.worker.min_replicas, job.scaling.size):
            self.fault(f"I45 {job.key} trains with {len(members)} workers at {sequence}, below its minimum")
        doomed = {pod.slot for pod in job.pods.views.values() if pod.uid in job.pods.disrupted} - nodes.in_time(job)
        if listed := doomed & {slot_of(index) for index in members}:
            names = sorted(map(job.pod_name, listed))
            self.fault(f"I7 the hosts files published at {sequence} list {names}, which are about to be disrupted")
