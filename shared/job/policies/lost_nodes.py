"""Pods of lost nodes: who leaves the members meanwhile, when one is deleted by force, and what people are told.  Pure.

A silent node may come back, so nothing is destroyed for it: its workers leave the members of an elastic job, and come
back with it.  What follows is Kubernetes' decision: it deletes the pods after their toleration, five minutes unless
their template says otherwise.  Then no kubelet ends them.  They count as gone, and hold their names until the node is
back or a forced deletion takes them away.
"""

from collections.abc import Iterable, Iterator

from shared.job import text
from shared.job.events.event import At
from shared.job.lost_nodes import NEVER, UNREACHABLE, LostNode
from shared.job.naming import Slot, Uid
from shared.job.sorted_set import SortedSet
from shared.job.state import Job
from shared.job.timers import FORCED_DELETION, passed
from shared.job.views import PodView
from shared.job.ways_out import forced_deletion, without_finalizers


def silent(job: Job) -> SortedSet[Slot]:
    """The slots whose pod is on a lost node."""
    if not job.lost:
        return SortedSet()
    return SortedSet(pod.slot for uid in job.lost if (pod := job.pods.get(uid)) is not None)


def away(job: Job) -> SortedSet[Slot]:
    """Workers of lost nodes, which leave the members of an elastic job.

    None if no other member is left: it may be the control plane that is cut off, and the workers train on.
    """
    slots = silent(job)
    others = any(job.attempt.worker_slot(index) not in slots for index in job.listed_workers) if slots else False
    return slots if others else SortedSet()


def stuck(job: Job) -> Iterator[tuple[PodView, LostNode, At]]:
    """The pods that are being deleted on lost nodes, and since when."""
    for uid, known in job.lost.items():
        pod = job.pods.get(uid)
        if pod is not None and known.terminating is not None:
            yield pod, known, known.terminating


def force_delay(job: Job, pod: PodView, known: LostNode) -> int | None:
    """Seconds from the deletion of a stuck pod to its forced deletion; None if nothing deletes it by force."""
    own = job.spec.force_delete_after if job.spec is not None else None
    after = known.force_after if own is None else own
    return None if after is None or after == NEVER else pod.grace + after


def timer_name(seconds: int) -> str:
    return f"{FORCED_DELETION}{seconds}"


def forced(job: Job) -> list[PodView]:
    """The stuck pods whose time is over."""
    return [
        pod
        for pod, known, since in stuck(job)
        if (seconds := force_delay(job, pod, known)) is not None and passed(job, since.sequence, timer_name(seconds))
    ]


def sentences(job: Job) -> list[str]:
    """What waits for which lost node since when, and the way out; one sentence for each node."""
    return [f"{_loss(job, pods)}{_way_out(job, pods)}" for pods in _by_node(job, job.lost)]


def news(job: Job) -> list[tuple[At, str, str]]:
    """When a loss became known, or after it that pods of the node are being deleted, with its reason and sentence."""
    found: dict[At, list[Uid]] = {}
    for uid, known in job.lost.items():
        for at in _moments(known):
            found.setdefault(at, []).append(uid)
    return [(at, job.lost[uids[0]].reason, _told(job, at, uids)) for at, uids in found.items()]


def _moments(known: LostNode) -> list[At]:
    deleted = known.terminating
    return [known.at] if deleted is None or deleted.sequence <= known.at.sequence else [known.at, deleted]


def _told(job: Job, at: At, uids: list[Uid]) -> str:
    """The sentence about the nodes of these pods at that event."""
    deletions = [job.lost[uid].terminating for uid in uids]
    deleted = any(known is not None and known.sequence <= at.sequence for known in deletions)
    told = [_loss(job, pods) + (_way_out(job, pods) if deleted else "") for pods in _by_node(job, uids)]
    return text.first("; ".join(told))


def _by_node(job: Job, uids: Iterable[Uid]) -> list[list[PodView]]:
    """The pods of each node, in the order of their roles and indices."""
    nodes: dict[str, list[PodView]] = {}
    for uid in uids:
        if (pod := job.pods.get(uid)) is not None:
            nodes.setdefault(job.lost[uid].node, []).append(pod)
    return [sorted(nodes[name], key=lambda pod: (pod.role, pod.index, pod.attempt)) for name in sorted(nodes)]


def _loss(job: Job, pods: list[PodView]) -> str:
    lost = job.lost[pods[0].uid]
    state = "unreachable" if lost.reason == UNREACHABLE else "not ready"
    since = lost.since or f"{lost.at.time[:19]}Z"
    waits = "waits" if len(pods) == 1 else "wait"
    return f"{lost.reason}: node {lost.node} is {state} since {since}; {_names(pods)} {waits} for it"


def _way_out(job: Job, pods: list[PodView]) -> str:
    """How terminating pods of a lost node go: by force at a time, or by a command of a person."""
    held = [pod for pod in pods if pod.deleting]
    if not held:
        return ""
    known, one = job.lost[held[0].uid], len(held) == 1
    told = f"; {_names(held)} {'is' if one else 'are'} being deleted, which only a kubelet ends"
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


def _names(pods: list[PodView]) -> str:
    return text.named([pod.name for pod in pods])
