"""`muster history`: what happened to a job, as the log has it; and accepting a loss of it."""

import sys
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer

from muster.kinds import known_kinds
from muster.reading import everything, open_cluster, open_log
from muster.targets import Asked, fail, find
from muster.words import one_line
from shared.eventlog import Stored
from shared.job.fold import History
from shared.job.naming import ACCEPT_HISTORY, history_subjects
from shared.process.settings import Settings


async def show(
    asked: Asked, namespace: str, settings: Settings, *, follow: bool, at: str, decisions: bool, as_json: bool
) -> None:
    """Print a job's events; `at` ends at a sequence or an RFC 3339 time and prints the state there."""
    if at and follow:
        raise typer.BadParameter("--at looks back and --follow ahead; say one of them")
    early = until(at) if at else None
    async with open_log(settings) as log:
        histories, events = await everything(log)
        _, history = find(histories, asked, namespace)
        mine = [stored for stored in events if of_history(stored, history)]
        if early is not None:
            first = mine[0]
            mine = [stored for stored in mine if early(stored)]
            if not mine:
                raise fail(f"nothing of it was known then; it begins at {first.sequence}, {first.time}")
        for stored in mine:
            _print(stored, decisions=decisions, as_json=as_json)
        if early is not None:
            _print_state(history, mine)
        if not follow:
            return
        async with aclosing(log.read(after=histories.position, subjects=history_subjects(history.job.key))) as batches:
            async for batch in batches:
                for stored in batch.events:
                    _print(stored, decisions=decisions, as_json=as_json)


def until(at: str) -> Callable[[Stored], bool]:
    """Whether an event was there at a sequence or a time; a time without zone is UTC, as histories print it."""
    if at.isdecimal():
        return lambda stored: stored.sequence <= int(at)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError as error:
        raise typer.BadParameter(
            f"--at {at!r} is neither a sequence (306) nor a time (2030-01-31T12:00:00Z)"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return lambda stored: datetime.fromisoformat(stored.time) <= moment


async def accept(asked: Asked, namespace: str, settings: Settings) -> None:
    """Annotate the resource with the head that raised the doubt; the watcher records that a person accepted it."""
    if asked.is_request:
        raise fail("only a job has a history to accept; name the job")
    async with open_log(settings) as log:
        histories, _ = await everything(log)
    target, history = find(histories, asked, namespace)
    doubt = history.job.integrity.doubt
    if doubt is None:
        raise fail(f"the history of {target.label} is not in doubt; there is nothing to accept")
    kind = known_kinds().seen(history.job).resource
    async with open_cluster(settings) as cluster:
        resource = await cluster.get(kind, namespace, target.name)
        if resource is None:
            raise fail(f"no {target.resource.kind} {namespace}/{target.name}")
        patch = {"metadata": {"uid": history.job.key.uid, "annotations": {ACCEPT_HISTORY: str(doubt.head)}}}
        await cluster.patch(kind, namespace, target.name, patch)
        typer.echo(f"{target.label}: accepted that this log does not lead to {str(doubt.head)[:24]}...")


def of_history(stored: Stored, history: History) -> bool:
    """The event is one of this history's, fact or decision."""
    return any(stored.subject.startswith(subject.removesuffix(">")) for subject in history_subjects(history.job.key))


def _print(stored: Stored, *, decisions: bool, as_json: bool) -> None:
    if decisions and stored.subject.startswith("facts."):
        return
    if as_json:
        line = {**msgspec.structs.asdict(stored), "body": stored.body.decode()}
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    else:
        sys.stdout.write(one_line(stored) + "\n")
    sys.stdout.flush()


def _print_state(history: History, events: list[Stored]) -> None:
    then = History(history.job.key)
    for stored in events:
        then.fold(stored)
    sys.stdout.write(as_json_text(then.job) + "\n")


def as_json_text(state: Any) -> str:
    """A folded state as indented JSON, the same for the same state."""
    return msgspec.json.format(msgspec.json.encode(_plain(state), order="sorted")).decode()


def _plain(value: Any) -> Any:
    """In JSON's own types: it knows neither sets nor keys of several words."""
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {"/".join(key) if isinstance(key, tuple) else key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(inner) for inner in value), key=str)
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
