"""Decides which Kubernetes Events to create, for readers of `kubectl describe`.  Pure.

Each is named after one event of the log: none is created twice, and none says what did not happen.
"""

from collections.abc import Container, Mapping

from services.status.core.effects import Announce
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import REQUESTS
from shared.job import reasons, text
from shared.job.attempt import Failure, was_deleted
from shared.job.conditions import Condition
from shared.job.events.event import At
from shared.job.policies import nodes
from shared.job.scaling import Request
from shared.job.spec import Ignored
from shared.job.state import Job, Refusal
from shared.job.steps import Step
from shared.job.waiting import Wait, told

_OF_JOB = (
    "WorkersCreated",
    "Running",
    "Restarting",
    "Suspending",
    "Suspended",
    "Succeeded",
    "Failed",
    "ScaleSucceeded",
    "ScaleFailed",
)
"""Conditions of a job that get an Event; the reasons are et-operator's with the job's kind, or the framework's own."""

_CREATED = ("CreatePod", "CreateService")
"""Effects whose refusal has a reason of its own in some kinds."""

_UNTOLD = ("OwnRequest", "Announce")
"""Effects whose refusal the request tells, or that cannot be told so."""

_KUBERNETES_OWN = ("foregroundDeletion", "orphan")
"""Finalizers of the garbage collector."""

_OF_REQUEST = ("Scaling", "ScaleSucceeded", "ScaleFailed")

_TOO_LATE = reasons.without_effect(
    [Ignored(field="the edit", message="the job is over; delete it and create it again to run it once more")]
)

_FAILURES = ("Failed", "ScaleFailed")


def announcements(job: Job, kinds: Kinds = BUILT_IN) -> list[Step]:
    words = kinds.of(job).announcements if kinds.knows(job) else {}
    refused = {
        effect: job.efforts.refusals[effect]
        for effect in _CREATED
        if effect in job.efforts.refusals and "Refused" in words
    }
    steps: list[Step] = []
    for condition in job.status.conditions:
        if condition.status and condition.type in _OF_JOB:
            reason, message = words.get(condition.type) or _reason(job, condition), _message(job, condition)
            # An update without a change does not move the Event's time.
            steps.append(_of_job(job, condition.since, reason, message, warning=condition.type in _FAILURES))
        elif condition.type == "Created" and job.resource.problems:
            # Why it does not begin, or why its newest edit has no effect.
            steps.append(_of_job(job, condition.updated, condition.reason, condition.message, warning=True))
    # The pods of a deleted job end with it: none of them failed.
    failures = [
        known
        for known in job.status.failures
        if job.resource.deletion is None or known.at.sequence < job.resource.deletion.sequence
    ]
    steps += [
        _of_failures(job, at, [failure for failure in failures if failure.at == at], words)
        for at in dict.fromkeys(failure.at for failure in failures)
    ]
    steps += [_of_refusal(job, effect, refusal, words["Refused"]) for effect, refusal in refused.items()]
    steps += _of_nodes(job)
    wait = told(job)
    if wait is not None and wait.effect not in refused and not (wait.lost and _has_own_event(job, wait)):
        steps.append(_of_job(job, wait.since, wait.reason, wait.message, warning=True))
    steps += _of_other_refusals(job, (*refused, wait.effect if wait is not None else ""), wait)
    steps += _of_ignored(job)
    steps += _of_deletion(job)
    return [*steps, *of_requests(job)]


def of_requests(job: Job) -> list[Step]:
    """The Events of the requests; for those whose job did not come there is no other."""
    requests = [request for request in job.scaling.requests.values() if request.shown]
    return [step for request in requests for step in _of_request(request)]


def _has_own_event(job: Job, wait: Wait) -> bool:
    """True if the loss for which a job waits has an Event as the failure of a pod, or as the loss of a node."""
    if wait.slot is None:
        return True
    vacancy = job.attempt.vacancies.get(wait.slot)
    failures = (known for known in job.status.failures if vacancy is None or known.at == vacancy.at)
    return any(known.reason == wait.reason for known in failures)


def _reason(job: Job, condition: Condition) -> str:
    match condition.type:
        case "ScaleSucceeded" | "ScaleFailed":
            return condition.reason
        case "WorkersCreated":
            return f"{job.resource.kind}WorkerCreated"
        case _:
            return f"{job.resource.kind}{condition.type}"


def _message(job: Job, condition: Condition) -> str:
    if condition.type == "WorkersCreated":
        verb = "is" if condition.message.startswith("1 ") else "are"
        return reasons.told(reasons.PHASES, "{kind}WorkerCreated", pods=f"{condition.message} {verb}")
    return condition.message or reasons.of_job(job.resource.kind, condition.reason)


def _of_refusal(job: Job, effect: str, refusal: Refusal, reason: str) -> Announce:
    where = f" ({refusal.field})" if refusal.field and not refusal.message else ""
    message = text.with_words(f"{effect} was refused: {refusal.reason}{where}", refusal.message)
    return _of_job(job, refusal.at, reason, message, warning=True)


def _of_nodes(job: Job) -> list[Announce]:
    """A lost node when it is lost, and once more when its pods are being deleted; and that a node is about to go."""
    if job.over:
        # Its training has ended: no lost node delays it.
        return []
    news = nodes.losses(job)
    news += [(known.at, known.reason, known.sentence) for known in nodes.of_notices(job)]
    # One notice may concern pods of several roles, and an Event's name has its sequence and its reason alone.
    sentences: dict[tuple[At, str], list[str]] = {}
    for at, reason, sentence in news:
        sentences.setdefault((at, reason), []).append(sentence)
    messages = {moment: text.first("; ".join(filter(None, said))) for moment, said in sentences.items()}
    return [_of_job(job, at, reason, message, warning=True) for (at, reason), message in messages.items() if message]


def _of_other_refusals(job: Job, told: Container[str], wait: Wait | None) -> list[Announce]:
    """Those that neither the wait nor an Event of the kind's own tells, each once for as long as it lasts."""
    others = [known for key, known in job.efforts.refusals.items() if key not in told and known.effect not in _UNTOLD]
    # A Service and a pod are refused for one misspelt field in the same words.
    first = {(known.reason, known.sentence): known for known in reversed(others)}
    if wait is not None:
        first.pop((wait.reason, wait.message), None)
    return [_of_job(job, known.since, known.reason, known.sentence, warning=True) for known in first.values()]


def _of_ignored(job: Job) -> list[Announce]:
    """The fields without effect of an admitted job's spec, in one Event at its admission; an edit after its end."""
    edit = job.resource.late_edit
    late = [_of_job(job, edit, "FieldIgnored", _TOO_LATE, warning=True)] if edit is not None else []
    admitted = next((known.since for known in job.status.conditions if known.type == "Created" and known.status), None)
    if admitted is None or job.spec is None or not job.spec.ignored:
        return late
    told = text.first(reasons.without_effect(job.spec.ignored))
    return [_of_job(job, admitted, "FieldIgnored", told, warning=True), *late]


def _of_deletion(job: Job) -> list[Announce]:
    """A deletion that waits for finalizers of others; Kubernetes removes its own within a moment."""
    others = [name for name in job.resource.finalizers if name not in _KUBERNETES_OWN]
    if job.resource.deletion is None or not others:
        return []
    message = text.first(reasons.told(reasons.PHASES, "{kind}Deleting", finalizers=", ".join(others)))
    return [_of_job(job, job.resource.deletion, f"{job.resource.kind}Deleting", message, warning=True)]


def _of_failures(job: Job, at: At, failures: list[Failure], words: Mapping[str, str]) -> Announce:
    """The failures of one event of the log, with each of their reasons."""
    alike: dict[str, list[Failure]] = {}
    for known in failures:
        alike.setdefault(known.reason, []).append(known)
    most = text.LAST_WORDS_SHOWN // len(alike)
    message = text.ends("; ".join(_of_alike(same, most) for same in alike.values()))
    return _of_job(job, at, words.get("WorkerFailed", f"{job.resource.kind}WorkerFailed"), message, warning=True)


def _of_alike(failures: list[Failure], most: int) -> str:
    """Failures for one reason, with at most so many bytes of what the first of their containers said last."""
    first = failures[0]
    code = f" (exit code {first.code})" if first.code is not None else ""
    # What a pod that is deleted ends with is not why it went.
    how = f" {was_deleted(first.code)}" if first.deleted and code else f": {first.reason}{code}"
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    said = text.last_words(first.message, most)
    return ": ".join(filter(None, (f"{first.pod}{how}{more}", said)))


def _of_job(job: Job, at: At, reason: str, message: str, *, warning: bool) -> Announce:
    about = job.resource.api_version, job.resource.kind, job.key.name, job.key.uid
    return Announce(*about, at.sequence, at.time, reason, message, warning, at.logged)


def _of_request(request: Request) -> list[Step]:
    about = REQUESTS[request.kind].api_version, request.kind, request.name, request.uid
    return [
        Announce(
            *about,
            condition.since.sequence,
            condition.since.time,
            condition.reason,
            condition.message or request.wish or reasons.of_request(condition.reason) or condition.reason,
            condition.type in _FAILURES,
            condition.since.logged,
        )
        for condition in request.conditions
        if condition.status and condition.type in _OF_REQUEST
    ]
