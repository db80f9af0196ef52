"""`muster replay`: fold the log again and say what comes out; `--verify` holds it against the API server."""

from pathlib import Path

import msgspec
import typer

from muster.kinds import known_kinds, word_of
from muster.reading import everything, open_cluster, open_log
from muster.targets import fail
from muster.words import one_line
from services.status.documents import canonical, with_head
from services.status.documents import document_of as status_of
from shared.cluster import Cluster
from shared.eventlog import Stored
from shared.frameworks.kinds import Kinds
from shared.job.chain import Head
from shared.job.fold import Histories, History
from shared.job.naming import key_of
from shared.process.settings import Settings


class SavedEvent(msgspec.Struct):
    """A line of `muster history --json`: an event of the log, with its body as text."""

    sequence: int
    subject: str
    event_id: str
    time: str
    body: str
    basis: str = ""
    optional: bool = False


async def verify(settings: Settings) -> None:
    """Re-fold every job of every kind up to the head in its resource and compare the documents, byte for byte."""
    async with open_log(settings) as log, open_cluster(settings) as cluster:
        histories, events = await everything(log)
        identity = await log.identity()
        kinds = known_kinds()
        checked = wrong = 0
        for history in histories:
            if not history.job.generation or history.job.gone:
                continue
            if not kinds.knows(history.job):
                typer.echo(f"{word_of(history.job, kinds)} {history.job.key}: not compared, its kind is not known here")
                continue
            answer = await compared(history, events, identity, cluster, kinds)
            if answer is None:
                continue
            checked += 1
            wrong += answer.startswith("DIFFERS")
            typer.echo(f"{word_of(history.job, kinds)} {history.job.key}: {answer}")
    typer.echo(f"{len(events)} events folded; jobs compared: {checked}, different: {wrong}")
    if wrong:
        raise typer.Exit(1)


def from_file(path: Path) -> None:
    """Fold a saved history (`muster history --json`), printing each event and the phase after it.

    Exit code 1 when a history is held: then the file is not what a log said, or of another release.
    """
    histories = Histories()
    for stored in saved(path):
        history = histories.fold(stored)
        phase = history.job.phase if history is not None else ""
        typer.echo(
            f"{one_line(stored)}  -> {phase or 'no phase'}"
            + (f"  HELD: {history.held}" if history and history.held else "")
        )
    if any(history.held for history in histories):
        raise typer.Exit(1)


def saved(path: Path) -> list[Stored]:
    """The events of a file.  Exits with one line, which names the first bad line, when it is no history."""
    how = "save one with `muster history KIND/NAME --json`"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise fail(f"{path} cannot be read: {error.strerror}; {how}") from error
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            known = msgspec.json.decode(line, type=SavedEvent)
            key_of(known.subject)
        except (msgspec.DecodeError, ValueError) as error:
            raise fail(f"{path}, line {number} is no event of a history: {error}; {how}") from error
        events.append(Stored(**{**msgspec.structs.asdict(known), "body": known.body.encode()}))
    if not events:
        raise fail(f"{path} is empty; {how}")
    return events


async def compared(history: History, events: list[Stored], identity: str, cluster: Cluster, kinds: Kinds) -> str | None:
    key = history.job.key
    resource = await cluster.get(kinds.seen(history.job).resource, key.namespace, key.name)
    if resource is None or resource.metadata.uid != key.uid:
        return None
    head = resource.status.get("history") if isinstance(resource.status, dict) else None
    if not isinstance(head, dict):
        return "DIFFERS: the resource shows no head"
    then = History(key)
    for stored in events:
        if stored.sequence <= head["sequence"] and stored.subject.split(".")[3] == key.uid:
            then.fold(stored)
    shown = Head(head["sequence"], head["hash"])
    if head["log"] != identity or then.head != shown:
        return f"DIFFERS: the resource shows the head {shown}, the log has {then.head}"
    replayed = canonical(with_head(status_of(then.job, kinds), identity, then.head, then.time))
    held = canonical(resource.status)
    if replayed != held:
        return f"DIFFERS: replayed {replayed.decode()}, the API server holds {held.decode()}"
    return f"{then.job.phase}; the status replayed up to event {head['sequence']} is identical ({len(held)} bytes)"
