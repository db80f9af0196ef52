"""Why a job lacks something that it wants: one reason at any moment, or none.  Pure.

Conditions, Kubernetes Events, `muster get` and `muster why` tell it.  What every start has for a moment, such as a
container that is being created, is told after `WAITING_SECONDS`.
"""

from collections.abc import Iterator

import msgspec

from shared.job import reasons, text
from shared.job.attempt import Vacancy
from shared.job.conditions import Condition, holds
from shared.job.events.event import At
from shared.job.naming import Slot, secret_name
from shared.job.policies import capacity, gangs, nodes, quota, replacement, stalls
from shared.job.policies.retries import restart_delay
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job, LastAnswer, needed_workers, running_workers
from shared.job.text import without_finalizers
from shared.job.timers import RESTART, WAITING, passed
from shared.job.views import USUAL, PodView, alive, occupies

WAITING_SECONDS = 10
"""What lasts longer has a reason that people are told."""

_PREVENTS = {
    "CreateSecret": "WorkersCreated",
    "CreateService": "LauncherCreated",
    "CreatePod": "WorkersCreated",
    "CreatePodGroup": "WorkersReady",
    "WriteHosts": "LauncherCreated",
    "NudgeLauncher": "LauncherCreated",
    "WriteWorkload": "",
    "CreateAutoscaler": "",
}
"""Effects without which a job gets no further, and the condition that a refused one prevents."""


class Wait(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a job lacks, and why."""

    reason: str
    message: str
    """Who waits for what, in one sentence."""
    since: At
    condition: str = ""
    """The milestone that is not reached for it, or does not hold any more; empty if it is none."""
    slot: Slot | None = None
    """The slot that lacks its pod; None if it is not about one."""
    effect: str = ""
    """The key of the refusal, if it is one."""
    lost: bool = False
    """True if it is the loss of a pod or a node, which a Kubernetes Event of its own tells."""
    usual: bool = False
    """True for what every start has for a moment."""

    @property
    def sentence(self) -> str:
        """The message with the reason, for readers that have no field for the reason."""
        return self.message if self.reason in self.message else f"{self.reason}: {self.message}"


def told(job: Job) -> Wait | None:
    """What the job waits for, once people are to be told of it."""
    wait = waiting(job)
    return wait if wait is not None and (not wait.usual or passed(job, wait.since.sequence, WAITING)) else None


def _waiting(job: Job) -> Wait | None:
    if job.spec is None or job.halted or job.resource.gone or job.deleting or not job.status.phase:
        return None
    if job.over:
        return _of_ending_pods(job) or _of_refusals(job, "DeletePod")
    if (nodes := _of_nodes(job) or _of_launcher(job)) is not None:
        return nodes
    if job.status.phase == "Suspended" or not (job.between_attempts or job.attempt.begun):
        return _of_refusals(job, "WriteWorkload") or _of_ending_pods(job)
    if job.between_attempts:
        return _of_ending_pods(job)
    return _of_stall(job) or _of_pods(job)


waiting = LastAnswer(_waiting)
"""What the job waits for; None if it has all that it wants, and where its phase or its problems say it.

A decision of the status service asks three times, one of the watcher twice.
"""


def conditions(job: Job, *, milestones: bool = False) -> tuple[Condition, ...]:
    """The job's conditions, one of them with what it waits for: that of its phase.

    In a kind that shows `milestones` it is the one that is not reached, or does not hold any more.
    """
    wait = told(job)
    if wait is None:
        return job.status.conditions
    if not (milestones and wait.condition):
        return tuple(_with_wait(known, wait) if _of_phase(job, known) else known for known in job.status.conditions)
    if wait.condition == "LauncherCreated" and holds(job.status.conditions, wait.condition):
        # The pod of the launcher is there, and does not start.
        return tuple(
            _with_wait(known, wait) if known.type == wait.condition else known for known in job.status.conditions
        )
    is_false = Condition(wait.condition, False, wait.reason, wait.message, wait.since, wait.since)
    return (*(known for known in job.status.conditions if known.type != wait.condition), is_false)


def _of_phase(job: Job, known: Condition) -> bool:
    # A job that is scaled runs, and some kinds show only that.
    return known.type == ("Running" if job.status.phase == "Scaling" else job.status.phase) and known.status


def _with_wait(known: Condition, wait: Wait) -> Condition:
    message = text.ends("; ".join(filter(None, (known.message, wait.sentence))))
    return msgspec.structs.replace(known, message=message)


def _of_nodes(job: Job) -> Wait | None:
    """Pods whose node does not answer, and those that nothing replaces before their node goes."""
    told = nodes.of_lost(job)
    found = [(lost.terminating or lost.at, lost.reason) for lost in job.pods.lost.values()]
    roles = {job.pods.views[uid].role for uid in job.pods.lost if uid in job.pods.views}
    for known in nodes.of_notices(job):
        told.append(known.sentence)
        found.append((known.at, known.reason))
        roles.add(known.role)
    if not told:
        return None
    since, reason = max(found, key=lambda each: each[0].sequence)
    condition = "LauncherCreated" if roles == {LAUNCHER} else "WorkersReady"
    return Wait(
        reason=reason,
        message=text.ends("; ".join(told)),
        since=since,
        condition=condition if job.starting and job.attempt.begun else "",
        lost=True,
    )


def _of_launcher(job: Job) -> Wait | None:
    """A launcher, or some of the fewest workers, for which there is no node while the other workers hold theirs."""
    wait, launcher = nodes.of_launcher_wait(job), job.launcher if nodes.has_no_place(job) else None
    if wait is None:
        return None
    since, reason, sentence = wait
    without = launcher or next(filter(capacity.finds_no_node, job.worker_pods().values()), None)
    message = text.with_words(sentence, without.message if without is not None else "")
    condition = "LauncherCreated" if launcher is not None else "WorkersReady" if job.starting else ""
    slot = without.slot if without is not None else None
    return Wait(reason=reason, message=message, since=since, condition=condition, slot=slot)


def _entered(job: Job) -> At:
    """When the job entered its phase; of a job that was taken over in it, when it became active."""
    return next(
        (known.since for known in job.status.conditions if known.type == job.status.phase),
        job.status.active or At(job.resource.edited, ""),
    )


def _of_ending_pods(job: Job) -> Wait | None:
    """Pods that have to go: before the next attempt begins, before the job is suspended, or after its end."""
    why = job.retries.restarting
    if why is not None and not job.over and restart_delay(job, why) and not passed(job, why.at.sequence, RESTART):
        # The back-off is what it waits for, and its phase says that.
        return None
    left = [pod for pod in job.pods.views.values() if pod.deleting or (occupies(pod) and not job.over)]
    if not left:
        return None
    first = min(left, key=lambda pod: (not pod.deleting, pod.name))
    more = f", and {len(left) - 1} more" if left[1:] else ""
    return Wait(
        reason=reasons.PODS_TERMINATING,
        message=f"{_ending(job, first)}{more}",
        # Not since a deletion: pods that go one after another are one wait.
        since=_entered(job),
        slot=first.slot,
        usual=True,
    )


def _ending(job: Job, pod: PodView) -> str:
    """`resnet-worker-1 is being deleted on node-3 since 12:00:05 UTC, and may take 30 s to end`."""
    where = f" on {pod.node}" if pod.node else ""
    if not pod.deleting:
        return f"{pod.name} still runs{where}"
    since = f" since {known.clock}" if (known := job.pods.troubles.get(pod.uid)) is not None else ""
    going = f"{pod.name} is being deleted{where}{since}"
    if pod.finalizers:
        return f"{going}; {without_finalizers(job.key.namespace, 'pod', pod.name, pod.finalizers)}"
    return f"{going}, and may take {pod.grace} s to end" if pod.grace else going


def _of_refusals(job: Job, *effects: str) -> Wait | None:
    known = [refusal for refusal in job.efforts.refusals.values() if refusal.effect in effects]
    if not known:
        return None
    first = min(known, key=lambda refusal: effects.index(refusal.effect))
    launcher = any(slot.role == LAUNCHER for slot in first.slots)
    return Wait(
        reason=first.reason,
        message=first.sentence,
        since=first.since,
        condition="LauncherCreated" if launcher else _PREVENTS.get(first.effect, ""),
        effect=first.key,
    )


def _of_pods(job: Job) -> Wait | None:
    """The first pod that does not start, a refused effect, the first lost pod, or the first that is on its way."""
    pods = job.by_slot()
    lacking = [slot for slot in job.attempt.slots if not _is_up(job, slot, pods.get(slot))]
    lost = replacement.replaceable(job)
    if not lacking and not lost:
        return _of_refusals(job, *_PREVENTS) or _of_minimum(job) or _of_size(job) or _of_others(job, pods)
    roles = [role.name for role in job.spec.roles] if job.spec is not None else []
    lacking.sort(key=lambda slot: (slot.index, roles.index(slot.role) if slot.role in roles else len(roles)))
    hindered = (pods[slot] for slot in lacking if slot in pods and _is_hindered(pods[slot]))
    first = next(hindered, None)
    if first is not None:
        wait = _of_pod(job, first, usual=False)
        return _with_members(job, wait) if first.role == WORKER and capacity.began(job) else wait
    refused = _of_refusals(job, *_PREVENTS)
    if refused is not None:
        return refused
    if lost:
        slot, vacancy = next(iter(lost.items()))
        return _of_loss(job, slot, vacancy, pods.get(slot))
    if (gang := _of_gang(job, pods)) is not None:
        return gang
    return next(_of_lacking(job, lacking, pods))


def _of_gang(job: Job, pods: dict[Slot, PodView]) -> Wait | None:
    """Pods that the kube-scheduler does not consider yet, which neither they nor their PodGroup say."""
    for gang in gangs.unplaced(job):
        there = [pods[slot] for slot in gang.slots if alive(pods.get(slot))]
        if not there or any(pod.reason for pod in there):
            continue
        first = f"{there[0].name} waits for "
        if (gangs.POD_GROUP, gang.name) not in job.objects.children:
            message = f"{first}the PodGroup {gang.name}, which does not exist"
            return _of_slot(job, there[0].slot, reasons.POD_GROUP_MISSING, message, there[0], usual=True)
        if len(there) < gang.least:
            message = f"{first}its gang: {gang.least} pods have to find places together, and {len(there)} exist"
            return _of_slot(job, there[0].slot, reasons.GANG_INCOMPLETE, message, there[0], usual=True)
    return None


def _with_members(job: Job, wait: Wait) -> Wait:
    """The wait of a job that trains with the workers for which there is room: it has what it needs."""
    if job.elasticity is None:
        return wait
    members = f"{len(job.listed_workers)} of {text.counted(job.scaling.size, 'worker')} train"
    return msgspec.structs.replace(wait, message=f"{members}; {wait.message}", condition="")


def _is_up(job: Job, slot: Slot, pod: PodView | None) -> bool:
    """True if the job has what it wants of a slot: a Ready pod; once the job runs, one whose training runs."""
    if pod is None or not alive(pod):
        return False
    if pod.ready:
        return True
    if pod.phase != "Running" or pod.reason not in USUAL:
        return False
    if slot.role == LAUNCHER:
        return True
    listed = job.spec is not None and (not job.spec.handling.hosts_files or slot.index in job.listed_workers)
    return not job.starting and listed and slot not in job.scaling.arriving


def _of_stall(job: Job) -> Wait | None:
    """A training that makes no step, although its pods run."""
    if not stalls.stalled(job) or job.training.stands is None:
        return None
    return Wait(reason=reasons.STALLED, message=stalls.sentence(job), since=job.training.stands)


def _of_others(job: Job, pods: dict[Slot, PodView]) -> Wait | None:
    """A sidecar, or another container, that does not run beside a training that does."""
    hindered = [pod for slot, pod in pods.items() if slot in job.attempt.slots and _is_hindered(pod)]
    first = min(hindered, key=lambda pod: pod.slot, default=None)
    return msgspec.structs.replace(_of_pod(job, first, usual=False), condition="") if first is not None else None


def _of_minimum(job: Job) -> Wait | None:
    """Fewer workers run than a running job needs, and nothing replaces the others."""
    spec, since = job.spec, job.attempt.below_minimum
    if spec is None or not since:
        return None
    losses = (vacancy.at for vacancy in job.attempt.vacancies.values() if vacancy.at.sequence == since)
    return Wait(
        reason=reasons.BELOW_MINIMUM,
        message=f"{below_minimum(job)}: the attempt ends {spec.seconds_below_minimum} s later",
        since=next(losses, _entered(job)),
        # At the end of a training all workers end well, the leader perhaps last.
        usual=not replacement.unreplaced(job),
    )


def below_minimum(job: Job, without: str = "") -> str:
    """How many workers run, of those that a job needs."""
    running = running_workers(job)
    runs = text.counted(running, "running worker") if running else "no running worker"
    return f"{runs} left{without}, and minReplicas is {needed_workers(job)}"


def _of_size(job: Job) -> Wait | None:
    """A number of workers in the resource that a running job does not have, and that no request is changing.

    The edit waits for quota, or failed; or the number is older than a scale request, and not written yet.
    """
    size, spec = job.scaling.size, job.spec
    if spec is None or job.status.phase != "Running" or not (spec.has(WORKER) and size):
        return None
    asked = spec.worker.replicas
    if asked == size or job.resource.problems or job.scaling.open:
        return None
    edits = [known for known in job.scaling.requests.values() if known.resize == asked]
    edit = edits[-1] if edits else None
    of_edit = f"the job keeps {text.counted(size, 'worker')}, and its spec asks for {asked}"
    if edit is None or edit.phase == "Succeeded":
        refusal = job.efforts.refusals.get("WriteSize")
        if not (spec.worker.written and spec.handling.elastic) or (refusal is not None and refusal.permanent):
            # Nothing writes it.
            return None
        message = f"{of_edit}: its present size is not written into it yet"
        return Wait(reason=reasons.SIZE_NOT_WRITTEN, message=message, since=_entered(job), usual=True)
    if edit.over:
        again = "" if spec.worker.written else "; to ask for that number again, write another one first"
        why = edit.conditions[-1].message or reasons.of_request(edit.reason)
        message = text.ends(f"{of_edit}: {edit.reason}: {why}{again}")
        return Wait(reason=edit.reason, message=message, since=edit.conditions[-1].since, usual=spec.worker.written)
    if job.scaling.next_request is not edit or quota.allows(job, quota.wanted_workers(job)):
        return None
    message = f"{of_edit}: its queue has not admitted that size yet"
    return Wait(reason=reasons.WAITS_FOR_QUOTA, message=message, since=edit.conditions[-1].since, usual=True)


def _is_hindered(pod: PodView) -> bool:
    return alive(pod) and pod.reason not in USUAL


def _of_loss(job: Job, slot: Slot, vacancy: Vacancy, left: PodView | None) -> Wait:
    """A lost pod that is replaced."""
    how = f"{job.pod_name(slot)} {vacancy.how}"
    if not replacement.due(job, vacancy):
        then = f"it is replaced after a back-off of {vacancy.wait} s"
    elif left is not None and left.deleting:
        # The loss is told; what lasts is that the next pod waits for the name of this one.
        wait = _of_slot(job, slot, reasons.PODS_TERMINATING, f"{how}; {_ending(job, left)}", usual=True)
        return msgspec.structs.replace(wait, since=vacancy.at)
    else:
        then = "it is replaced"
    message = text.with_last_words(f"{how}; {then}", vacancy.message)
    wait = _of_slot(job, slot, vacancy.cause, message, usual=False)
    return msgspec.structs.replace(wait, since=vacancy.at, lost=True)


def _of_lacking(job: Job, lacking: list[Slot], pods: dict[Slot, PodView]) -> Iterator[Wait]:
    for slot in lacking:
        pod, refill = pods.get(slot), job.attempt.refilled.get(slot)
        name = job.pod_name(slot)
        if refill is not None and refill.why:
            wait = _of_slot(job, slot, refill.reason, f"{name} starts: {refill.why}", usual=False)
            yield msgspec.structs.replace(wait, lost=True)
        elif pod is None and slot.role == WORKER and not quota.within(job, [slot]):
            admitted = quota.most_workers(job, job.scaling.size)
            message = f"{name} is not created: its queue has admitted {text.counted(admitted, 'worker')}"
            yield _with_members(job, _of_slot(job, slot, reasons.WAITS_FOR_QUOTA, message, usual=True))
        elif pod is None:
            yield _of_slot(job, slot, reasons.PODS_MISSING, f"{name} is not created yet", usual=True)
        elif pod.deleting:
            yield _of_slot(job, slot, reasons.PODS_TERMINATING, _ending(job, pod), pod, usual=True)
        else:
            yield _of_pod(job, pod, usual=True)


def _of_pod(job: Job, pod: PodView, *, usual: bool) -> Wait:
    """A pod that exists and does not run as it should, for its own reason."""
    reason = pod.reason or pod.phase
    message = text.with_words(f"{pod.name}: {reason}", pod.message)
    if f'"{secret_name(job.key, job.attempt.number)}" not found' in pod.message:
        # The pods that run have its keys, so that none is made in its place.
        restart = f"`muster restart {job.resource.kind.lower()}/{job.key.name}`"
        message = text.ends(f"{message}; it was deleted, and only another attempt gets new keys: {restart}")
    return _of_slot(job, pod.slot, reason, message, pod, usual=usual)


def _of_slot(job: Job, slot: Slot, reason: str, message: str, pod: PodView | None = None, *, usual: bool) -> Wait:
    refill, assigned = job.attempt.refilled.get(slot), job.attempt.assigned
    since = job.pods.troubles.get(pod.uid) if pod is not None else None
    if since is None:
        since = refill.at if refill is not None else assigned
        if since is None or (slot in job.scaling.arriving and refill is None):
            since = _entered(job)
    condition = "LauncherCreated" if slot.role == LAUNCHER else "WorkersReady"
    return Wait(reason=reason, message=message, since=since, condition=condition, slot=slot, usual=usual)
