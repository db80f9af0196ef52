"""What a job does about nodes that are lost or about to go, and for a launcher that finds none.  Pure.

A lost node may come back, so nothing is destroyed for it: its workers leave the members of an elastic job, and come
back with it.  What follows is Kubernetes' decision: it deletes the pods after their toleration, five minutes unless
their template says otherwise.  Then no kubelet ends them.  They count as gone, and hold their names until the node is
back or a forced deletion takes them away.

For the workers of a node that is announced to go replacements are made first; a worker leaves when one is Ready for it.
Without room for them it trains on until shortly before its node goes.  A worker whose pod is evicted, or whose node may
go at any moment, leaves at once.

Workers hold their places for a bounded time while their launcher finds none, and then give them back: jobs whose
workers fill the nodes would otherwise wait for one another for ever.  Each gives its places back after another time,
so that the launchers that wait get them; schedulingTimeoutSeconds of a job has precedence.  A launcher that no node
can ever fit would begin its job again for ever: the job ends after `MOST_ATTEMPTS` of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from shared.job import causes, reasons, text
from shared.job.attempt import NEVER, UNREACHABLE, FailuresOn, LostNode, Verdict
from shared.job.events.event import At
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER, Handling
from shared.job.state import Job, needed_workers
from shared.job.text import forced_deletion, without_finalizers
from shared.job.timers import FORCED_DELETION, LAUNCHER_WAIT, NOTICE, passed
from shared.job.views import UNSCHEDULABLE, PodView, alive


def silent(job: Job) -> SortedSet[Slot]:
    """The slots whose pod is on a lost node."""
    if not job.pods.lost:
        return SortedSet()
    return SortedSet(pod.slot for uid in job.pods.lost if (pod := job.pods.views.get(uid)) is not None)


def away(job: Job) -> SortedSet[Slot]:
    """Workers of lost nodes, which leave the members of an elastic job.

    None if no other member is left: it may be the control plane that is cut off, and the workers train on.
    """
    slots = silent(job)
    others = any(job.attempt.worker_slot(index) not in slots for index in job.listed_workers) if slots else False
    return slots if others else SortedSet()


FAILURES_ON_NODE = 3
"""After so many failures on one node, new pods of the job keep off it."""

AVOIDED_SECONDS = 600
"""How long after the last of them; a broken device is told by then, and a repaired one is used again."""

MOST_NODES = 32
"""The most nodes of which a job's failures are counted, the newest."""


def with_failure(known: Mapping[str, FailuresOn], node: str, at: At) -> Mapping[str, FailuresOn]:
    """The failures by node with one more."""
    if not node:
        return known
    before = known[node].count if node in known else 0
    others = {name: failures for name, failures in known.items() if name != node}
    return dict([*others.items(), (node, FailuresOn(before + 1, at))][-MOST_NODES:])


def avoided(job: Job) -> Mapping[str, FailuresOn]:
    """The nodes that new pods of the job keep off, if others have room."""
    return {node: each for node, each in job.pods.failures_on.items() if each.count >= FAILURES_ON_NODE}


def of_avoided(job: Job) -> Iterator[str]:
    """A sentence for each node that new pods keep off."""
    for node, failures in avoided(job).items():
        yield (
            f"new pods keep off {node} for {AVOIDED_SECONDS // 60} minutes from {failures.at.clock} on if others have "
            f"room, as {failures.count} failed there"
        )


def stuck(job: Job) -> Iterator[tuple[PodView, LostNode, At]]:
    """The pods that are being deleted on lost nodes, and since when."""
    for uid, known in job.pods.lost.items():
        pod = job.pods.views.get(uid)
        if pod is not None and known.terminating is not None:
            yield pod, known, known.terminating


def force_delay(job: Job, pod: PodView, known: LostNode) -> int | None:
    """Seconds from the deletion of a stuck pod to its forced deletion; None if nothing deletes it by force."""
    own = job.spec.force_delete_after if job.spec is not None else None
    after = known.force_after if own is None else own
    return None if after is None or after == NEVER else pod.grace + after


def forced_deletion_timer(seconds: int) -> str:
    return f"{FORCED_DELETION}{seconds}"


def forced(job: Job) -> list[PodView]:
    """The stuck pods whose time is over."""
    return [
        pod
        for pod, known, since in stuck(job)
        if (seconds := force_delay(job, pod, known)) is not None
        and passed(job, since.sequence, forced_deletion_timer(seconds))
    ]


def of_lost(job: Job) -> list[str]:
    """What waits for which lost node since when, and the way out; one sentence for each node."""
    return [f"{_loss(job, pods)}{_way_out(job, pods)}" for pods in _by_node(job, job.pods.lost)]


def losses(job: Job) -> list[tuple[At, str, str]]:
    """When a loss became known, or after it that pods of the node are being deleted, with its reason and sentence."""
    found: dict[At, list[Uid]] = {}
    for uid, known in job.pods.lost.items():
        for at in _moments(known):
            found.setdefault(at, []).append(uid)
    return [(at, job.pods.lost[uids[0]].reason, _news_of(job, at, uids)) for at, uids in found.items()]


def _moments(known: LostNode) -> list[At]:
    deleted = known.terminating
    return [known.at] if deleted is None or deleted.sequence <= known.at.sequence else [known.at, deleted]


def _news_of(job: Job, at: At, uids: list[Uid]) -> str:
    """The sentence about the nodes of these pods at that event."""
    deletions = [job.pods.lost[uid].terminating for uid in uids]
    deleted = any(known is not None and known.sequence <= at.sequence for known in deletions)
    told = [_loss(job, pods) + (_way_out(job, pods) if deleted else "") for pods in _by_node(job, uids)]
    return text.first("; ".join(told))


def _by_node(job: Job, uids: Iterable[Uid]) -> list[list[PodView]]:
    """The pods of each node, in the order of their roles and indices."""
    nodes: dict[str, list[PodView]] = {}
    for uid in uids:
        if (pod := job.pods.views.get(uid)) is not None:
            nodes.setdefault(job.pods.lost[uid].node, []).append(pod)
    return [sorted(nodes[name], key=lambda pod: (pod.role, pod.index, pod.attempt)) for name in sorted(nodes)]


def _loss(job: Job, pods: list[PodView]) -> str:
    lost = job.pods.lost[pods[0].uid]
    state = "unreachable" if lost.reason == UNREACHABLE else "not ready"
    since = lost.since or f"{lost.at.time[:19]}Z"
    waits = "waits" if len(pods) == 1 else "wait"
    return f"{lost.reason}: node {lost.node} is {state} since {since}; {_named(pods)} {waits} for it"


def _way_out(job: Job, pods: list[PodView]) -> str:
    """How terminating pods of a lost node go: by force at a time, or by a command of a person."""
    held = [pod for pod in pods if pod.deleting]
    if not held:
        return ""
    known, one = job.pods.lost[held[0].uid], len(held) == 1
    told = f"; {_named(held)} {'is' if one else 'are'} being deleted, which only a kubelet ends"
    seconds, kept = force_delay(job, held[0], known), _kept(job, held)
    if seconds is not None and known.terminating is not None:
        return f"{told}, and by force {seconds} s after {known.terminating.clock} at the earliest{kept}"
    names = " ".join(pod.name for pod in held[: text.MOST_NAMED]) + (" ..." if held[text.MOST_NAMED :] else "")
    # The kubelet of a node that is not ready is there, and may yet end them.
    when = "its machine is off for good" if known.reason == UNREACHABLE else f"{'it stays' if one else 'they stay'}"
    return f"{told}; if {when}: {forced_deletion(job.key.namespace, names)}{kept}"


def _kept(job: Job, held: list[PodView]) -> str:
    """Which finalizers keep a pod when no kubelet has to end it any more."""
    kept = [pod for pod in held if pod.finalizers]
    if not kept:
        return ""
    first, more = kept[0], f", and {len(kept) - 1} more" if kept[1:] else ""
    way_out = without_finalizers(job.key.namespace, "pod", first.name, first.finalizers)
    return f"; {first.name} stays even then: {way_out}{more}"


def _named(pods: list[PodView]) -> str:
    return text.named([pod.name for pod in pods])


LEAVE_BEFORE_SECONDS = 15
"""How long before the end of its node a worker leaves: the launcher loads the files, and the worker drains."""


class Warned(NamedTuple):
    """What people are told of pods whose node goes."""

    at: At
    """When that became known."""
    reason: str
    sentence: str
    role: str


def may_stay(job: Job, uid: Uid) -> list[tuple[At, int]]:
    """How long the worker may stay a member, in seconds from each notice; it leaves by the first of them that is over.

    Empty if it leaves at once.
    """
    pod = job.pods.views.get(uid)
    found = [(known.at, known.seconds - LEAVE_BEFORE_SECONDS) for known in job.pods.notices.get(uid, ())]
    return found if pod is not None and not pod.disruption and all(seconds > 0 for _, seconds in found) else []


def notice_timer(seconds: int) -> str:
    return f"{NOTICE}{seconds}"


def in_time(job: Job) -> SortedSet[Slot]:
    """The slots of workers that leave, and may stay for now."""
    ahead = job.attempt.replaced_ahead
    if not (job.pods.notices or ahead):
        return SortedSet()
    workers = job.attempt.workers
    announced = [
        pod.slot
        for uid in job.pods.notices
        if (pod := job.pods.views[uid]).slot in workers
        and (limits := may_stay(job, uid))
        and not any(passed(job, at.sequence, notice_timer(seconds)) for at, seconds in limits)
    ]
    # Those whose notice was withdrawn wait for their replacements alone.
    staying = [pod.slot for uid, pod in job.pods.views.items() if pod.slot in ahead and uid not in job.pods.disrupted]
    return SortedSet([*announced, *(slot for slot in staying if slot in workers)])


def of_notices(job: Job) -> list[Warned]:
    """Of the pods that nothing replaces before their node goes: of a launcher, and where a name is taken till then."""
    if job.over or job.spec is None:
        return []
    handling = job.spec.handling
    found: dict[tuple[str, str, At], list[PodView]] = {}
    for uid, known in job.pods.notices.items():
        pod = job.pods.views[uid]
        if alive(pod) and pod.slot in job.attempt.slots and (handling.in_place or pod.role == LAUNCHER):
            found.setdefault((pod.role, pod.node, known[-1].at), []).append(pod)
    return [
        _warned(job, handling, sorted(pods, key=lambda pod: pod.slot)) for _, pods in sorted(found.items(), key=_newest)
    ]


def _newest(found: tuple[tuple[str, str, At], list[PodView]]) -> tuple[int, str, str]:
    (role, node, at), _ = found
    return at.sequence, node, role


def _warned(job: Job, handling: Handling, pods: list[PodView]) -> Warned:
    """Of pods of one role on one node."""
    first, one = pods[0], len(pods) == 1
    known, reason = job.pods.notices[first.uid][-1], job.pods.disrupted.get(first.uid, "")
    when = f" {known.seconds} s after {known.at.clock}" if known.seconds else ""
    said = f"{reason}: node {first.node} goes{when}, and {text.named([pod.name for pod in pods])} with it; "
    if first.role == handling.leader and handling.restarts == "Job":
        return Warned(known.at, reason, f"{said}the next attempt begins then, and counts against no limit", first.role)
    said += "a replacement has its name, and is made" if one else "replacements have their names, and are made"
    said += f" once {'it is' if one else 'they are'} gone"
    if handling.elastic and first.role == WORKER:
        before = f"{LEAVE_BEFORE_SECONDS} s before" if may_stay(job, first.uid) else "at once"
        said += f"; {'it leaves' if one else 'they leave'} the members {before}"
    return Warned(known.at, reason, said, first.role)


def to_replace(job: Job) -> SortedSet[Slot]:
    """The members of a running job for which a replacement is to be made ahead.

    A kind that replaces workers under their names cannot: the name is taken until the worker is gone.
    """
    if job.spec is None or not job.spec.handling.elastic or job.spec.handling.in_place:
        return SortedSet()
    if not job.spec.has(WORKER):
        # An edit removed the role and its pod template.
        return SortedSet()
    if job.status.phase not in ("Running", "Scaling"):
        return SortedSet()
    staying = in_time(job) - job.attempt.replaced_ahead - job.scaling.arriving - job.outgoing
    return SortedSet(slot for slot in staying if slot.index in job.listed_workers)


SHORTEST_SECONDS = 120
"""The shortest time that a launcher waits: a cluster may make a node for it within that."""

SPREAD_SECONDS = 120
"""The waits of jobs differ by up to this."""

MOST_ATTEMPTS = 20
"""So many attempts in a row without a node for the launcher end the job.

With the waits and the back-offs that is more than two hours: jobs that only wait for one another, for new nodes or for
a drain find a place in that time.  Each attempt makes all workers anew, and holds their places without training.
"""


REPLACED_SECONDS = 15
"""How long a training that lost its minimum waits for nodes: the kube-scheduler looks again within ten seconds."""


def has_no_place(job: Job) -> bool:
    """True if the kube-scheduler finds no node for the launcher of an attempt that starts."""
    launcher = job.launcher if job.starting else None
    return launcher is not None and alive(launcher) and launcher.reason == UNSCHEDULABLE


def launcher_wait(job: Job) -> int | None:
    """Seconds that the launcher, or a minimum, waits for nodes; None if it waits for ever, or not at all."""
    if job.attempt.launcher_waits is None or job.between_attempts or job.over or not job.attempt.workers:
        return None
    if not job.starting:
        return REPLACED_SECONDS
    if job.spec is None or job.spec.scheduling_timeout_seconds is not None:
        return None
    return SHORTEST_SECONDS + crc32(f"{job.key.uid}/{job.attempt.number}".encode()) % SPREAD_SECONDS


def never_placed(job: Job) -> Verdict | None:
    """The launcher, or a minimum, found no nodes in that time: the next attempt counts against no limit but its own."""
    since, limit = job.attempt.launcher_waits, launcher_wait(job)
    if since is None or limit is None or not passed(job, since.sequence, LAUNCHER_WAIT):
        return None
    held, because = text.counted(len(job.attempt.workers), "worker"), causes.timer(job, since.sequence, LAUNCHER_WAIT)
    if not has_no_place(job):
        told = reasons.told(reasons.ENDS, reasons.NO_ROOM, minimum=text.counted(needed_workers(job), "worker"))
        return Verdict(False, reasons.NO_ROOM, told, disrupted=True, because=because)
    if _is_last(job):
        reason = reasons.LAUNCHER_NEVER_PLACED
        told = reasons.told(reasons.ENDS, reason, attempts=MOST_ATTEMPTS, seconds=limit, held=held)
        return Verdict(False, reason, told, permanent=True, because=because)
    told = reasons.told(reasons.ENDS, reasons.LAUNCHER_UNSCHEDULABLE, seconds=limit, held=held)
    return Verdict(False, reasons.LAUNCHER_UNSCHEDULABLE, told, disrupted=True, because=because)


def _is_last(job: Job) -> bool:
    return job.retries.unplaced + 1 >= MOST_ATTEMPTS


def of_launcher_wait(job: Job) -> tuple[At, str, str] | None:
    """Since when the launcher, or the minimum, waits for a node, the reason and a sentence; None while it does not."""
    since, limit, launcher = job.attempt.launcher_waits, launcher_wait(job), job.launcher
    if since is None or limit is None:
        return None
    if launcher is None or not has_no_place(job):
        reason, least = reasons.NO_ROOM, text.counted(needed_workers(job), "worker")
        said = f"{reason}: fewer than {least} (minReplicas) find a node, and they hold theirs"
        return since, reason, f"{said}; {limit} s after {since.clock} they are given back, and the job waits for room"
    held = text.counted(len(job.attempt.workers), "worker")
    reason = reasons.LAUNCHER_UNSCHEDULABLE
    said = f"{reason}: {launcher.name} finds no node while {held} of its job hold theirs"
    follows = f"another attempt follows ({job.retries.unplaced + 2} of {MOST_ATTEMPTS} in a row)"
    then = f"the job ends: it is the {MOST_ATTEMPTS}th attempt in a row" if _is_last(job) else follows
    return since, reason, f"{said}; {limit} s after {since.clock} they are given back, and {then}"
