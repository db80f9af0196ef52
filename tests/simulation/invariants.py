"""What must hold at every step and at the end (FAULTS, section 1): a checker that is told of events, changes and calls.

It folds the log for itself and believes nobody else; each sentence that it keeps begins with the number of the rule.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from services.status.core.documents import canonical, document_of, same, with_head
from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.job.chain import Head
from shared.job.fold import Histories, History
from shared.job.naming import ATTEMPT, HOSTFILE, HOSTS_VERSION, JOB_UID, NO_UID, Uid
from shared.job.state import Job
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
        self._at: dict[Uid, dict[int, tuple[Job, str, str]]] = defaultdict(dict)
        """By job and sequence: the job, the hash and the time of its head."""
        self._outcomes: dict[Uid, str] = {}
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
        before = self._newest(uid)
        self.reached.add(tag)
        self._by_uid[uid] = history
        self._at[uid][history.sequence] = (job, history.head.hash, history.time)
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
        self._check_bounds(job, tag, stored.sequence)
        for request in job.scaling.requests.values():
            if request.over and self._outcomes.setdefault(request.uid, request.phase) != request.phase:
                self.fault(f"I5 request {request.name} was {self._outcomes[request.uid]} and is {request.phase}")

    def _newest(self, uid: Uid) -> Job | None:
        known = self._at[uid]
        return known[next(reversed(known))][0] if known else None

    def _check_bounds(self, job: Job, tag: str, sequence: int) -> None:
        if job.spec is None:
            return
        if job.restarts > max(job.spec.backoff_limit, 0):
            self.fault(f"I13 {job.key} restarted {job.restarts} times at {sequence}")
        if tag == "ScaleAccepted" and (role := next((r for r in job.spec.roles if r.name == "worker"), None)):
            most = role.max_replicas if role.max_replicas is not None else job.scaling.size
            if not role.min_replicas <= job.scaling.size <= most:
                self.fault(f"I13 {job.key} accepted {job.scaling.size} workers at {sequence}")

    def changed(self, actor: str, resource: Resource[Any], before: Held | None, after: Held | None) -> None:
        """`actor` is the service that made the change; empty for users and the platform."""
        if resource.plural == PODS.plural and after is not None:
            self._check_pod(actor, before, after)
        if actor and resource in CHILDREN and before is not None:
            self._must_be_own(actor, resource, before)
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

    def _must_be_own(self, actor: str, resource: Resource[Any], held: Held) -> None:
        labels = held.metadata.get("labels") or {}
        owners = [each["uid"] for each in held.metadata.get("ownerReferences") or () if each.get("controller")]
        if owners and labels.get(JOB_UID, owners[0]) not in owners:
            self.fault(f"I26 the {actor} changed {resource.kind} {held.at[1]} of {owners}, labelled {labels}")

    def _check_hosts(self, before: Held | None, after: Held) -> None:
        def version(held: Held) -> int:
            return int((held.metadata.get("annotations") or {}).get(HOSTS_VERSION, "0"))

        if before is not None and version(after) < version(before):
            self.fault(f"I7 hosts files {after.at[1]} went from version {version(before)} to {version(after)}")
        history = self._by_uid.get((after.metadata.get("labels") or {}).get(JOB_UID, ""))
        text = (after.manifest.get("data") or {}).get(HOSTFILE, "")
        if history is not None and history.job.membership.version == version(after):
            job = history.job
            expected = {job.worker_name(index) for index in job.listed_workers}
            listed = {line.replace(":", " ").split()[0] for line in text.splitlines() if line.strip()}
            if listed != expected:
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
        for resource, each in objects:
            if resource in CHILDREN:
                for owner in each.metadata.get("ownerReferences") or ():
                    children[owner["uid"]].append(f"{resource.kind} {each.at[1]}")
            else:
                resources[each.metadata["uid"]] = resource, each
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
