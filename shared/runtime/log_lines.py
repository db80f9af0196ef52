"""The log lines about a job: one for each decision, each fact, and each effect that failed.

`job`, `kind` and `uid` name the job, `seq` is a sequence of the log, `reason` one word, `why` a sentence.
A line repeats nothing that a user wrote, except names.
"""

import structlog

from shared.errors import Refused, Trouble
from shared.eventlog import Stored
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.fold import History
from shared.job.naming import JobKey
from shared.job.state import Job
from shared.job.steps import Effect

log = structlog.get_logger()


def decided(job: Job, event: AnyEvent, sequence: int, basis: str) -> None:
    """A decision is in the log; `basis` is the head on which it was taken."""
    on = int(basis.partition(":")[0])
    log.info(type(event).__name__, **_about(job), seq=sequence, basis=on, reason=getattr(event, "reason", ""))


def recorded(job: Job, event: AnyEvent, sequence: int) -> None:
    """A fact is in the log."""
    log.debug(type(event).__name__, **_about(job), seq=sequence, reason=getattr(event, "reason", ""))


def append_refused(job: Job, event: AnyEvent, refusal: Refused) -> None:
    log.error("append refused", **_about(job), type=type(event).__name__, reason=refusal.reason, why=str(refusal))


def refused(effect: Effect, job: Job, head: Head, refusal: Refused) -> None:
    log.warning("effect refused", **_about(job), **_what(effect, head), reason=refusal.reason, why=str(refusal))


def retried(effect: Effect, job: Job, head: Head, trouble: Trouble) -> None:
    log.info("effect will be retried", **_about(job), **_what(effect, head), why=str(trouble))


def held(history: History, sequence: int) -> None:
    """This process no longer acts on a job."""
    trace = history.newest_trace
    log.error(
        "job held",
        **_about(history.job),
        seq=sequence,
        reason=history.held_for,
        why=history.held,
        **({"exception": trace} if trace else {}),
    )


def unproven(history: History, head: Head) -> None:
    """This process does not act on a job yet."""
    log.warning("history is not proven", **_about(history.job), seq=history.sequence, checkpoint=str(head))


def late(key: JobKey, stored: Stored) -> None:
    """A fact came after its job's seal, and changes nothing."""
    log.warning("fact after the seal", job=str(key), uid=key.uid, subject=stored.subject, seq=stored.sequence)


def _about(job: Job) -> dict[str, str]:
    return {"job": str(job.key), "kind": job.resource.kind, "uid": job.key.uid}


def _what(effect: Effect, head: Head) -> dict[str, str | int]:
    return {"effect": type(effect).__name__, "target": effect.target, "seq": head.sequence}
