"""Renders the status of TrainingJob, ScaleIn and ScaleOut as et-operator does.  Pure.

The documents lack `history` and `lastReconcileTime`, because a change of these alone is not written.
`None` marks a field to remove.
"""

from typing import Any

from shared.job.conditions import Condition
from shared.job.losses import Tally
from shared.job.naming import JOB_ROLE, JOB_UID, NO_UID
from shared.job.request import Request
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.views import alive

Document = dict[str, Any]


def job_status(job: Job) -> Document:
    """The status of the job's own resource."""
    workers = sorted(slot.index for slot in job.attempt.workers)
    target = [index for index in workers if index not in _leaving(job)]
    request = job.scaling.open_request
    return {
        "phase": job.phase,
        "conditions": [condition(known) for known in job.conditions],
        "replicaStatuses": {"Launcher": counts(job, LAUNCHER), "Worker": counts(job, WORKER)},
        "startTime": whole_seconds(job.start_time),
        "completionTime": whole_seconds(job.completion_time),
        "currentScaler": _scaler(job, request) if request is not None else None,
        "restartCount": job.restarts,
        "targetWorkers": [job.worker_name(index) for index in target],
        "currentWorkers": [job.worker_name(index) for index in sorted(job.listed_workers)] if not job.over else [],
        "observedGeneration": job.generation,
        "replicas": len(workers),
        # Only the workers: an autoscaler takes the mean over all selected pods.
        "selector": f"{JOB_UID}={job.key.uid},{JOB_ROLE}={WORKER}",
        "workers": f"{0 if job.over else len(job.listed_workers)}/{len(target)}",
    }


def _scaler(job: Job, request: Request) -> str | None:
    """The object of the open request; an edit of the job has none."""
    return f"{request.kind}:{job.key.namespace}/{request.name}" if request.resize is None else None


def request_status(job: Job, request: Request) -> Document:
    """The status of a scale request in `job`'s history."""
    conditions = [condition(known) for known in request.conditions]
    # A request has no replicas; et-operator's own definition takes no status without this field.
    document: Document = {"phase": _request_phase(request), "conditions": conditions, "replicaStatuses": {}}
    if request.phase == "Pending" and (reason := waiting_for(job, request)):
        created = request.conditions[0]
        document["phase"] = "Pending"
        conditions.append(condition(Condition("Pending", True, reason, "", created.since, created.updated)))
    if request.kind == "ScaleIn":
        document["toDeletePods"] = [job.worker_name(member.index) for member in request.leaving]
    else:
        document["addPods"] = [job.worker_name(slot.index) for slot in sorted(request.added)]
    return document


def waiting_for(job: Job, request: Request) -> str:
    """Why a pending request waits; empty if it is the next."""
    if job.key.uid == NO_UID:
        return request.problems[0].reason if request.problems else "JobNotFound"
    if job.scaling.open:
        return "AnotherRequestRuns"
    if job.phase in ("", "Created", "Restarting", "Suspending", "Suspended"):
        return "JobNotRunning"
    ahead = next((other for other in job.scaling.requests.values() if other.phase == "Pending"), None)
    return "" if ahead is request else "AnotherRequestWaits"


def condition(known: Condition) -> Document:
    """One condition in Kubernetes' shape."""
    return {
        "type": known.type,
        "status": "True" if known.status else "False",
        "reason": known.reason,
        "message": known.message,
        "lastUpdateTime": whole_seconds(known.updated.time),
        "lastTransitionTime": whole_seconds(known.since.time),
    }


def whole_seconds(time: str) -> str | None:
    """Kubernetes' `metav1.Time` counts whole seconds; events count milliseconds."""
    return f"{time[:19]}Z" if time else None


def _request_phase(request: Request) -> str:
    return {"Pending": "Created", "Scaling": "Scaling", "Succeeded": "ScaleSucceeded", "Failed": "ScaleFailed"}[
        request.phase
    ]


def _leaving(job: Job) -> SortedSet[int]:
    request = job.scaling.open_request
    asked = [member.index for member in request.leaving] if request is not None else []
    return job.leaving | asked


def counts(job: Job, role: str) -> Document:
    """The numbers of a role's running and ended pods in this attempt."""
    tally = job.attempt.tallies.get(role, Tally())
    running = sum(
        1
        for pod in job.pods.values()
        if pod.role == role and pod.phase == "Running" and alive(pod) and pod.slot in job.attempt.slots
    )
    return {"active": running, "succeeded": tally.succeeded, "failed": tally.failed}
