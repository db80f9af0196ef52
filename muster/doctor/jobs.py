"""Jobs that every service holds: histories that cannot be read, were lost, or are disputed.  Pure."""

from collections.abc import Iterable, Sequence

from muster.doctor.findings import Finding, fail, names, ok
from muster.words import counted
from shared.job.fold import History
from shared.job.integrity import Broken, Disputed
from shared.job.naming import NO_UID


def findings(histories: Iterable[History], identity: str) -> list[Finding]:
    """Of this log, whose `identity` tells whether a head is of another one; jobs that are gone count for nothing."""
    alive = _alive(histories)
    return troubles(alive, identity) or [
        ok("jobs.histories", f"{counted(len(alive), 'job')}, and every history is whole")
    ]


def troubles(histories: Iterable[History], identity: str) -> list[Finding]:
    """Of those that are known, what is wrong with them."""
    alive = _alive(histories)
    held = [history for history in alive if history.held]
    broken = [(history, doubt) for history in alive if isinstance(doubt := history.job.integrity.doubt, Broken)]
    lost = [history for history, doubt in broken if doubt.log == identity]
    foreign = [history for history, doubt in broken if doubt.log != identity]
    disputed = [history for history in alive if isinstance(history.job.integrity.doubt, Disputed)]
    accept = "; each is accepted with `muster history accept KIND/NAME -n NAMESPACE`, and goes on as it is now"
    found = []
    if held:
        why = "; ".join(dict.fromkeys(history.held for history in held[:3]))
        remedy = "upgrade to the release that wrote these events; `muster history KIND/NAME --json` shows them"
        found.append(fail("jobs.held", f"{_these(held)} cannot be read by this release: {why}", remedy))
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


def _alive(histories: Iterable[History]) -> list[History]:
    return [history for history in histories if not history.job.gone and history.job.key.uid != NO_UID]


def _these(histories: Sequence[History]) -> str:
    those = [f"{_kind(history)}{history.job.key.namespace}/{history.job.key.name}" for history in histories]
    return f"{counted(len(those), 'job')} ({names(sorted(those))})"


def _kind(history: History) -> str:
    return f"{history.job.kind.lower()} " if history.job.kind else ""
