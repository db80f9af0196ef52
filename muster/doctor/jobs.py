"""Jobs that nobody acts on: histories that are held, broken or forged.  Pure."""

from collections.abc import Iterable, Sequence

from muster.doctor.findings import Finding, fail, names, ok, warn
from muster.words import counted
from shared.job.fold import History
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
    lost = [history for history in alive if history.job.broken and not _elsewhere(history, identity)]
    foreign = [history for history in alive if history.job.broken and _elsewhere(history, identity)]
    forged = [history for history in alive if history.job.forged and not history.job.accepted_heads]
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
    if forged:
        remedy = "it was overwritten with the right one; see who else may write the status of these kinds"
        found.append(warn("jobs.forged", f"somebody wrote another history into the status of {_these(forged)}", remedy))
    return found


def _alive(histories: Iterable[History]) -> list[History]:
    return [history for history in histories if not history.job.gone and history.job.key.uid != NO_UID]


def _elsewhere(history: History, identity: str) -> bool:
    return history.job.broken.partition("/")[0] != identity


def _these(histories: Sequence[History]) -> str:
    those = [f"{_kind(history)}{history.job.key.namespace}/{history.job.key.name}" for history in histories]
    return f"{counted(len(those), 'job')} ({names(sorted(those))})"


def _kind(history: History) -> str:
    return f"{history.job.kind.lower()} " if history.job.kind else ""
