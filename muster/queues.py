"""A job in a queue of Kueue: its Workload, which decides when the job runs.

The label `kueue.x-k8s.io/queue-name` of a job names its queue.  Kueue suspends and resumes such a job, so a person's
pause goes to the Workload.  All is read and written with the rights of the person who asks; no service does.
"""

from collections.abc import Iterable
from typing import Any

from muster.following import condition_of, status_of
from muster.jobs import PAUSED, objects, value_at, wants_pause
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Refused, Transient
from shared.frameworks.queueing import JOB_UID, QUEUE, WORKLOADS
from shared.telling.targets import Target


def queue_of(job: Custom) -> str:
    """The name of the job's queue; empty if it is in none."""
    return (job.metadata.labels or {}).get(QUEUE, "")


async def workload_of(cluster: Cluster, job: Custom) -> Custom | None:
    """The job's Workload that is not over: the newest with quota, before a larger one that waits; None without one.

    Raises `Refused` without the right to list Workloads.
    """
    return _going(await _workloads(cluster, job) or ())


async def _workloads(cluster: Cluster, job: Custom) -> tuple[Custom, ...] | None:
    """The job's Workloads; None if the cluster has no definition of them."""
    return await objects(cluster, WORKLOADS, job.metadata.namespace, f"{JOB_UID}={job.metadata.uid}")


def _going(workloads: Iterable[Custom]) -> Custom | None:
    going = [known for known in workloads if not _condition(known, "Finished")]
    return max(
        going,
        key=lambda known: (bool(_condition(known, "QuotaReserved")), known.metadata.creation_timestamp or ""),
        default=None,
    )


async def switch(cluster: Cluster, workload: Custom, *, active: bool) -> None:
    """Have Kueue take the job's quota back, or queue it again."""
    meta = workload.metadata
    patch = {"spec": {"active": active}, "metadata": {"uid": meta.uid}}
    await cluster.patch(WORKLOADS, meta.namespace, meta.name, patch)


def is_switched_off(workload: Custom) -> bool:
    return value_at(workload, ".spec.active") is False


def is_admitted(workload: Custom) -> bool:
    return bool(_condition(workload, "Admitted"))


def _condition(workload: Custom, kind: str, status: str = "True") -> dict[str, Any]:
    """The Workload's condition of that type, if it has this status; empty otherwise."""
    found = condition_of(status_of(workload), kind)
    return found if found.get("status") == status else {}


async def waits(cluster: Cluster, target: Target, job: Custom) -> str:
    """What a suspended job in a queue waits for, in one line; empty for any other job."""
    queue, asked = queue_of(job), wants_pause(job, target)
    if not queue or not (asked or target.phase(status_of(job)) in PAUSED):
        return ""
    try:
        workloads = await _workloads(cluster, job)
    except (Refused, Transient) as trouble:
        return f"it is in queue {queue}, and what it waits for there is in its Workload: {trouble}"
    if (workload := _going(workloads or ())) is not None:
        return of_workload(queue, workload)
    return without_workload(queue, target, asked=asked, defined=workloads is not None)


def without_workload(queue: str, target: Target, *, asked: bool, defined: bool) -> str:
    """What a suspended job without a Workload waits for; `asked` if its own spec asks for the pause.

    `defined` is False where Kueue's definitions are not installed.
    """
    ours = target.framework is not None and target.framework.is_queued
    if not defined and not (ours and asked):
        again = "" if ours else " and resume it"
        return (
            f"it is in queue {queue}, and Kueue's definitions are not there: install Kueue, "
            f"or take the label {QUEUE} off{again}"
        )
    if not ours:
        kind = f"{target.resource.kind}.{target.resource.version}.{target.resource.group}"
        return f"it is in queue {queue} and has no Workload: see that Kueue runs, and that it knows {kind}"
    if asked:
        # Kueue does not write into such a job.
        return f"a person suspended it, which gave its place in queue {queue} up"
    return f"it is in queue {queue} and has no Workload: see that Kueue runs and MUSTER_KUEUE is true"


def of_workload(queue: str, workload: Custom) -> str:
    """What a Workload in this queue waits for."""
    if is_switched_off(workload):
        return f"a person suspended it in queue {queue} (spec.active of Workload {workload.metadata.name} is false)"
    if is_admitted(workload):
        return f"queue {queue} has admitted it, and Kueue is about to resume it"
    if reserved := _condition(workload, "QuotaReserved"):
        return f"it has quota in queue {queue} and waits for its admission checks{_told(reserved)}"
    waiting, evicted = _condition(workload, "QuotaReserved", "False"), _condition(workload, "Evicted")
    before = f"; evicted{_told(evicted)}" if evicted else ""
    since = waiting.get("lastTransitionTime") or workload.metadata.creation_timestamp or ""
    return f"waits for quota in queue {queue} since {since}{_words(waiting)}{before}"


def _told(condition: dict[str, Any]) -> str:
    return f" since {condition.get('lastTransitionTime', '')}{_words(condition)}"


def _words(condition: dict[str, Any]) -> str:
    """Kueue's own message, in one line."""
    words = " ".join(str(condition.get("message") or "").split())
    return f": {words}" if words else ""
