"""What must hold at every step and at the end (FAULTS, section 1): a checker that is told of events, changes and calls.

It folds the log for itself and trusts no service's fold.  Each fault that it keeps begins with the number of the rule.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from services.status.core.documents import canonical, document_of, same, with_head
from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.job.chain import Head
from shared.job.events.scaler import (
    HostsPublished,
    ScaleAccepted,
    ScaleCancelled,
    ScaleFailed,
    ScaleRejected,
    ScaleSucceeded,
    WorkersReleased,
)
from shared.job.events.scheduler import JobRestarted
from shared.job.fold import Histories, History
from shared.job.naming import ATTEMPT, HOSTFILE, HOSTS_VERSION, JOB_UID, NO_UID, JobKey, Uid
from shared.job.spec import WORKER
from shared.job.state import Job
from shared.job.upcast import read_event
from shared.job.views import each
from tests.kit.loop import PATHS
from tests.memory.watching import Held

CHILDREN = (PODS, SERVICES, CONFIGMAPS, SECRETS)
MOST_FAULTS = 20
"""The first ones tell the cause."""

ENDED = ("Succeeded", "Failed")


class Checker:
    """The trace of one run, checked while it is made."""

    def __init__(self, identity: str, kinds: Kinds) -> None:
        self.faults: list[str] = []
        self.histories = Histories()
        self._identity = identity
        self._kinds = kinds
        self._jobs = {framework.resource.kind for framework in kinds}
        self._at: dict[Uid, dict[int, tuple[Job, str, str]]] = defaultdict(dict)
        """By job and sequence: the job, the hash and the time of its head."""
        self._outcomes: dict[tuple[JobKey | None, Uid], str] = {}
        self._requests: dict[JobKey, set[Uid]] = defaultdict(set)
        """By job, the uid of every request that it ever had."""
        self._restarts = Counter[Uid]()
        """By job, the restarts that count, by the log's events alone."""
        self._published: dict[Uid, dict[int, set[str]]] = defaultdict(dict)
        """By job and version, the workers of every hosts files that were ever published."""
        self._listed: dict[str, set[str]] = defaultdict(set)
        """By job, the workers that the hosts files in the cluster list."""
        self._shown: dict[Uid, int] = {}
        """By the uid of an object, the newest head that its status showed."""
        self._by_uid: dict[str, History] = {}
        self._assigned: dict[Uid, set[tuple[str, str]]] = defaultdict(set)
        """By job, the attempt and the pod's name of every slot that was ever assigned."""
        self.reached: set[str] = set()
        """Kinds of things that happened in the run: a run in which nothing happens proves nothing."""

    def fault(self, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)

    def appended(self, stored: Stored) -> None:
        history = self.histories.fold(stored)
        assert history is not None
        job, tag = history.job, stored.subject.rpartition(".")[2]
        uid = job.key.uid
        before, event = self._newest(uid), read_event(stored.body, tag)
        self.reached.add(tag)
        self._by_uid[uid] = history
        self._at[uid][history.sequence] = (job, history.head.hash, history.time)
        self._requests[job.key].update(job.scaling.requests)
        if isinstance(event, HostsPublished):
            self._published[uid][event.version] = {job.worker_name(index) for index in job.listed_workers}
        if tag in ("SlotsAssigned", "ScaleAccepted"):
            self._assigned[uid].update((str(slot.attempt), job.pod_name(slot)) for slot in job.attempt.slots)
        if history.held:
            self.fault(f"I11 {job.key} is held: {history.held}")
        if before is None:
            return
        if job.phase != before.phase and job.phase not in PATHS[before.phase]:
            self.fault(f"I2 {job.key}: {before.phase or 'nothing'} -> {job.phase} at {stored.sequence}")
        if before.phase in ENDED and tag in ("SlotsAssigned", "JobRestarted", "ScaleAccepted", "HostsPublished"):
            self.fault(f"I25 {job.key} is {before.phase}, and {tag} follows at {stored.sequence}")
        if isinstance(event, JobRestarted):
            self._restarts[uid] += event.counted
        if job.spec is not None and self._restarts[uid] > max(job.spec.backoff_limit, 0):
            self.fault(f"I13 {job.key} restarted {self._restarts[uid]} times at {stored.sequence}")
        if isinstance(event, ScaleAccepted):
            basis, _, _ = stored.basis.partition(":")
            self._check_accepted(self._at[uid][int(basis)][0], event, stored.sequence)
        if isinstance(event, WorkersReleased):
            released = {job.pod_name(slot) for slot in each(event.slots)}
            if listed := released & self._listed[uid]:
                self.fault(f"I7 {sorted(listed)} are released at {stored.sequence}, and the hosts files list them")
        if isinstance(event, ScaleSucceeded | ScaleFailed | ScaleCancelled | ScaleRejected):
            known = before.scaling.requests.get(event.request)
            if known is not None and known.over:
                self.fault(f"I5 request {known.name} is {known.phase}, and {tag} follows at {stored.sequence}")
        for request in job.scaling.requests.values():
            # An edit has no uid of its own.
            who = (job.key if request.resize is not None else None, request.uid)
            outcome = self._outcomes.setdefault(who, request.phase) if request.over else self._outcomes.get(who)
            if outcome not in (None, request.phase):
                self.fault(f"I5 request {request.name} was {outcome} and is {request.phase}")

    def _newest(self, uid: Uid) -> Job | None:
        known = self._at[uid]
        return known[next(reversed(known))][0] if known else None

    def _check_accepted(self, job: Job, event: ScaleAccepted, sequence: int) -> None:
        """`job` is the basis of the decision: facts between the two may have changed the number of workers."""
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
        request = job.scaling.requests[event.request]
        names = {job.pod_name(slot) for slot in leaving}
        if request.spec is not None and request.spec.pod_names and names != {*request.spec.pod_names}:
            self.fault(f"I13 {request.name} asked for {request.spec.pod_names}, and {sorted(names)} leave")
        role, workers = job.spec.worker, len(job.attempt.workers)
        size = workers + len(each(event.added)) - len(leaving)
        replaceable = sum(slot.role == WORKER for slot in job.attempt.vacancies)
        if event.added and role.max_replicas is not None and size > role.max_replicas:
            self.fault(f"I13 {job.key} accepted {size} workers at {sequence}, and may have {role.max_replicas}")
        if leaving and size + replaceable < role.min_replicas:
            self.fault(f"I13 {job.key} accepted {size} workers at {sequence}, and needs {role.min_replicas}")

    def changed(
        self, actor: str, key: JobKey | None, resource: Resource[Any], before: Held | None, after: Held | None
    ) -> None:
        """`actor` is the service that made the change, for the job `key`; empty for users and the platform."""
        if resource.plural == PODS.plural and after is not None:
            self._check_pod(actor, before, after)
        if actor and (held := before or after) is not None:
            self._must_be_of(key, actor, resource, held)
        if actor and resource.plural == CONFIGMAPS.plural and after is not None:
            self._check_hosts(before, after)
        if actor == "status" and after is not None and after.manifest.get("status"):
            self._check_status(resource, after)

    def _check_pod(self, actor: str, before: Held | None, after: Held) -> None:
        labels, name = after.metadata.get("labels") or {}, after.at[1]
        history = self._by_uid.get(labels.get(JOB_UID, ""))
        if history is None or not actor:
            return
        job = history.job
        if before is None:
            # A call may arrive late: its slot was assigned at some time.
            if (labels[ATTEMPT], name) not in self._assigned[job.key.uid]:
                self.fault(f"I10 pod {name} is created, and no decision up to {history.sequence} assigned its slot")
        elif after.metadata.get("deletionTimestamp") and not before.metadata.get("deletionTimestamp"):
            if any(
                (job.gone, job.over, job.deleting, job.halted, job.between_attempts),
            ) or labels[ATTEMPT] != str(job.attempt.number):
                return
            if any(job.pod_name(slot) == name for slot in job.attempt.slots):
                self.fault(f"I10 pod {name} is deleted, and its slot is not released at {history.sequence}")
            if name in self._listed[job.key.uid] and after.manifest["status"].get("phase") == "Running":
                self.fault(f"I7 pod {name} is deleted at {history.sequence}, and the hosts files list it")

    def pods(self, found: Iterable[Held]) -> None:
        """All pods of the cluster after one of them was created."""
        alive: dict[str, set[str]] = defaultdict(set)
        for held in found:
            labels = held.metadata.get("labels") or {}
            if JOB_UID in labels and held.manifest["status"].get("phase") not in ENDED:
                alive[labels[JOB_UID]].add(labels.get(ATTEMPT, ""))
        for uid, attempts in alive.items():
            if len(attempts) > 1:
                self.fault(f"I1 pods of attempts {sorted(attempts)} of job {uid} exist at the same time")

    def _must_be_of(self, key: JobKey | None, actor: str, resource: Resource[Any], held: Held) -> None:
        """What a service writes for a job is in its namespace, and is the job's own by uid (I8, I9, I26)."""
        who = f"the {actor} writes {resource.kind} {held.at[1]}"
        if key is None:
            self.fault(f"I10 {who}, and carries out no effect")
            return
        if held.at[0] != key.namespace:
            self.fault(f"I9 {who} in {held.at[0]} for {key}")
        uid = held.metadata["uid"]
        if resource in CHILDREN:
            label = (held.metadata.get("labels") or {}).get(JOB_UID, "")
            owners = [owner["uid"] for owner in held.metadata.get("ownerReferences") or () if owner.get("controller")]
            # An orphaning deletion leaves the label alone.
            if label != key.uid or owners not in ([], [key.uid]):
                self.fault(f"I26 {who} of {owners}, labelled {label!r}, for {key.uid}")
        elif resource.kind in REQUESTS:
            # A call may arrive late: the request was the job's at some time.
            if uid not in self._requests[key]:
                self.fault(f"I8 {who} for {key}, which has no such request")
        elif resource.kind in self._jobs and uid != key.uid:
            self.fault(f"I8 {who}, which has the uid {uid}, for {key.uid}")

    def _check_hosts(self, before: Held | None, after: Held) -> None:
        def version(held: Held) -> int:
            return int((held.metadata.get("annotations") or {}).get(HOSTS_VERSION, "0"))

        if before is not None and version(after) < version(before):
            self.fault(f"I7 hosts files {after.at[1]} went from version {version(before)} to {version(after)}")
        uid = Uid((after.metadata.get("labels") or {}).get(JOB_UID, ""))
        text = (after.manifest.get("data") or {}).get(HOSTFILE, "")
        listed = {line.replace(":", " ").split()[0] for line in text.splitlines() if line.strip()}
        expected = self._published[uid].get(version(after))
        self._listed[uid] = listed
        if expected is None:
            self.fault(f"I10 hosts files {after.at[1]} have version {version(after)}, which was never published")
        elif listed != expected:
            self.fault(f"I7 hosts files {after.at[1]} list {sorted(listed)}, and not {sorted(expected)}")

    def _check_status(self, resource: Resource[Any], after: Held) -> None:
        status = after.manifest["status"]
        head = status.get("history")
        if not head or resource.kind in REQUESTS or head["log"] != self._identity:
            return
        uid = Uid(after.metadata["uid"])
        if head["sequence"] < self._shown.get(uid, 0):
            self.fault(f"I3 {resource.kind} {after.at[1]} shows {head['sequence']} after {self._shown[uid]}")
        self._shown[uid] = head["sequence"]
        known = self._at[uid].get(head["sequence"])
        if known is None or known[1] != head["hash"]:
            self.fault(f"I3 {resource.kind} {after.at[1]} shows a head that the log does not have: {head}")
            return
        job, _, time = known
        replayed = with_head(document_of(job, self._kinds), self._identity, Head(head["sequence"], head["hash"]), time)
        if canonical(replayed) != canonical(status):
            self.fault(f"I3 the status of {resource.kind} {after.at[1]} is not that of the log at {head['sequence']}")

    def over(self) -> bool:
        """True if every job is over."""
        return not self.unfinished()

    def unfinished(self) -> int:
        """The number of jobs that are not over."""
        return sum(not history.job.over and history.job.key.uid != NO_UID for history in self.histories)

    def ended(
        self, *, objects: Iterable[tuple[Resource[Any], Held]], held: Iterable[tuple[str, str]], quiet: bool
    ) -> None:
        """The weather was clear for long enough: what must have come about."""
        if not quiet:
            self.fault("I15 the cluster or the log still changes")
        for who, why in held:
            self.fault(f"I11 {who} holds a job: {why}")
        resources: dict[str, tuple[Resource[Any], Held]] = {}
        children: dict[str, list[str]] = defaultdict(list)
        for resource, found in objects:
            if resource in CHILDREN:
                for owner in found.metadata.get("ownerReferences") or ():
                    children[owner["uid"]].append(f"{resource.kind} {found.at[1]}")
            else:
                resources[found.metadata["uid"]] = resource, found
        for history in self.histories:
            self._end_of(history, resources, children)

    def _end_of(
        self, history: History, resources: dict[str, tuple[Resource[Any], Held]], children: dict[str, list[str]]
    ) -> None:
        job = history.job
        uid = job.key.uid
        if job.gone and not job.orphan and children.get(uid):
            self.fault(f"I4 {job.key} is gone, and there are {children[uid]}")
        if bool(job.gone) != (uid not in resources) and uid != NO_UID:
            self.fault(f"I15 {job.key}: gone in the log {bool(job.gone)}, in the cluster {uid not in resources}")
        for request in job.scaling.requests.values():
            # Of a job that cannot be acted upon, its status says why.
            waits = job.gone or uid == NO_UID or (job.phase not in ENDED and (job.refusals or job.problems))
            if not request.over and not request.gone and not waits:
                self.fault(f"I5 request {request.name} of {job.key} is {request.phase or 'not begun'} for ever")
        if job.gone or uid not in resources:
            return
        suspended = job.spec is not None and job.spec.suspend and job.phase == "Suspended"
        explained = suspended or job.problems or job.refusals
        if job.phase not in ENDED and not explained:
            self.fault(f"I15 {job.key} stays {job.phase or 'without a phase'}")
        resource, shown = resources[uid]
        status = shown.manifest.get("status") or {}
        if self._kinds.knows(job) and not same(status, document_of(job, self._kinds)):
            self.fault(f"I3 the status of {resource.kind} {shown.at[1]} is not that of the log: {status}")
