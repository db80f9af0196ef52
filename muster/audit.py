"""`muster audit`: who changed what, when, and with what outcome, from the log alone."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from muster.reading import open_log
from muster.terminal import say, wrong_usage
from shared.eventlog import EventLog
from shared.frameworks.kinds import Kinds
from shared.job.naming import namespace_filters
from shared.process.settings import Settings
from shared.telling.changes import Change, Noted, by_of
from shared.telling.events import moment_of
from shared.telling.kinds import known_kinds
from shared.telling.reading import fold_to_end
from shared.telling.words import aligned

COLUMNS = ("SEQUENCE", "TIME", "JOB", "BY", "OUTCOME")
CHANGE = "CHANGE"
"""The last column, because its length is not bounded."""

LONGEST = timedelta(days=36_500)
"""No log is older."""

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


async def audit(settings: Settings, namespace: str, since: str, now: datetime, *, as_json: bool) -> None:
    """Print the changes in a namespace, or in all without one, the oldest first."""
    begin = begin_of(since, now)
    async with open_log(settings) as log:
        found = await changes(log, namespace, known_kinds())
    shown = [change for change in found if begin is None or datetime.fromisoformat(change.time) >= begin]
    for line in (msgspec.json.encode(change).decode() for change in shown) if as_json else table(shown, namespace):
        say(line, exact=as_json)


def begin_of(since: str, now: datetime) -> datetime | None:
    """The time that `--since` names, as an age (`90s`, `30m`, `2h`, `7d`) or in RFC 3339; None without one."""
    if not since:
        return None
    if (age := _AGO.fullmatch(since)) is not None:
        return now - min(timedelta(**{_UNITS[age[2]]: int(age[1])}), LONGEST)
    with wrong_usage():
        return moment_of(since, f"--since {since!r} is neither an age (30m, 2h, 7d) nor a time (2030-01-31T12:00:00Z)")


async def changes(log: EventLog, namespace: str, kinds: Kinds) -> list[Change]:
    """The changes that the log has, in its order."""
    noted = Noted()
    await fold_to_end(log, noted.histories.fold, namespace_filters(namespace))
    return noted.changes(kinds)


def table(shown: Sequence[Change], namespace: str) -> Iterator[str]:
    """The changes as rows below a heading."""
    if not shown:
        yield f"no changes{f' in namespace {namespace}' if namespace else ''}"
        return
    rows = [(*COLUMNS, CHANGE), *((*_cells(change, namespace), change.change) for change in shown)]
    yield from aligned(rows)


def _cells(change: Change, namespace: str) -> tuple[str, ...]:
    where = "" if namespace else f"{change.namespace}/"
    return str(change.sequence), change.time[:19], f"{where}{change.job}", by_of(change), change.outcome
