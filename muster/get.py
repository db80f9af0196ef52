"""`muster get`: the jobs in the log, as a table, as JSON or as YAML."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer
import yaml

from muster.asking import (
    Source,
    ask,
    open_source,
    outside,
    patiently,
    streamed,
    told_if_outside,
    warn_of_standstill,
)
from muster.following import Tell, warn
from muster.history import job_events
from muster.terminal import Output, harmless, say
from shared.cluster.answers import read_status
from shared.cluster.decoding import ListMetadata, RawEvent
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from shared.eventlog import EventLog, Stored, ignore_trouble
from shared.eventlog.subject import Subject, archived_under
from shared.frameworks.kinds import Kinds
from shared.history_api import Question
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID, key_archived, key_of, namespace_filters
from shared.job.text import in_one_line
from shared.process.settings import Settings
from shared.telling.histories import JobHistory
from shared.telling.reading import fold_to_end, is_seal
from shared.telling.sealed import row_of, shown_of
from shared.telling.selection import GONE, Selection
from shared.telling.shown import Shown, cells, listed
from shared.telling.targets import Asked, known_kinds

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
PAGE = 500
"""The jobs of one page of a list, as kubectl asks for them."""
EXPIRED = 410
"""The code of a watch that cannot go on from its sequence; who watches lists anew."""


class Options(msgspec.Struct, frozen=True):
    namespace: str
    """The namespace; empty for all."""
    asked: Asked | None = None
    """The job; None for all."""
    output: Output = "table"
    gone: bool = False
    """True to include deleted jobs."""
    watch: bool = False
    """True to go on with each change."""
    selector: str = ""
    """The labels of the jobs."""
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

    def __init__(self, options: Options, shown: Sequence[Shown]) -> None:
        self._where = f" in namespace {options.namespace}" if options.namespace else ""
        # kubectl shows the namespace where it shows several.
        where = () if options.namespace else ("NAMESPACE",)
        self._columns = (*where, *(WIDE_COLUMNS if options.output == "wide" else COLUMNS))
        self._room = options.width if options.output != "wide" else 0
        self._colours = options.colours
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
        # A narrow terminal cuts the note alone: the columns take as many of its lines as they need.
        least = sum(self._widths) + len(_GAP) * len(padded) + 2
        room = -(-least // self._room) * self._room if self._room else len(line)
        return line if len(line) <= room else f"{line[: room - 1]}\N{HORIZONTAL ELLIPSIS}"


class Documents:
    """JSON or YAML: one document for a job or the list of all; with a watch, one for each job and each change."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def all(self, shown: Sequence[Shown]) -> Iterable[str]:
        if self._options.watch:
            return map(self.one, shown)
        plain = msgspec.to_builtins([*shown] if self._options.asked is None else shown[0])
        if self._options.output == "yaml":
            return [_yaml(plain)]
        return [msgspec.json.format(msgspec.json.encode(plain)).decode()]

    def state(self, one: Shown) -> object:
        return one

    def one(self, shown: Shown) -> str:
        if self._options.output == "yaml":
            return f"---\n{_yaml(msgspec.to_builtins(shown))}"
        return msgspec.json.encode(shown).decode()


def _yaml(plain: Any) -> str:
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()


async def get(settings: Settings, options: Options, *, nats: bool = False) -> None:
    """Print jobs, and with a watch each change."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(told_if_outside(settings, options.asked, options.namespace))
        source = await stack.enter_async_context(open_source(settings, nats=nats))
        await warn_of_standstill(source, options.namespace)
        async for text in await stack.enter_async_context(aclosing(texts(source, options, known_kinds()))):
            say(text, exact=options.output == "json", coloured=options.colours)
    if options.namespace and options.asked is None and (why := await outside(settings, options.namespace)):
        warn(why)


def texts(source: Source, options: Options, kinds: Kinds, tell: Tell | None = None) -> AsyncGenerator[str, None]:
    """The pieces of the output; with a watch there is no end.  Raises `Refused` if there is no such job."""
    if isinstance(source, KubeCluster):
        return _rendered(_by_cluster(source, options, tell or warn), options)
    tell = tell or ignore_trouble
    if options.asked:
        return _rendered(_one_by_log(source, options.asked, options.namespace, kinds, tell), options)
    return _rendered(_by_log(source, options, kinds, tell), options)


async def followed(source: Source, namespace: str, kinds: Kinds, tell: Tell) -> AsyncGenerator[Shown, None]:
    """The jobs of a namespace, or of all without one, those that are gone as well; then each that changes."""
    options, found = Options(namespace, gone=True), _Found([], 0, "")
    if isinstance(source, KubeCluster):
        for part in (_listed(source, options, found), _changes(source, options, found)):
            async with aclosing(part) as jobs:
                async for one in jobs:
                    yield one
        return
    async with aclosing(_by_log(source, options, kinds, tell)) as batches:
        async for batch in batches:
            for one in batch:
                yield one


async def _rendered(found: AsyncGenerator[Sequence[Shown], None], options: Options) -> AsyncGenerator[str, None]:
    """What is told of the jobs that were found first, and with a watch of each that changed later."""
    selection = Selection(Question(labels=options.selector))
    async with aclosing(found):
        shown = [one for one in await anext(found) if selection.has_job(one)]
        rows = options.output in ("table", "wide")
        renderer = Table(options, shown) if rows else Documents(options)
        for text in renderer.all(shown):
            yield text
        if not options.watch:
            return
        before = {one.uid: renderer.state(one) for one in shown}
        async for later in found:
            for one in later:
                state, seen = renderer.state(one), one.uid in before or options.gone or not one.gone
                if before.get(one.uid) != state and selection.has_job(one) and seen:
                    before[one.uid] = state
                    yield renderer.one(one)


async def _by_cluster(cluster: KubeCluster, options: Options, tell: Tell) -> AsyncGenerator[Sequence[Shown], None]:
    found = await _found(cluster, options)
    yield [one for one in found.shown if options.asked or options.gone or not one.gone]

    async def later() -> AsyncGenerator[Sequence[Shown], None]:
        nonlocal found
        async with aclosing(_changes(cluster, options, found)) as changes:
            async for one in changes:
                yield [one]
        found = await _found(cluster, options)
        yield found.shown

    async with aclosing(patiently(later, tell)) as changes:
        async for shown in changes:
            yield shown


async def _changes(cluster: KubeCluster, options: Options, found: "_Found") -> "AsyncGenerator[Shown, None]":
    """Each change after a list, to the end of the stream."""
    of = Question(options.namespace, only=found.name, labels=options.selector)
    question = msgspec.structs.replace(of, after=found.version, watch=True, bookmarks=True)
    async with aclosing(streamed(cluster, question)) as lines:
        async for line in lines:
            change = msgspec.json.decode(line, type=RawEvent)
            match change.type:
                case "ADDED" | "MODIFIED":
                    yield msgspec.json.decode(change.object, type=JobHistory).job
                case "ERROR":
                    said = read_status(change.object)
                    if said.code == EXPIRED:
                        return
                    raise Transient(said.message)


async def _found(cluster: KubeCluster, options: Options) -> "_Found":
    """The jobs to show, from `history.muster.dev`, those that are gone as well."""
    if options.asked:
        answer = await ask(cluster, Question(options.namespace, options.asked.word))
        item = msgspec.json.decode(answer, type=JobHistory)
        return _Found([item.job], item.job.sequence, item.metadata.name)
    found = _Found([], 0, "")
    async with aclosing(_listed(cluster, options, found)) as jobs:
        found.shown += [one async for one in jobs]
    return found


async def _listed(cluster: KubeCluster, options: Options, found: "_Found") -> AsyncGenerator[Shown, None]:
    """Each job of a list; `found` gets its version, after which a watch goes on."""
    chosen = ",".join(filter(None, ("" if options.gone else f"{GONE}=false", options.selector)))
    async with aclosing(pages(cluster, options.namespace, chosen)) as listed_pages:
        async for page in listed_pages:
            # A watch goes on after the first page.
            found.version = found.version or int(page.metadata.resource_version)
            for item in page.items:
                yield item.job


async def pages(cluster: KubeCluster, namespace: str, labels: str = "") -> "AsyncGenerator[Page, None]":
    """The histories of a namespace, or of all, from `history.muster.dev`, which these labels choose."""
    go_on: str | None = None
    while go_on != "":
        question = Question(namespace, every=True, labels=labels, limit=PAGE, go_on=go_on or "")
        page = msgspec.json.decode(await ask(cluster, question), type=Page)
        yield page
        go_on = page.metadata.continuation


async def _by_log(log: EventLog, options: Options, kinds: Kinds, tell: Tell) -> AsyncGenerator[Sequence[Shown], None]:
    histories, shown = await shown_by_log(log, options, kinds)
    yield shown
    subjects = namespace_filters(options.namespace)
    async with aclosing(log.read(after=histories.position, subjects=subjects, trouble=tell)) as batches:
        async for batch in batches:
            changed = {id(known): known for stored in batch.events if (known := histories.fold(stored)) is not None}
            yield [Shown.of(history, kinds) for history in changed.values() if history.job.key.uid != NO_UID]


async def _one_by_log(
    log: EventLog, asked: Asked, namespace: str, kinds: Kinds, tell: Tell
) -> AsyncGenerator[Sequence[Shown], None]:
    history: History | None = None
    first = True
    async with aclosing(job_events(log, asked, namespace, trouble=tell)) as batches:
        async for batch in batches:
            for stored in batch:
                history = history or History(key_of(Subject.parse(stored.subject)))
                # A job that was sealed before is shown as it was then.
                if not first or not is_seal(stored):
                    history.fold(stored)
            first = first and bool(batch)
            if history is not None and not first:
                yield [Shown.of(history, kinds)]


async def shown_by_log(log: EventLog, options: Options, kinds: Kinds) -> "tuple[Histories, list[Shown]]":
    """The fold of a namespace, or of all, and the jobs to show."""
    histories, sealed = Histories(), set[tuple[str, ...]]()

    def fold(stored: Stored) -> None:
        of = (*stored.subject.split(".", 4)[1:4],)
        if is_seal(stored):
            # At its seal a job would be forgotten.
            sealed.add(of)
        elif of not in sealed:
            # What comes late would be a job of its own once the others have left the log.
            histories.fold(stored)

    await fold_to_end(log, fold, namespace_filters(options.namespace))
    shown = [Shown.of(history, kinds) for history in listed(histories, gone=options.gone)]
    if options.gone:
        known, rows = {history.job.key for history in histories}, dict[str, Shown]()
        async with aclosing(log.archive.scan(subject=archived_under(options.namespace or "*"))) as parts:
            async for part in parts:
                if key_archived(part.subject) not in known and (row := row_of(part.row)):
                    # A restored log may have sealed it again.
                    rows[part.subject] = shown_of(row)
        shown = sorted((*shown, *rows.values()), key=lambda one: (one.namespace, one.name, one.uid))
    return histories, shown


class Page(msgspec.Struct):
    """Some histories of a list."""

    metadata: ListMetadata
    items: list[JobHistory]


class _Found(msgspec.Struct):
    """What was shown, up to which sequence, and the name of the one history in the API."""

    shown: list[Shown]
    version: int
    name: str
