"""`muster history`: what happened to a job, as the log has it; and accepting a loss of it."""

import sys

import msgspec
import typer

from muster.reading import everything, open_cluster, open_log
from muster.targets import Target, fail, find
from muster.words import one_line
from shared.eventlog import Stored
from shared.frameworks.training import TRAININGJOBS
from shared.job.fold import History
from shared.job.naming import ACCEPT_HISTORY
from shared.service.settings import Settings


async def show(
    target: Target, namespace: str, settings: Settings, *, follow: bool, at: str, decisions: bool, as_json: bool
) -> None:
    """Print a job's events; `at` ends at a sequence or an RFC 3339 time and prints the state there."""
    async with open_log(settings) as log:
        histories, events = await everything(log)
        history = find(histories, target, namespace)
        mine = [stored for stored in events if _of(stored, history)]
        if at:
            mine = [stored for stored in mine if _before(stored, at)]
        for stored in mine:
            _print(stored, decisions=decisions, as_json=as_json)
        if at:
            _print_state(history, mine)
        if not follow or at:
            return
        async for batch in log.read(after=histories.position, subjects=_subjects(history)):
            for stored in batch.events:
                _print(stored, decisions=decisions, as_json=as_json)


async def accept(target: Target, namespace: str, settings: Settings) -> None:
    """Annotate the resource with the head whose loss is accepted; the watcher records who is then right."""
    if target.resource is not TRAININGJOBS:
        raise fail("only a job has a history to accept; name the TrainingJob")
    async with open_cluster(settings) as cluster:
        resource = await cluster.get(TRAININGJOBS, namespace, target.name)
        if resource is None:
            raise fail(f"no TrainingJob {namespace}/{target.name}")
        status = resource.status if isinstance(resource.status, dict) else {}
        head = status.get("history")
        if not isinstance(head, dict):
            raise fail(f"TrainingJob {namespace}/{target.name} shows no head, there is nothing to accept")
        wish = f"{head.get('sequence')}:{head.get('hash')}"
        patch = {"metadata": {"uid": resource.metadata.uid, "annotations": {ACCEPT_HISTORY: wish}}}
        await cluster.patch(TRAININGJOBS, namespace, target.name, patch)
        typer.echo(f"trainingjob/{target.name}: accepted that this log does not lead to {wish[:24]}...")


def _of(stored: Stored, history: History) -> bool:
    return any(stored.subject.startswith(subject.removesuffix(">")) for subject in _subjects(history))


def _subjects(history: History) -> tuple[str, str]:
    key = history.job.key
    tokens = ".".join(token.replace(".", "_") for token in (key.namespace, key.name, key.uid))
    return f"facts.{tokens}.>", f"jobs.{tokens}.>"


def _before(stored: Stored, at: str) -> bool:
    return stored.sequence <= int(at) if at.isdigit() else stored.time <= at


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
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(then.job, order="sorted")).decode() + "\n")
