"""Renders the status of a TrainJob: Trainer's three conditions and the numbers of its jobs, besides Muster's.  Pure.

Upstream has the conditions Suspended, Complete and Failed, and its clients take a job without any for one that runs.
The others are Muster's: they say what a job waits for, and are absent while it runs and lacks nothing.
"""

import msgspec

from shared.frameworks.definition import Document
from shared.frameworks.framework import StatusRenderer
from shared.frameworks.statuses import condition, counts, newest_last, with_losses
from shared.frameworks.trainer_templates import at
from shared.job import waiting
from shared.job.conditions import Condition
from shared.job.naming import JOB_UID, ROLE
from shared.job.reasons import DEADLINE_EXCEEDED
from shared.job.spec import LAUNCHER, PASSING, RENDEZVOUS, WORKER, Problem
from shared.job.state import Job
from shared.job.views import occupies

TYPES = {
    "Created": "Created",
    "Running": "Running",
    "Restarting": "Restarting",
    "Suspending": "Suspending",
    "Suspended": "Suspended",
    "Succeeded": "Complete",
    "Failed": "Failed",
}
"""The conditions of a job that it shows, with their types here."""

OF_UPSTREAM = ("Suspended", "Complete", "Failed")

REASONS = {
    ("Suspended", True): ("Suspended", "TrainJob is suspended"),
    ("Suspended", False): ("Resumed", "TrainJob is resumed"),
    ("Succeeded", True): ("AllJobsCompleted", "TrainJob completed"),
    ("Failed", True): ("FailedJobs", "TrainJob failed"),
}
"""Upstream's reason and message of a condition, by its type in the log and its status."""


def train_job_status(framework: StatusRenderer, job: Job) -> Document:
    """The status of the job's resource."""
    shown = [_in_their_words(job, with_losses(job, known)) for known in waiting.conditions(job) if known.type in TYPES]
    if not job.phase:
        # A queue gives the quota of a failed job back.
        word = "Pending" if any(_may_go(problem) for problem in job.problems) else "Failed"
        refused = [known for known in shown if known.type == "Created" and not known.status]
        shown += [msgspec.structs.replace(known, type=word, status=True) for known in refused]
    shown = newest_last(shown)
    state = next((known for known in reversed(shown) if known.status), None)
    if state is not None and state.type == "Running" and not state.message:
        shown = [known for known in shown if known.type in OF_UPSTREAM]
    return {
        "phase": state.type if state is not None else "",
        "conditions": [condition(known) for known in shown],
        "jobsStatus": [_job_status(job, role) for role in _shown(job)],
        "replicas": len(job.attempt.workers),
        "selector": f"{JOB_UID}={job.key.uid},{ROLE}={WORKER}",
        "observedGeneration": job.generation,
    }


def _shown(job: Job) -> list[str]:
    """The roles that have a Job upstream."""
    return [role.name for role in job.spec.roles if role.name != RENDEZVOUS] if job.spec is not None else []


def _may_go(problem: Problem) -> bool:
    """True if the job begins without a change of its spec once the problem is gone, such as one of its runtime."""
    return problem.reason in PASSING or problem.field.startswith("runtime.")


def phase_of(status: Document) -> str:
    """The phase that a status shows; it raises nothing for any JSON."""
    conditions, jobs = status.get("conditions"), status.get("jobsStatus")
    true = [
        known.get("type")
        for known in (conditions if isinstance(conditions, list) else ())
        if isinstance(known, dict) and known.get("status") == "True"
    ]
    weighty = ("Failed", "Succeeded", "Suspended", "Suspending", "Restarting", "Running", "Created")
    active = any(at(job, "active") for job in (jobs if isinstance(jobs, list) else ()))
    if not true and (active or status.get("phase") == "Running"):
        # It runs and lacks nothing.  The definition of upstream has no field for the phase.
        return "Running"
    return next((phase for phase in weighty if TYPES[phase] in true and "Created" in true), "")


def _in_their_words(job: Job, known: Condition) -> Condition:
    theirs = REASONS.get((known.type, known.status))
    changed = msgspec.structs.replace(known, type=TYPES[known.type])
    if theirs is None:
        return changed
    reason, message = theirs
    if known.reason == DEADLINE_EXCEEDED:
        reason = known.reason
    told = [message, *(part for part in (known.reason, known.message) if part and known.type == "Failed")]
    if (wait := waiting.told(job)) is not None and (known.type, known.status) == (job.phase, True) and not told[1:]:
        told.append(wait.sentence)
    return msgspec.structs.replace(changed, reason=reason, message=": ".join(dict.fromkeys(told)))


def _job_status(job: Job, role: str) -> Document:
    """The numbers of child Jobs upstream, of which each replicated job has one: 0 or 1.

    It is active until its last pod has ended, also without its slot: a queue gives its quota back by that.
    """
    wanted = {slot for slot in job.attempt.unreleased if slot.role == role}
    pods = [pod for pod in job.pods.values() if pod.slot in wanted]
    done = counts(job, role)
    complete = bool(wanted) and done["succeeded"] >= len(wanted)
    failed = job.phase == "Failed" and done["failed"] > 0
    ready = sum(pod.ready or pod.phase == "Succeeded" for pod in pods)
    return {
        "name": LAUNCHER if role == LAUNCHER else "node",
        "ready": int(bool(wanted) and ready >= len(wanted) and not complete),
        "succeeded": int(complete),
        "failed": int(failed),
        "active": int(any(pod.role == role and occupies(pod) for pod in job.pods.values())),
        "suspended": int(job.suspended),
    }
