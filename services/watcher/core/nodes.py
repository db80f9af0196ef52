"""What is recorded of the nodes of a job's pods: that they are about to go, lost, or back.  Pure.

`disruption.py` says which signs of a node count.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from services.watcher.core.cache import Cache
from shared.job.events import watcher
from shared.job.events.catalog import Fact
from shared.job.naming import Uid
from shared.job.policies import nodes
from shared.job.state import Job
from shared.job.views import ended

K = TypeVar("K", str, tuple[str, str, int], tuple[str, str, str])

UIDS_PER_EVENT = 4_000
"""The most uids in one event: with 40 bytes each they stay below the log's limit."""


def announced(job: Job, cache: Cache) -> Iterator[Fact]:
    """The notice that the node of pods is about to be removed, and once more if it goes sooner than was announced."""
    if not cache.ending_nodes or job.over or not (cache.pods.listed and cache.nodes.listed):
        return
    found: dict[tuple[str, str, int], list[Uid]] = {}
    for uid, pod in cache.pods_of(job.key).items():
        # The fold ignores a notice for an unknown pod.
        there = uid in job.pods.views and pod.slot in job.attempt.slots
        if there and (seen := cache.notice(pod)) and _is_news(job, uid, seen.notice):
            found.setdefault((pod.node, seen.reason, seen.notice), []).append(uid)
    for (node, reason, seconds), uids in _in_parts(found):
        yield watcher.DisruptionNoticed(node=node, uids=uids, reason=reason, seconds=seconds)


def withdrawn(job: Job, cache: Cache) -> Iterator[Fact]:
    """The pods whose node stays after all, of those that were not released."""
    if not job.pods.notices or job.over or not (cache.pods.listed and cache.nodes.listed):
        return
    found: dict[str, list[Uid]] = {}
    for uid, pod in cache.pods_of(job.key).items():
        waits = uid in job.pods.notices and pod.slot in job.attempt.slots and not (pod.disruption or pod.deleting)
        # The fold keeps the notice of a pod that it knows as evicted, until it knows that it is not.
        waits = waits and not job.pods.views[uid].disruption
        if waits and ("", pod.node) in cache.nodes and cache.notice(pod) is None:
            found.setdefault(pod.node, []).append(uid)
    for name, uids in _in_parts(found):
        yield watcher.NodeBack(node=name, uids=uids, stays=True)


def _is_news(job: Job, uid: Uid, seconds: int) -> bool:
    known = job.pods.notices.get(uid)
    return seconds < known[-1].seconds if known else uid not in job.pods.disrupted


def lost(job: Job, cache: Cache, force_after: int | None) -> Iterator[Fact]:
    """The pods whose node is lost, or back; a node that is lost for another reason is recorded again."""
    if (
        not cache.pods.listed
        or not (cache.nodes.listed or cache.without_nodes)
        or not (cache.any_lost or job.pods.lost)
    ):
        return
    gone: dict[tuple[str, str, str], list[Uid]] = {}
    back: dict[str, list[Uid]] = {}
    for uid, pod in cache.pods_of(job.key).items():
        if uid not in job.pods.views:
            continue
        known, node = job.pods.lost.get(uid), cache.lost_node(pod)
        if node is None:
            # A node that was deleted does not come back.  Where nodes are not seen, a Ready pod says that its node is.
            if known is not None and (("", pod.node) in cache.nodes or (cache.without_nodes and pod.ready)):
                back.setdefault(pod.node, []).append(uid)
        elif (known is None or known.reason != node.lost) and (pod.deleting or not ended(pod)):
            gone.setdefault((pod.node, node.lost, node.since), []).append(uid)
    for (name, reason, since), uids in _in_parts(gone):
        yield watcher.NodeLost(node=name, uids=uids, reason=reason, since=since, force_after=force_after)
    for name, uids in _in_parts(back):
        yield watcher.NodeBack(node=name, uids=uids)


def still_lost(job: Job, cache: Cache) -> bool:
    """True if the cache shows that every pod that waits for its forced deletion is on a lost node, or a deleted one."""
    seen = [cache.pods_of(job.key).get(pod.uid) for pod, _, _ in nodes.stuck(job)]
    return all(
        pod is not None
        and (cache.lost_node(pod) is not None or (cache.nodes.listed and ("", pod.node) not in cache.nodes))
        for pod in seen
    )


def _in_parts(found: Mapping[K, list[Uid]]) -> Iterator[tuple[K, tuple[Uid, ...]]]:
    """The keys and their uids in order, as many of these as one event takes at a time."""
    for key in sorted(found):
        uids = sorted(found[key])
        for start in range(0, len(uids), UIDS_PER_EVENT):
            yield key, tuple(uids[start : start + UIDS_PER_EVENT])
