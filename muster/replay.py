"""`muster replay FILE`: fold a saved history again and print the phases; `--verify` is in `verifying.py`."""

from pathlib import Path

import typer

from muster.terminal import fail, say
from shared.eventlog import Stored
from shared.job.fold import Histories
from shared.telling.saved import event_of
from shared.telling.words import one_line


def from_file(path: Path) -> None:
    """Fold a saved history (`muster history --json`), printing each event and the phase after it.

    Exit code 1 if a history is held: the file differs from the log, or is of another release.
    """
    histories = Histories()
    for stored in saved(path):
        history = histories.fold(stored)
        phase = history.job.phase if history is not None else ""
        say(
            f"{one_line(stored)}  -> {phase or 'no phase'}"
            + (f"  HELD: {history.held}" if history and history.held else "")
        )
    if any(history.held for history in histories):
        raise typer.Exit(1)


def saved(path: Path) -> list[Stored]:
    """The events of a file.  Exits with a message about the first bad line if it is no history."""
    how = "save one with `muster history KIND/NAME --json`"
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise fail(f"{path} cannot be read: {error.strerror}; {how}") from error
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(event_of(line))
        except ValueError as error:
            raise fail(f"{path}, line {number} is no event of a history: {error}; {how}") from error
    if not events:
        raise fail(f"{path} is empty; {how}")
    return events
