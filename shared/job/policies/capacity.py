"""How many workers a job with elasticity trains with: as many as have a node, from minReplicas to its size; and when
workers of any job may join those that train.  Pure.

The pods of the whole size are made, and those without a node are the job's request for more.  So the kube-scheduler is
the model of capacity: no rule here counts what is free, or orders jobs.
"""

from collections.abc import Iterable

from shared.job import text
from shared.job.attempt import Members
from shared.job.events.event import At
from shared.job.naming import Slot
from shared.job.policies import nodes, quota
from shared.job.scaling import Request
from shared.job.sorted_set import SortedSet
from shared.job.spec import GROW_SECONDS, WORKER
from shared.job.state import Job, needed_workers
from shared.job.timers import GROW, SETTLE, passed
from shared.job.views import UNSCHEDULABLE, PodView, alive, occupies


def least_to_start(job: Job) -> int:
    """The number of Ready workers without which the training does not start."""
    return needed_workers(job) if job.elasticity is not None else len(job.attempt.workers)


def is_enough(job: Job, members: int) -> bool:
    """False if so few members are below the minimum of a job with elasticity: it never trains with them."""
    return job.elasticity is None or members >= needed_workers(job)


def may_start(job: Job, ready: SortedSet[Slot]) -> bool:
    """True if the first members may be these Ready workers: all of them, or enough and no more came for a while."""
    elasticity = job.elasticity
    if not is_enough(job, len(ready)):
        # All that are left may be too few, while lost ones wait for their replacements.
        return False
    if len(ready) == len(job.attempt.workers):
        return True
    if job.spec is None or elasticity is None:
        return False
    if not job.spec.has_launcher:
        # Its agents find each other, and the members only say which of them are there.
        return not job.starting
    return _settled(job)


def _settled(job: Job) -> bool:
    since, seconds = settle_wait(job)
    return bool(since) and (not seconds or passed(job, since, SETTLE))


def settle_wait(job: Job) -> tuple[int, int]:
    """The sequence at which enough workers were Ready, and for how many seconds more are awaited from then on.

    Both are 0 before, and without members to choose.
    """
    elasticity = job.elasticity
    if job.spec is None or elasticity is None or not job.spec.has_launcher or not job.starting:
        return 0, 0
    if not isinstance(job.membership, Members):
        reached = (known for known in job.status.conditions if known.type == "WorkersReady" and known.status)
        return next(((known.since.sequence, elasticity.settle_seconds) for known in reached), (0, 0))
    if not (job.membership.written and nodes.has_no_place(job)):
        return 0, 0
    # The launcher waits, and workers give their places back one after another.  The kube-scheduler takes its time, too,
    # once a pod has ended; one that its kubelet does not end in its grace period is not waited for.
    freed = (job.attempt.news.get(slot, 0) for slot in job.attempt.vacancies)
    grace = max((pod.grace for pod in _going(job, job.attempt.slots)), default=0)
    return max([job.membership.written, *freed]), elasticity.settle_seconds + grace


def may_join(job: Job, come: list[int], others: int) -> list[int]:
    """Those of these workers that may join that many `others` now.

    Workers of a job with elasticity join together, and not more often than it says; of any other job only those wait
    that come back, as on a node that is lost and found again and again.
    """
    if may_grow(job):
        return come
    if job.elasticity is not None:
        # Below its minimum a job does not train, and then joining is no growth.
        return come[: max(needed_workers(job) - others, 0)]
    back = _come_back(job)
    first = [index for index in come if index not in back]
    return first if first or others else come


def may_grow(job: Job) -> bool:
    """True if hosts files may be published for which no loss asks."""
    wait = growth_wait(job)
    return wait is None or passed(job, wait[0].sequence, GROW)


def growth_wait(job: Job) -> tuple[At, int] | None:
    """Since when, and for how many seconds, such hosts files wait; None if they may come at once."""
    members = job.membership
    if job.spec is None or not job.spec.handling.hosts_files or not isinstance(members, Members):
        return None
    if members.grew is None or not (job.elasticity is not None or members.edited or _come_back(job)):
        return None
    seconds = job.elasticity.grow_seconds if job.elasticity is not None else GROW_SECONDS
    # Without a bound Muster and the other client would change the files as fast as the API server answers.
    seconds = seconds or (GROW_SECONDS if job.hosts_edited else 0)
    return (members.grew, seconds) if seconds else None


def _come_back(job: Job) -> set[int]:
    """The workers that are no members, and whose pods were before."""
    left = {slot.index: departure.pod for slot, departure in job.departures.items() if departure.pod}
    listed, pods = job.listed_workers, job.worker_pods() if left else {}
    return {index for index in left if index not in listed and index in pods and pods[index].uid == left[index]}


def given_back(job: Job) -> SortedSet[Slot]:
    """The workers that give their places back while the launcher of a job with elasticity finds none.

    First those that are no members, with or without a node: the launcher comes before the wish for more.  Then one
    member after the other, down to the minimum; there `nodes.launcher_wait` bounds the wait.
    """
    if not yields(job) or not isinstance(job.membership, Members):
        return SortedSet()
    workers, listed = job.attempt.workers, job.listed_workers
    others = SortedSet(slot for slot in workers if slot.index not in listed)
    members = workers - others
    if len(members) <= needed_workers(job) or not _settled(job):
        return others
    # Until its deletion is seen, how long a pod takes is not known.
    asked = all(pod.deleting for pod in _going(job, job.attempt.slots - others))
    return others | [max(members)] if asked else others


def yields(job: Job) -> bool:
    """True while no worker of a job with elasticity is asked for, as its launcher has no place."""
    return job.elasticity is not None and nodes.has_no_place(job)


def within(job: Job, slots: Iterable[Slot]) -> list[Slot]:
    """Those of these slots without a pod that may get one now: a job may say how many of its pods wait for a node."""
    wanted = [*slots]
    most = job.elasticity.most_pending if job.elasticity is not None else None
    if most is None:
        return wanted
    placed = len(_placed(job))
    waiting = sum(alive(pod) and not pod.node for pod in job.worker_pods().values())
    room = max(max(most, needed_workers(job) - placed) - waiting, 0)
    workers = [slot for slot in wanted if slot.role == WORKER]
    return [slot for slot in wanted if slot.role != WORKER] + workers[:room]


def deciders(job: Job) -> list[str]:
    """Who decided how many workers a job trains with, each in its words: the one who asked, a queue, the room there is.

    The newest request of a person, a program or an autoscaler says the size, within minReplicas and maxReplicas; a
    queue says how much of it may have pods, and the kube-scheduler how many of these have a node.
    """
    size, requests = job.scaling.size, job.scaling.requests.values()
    if job.spec is None or not size or job.over or job.between_attempts:
        return []
    done = [known for known in requests if known.accepted and known.phase in ("Scaling", "Succeeded")]
    newest = max(done, key=lambda known: known.accepted, default=None)
    if quota.in_queue(job) and (wanted := quota.wanted_workers(job)) > size:
        # The next one waits for quota.
        size, newest = wanted, job.scaling.next_request
    asked = "its resource asks for" if newest is None else f"{_asker(newest)} asked for"
    found = [f"{asked} {text.counted(size, 'worker')}"]
    if (admitted := quota.most_workers(job, size)) < size:
        found.append(f"its queue admitted {admitted}")
    pods = job.worker_pods()
    if without := sum(finds_no_node(pods.get(slot.index)) for slot in job.attempt.workers):
        found.append(f"the kube-scheduler finds no node for {without}")
    return found


def _asker(request: Request) -> str:
    if request.resize is None:
        return f"{request.kind} {request.name}"
    return text.in_a_row([*map(str, request.by)]) or "its resource"


def takes_part(job: Job, request: Request) -> bool:
    """True if a scale-out takes those workers for which there is room, and lets the others wait for it."""
    return job.elasticity is not None or (request.spec is not None and request.spec.partial)


def finds_no_node(pod: PodView | None) -> bool:
    """True if the kube-scheduler finds no node for the pod."""
    return pod is not None and alive(pod) and not pod.node and pod.reason == UNSCHEDULABLE


def began(job: Job) -> bool:
    """True once the training had its minimum in this attempt."""
    return job.attempt.gathered or job.attempt.launched


def _placed(job: Job) -> list[PodView]:
    """The workers that have a node, without those that are about to lose it."""
    lost = job.pods.disrupted.keys() - {pod.uid for pod in _in_time(job)}
    pods, slots = job.worker_pods().values(), job.attempt.slots
    return [pod for pod in pods if pod.slot in slots and pod.node and alive(pod) and pod.uid not in lost]


def _in_time(job: Job) -> list[PodView]:
    """The workers whose node is announced to go, and that may stay for now."""
    slots = nodes.in_time(job)
    return [pod for pod in job.pods.views.values() if pod.slot in slots] if slots else []


def starves(job: Job) -> bool:
    """True if a job with elasticity holds places, fewer than its minimum, and there is no room for the others."""
    if job.elasticity is None or _going(job, job.attempt.slots):
        return False
    if not any(map(finds_no_node, job.worker_pods().values())):
        return False
    placed = len(_placed(job))
    return placed < needed_workers(job) and (placed > 0 or began(job))


def _going(job: Job, staying: SortedSet[Slot]) -> list[PodView]:
    """The pods of the job that go, and hold places on nodes that answer: others may wait for just these."""
    held = (pod for pod in job.pods.views.values() if pod.node and occupies(pod) and pod.uid not in job.pods.lost)
    return [pod for pod in held if pod.deleting or pod.slot not in staying]
