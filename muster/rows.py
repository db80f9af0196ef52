"""The rows of `muster get`, or its documents in JSON and YAML.  Pure, but for the age of a job."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer
import yaml

from muster.formats import Output
from muster.terminal import harmless
from shared.job.text import in_one_line
from shared.telling.shown import Shown, cells
from shared.telling.targets import Asked

COLUMNS = ("KIND", "NAME", "PHASE", "READY", "RESTARTS", "AGE")
WIDE_COLUMNS = (*COLUMNS, "ATTEMPT", "REQUESTS", "EVENTS AT", "UID")
NOTE = "NOTE"
"""The last column, because its length is not bounded: on a terminal it ends with the line, but for `-o wide`."""

COLOURS = {
    "Failed": "red",
    "Refused": "red",
    "Restarting": "yellow",
    "Pending": "yellow",
    "Suspended": "blue",
    "Suspending": "blue",
    "Succeeded": "green",
}
"""Of phases, on a terminal."""

_GAP = "  "
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class Wish(msgspec.Struct, frozen=True):
    """The options of the command."""

    namespace: str
    """The namespace; empty for all."""
    asked: Asked | None = None
    """The job; None for all."""
    output: Output = Output.table
    gone: bool = False
    """True to include deleted jobs."""
    watch: bool = False
    """True to go on with each change."""
    uids: frozenset[str] | None = None
    """The jobs that a selector chose; None without one."""
    width: int = 0
    """The columns of the terminal; 0 where there is none."""
    colours: bool = False
    """True to colour phases."""


def age(since: str, now: datetime) -> str:
    """The time since then in its two largest units at most, such as `5m12s` or `3d`; empty without a time."""
    try:
        seconds = max(int((now - datetime.fromisoformat(since)).total_seconds()), 0)
    except (ValueError, TypeError):
        # What an administrator planted may have no time.
        return ""
    largest = next((place for place, (_, length) in enumerate(_UNITS) if seconds >= length), len(_UNITS) - 1)
    unit, length = _UNITS[largest]
    count, rest = divmod(seconds, length)
    # From ten on the next unit says little.
    smaller = _UNITS[largest + 1] if count < 10 and largest + 1 < len(_UNITS) else None
    more = f"{rest // smaller[1]}{smaller[0]}" if smaller is not None and rest >= smaller[1] else ""
    return f"{count}{unit}{more}"


class Table:
    """Rows below a heading.  A watch keeps the widths of its first rows."""

    def __init__(self, wish: Wish, shown: Sequence[Shown]) -> None:
        self._where = f" in namespace {wish.namespace}" if wish.namespace else ""
        # kubectl shows the namespace where it shows several.
        where = () if wish.namespace else ("NAMESPACE",)
        self._columns = (*where, *(WIDE_COLUMNS if wish.output is Output.wide else COLUMNS))
        self._room = wish.width if wish.output is not Output.wide else 0
        self._colours = wish.colours
        rows = [self._columns, *(self._cells(one) for one in shown)]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def all(self, shown: Sequence[Shown]) -> Iterator[str]:
        if not shown:
            yield f"no jobs{self._where}"
            return
        yield self._line(self._columns, NOTE)
        for one in shown:
            yield self.one(one)

    def one(self, shown: Shown) -> str:
        # A terminal has no room to say twice whose pod it is.
        note = shown.note.removeprefix(f"{shown.name}-") if self._room else shown.note
        line = self._line(self._cells(shown), note)
        if (colour := COLOURS.get(shown.phase)) is None or not self._colours:
            return line
        place = self._columns.index("PHASE")
        start = sum(self._widths[:place]) + len(_GAP) * place
        end = start + len(shown.phase)
        return line[:start] + typer.style(line[start:end], fg=colour) + line[end:]

    def state(self, one: Shown) -> object:
        """All that a row says but for the age: a watch shows a job again when this changes."""
        known = cells(one)
        return [*(known.get(column) for column in self._columns), one.note]

    def _cells(self, one: Shown) -> Sequence[str]:
        known = cells(one) | {"AGE": age(one.began, datetime.now(UTC))}
        return [harmless(known[column]) for column in self._columns]

    def _line(self, row: Sequence[str], note: str) -> str:
        padded = [cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)]
        line = _GAP.join([*padded, harmless(in_one_line(note))]).rstrip()
        return line if not self._room or len(line) <= self._room else f"{line[: self._room - 1]}\N{HORIZONTAL ELLIPSIS}"


class Documents:
    """JSON or YAML: one document for a job or the list of all; with a watch, one for each job and each change."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish

    def all(self, shown: Sequence[Shown]) -> Iterable[str]:
        if self._wish.watch:
            return map(self.one, shown)
        plain = msgspec.to_builtins([*shown] if self._wish.asked is None else shown[0])
        if self._wish.output is Output.yaml:
            return [_yaml(plain)]
        return [msgspec.json.format(msgspec.json.encode(plain)).decode()]

    def state(self, one: Shown) -> object:
        return one

    def one(self, shown: Shown) -> str:
        if self._wish.output is Output.yaml:
            return f"---\n{_yaml(msgspec.to_builtins(shown))}"
        return msgspec.json.encode(shown).decode()


def renderer_of(wish: Wish, shown: Sequence[Shown]) -> "Table | Documents":
    return Table(wish, shown) if wish.output in (Output.table, Output.wide) else Documents(wish)


def _yaml(plain: Any) -> str:
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()
