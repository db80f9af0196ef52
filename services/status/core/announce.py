"""Kubernetes Events: what a person reading `kubectl describe` should hear of.  Pure.

Each tells of one log event and is named after it, so none speaks of what did not happen, and none comes twice.
"""

from collections.abc import Mapping

from services.status.core.effects import Announce
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.training import REQUESTS
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.losses import Failure
from shared.job.milestones import MILESTONES
from shared.job.naming import Uid
from shared.job.request import Request
from shared.job.state import Job, Refusal
from shared.job.steps import Step

_OF_JOB = (
    "WorkersCreated",
    "Running",
    "Restarting",
    "Suspended",
    "Succeeded",
    "Failed",
    "ScaleSucceeded",
    "ScaleFailed",
)
"""Conditions of a job that are announced; the reasons are et-operator's, with the name of the job's kind, unless its
framework has others."""

_CREATED = ("CreatePod", "CreateService")
"""Effects whose refusal some kinds have a word for."""

_OF_REQUEST = ("Scaling", "ScaleSucceeded", "ScaleFailed")


def owed(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    """Every announcement that this job's conditions, failures and refusals call for."""
    words = kinds.of(job).announcements if kinds.knows(job) else {}
    refused = {effect: job.refusals[effect] for effect in _CREATED if effect in job.refusals and "Refused" in words}
    steps: list[Step] = []
    for condition in job.conditions:
        if condition.status and condition.type in _OF_JOB:
            reason = words.get(condition.type) or _reason(job, condition)
            steps.append(_tell(job.api_version, job.kind, job.key.name, job.key.uid, condition, reason))
        elif any(condition.reason == refusal.reason for refusal in refused.values()):
            # Told of below, in the kind's own word.
            continue
        elif _hindered(job, condition):
            steps.append(
                _tell(job.api_version, job.kind, job.key.name, job.key.uid, condition, condition.reason, warning=True)
            )
    steps += [
        _of_failures(job, at, [failure for failure in job.failures if failure.at == at], words)
        for at in dict.fromkeys(failure.at for failure in job.failures)
    ]
    steps += [_of_refusal(job, effect, refusal, words["Refused"]) for effect, refusal in refused.items()]
    requests = [request for request in job.scaling.requests.values() if request.shown]
    return [*steps, *(step for request in requests for step in _of_request(request))]


def _hindered(job: Job, condition: Condition) -> bool:
    """It tells why the job does not get on, or why the newest edit of a job that runs is not followed."""
    if condition.type == "Created" and job.problems:
        return True
    return not condition.status and condition.type in ("Created", *MILESTONES) and bool(condition.message)


def _reason(job: Job, condition: Condition) -> str:
    match condition.type:
        case "ScaleSucceeded" | "ScaleFailed":
            return condition.reason
        case "WorkersCreated":
            return f"{job.kind}WorkerCreated"
        case _:
            return f"{job.kind}{condition.type}"


def _of_refusal(job: Job, effect: str, refusal: Refusal, reason: str) -> Announce:
    where = f" ({refusal.field})" if refusal.field else ""
    message = f"{effect}: {refusal.reason}{where}"
    at = refusal.at
    return Announce(
        job.api_version, job.kind, job.key.name, job.key.uid, at.sequence, at.time, reason, message, warning=True
    )


def _of_failures(job: Job, at: At, failures: list[Failure], words: Mapping[str, str]) -> Announce:
    first = failures[0]
    how = f" (exit code {first.code})" if first.code is not None else ""
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    message = f"{first.pod}: {first.reason}{how}{more}"
    return Announce(
        job.api_version,
        job.kind,
        job.key.name,
        job.key.uid,
        at.sequence,
        at.time,
        words.get("WorkerFailed", f"{job.kind}WorkerFailed"),
        message,
        warning=True,
    )


def _of_request(request: Request) -> list[Step]:
    return [
        _tell(REQUESTS[request.kind].api_version, request.kind, request.name, request.uid, condition, condition.reason)
        for condition in request.conditions
        if condition.status and condition.type in _OF_REQUEST
    ]


def _tell(
    api_version: str, kind: str, name: str, uid: Uid, condition: Condition, reason: str, *, warning: bool = False
) -> Announce:
    failed = warning or condition.type in ("Failed", "ScaleFailed")
    why = condition.message or condition.reason
    # A condition may be updated without changing; what happened, happened when it changed.
    at = condition.updated if warning else condition.since
    return Announce(
        api_version, kind, name, uid, at.sequence, at.time, reason, f"{condition.type}: {why}", warning=failed
    )
