"""What must hold at every step and at the end (FAULTS, section 1): a checker that is told of events, changes and calls.

To what the log must show it adds what the cluster must show beside it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from services.status.core.documents import canonical, document_of, same, with_head
from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.queueing import WORKLOADS
from shared.frameworks.runtimes import COPY, digest_of, text_of
from shared.frameworks.scale_requests import REQUESTS
from shared.frameworks.trainer_schemas import RUNTIMES
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import HostsPublished, ScriptFinished, ScriptStarted, WorkersReleased
from shared.job.events.scheduler import JobExpired
from shared.job.events.status import JobSealed
from shared.job.events.watcher import ChildGone, JobGone, LauncherLost, PodsGone, PodsObserved
from shared.job.fold import History
from shared.job.naming import ATTEMPT, HOSTFILE, HOSTS_VERSION, JOB_UID, NO_UID, JobKey, Uid
from shared.job.policies import nodes
from shared.job.spec import LAUNCHER
from shared.job.state import Job
from shared.job.views import each
from tests.kit.demands import NEARLY
from tests.kit.invariants import ENDED, LogChecker, left_of
from tests.kit.telling import told_differently
from tests.memory.watching import Held
from tests.simulation.demands import ClusterDemands
from tests.simulation.manifests import REVISION, revision_of
from tests.simulation.platform import SECRET, runs, trains
from tests.simulation.training import TrainingDemands

Member = tuple[str, str]
"""A worker: its attempt, and the name of its pod."""

CHILDREN = (PODS, SERVICES, CONFIGMAPS, SECRETS, WORKLOADS)


class Checker(LogChecker):
    """The trace of one run, checked while it is made."""

    def __init__(self, identity: str, kinds: Kinds, seal_after: int | None = None) -> None:
        super().__init__()
        self._identity = identity
        self._seal_after = seal_after
        self._returned: set[Uid] = set()
        """The sealed jobs whose resource came back."""
        self._gone: dict[Uid, str] = {}
        """By job, when the log stored last that its resource is gone."""
        self._logged = ""
        """When the newest event was logged."""
        self._kinds = kinds
        self._jobs = {framework.resource.kind for framework in kinds}
        self._requests: dict[JobKey, set[Uid]] = defaultdict(set)
        """By job, the uid of every request that it ever had."""
        self._published: dict[Uid, dict[int, set[Member]]] = defaultdict(dict)
        """By job and version, the workers of every hosts files that were ever published."""
        self._listed: dict[str, set[Member]] = defaultdict(set)
        """By job, the workers that the hosts files in the cluster list."""
        self._shown: dict[Uid, int] = {}
        """By the uid of an object, the newest head that its status showed."""
        self._unwritten: dict[Uid, Any] = {}
        """By job, the status service's last document, into which people wrote since."""
        self._over: dict[Uid, set[Member]] = {}
        """By job whose status ever showed its end, the slots for which a call may still be on its way."""
        self._assigned: dict[Uid, set[Member]] = defaultdict(set)
        """By job, every slot that was ever assigned."""
        self._revisions: dict[str, str] = {}
        """By the digest of a runtime, its revision."""
        self._used: dict[Uid, set[str]] = defaultdict(set)
        """By job, the digest of every runtime with which its spec was ever recorded."""
        self._there: set[str] = set()
        """The uids of the jobs and of their children that exist."""
        self._versions: dict[str, set[int]] = defaultdict(set)
        """By uid, every version of an object."""
        self._done: set[tuple[str, str]] = set()
        """By namespace and name, the requests whose script ended with success."""
        self.demands = ClusterDemands()
        self.trainings: TrainingDemands | None = None
        self._scripts: dict[tuple[str, str], int] = {}
        """By namespace and name of a request, how often the script of the request ran that a decision started."""

    def restored(self, log: Iterable[Stored]) -> None:
        """The log has these events again, and no others; what was decided before may have been done.

        Hosts files that the log published still bind it.  Those of a decision that it has lost do not: the launcher
        that it starts waits for its own next version, which is above theirs.
        """
        self.begin()
        self._published.clear()
        self.demands.restored()
        # The cluster has not changed since, so that it says nothing about the releases that the log repeats.
        listed, self._listed = self._listed, defaultdict(set)
        for stored in log:
            self.appended(stored)
        self._listed |= {uid: known for uid, known in listed.items() if known in self._published[Uid(uid)].values()}
        self._shown.clear()
        self._over = {uid: set() for uid in self._over}
        self._scripts = dict.fromkeys(self._scripts, 0)

    def appended(self, stored: Stored) -> None:
        self._logged = stored.logged
        super().appended(stored)
        if SECRET.encode() in stored.body:
            self.fault(f"I18 {stored.subject} at {stored.sequence} tells a secret")

    def _check(self, job: Job, event: AnyEvent, tag: str, sequence: int) -> None:
        uid = job.key.uid
        self._requests[job.key].update(job.scaling.requests)
        if isinstance(event, HostsPublished):
            self._published[uid][event.version] = {
                (str(job.attempt.number), name) for name in job.worker_names(job.listed_workers)
            }
        if tag in ("SlotsAssigned", "ScaleAccepted", "JobAdopted"):
            self._assigned[uid].update((str(slot.attempt), job.pod_name(slot)) for slot in job.attempt.slots)
        if job.spec is not None and job.spec.runtime is not None:
            self._used[uid].add(job.spec.runtime.digest)
        self._check_fact(job, event, sequence)
        if why := told_differently(job, self._kinds):
            self.fault(f"I32 {job.key} {why} at {sequence}")
        if isinstance(event, JobExpired):
            self._check_expiry(job, sequence)
        if isinstance(event, JobGone):
            self._gone[uid] = self._logged
        if isinstance(event, JobSealed):
            lived = datetime.fromisoformat(self._logged) - datetime.fromisoformat(self._gone[uid])
            if self._seal_after is None or lived.total_seconds() < self._seal_after:
                self.fault(f"I43 {job.key} is sealed at {sequence}, {lived} after it was gone")
        for why in self.demands.after(job, event, self._logged, sequence):
            self.fault(why)
        for why in self.trainings.after(job, event, self._logged, sequence) if self.trainings is not None else ():
            self.fault(why)
        if isinstance(event, ScriptStarted):
            self._scripts.setdefault((job.key.namespace, job.scaling.requests[event.request].name), 0)
        if isinstance(event, WorkersReleased):
            released = {(str(slot.attempt), job.pod_name(slot)) for slot in each(event.slots)}
            if listed := released & self._listed[uid]:
                self.fault(f"I7 {sorted(listed)} are released at {sequence}, and the hosts files list them")

    def _check_fact(self, job: Job, event: AnyEvent, sequence: int) -> None:
        """What a fact says was so in the cluster (I28)."""
        match event:
            case PodsGone():
                lies = [uid for uid in event.uids if uid in self._there]
            case LauncherLost() | ChildGone():
                lies = [event.uid] if event.uid in self._there else []
            case JobGone():
                lies = [job.key.uid] if job.key.uid in self._there else []
            case PodsObserved():
                lies = [pod.uid for pod in event.pods if pod.version not in self._versions[pod.uid]]
            case ScriptFinished(exit_code=0):
                name = job.scaling.requests[event.request].name
                lies = [] if (job.key.namespace, name) in self._done else [event.request]
            case _:
                lies = []
        if lies:
            self.fault(f"I28 {type(event).__name__} of {job.key} at {sequence} is not true of {lies}")

    def _check_expiry(self, job: Job, sequence: int) -> None:
        """A job expires its time to live after its end, by the log server's clock (I34)."""
        if job.status.ended is None or job.spec is None or not job.status.ended.logged:
            return
        lived = datetime.fromisoformat(self._logged) - datetime.fromisoformat(job.status.ended.logged)
        if lived.total_seconds() < (job.spec.ttl_seconds_after_finished or 0):
            self.fault(f"I34 {job.key} expires at {sequence}, {lived.total_seconds():.1f} s after its end")

    def changed(
        self, actor: str, key: JobKey | None, resource: Resource[Any], before: Held | None, after: Held | None
    ) -> None:
        """`actor` is the service that made the change, for the job `key`; empty for users and the platform."""
        self._know(before, after)
        if resource.plural == RUNTIMES.plural and after is not None:
            spec = after.manifest["spec"]
            self._revisions[digest_of(text_of(spec))] = revision_of(spec)
        if resource.plural == PODS.plural and after is not None:
            self._check_pod(actor, before, after)
        if resource.plural == PODS.plural and actor == "scheduler" and before is not None and after is None:
            self._check_forced(before)
        if actor and (held := before or after) is not None:
            self._must_be_of(key, actor, resource, held)
        data = after.manifest.get("data") or {} if after is not None else {}
        if actor and resource.plural == CONFIGMAPS.plural and after is not None and COPY not in data:
            self._check_hosts(before, after)
        if resource.kind in self._jobs and before is not None and after is not None:
            self._note_writer(actor, before, after)
        if actor == "status" and after is not None and after.manifest.get("status"):
            self._check_status(resource, after)

    def _note_writer(self, actor: str, before: Held, after: Held) -> None:
        """The status service does not watch statuses: what people write there stays until it has something to write."""
        uid, status = Uid(after.metadata["uid"]), before.manifest.get("status") or {}
        if actor == "status":
            self._unwritten.pop(uid, None)
        elif "history" in status and status != after.manifest.get("status"):
            self._unwritten.setdefault(uid, status)

    def _know(self, before: Held | None, after: Held | None) -> None:
        if before is not None:
            self._there.discard(before.metadata["uid"])
        if after is None:
            return
        uid, metadata = after.metadata["uid"], after.metadata
        if before is None and uid in self.sealed:
            self._returned.add(uid)
        self._versions[uid].add(int(metadata["resourceVersion"]))
        # A person may take a child's label or owner away; then it is the job's no more.
        if after.manifest["kind"] in self._jobs or (metadata.get("ownerReferences") and JOB_UID in _labels(after)):
            self._there.add(uid)

    def _check_pod(self, actor: str, before: Held | None, after: Held) -> None:
        labels, name = _labels(after), after.at[1]
        self.demands.seen(labels.get(JOB_UID, ""), labels.get(ATTEMPT, ""), after)
        history = self._by_uid.get(labels.get(JOB_UID, ""))
        if history is None or not actor:
            return
        job = history.job
        if before is None and job.key.uid in self._returned:
            self.fault(f"I43 pod {name} is created, and its job is sealed")
        if before is None:
            # A call may arrive late: its slot was assigned at some time.
            if (labels[ATTEMPT], name) not in self._over.get(job.key.uid, {(labels[ATTEMPT], name)}):
                self.fault(f"I25 pod {name} is created, and a status said that its job is over")
            if (labels[ATTEMPT], name) not in self._assigned[job.key.uid]:
                self.fault(f"I10 pod {name} is created, and no decision up to {history.sequence} assigned its slot")
            revision = (after.metadata.get("annotations") or {}).get(REVISION)
            if revision is not None and revision not in {self._revisions[used] for used in self._used[job.key.uid]}:
                self.fault(f"I10 pod {name} is of revision {revision} of its runtime, which no event names")
        elif after.metadata.get("deletionTimestamp") and not before.metadata.get("deletionTimestamp"):
            if any(
                (job.resource.gone, job.over, job.deleting, job.halted, job.between_attempts),
            ) or labels[ATTEMPT] != str(job.attempt.number):
                return
            if any(job.pod_name(slot) == name for slot in job.attempt.slots):
                self.fault(f"I10 pod {name} is deleted, and its slot is not released at {history.sequence}")
            listed = (labels[ATTEMPT], name) in self._listed[job.key.uid]
            if listed and trains(after):
                self.fault(f"I7 pod {name} is deleted at {history.sequence}, and the hosts files list it")

    def _check_forced(self, before: Held) -> None:
        """A pod whose containers may run goes at once only if that is asked for, and after its time (I41)."""
        if not runs(before):
            return
        history = self._by_uid.get(_labels(before).get(JOB_UID, ""))
        job, uid = (history.job if history is not None else None), Uid(before.metadata["uid"])
        known = job.pods.lost.get(uid) if job is not None else None
        asked = None
        if job is not None and known is not None and known.terminating is not None and uid in job.pods.views:
            asked = nodes.force_delay(job, job.pods.views[uid], known)
        if known is None or known.terminating is None or asked is None:
            self.fault(f"I41 pod {before.at[1]} is deleted by force, and nothing asks for it")
            return
        waited = datetime.fromisoformat(self._logged) - datetime.fromisoformat(known.terminating.logged)
        if waited.total_seconds() < NEARLY * asked:
            self.fault(f"I41 pod {before.at[1]} is deleted by force after {waited.total_seconds():.1f} s of {asked} s")

    def ran(self, namespace: str, request: str) -> None:
        """A launcher runs the script of a request, whose text is the request's name."""
        runs = self._scripts.get((namespace, request))
        if runs is None:
            self.fault(f"I10 the script of {request} runs, and no decision started it")
        elif runs:
            self.fault(f"I12 the script of {request} runs again")
        else:
            self._scripts[namespace, request] = 1

    def done(self, namespace: str, request: str) -> None:
        """The script of a request ends, and with success."""
        self._done.add((namespace, request))

    def pods(self, found: Iterable[Held]) -> None:
        """All pods of the cluster after one of them was created."""
        alive: dict[str, set[str]] = defaultdict(set)
        for held in found:
            labels = _labels(held)
            if not held.metadata.get("ownerReferences"):
                # A person orphaned it, and it is no longer the job's.
                continue
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
            label = _labels(held).get(JOB_UID, "")
            owners = [owner["uid"] for owner in held.metadata.get("ownerReferences") or () if owner.get("controller")]
            # An orphaning deletion leaves the label alone, and a person may take that away.
            if label not in ("", key.uid) or owners not in ([], [key.uid]):
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
        uid = Uid(_labels(after).get(JOB_UID, ""))
        text = (after.manifest.get("data") or {}).get(HOSTFILE, "")
        listed = {re.split("[:. ]", line)[0] for line in text.splitlines() if line.strip()}
        published = self._published[uid].get(version(after))
        if published is None:
            self.fault(f"I10 hosts files {after.at[1]} have version {version(after)}, which was never published")
            return
        self._listed[uid] = {member for member in published if member[1] in listed}
        if listed != (expected := {name for _, name in published}):
            self.fault(f"I7 hosts files {after.at[1]} list {sorted(listed)}, and not {sorted(expected)}")

    def _check_status(self, resource: Resource[Any], after: Held) -> None:
        status = after.manifest["status"]
        if SECRET in canonical(status).decode():
            self.fault(f"I18 the status of {resource.kind} {after.at[1]} tells a secret")
        head = status.get("history")
        if not head or resource.kind in REQUESTS or head["log"] != self._identity:
            return
        uid = Uid(after.metadata["uid"])
        if head["sequence"] < self._shown.get(uid, 0):
            self.fault(f"I3 {resource.kind} {after.at[1]} shows {head['sequence']} after {self._shown[uid]}")
        self._shown[uid] = head["sequence"]
        if status.get("phase") in ENDED:
            self._over.setdefault(uid, {*self._assigned[uid]})
        known = self._at[uid].get(head["sequence"])
        if known is None or known[1] != head["hash"]:
            self.fault(f"I3 {resource.kind} {after.at[1]} shows a head that the log does not have: {head}")
            return
        job, _, time = known
        replayed = with_head(document_of(job, self._kinds), self._identity, Head(head["sequence"], head["hash"]), time)
        if job.resource.another:
            self.fault(f"I3 the status of {resource.kind} {after.at[1]} is written, and another operator began the job")
        if canonical(replayed) != canonical(status):
            self.fault(f"I3 the status of {resource.kind} {after.at[1]} is not that of the log at {head['sequence']}")

    def over(self) -> bool:
        """True if every job is over."""
        return all(history.job.over or history.job.key.uid in (NO_UID, *self.unreadable) for history in self.histories)

    def ended(
        self,
        *,
        objects: Iterable[tuple[Resource[Any], Held]],
        held: Iterable[tuple[str, JobKey, str]],
        quiet: bool,
        witnessed: Iterable[Uid] = (),
    ) -> None:
        """The weather was clear for long enough: what must have come about.

        Of the jobs that are `witnessed` a head is kept to which the log may not lead.
        """
        if not quiet:
            self.fault("I15 the cluster or the log still changes")
        for who, key, why in held:
            if key.uid not in self.unreadable | self._returned:
                self.fault(f"I11 {who} holds a job: {why}")
        resources: dict[str, tuple[Resource[Any], Held]] = {}
        children: dict[str, list[str]] = defaultdict(list)
        for resource, found in objects:
            if resource is PODS:
                self._check_given_up(found)
            if resource in CHILDREN:
                for owner in found.metadata.get("ownerReferences") or ():
                    children[owner["uid"]].append(f"{resource.kind} {found.at[1]}")
            else:
                resources[found.metadata["uid"]] = resource, found
        for history in self.known:
            job = history.job
            if job.key.uid not in self.unreadable:
                self._end_of(history, resources, children)
            if history.held or job.key.uid in (*self.sealed, *self.unreadable, *witnessed) or left_of(job):
                continue
            if job.resource.gone and self._seal_after is not None:
                self.fault(f"I43 {job.key} is gone with all that it had, and its history is not sealed")

    def _check_given_up(self, held: Held) -> None:
        """A slot that was given up has no running pod; after the end cleanPodPolicy None keeps them."""
        labels = _labels(held)
        history = self._by_uid.get(labels.get(JOB_UID, ""))
        if history is None or not held.metadata.get("ownerReferences") or not runs(held):
            return
        job = history.job
        if job.halted or job.resource.gone or job.resource.orphan or job.key.uid in self.unreadable:
            return
        # An edit that is not valid stops new hosts files, without which a pod in a slot that ended is not deleted.
        kept = job.attempt.unreleased if job.over or job.resource.problems else job.attempt.slots
        if (labels[ATTEMPT], held.at[1]) not in {(str(slot.attempt), job.pod_name(slot)) for slot in kept}:
            self.fault(f"I33 pod {held.at[1]} runs, and {job.key} gave its slot up")

    def _end_of(
        self, history: History, resources: dict[str, tuple[Resource[Any], Held]], children: dict[str, list[str]]
    ) -> None:
        job = history.job
        uid = job.key.uid
        if job.resource.gone and not job.resource.orphan and children.get(uid):
            self.fault(f"I4 {job.key} is gone, and there are {children[uid]}")
        if bool(job.resource.gone) != (uid not in resources) and uid not in {NO_UID, *self._returned}:
            self.fault(
                f"I15 {job.key}: gone in the log {bool(job.resource.gone)}, in the cluster {uid not in resources}"
            )
        for request in job.scaling.requests.values():
            # Of a job that cannot be acted upon, its status says why.
            waits = (
                job.resource.gone
                or uid == NO_UID
                or (job.status.phase not in ENDED and (job.efforts.refusals or job.resource.problems))
            )
            if not request.over and not request.gone and not waits:
                self.fault(f"I5 request {request.name} of {job.key} is {request.phase or 'not begun'} for ever")
        if job.resource.gone or uid not in resources:
            return
        suspended = job.spec is not None and job.spec.suspend and job.status.phase == "Suspended"
        # Its launcher may be the pod of a Batch Job, which no watch shows.
        alone = (
            job.resource.another
            and job.resource.kind == MPIJOB.resource.kind
            and all(pod.role != LAUNCHER for pod in job.pods.views.values())
        )
        explained = suspended or job.resource.problems or job.efforts.refusals or alone
        if job.status.phase not in ENDED and not explained:
            self.fault(f"I15 {job.key} stays {job.status.phase or 'without a phase'}")
        resource, shown = resources[uid]
        status = self._unwritten.get(uid) or shown.manifest.get("status") or {}
        # Until Muster takes a job over, the status is the other operator's; `_check_status` sees any write to it.
        ours = self._kinds.knows(job) and not job.resource.another
        if ours and not same(status, document_of(job, self._kinds)):
            self.fault(f"I3 the status of {resource.kind} {shown.at[1]} is not that of the log: {status}")


def _labels(held: Held) -> dict[str, str]:
    return held.metadata.get("labels") or {}
