"""Renders the status of mx-operator and its relatives: phase, state, reason, and states by type.  Pure."""

from collections import Counter
from collections.abc import Iterator

from shared.frameworks.schemas import OPEN, TEXT, Document, members
from shared.job import text, waiting
from shared.job.policies import replacement
from shared.job.spec import RoleSpec, waits_for_turn
from shared.job.state import Job
from shared.job.views import alive

LONGEST_REASON = 1_024
"""Characters of a reason; the log has all of it."""

NOT_BEGUN = ("", "Failed")
"""Phases of a job without pods."""


def job_status(job: Job, *, type_field: str, waiting: str) -> Document:
    """`type_field` is the kind's field for the type of a replica, `waiting` its word for a pending pod."""
    return {
        "phase": phase(job),
        "state": state(job),
        "reason": reason(job),
        "result": result(job),
        "replicaStatuses": [
            {type_field: role.name.upper(), **_states(job, role, waiting)}
            for role in (job.spec.roles if job.spec is not None else ())
        ],
        "observedGeneration": job.resource.generation,
    }


def schema(type_field: str, **more: Document) -> Document:
    states = {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}}
    replicas = members({type_field: TEXT, "state": TEXT, "ReplicasStates": states}) | OPEN
    properties = {
        "phase": TEXT,
        "state": TEXT,
        "reason": TEXT,
        "result": members(
            {"pod": TEXT, "exitCode": {"type": "integer", "format": "int32"}, "message": TEXT},
            description="How the pod ended whose end is the job's.",
        ),
        "replicaStatuses": {"type": "array", "items": replicas},
        "observedGeneration": {"type": "integer", "format": "int64"},
    }
    return members(properties | more) | OPEN


def phase(job: Job) -> str:
    """Failed for a job that was never admitted; a job that ended is Done, and `state` has the outcome."""
    if job.deleting:
        return "CleanUp"
    match job.status.phase:
        case "":
            return "Failed" if _invalid(job) else ""
        case "Running" | "Scaling":
            return "Running"
        case "Succeeded" | "Failed":
            return "Done"
        case "Created" | "Restarting" | "Suspending" | "Suspended":
            return "Creating"


def phase_of(status: Document) -> str:
    """The phase that a status shows, as a `shared.job.state.Phase`."""
    match status.get("phase"), status.get("state"):
        case "Creating", _:
            return "Created"
        case "Running", _:
            return "Running"
        case "Done", ("Succeeded" | "Failed") as end:
            return str(end)
        case _:
            return ""


def state(job: Job) -> str:
    if job.over:
        return job.status.phase
    if not job.status.phase:
        return "Failed" if _invalid(job) else "Unknown"
    return "Running"


def _invalid(job: Job) -> bool:
    return bool(job.resource.problems) and not waits_for_turn(job.resource.problems)


def reason(job: Job) -> str:
    """The reason of the state as a sentence; empty for a healthy job."""
    if job.resource.problems and not job.over:
        first = job.resource.problems[0]
        return text.ends(": ".join(filter(None, (first.reason, first.field, first.message))), LONGEST_REASON)
    wait = waiting.told(job)
    if wait is not None and not job.over:
        return text.ends(wait.sentence, LONGEST_REASON)
    told = (
        known for known in job.status.conditions if known.type == job.status.phase and known.status and known.message
    )
    said = next((f"{known.reason}: {known.message}" for known in told), "")
    return text.ends("; ".join(filter(None, (said, wait.sentence if wait is not None else ""))), LONGEST_REASON)


def result(job: Job) -> Document | None:
    """How the pod ended whose end is the job's: its exit code, and its termination message if it has one.

    None while it runs, and if its exit was not seen.
    """
    leader = job.spec.handling.leader if job.spec is not None else ""
    ended = {slot: end for slot, end in job.attempt.vacancies.items() if slot.role == leader and end.code is not None}
    if not ended:
        return None
    slot = min(ended)
    message = text.last_words(ended[slot].message)
    found = {"pod": job.pod_name(slot), "exitCode": ended[slot].code}
    return found | ({"message": message} if message else {})


def successes(job: Job) -> int:
    return sum(vacancy.succeeded for vacancy in job.attempt.vacancies.values())


def _states(job: Job, role: RoleSpec, waiting: str) -> Document:
    known = Counter(_each_state(job, role, waiting))
    # Slots are unassigned before the first attempt, between attempts, and after the clean-up.
    unknown = role.replicas - known.total()
    if unknown > 0:
        known["Unknown"] += unknown
    return {"state": _together(known, waiting), "ReplicasStates": dict(sorted(known.items()))}


def _each_state(job: Job, role: RoleSpec, waiting: str) -> Iterator[str]:
    pods, replaced = job.by_slot(), replacement.replaceable(job) if not job.over else {}
    for slot in job.attempt.unreleased:
        if slot.role != role.name:
            continue
        vacancy, pod = job.attempt.vacancies.get(slot), pods.get(slot)
        if vacancy is not None:
            yield "Succeeded" if vacancy.succeeded else waiting if slot in replaced else "Failed"
        else:
            yield "Running" if pod is not None and alive(pod) and pod.phase == "Running" else waiting


def _together(known: Counter[str], waiting: str) -> str:
    for word in ("Failed", "Running", waiting):
        if known[word]:
            return word
    return "Succeeded" if known["Succeeded"] and known["Succeeded"] == known.total() else "Unknown"
