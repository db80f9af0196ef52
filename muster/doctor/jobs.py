"""Findings about held jobs: histories that are unreadable, damaged, lost or disputed.  Pure."""

from collections.abc import Iterable, Sequence

from muster.doctor.findings import Finding, fail, names, ok
from shared.job.fold import Held, History
from shared.job.integrity import Broken, Disputed
from shared.job.naming import NO_UID
from shared.job.state import Job
from shared.job.text import counted

UNREADABLE: tuple[Held | None, ...] = ("UnknownEvent",)
"""The reason of held histories that a newer release can read."""


def findings(histories: Iterable[History], identity: str) -> list[Finding]:
    """The findings about all histories; the log's `identity` distinguishes heads of other logs."""
    every = [*histories]
    return troubles(every, identity) or [
        ok("jobs.histories", f"{counted(len(_alive(every)), 'job')}, and every history is whole")
    ]


def troubles(histories: Iterable[History], identity: str) -> list[Finding]:
    """The faults of some histories.  A held history of a deleted job counts too: it is evidence."""
    every = [*histories]
    alive = _alive(every)
    held = [history for history in every if history.held]
    unread = [history for history in held if history.held_for in UNREADABLE]
    damaged = [history for history in held if history.held_for not in UNREADABLE]
    broken = [(history, doubt) for history in alive if isinstance(doubt := history.job.integrity.doubt, Broken)]
    lost = [history for history, doubt in broken if doubt.log == identity]
    foreign = [history for history, doubt in broken if doubt.log != identity]
    disputed = [history for history in alive if isinstance(history.job.integrity.doubt, Disputed)]
    accept = "; each is accepted with `muster history accept KIND/NAME -n NAMESPACE`, and goes on as it is now"
    found = []
    if unread:
        remedy = "upgrade to the release that wrote these events; `muster history KIND/NAME --json` shows them"
        found.append(fail("jobs.held", f"{_these(unread)} cannot be read by this release: {_why(unread)}", remedy))
    if damaged:
        remedy = (
            "compare the log with its backup; `muster history KIND/NAME --json` shows the events, and what none of "
            "Muster's services wrote is set aside with `muster history disown SEQ --reason WHY`"
        )
        words = f"{_these(damaged)} have a history that was damaged: {_why(damaged)}"
        found.append(fail("jobs.damaged", words, remedy))
    if lost:
        remedy = f"restore the log from its backup if there is one{accept}"
        found.append(fail("jobs.broken", f"{_these(lost)} show a history that this log has lost", remedy))
    if foreign:
        remedy = f"connect the services to the log of these jobs (NATS_URL) if there is one{accept}"
        found.append(fail("jobs.foreign", f"{_these(foreign)} have their history in another log", remedy))
    if disputed:
        sides = "; ".join(dict.fromkeys(history.job.integrity.sentence for history in disputed[:3]))
        remedy = f"see who may write the status of these kinds, and who the log{accept}"
        found.append(fail("jobs.disputed", f"the log and the status of {_these(disputed)} disagree: {sides}", remedy))
    return found


def _why(histories: Sequence[History]) -> str:
    return "; ".join(dict.fromkeys(history.held for history in histories[:3]))


def _alive(histories: Iterable[History]) -> list[History]:
    return [history for history in histories if not history.job.gone and history.job.key.uid != NO_UID]


def _these(histories: Sequence[History]) -> str:
    those = sorted(_this(history.job) for history in histories)
    return f"{counted(len(those), 'job')} ({names(those)})"


def _this(job: Job) -> str:
    kind = f"{job.kind.lower()} " if job.kind else ""
    return f"{kind}{job.key}{', deleted' if job.gone else ''}"
