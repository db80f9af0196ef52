"""`muster replay`: fold the log again and say what comes out; `--verify` holds it against the API server."""

from pathlib import Path

import msgspec
import typer

from muster.reading import everything, open_cluster, open_log
from muster.targets import fail
from muster.words import one_line
from services.status.documents import canonical, with_head
from services.status.documents import document_of as status_of
from shared.cluster.kube import KubeCluster
from shared.eventlog import Stored
from shared.frameworks.training import TRAININGJOBS
from shared.job.chain import Head
from shared.job.fold import Histories, History
from shared.service.settings import Settings


async def verify(settings: Settings) -> None:
    """Re-fold every job up to the head in its resource and compare the documents, byte for byte."""
    async with open_log(settings) as log, open_cluster(settings) as cluster:
        histories, events = await everything(log)
        identity = await log.identity()
        checked = wrong = 0
        for history in histories:
            if not history.job.generation or history.job.gone:
                continue
            answer = await _compare(history, events, identity, cluster, settings)
            if answer is None:
                continue
            checked += 1
            wrong += answer.startswith("DIFFERS")
            typer.echo(f"{history.job.key}: {answer}")
    typer.echo(f"{len(events)} events folded; {checked} documents compared, {wrong} differ")
    if wrong:
        raise typer.Exit(1)


def from_file(path: Path) -> None:
    """Fold a saved history (`muster history --json`), printing each event and the phase after it."""
    histories = Histories()
    try:
        lines = path.read_bytes().splitlines()
        saved = [msgspec.json.decode(line) for line in lines if line]
        events = [Stored(**{**line, "body": line["body"].encode()}) for line in saved]
    except (OSError, msgspec.DecodeError, TypeError, KeyError) as error:
        raise fail(f"{path} is no saved history (`muster history KIND/NAME --json`): {error}") from error
    for stored in events:
        history = histories.fold(stored)
        phase = history.job.phase if history is not None else ""
        typer.echo(
            f"{one_line(stored)}  -> {phase or 'no phase'}"
            + (f"  HELD: {history.held}" if history and history.held else "")
        )


async def _compare(
    history: History, events: list[Stored], identity: str, cluster: KubeCluster, settings: Settings
) -> str | None:
    key = history.job.key
    resource = await cluster.get(TRAININGJOBS, key.namespace, key.name)
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
    replayed = canonical(with_head(status_of(then.job), identity, then.head, then.time))
    held = canonical(resource.status)
    if replayed != held:
        return f"DIFFERS: replayed {replayed.decode()}, the API server holds {held.decode()}"
    return f"{then.job.phase}, {len(held)} bytes of status replayed from {head['sequence']} identical"
