"""What `muster get` and `history.muster.dev` show of a job."""

from typing import Any

import msgspec

from shared.frameworks.kinds import Kinds
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID
from shared.job.policies import replacement
from shared.job.state import Job
from shared.job.waiting import told
from shared.telling.causes.words import problem_line, waits_for
from shared.telling.kinds import word_of
from shared.telling.summary import Summary, summary

EXPLAINED = ("Restarting", "Failed")
"""Phases of which the note is always the message of their condition."""


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """The output about one job; `-o json` and `-o yaml` have these fields."""

    namespace: str
    name: str
    uid: str
    kind: str
    api_version: str
    called: str
    """The command line's word for its kind, such as `mxjob.kubeflow.org`."""
    phase: str
    ready: int
    wanted: int
    restarts: int
    attempt: int
    """The number of the attempt, from one."""
    requests: int
    requests_over: int
    sequence: int
    """The sequence of its last event."""
    over: bool
    gone: bool
    note: str
    status: dict[str, Any]
    began: str
    """When its first event was recorded."""

    @classmethod
    def of(cls, history: History, kinds: Kinds) -> "Shown":
        job = history.job
        short = summary(job, kinds)
        return cls(
            namespace=job.key.namespace,
            name=job.key.name,
            uid=job.key.uid,
            kind=job.kind,
            api_version=job.api_version,
            called=word_of(job, kinds),
            phase=short.phase,
            ready=short.ready,
            wanted=short.wanted,
            restarts=short.restarts,
            attempt=job.attempt.number + 1,
            requests=len(job.scaling.requests),
            requests_over=sum(request.over for request in job.scaling.requests.values()),
            sequence=history.sequence,
            over=job.over,
            gone=bool(job.gone),
            note=history.held or _note(job, short),
            status=short.status,
            began=history.began,
        )


def _note(job: Job, short: Summary) -> str:
    if job.integrity.doubt is not None:
        return job.integrity.sentence
    if job.gone or job.another:
        return "gone" if job.gone else "of another operator"
    if job.deleting:
        return f"being deleted, waits for {', '.join(job.finalizers) or 'a finalizer'}"
    if job.problems:
        word = waits_for(job.problems) or ("edit refused" if job.phase else "refused")
        return f"{word}: {problem_line(job.problems)}"
    if short.phase in EXPLAINED or replacement.unreplaced(job):
        # The statuses of some kinds have no conditions.
        known = next((known.message for known in job.conditions if known.type == job.phase), "")
        return short.message or known
    wait = told(job)
    return wait.sentence if wait is not None else ""


def listed(histories: Histories, *, gone: bool) -> list[History]:
    """The histories to show, by namespace, name and uid."""
    known = (history for history in histories if history.job.key.uid != NO_UID and (gone or not history.job.gone))
    return sorted(known, key=lambda history: history.job.key)


def cells(one: Shown) -> dict[str, str]:
    """A job's cells by column; neither the note nor the age is among them."""
    return {
        "NAMESPACE": one.namespace,
        "KIND": one.called,
        "NAME": one.name,
        "PHASE": one.phase or "-",
        "READY": "-" if one.over or one.gone else f"{one.ready}/{one.wanted}",
        "RESTARTS": str(one.restarts),
        "ATTEMPT": str(one.attempt),
        "REQUESTS": f"{one.requests_over}/{one.requests}" if one.requests else "-",
        "EVENTS AT": str(one.sequence),
        "UID": one.uid,
    }
