"""`KIND/NAME` as people type it, and the history it means."""

import msgspec
import typer

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.training import GROUP, SCALEINS, SCALEOUTS, TRAININGJOBS
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID

_WORDS: dict[str, Resource[Custom]] = {
    word: known
    for known, words in (
        (TRAININGJOBS, ("trainingjob", "trainingjobs", "tj", "job")),
        (SCALEINS, ("scalein", "scaleins")),
        (SCALEOUTS, ("scaleout", "scaleouts")),
    )
    for word in words
}


class Target(msgspec.Struct, frozen=True):
    """One object of ours."""

    resource: Resource[Custom]
    name: str


def parse_target(text: str) -> Target:
    """`trainingjob/digits`, or only `digits` for a TrainingJob; as `kubectl get -o name` writes it, too."""
    kind, slash, name = text.rpartition("/")
    resource = _WORDS.get(kind.lower().removesuffix(f".{GROUP}")) if slash else TRAININGJOBS
    if resource is None or not name:
        raise typer.BadParameter(f"{text!r} is no KIND/NAME; say for example trainingjob/digits")
    return Target(resource, name)


def find(histories: Histories, target: Target, namespace: str, *, uid: str = "", waiting: bool = False) -> History:
    """The newest history of that name, or the one of this uid.  Exits with one line when the log has none.

    With `waiting` it may be that of requests whose job does not exist, where there is no other.
    """
    known = [
        history
        for history in histories
        if history.job.key.namespace == namespace
        and (not uid or history.job.key.uid == uid)
        and _means(history, target)
    ]
    found = [history for history in known if history.job.key.uid != NO_UID]
    if waiting and not found and target.resource is not TRAININGJOBS:
        found = known
    if not found:
        which = f" with the uid {uid}" if uid else ""
        raise fail(
            f"the log knows no {target.resource.kind} {namespace}/{target.name}{which}; "
            "`muster get -A` lists what it knows, -n names another namespace"
        )
    return max(found, key=lambda history: history.sequence)


def _means(history: History, target: Target) -> bool:
    if target.resource is TRAININGJOBS:
        return history.job.key.name == target.name
    return any(
        request.name == target.name and request.kind == target.resource.kind
        for request in history.job.requests.values()
    )


def fail(message: str) -> typer.Exit:
    """One line on standard error, and exit code 1."""
    typer.secho(f"muster: {message}", err=True)
    return typer.Exit(1)
