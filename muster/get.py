"""`muster get`: the jobs in the log, as a table, as JSON or as YAML."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import msgspec
import yaml

from muster.asking import ask, by_cluster, patiently, streamed
from muster.causes.words import problem_line, waits_for
from muster.formats import Output
from muster.kinds import known_kinds, word_of
from muster.reading import everything, open_cluster, open_log
from muster.summary import Summary, summary
from muster.targets import Asked, find, subjects_of
from muster.terminal import say
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from shared.eventlog import EventLog
from shared.frameworks.kinds import Kinds
from shared.history_api import Question
from shared.job.fold import Histories, History
from shared.job.naming import NO_UID, JobKey, Uid, history_filters, namespace_filters
from shared.job.policies import replacement
from shared.job.state import Job
from shared.job.waiting import told
from shared.process.settings import Settings

COLUMNS = ("NAMESPACE", "KIND", "NAME", "PHASE", "READY", "RESTARTS")
WIDE_COLUMNS = (*COLUMNS, "ATTEMPT", "REQUESTS", "EVENTS AT", "UID")
NOTE = "NOTE"
"""The last column, because its length is not bounded."""

GONE = 410
"""The code of a watch that cannot go on from its sequence; who watches lists anew."""

EXPLAINED = ("Restarting", "Failed")
"""Phases of which the note is always the message of their condition."""


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


async def get(settings: Settings, wish: Wish, *, nats: bool = False) -> None:
    """Print jobs, and with a watch each change."""
    async with AsyncExitStack() as stack:
        if by_cluster(settings, nats=nats):
            told = texts_by_cluster(await stack.enter_async_context(open_cluster(settings)), wish)
        else:
            told = texts(await stack.enter_async_context(open_log(settings)), wish, known_kinds())
        async for text in await stack.enter_async_context(aclosing(told)):
            say(text, exact=wish.output is Output.json)


async def texts_by_cluster(cluster: KubeCluster, wish: Wish) -> AsyncGenerator[str, None]:
    """The pieces of the output as `texts` gives them, from `history.muster.dev`."""
    found = await _found(cluster, wish)
    shown = [one for one in found.shown if wish.asked or wish.gone or not one.gone]
    renderer = _renderer(wish, shown)
    for text in renderer.all(shown):
        yield text
    before = {one.uid: renderer.one(one) for one in shown}
    if not wish.watch:
        return

    async def later() -> AsyncGenerator[Shown, None]:
        nonlocal found
        async with aclosing(_changes(cluster, wish, found)) as changes:
            async for one in changes:
                yield one
        found = await _found(cluster, wish)
        for one in found.shown:
            yield one

    async with aclosing(patiently(later)) as changes:
        async for one in changes:
            text = renderer.one(one)
            if before.get(one.uid) != text and (one.uid in before or wish.gone or not one.gone):
                before[one.uid] = text
                yield text


async def _changes(cluster: KubeCluster, wish: Wish, found: "_Found") -> "AsyncGenerator[Shown, None]":
    """Each change after a list, to the end of the stream."""
    question = Question(wish.namespace, only=found.name, after=found.version, watch=True, bookmarks=True)
    async with aclosing(streamed(cluster, question)) as lines:
        async for line in lines:
            change = msgspec.json.decode(line, type=_Change)
            match change.type:
                case "ADDED" | "MODIFIED":
                    yield msgspec.json.decode(change.object, type=_Item).job
                case "ERROR":
                    said = msgspec.json.decode(change.object, type=_Said)
                    if said.code == GONE:
                        return
                    raise Transient(said.message)


async def shown_by_cluster(cluster: KubeCluster, wish: Wish) -> "list[Shown]":
    """The jobs to show, from `history.muster.dev`, those that are gone as well."""
    return (await _found(cluster, wish)).shown


async def _found(cluster: KubeCluster, wish: Wish) -> "_Found":
    if wish.asked:
        item = msgspec.json.decode(await ask(cluster, Question(wish.namespace, wish.asked.word)), type=_Item)
        return _Found([item.job], item.job.sequence, item.metadata.name)
    items = msgspec.json.decode(await ask(cluster, Question(wish.namespace, every=True)), type=_Items)
    return _Found([item.job for item in items.items], int(items.metadata.resource_version), "")


async def texts(log: EventLog, wish: Wish, kinds: Kinds) -> AsyncGenerator[str, None]:
    """The pieces of the output; with a watch there is no end.

    Raises `Refused` if the log does not have the job.
    """
    histories, shown = await shown_by_log(log, wish, kinds)
    renderer = _renderer(wish, shown)
    for text in renderer.all(shown):
        yield text
    if not wish.watch:
        return
    before = {one.uid: renderer.one(one) for one in shown}
    subjects = (
        history_filters(JobKey(wish.namespace, wish.asked.name, Uid(shown[0].uid)))
        if wish.asked
        else namespace_filters(wish.namespace)
    )
    async with aclosing(log.read(after=histories.position, subjects=subjects)) as batches:
        async for batch in batches:
            changed = {id(known): known for stored in batch.events if (known := histories.fold(stored)) is not None}
            for history in changed.values():
                one = Shown.of(history, kinds)
                text = renderer.one(one)
                if one.uid != NO_UID and before.get(one.uid) != text:
                    before[one.uid] = text
                    yield text


async def shown_by_log(log: EventLog, wish: Wish, kinds: Kinds) -> "tuple[Histories, list[Shown]]":
    """The fold of what is asked for, and the jobs to show.  Raises `Refused` if the log does not have the job."""
    subjects = subjects_of(wish.asked, wish.namespace) if wish.asked else namespace_filters(wish.namespace)
    histories, _ = await everything(log, subjects)
    chosen = [find(histories, wish.asked, wish.namespace)[1]] if wish.asked else listed(histories, gone=wish.gone)
    return histories, [Shown.of(history, kinds) for history in chosen]


def listed(histories: Histories, *, gone: bool) -> list[History]:
    """The histories to show, by namespace, name and uid."""
    known = (history for history in histories if history.job.key.uid != NO_UID and (gone or not history.job.gone))
    return sorted(known, key=lambda history: history.job.key)


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    """The output about one job; `-o json` and `-o yaml` have these fields."""

    namespace: str
    name: str
    uid: str
    kind: str
    api_version: str
    called: str
    """The command line's word for its kind, such as `mxjob.kubeflow.org`."""
    phase: str
    ready: int
    wanted: int
    restarts: int
    attempt: int
    """The number of the attempt, from one."""
    requests: int
    requests_over: int
    sequence: int
    """The sequence of its last event."""
    over: bool
    gone: bool
    note: str
    status: dict[str, Any]

    @classmethod
    def of(cls, history: History, kinds: Kinds) -> "Shown":
        job = history.job
        short = summary(job, kinds)
        return cls(
            namespace=job.key.namespace,
            name=job.key.name,
            uid=job.key.uid,
            kind=job.kind,
            api_version=job.api_version,
            called=word_of(job, kinds),
            phase=short.phase,
            ready=short.ready,
            wanted=short.wanted,
            restarts=short.restarts,
            attempt=job.attempt.number + 1,
            requests=len(job.scaling.requests),
            requests_over=sum(request.over for request in job.scaling.requests.values()),
            sequence=history.sequence,
            over=job.over,
            gone=bool(job.gone),
            note=history.held or _note(job, short),
            status=short.status,
        )


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = "0"


class _Item(msgspec.Struct):
    """A history as `history.muster.dev` shows it."""

    metadata: _Meta
    job: Shown


class _Items(msgspec.Struct):
    metadata: _Meta
    items: list[_Item]


class _Change(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class _Said(msgspec.Struct):
    """The Status with which a watch ends."""

    message: str = ""
    code: int = 0


class _Found(msgspec.Struct):
    """What was shown, up to which sequence, and the name of the one history in the API."""

    shown: list[Shown]
    version: int
    name: str


def _note(job: Job, short: Summary) -> str:
    if job.integrity.doubt is not None:
        return job.integrity.sentence
    if job.gone or job.another:
        return "gone" if job.gone else "of another operator"
    if job.deleting:
        return f"being deleted, waits for {', '.join(job.finalizers) or 'a finalizer'}"
    if job.problems:
        word = waits_for(job.problems) or ("edit refused" if job.phase else "refused")
        return f"{word}: {problem_line(job.problems)}"
    if short.phase in EXPLAINED or replacement.unreplaced(job):
        # The statuses of some kinds have no conditions.
        known = next((known.message for known in job.conditions if known.type == job.phase), "")
        return short.message or known
    wait = told(job)
    return wait.sentence if wait is not None else ""


def cells(one: Shown) -> dict[str, str]:
    """A job's cells by column; the note is not among them."""
    return {
        "NAMESPACE": one.namespace,
        "KIND": one.called,
        "NAME": one.name,
        "PHASE": one.phase or "-",
        "READY": "-" if one.over or one.gone else f"{one.ready}/{one.wanted}",
        "RESTARTS": str(one.restarts),
        "ATTEMPT": str(one.attempt),
        "REQUESTS": f"{one.requests_over}/{one.requests}" if one.requests else "-",
        "EVENTS AT": str(one.sequence),
        "UID": one.uid,
    }


class _Table:
    """Rows below a heading.  A watch keeps the widths of its first rows."""

    def __init__(self, wish: Wish, shown: Sequence[Shown]) -> None:
        self._where = f" in namespace {wish.namespace}" if wish.namespace else ""
        self._columns = WIDE_COLUMNS if wish.output is Output.wide else COLUMNS
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
        return self._line(self._cells(shown), shown.note)

    def _cells(self, one: Shown) -> Sequence[str]:
        known = cells(one)
        return [known[column] for column in self._columns]

    def _line(self, row: Sequence[str], note: str) -> str:
        padded = [cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)]
        return "  ".join([*padded, note]).rstrip()


class _Documents:
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

    def one(self, shown: Shown) -> str:
        if self._wish.output is Output.yaml:
            return f"---\n{_yaml(msgspec.to_builtins(shown))}"
        return msgspec.json.encode(shown).decode()


def _renderer(wish: Wish, shown: Sequence[Shown]) -> "_Table | _Documents":
    return _Table(wish, shown) if wish.output in (Output.table, Output.wide) else _Documents(wish)


def _yaml(plain: Any) -> str:
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip()
