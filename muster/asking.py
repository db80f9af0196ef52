"""Opens the log or the cluster for a command, and asks: `muster why` and `muster report`.

`history.muster.dev` answers by Kubernetes' rights, with the kubeconfig alone; the log with a password at NATS.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from math import inf
from typing import Any, TypeVar

import msgspec
import typer
import uvloop

from muster import jobs
from muster.following import WAITED_TOO_LONG, Tell, WaitedTooLong, warn
from muster.terminal import fail, has_colours, say, width
from shared.cluster import Resource
from shared.cluster.calls import Answered
from shared.cluster.kinds import NAMESPACES
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Object
from shared.cluster.scope import OPTED_IN, lacking, why_outside
from shared.errors import Refused, Transient, Trouble, accepting
from shared.eventlog import EventLog, Stored
from shared.eventlog.account import FOR_CLIENTS, SUBSCRIBER
from shared.eventlog.inspection import standstill
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import Kinds
from shared.history_api import GROUP, KIND, NDJSON, PLURAL, VERSION, Question, path_of, query_of
from shared.job.naming import key_of
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.causes.walk import Causes
from shared.telling.reading import PATIENCE_SECONDS, event_of, folded
from shared.telling.report import Life, Report, report_lines, reported
from shared.telling.sealed import events_of
from shared.telling.targets import Asked, known_kinds
from shared.telling.timeline import timeline as timeline_of
from shared.telling.usage import COLUMNS, csv_line, csv_lines
from shared.telling.why import answered

CONNECT_SECONDS = 3.0
"""Seconds for the first connection to the log."""

PAGE_WIDTH = 100
"""Columns of a timeline where no terminal shows it."""

T = TypeVar("T")
Source = KubeCluster | EventLog
"""Where a person reads histories: `history.muster.dev` by the kubeconfig, or the log by a user of NATS."""
HISTORIES = Resource(GROUP, VERSION, PLURAL, KIND, Object)
LOOK_SECONDS = 2.0
"""Seconds between two streams while a command goes on with changes."""
IDLE_SECONDS = 90.0
"""Seconds without data after which a stream is given up: one of events ends by itself before, a watch has bookmarks."""
PAGE_EVENTS = 10_000
"""The most events of one answer; the service ends it earlier if they are large."""
TOO_LARGE = "RequestEntityTooLarge"
"""The reason of a refusal: the service does not fold so much, and the one who asks reads it in pages."""
OUTDATED = "Outdated"
"""The reason of a refusal: the history service does not know what is asked of it."""
QUEUE_SECONDS = 3.0
"""Seconds for the question about a queue: the log explains a job also while the API server is away."""


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncIterator[JetStreamEventLog]:
    """The log of the environment's settings.  Raises `Refused` for a subscriber's user, who sees a copy alone."""
    if (settings.nats_user or "").partition("-")[0] == SUBSCRIBER:
        raise Refused(f"NATS_USER={settings.nats_user}: {FOR_CLIENTS}", reason="Forbidden")
    log = await JetStreamEventLog.connect(
        settings.nats_url, name="muster", patience=PATIENCE_SECONDS, wait=CONNECT_SECONDS, **settings.nats_login
    )
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[KubeCluster]:
    """The cluster of kubectl's current context."""
    cluster = await KubeCluster.connect(settings.kubeconfig, context=settings.context)
    try:
        yield cluster
    finally:
        await cluster.close()


@contextmanager
def failure_in_one_line() -> Iterator[None]:
    """`Trouble` becomes one line, and exit code 1, or 3 after a wait that was too long."""
    try:
        yield
    except Trouble as trouble:
        ended = fail(str(trouble))
        raise (typer.Exit(WAITED_TOO_LONG) if isinstance(trouble, WaitedTooLong) else ended) from trouble


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; `Trouble` is one line, and Ctrl-C is exit code 130."""
    try:
        with failure_in_one_line():
            return uvloop.run(work())
    except (KeyboardInterrupt, asyncio.CancelledError) as stop:
        raise SystemExit(130) from stop


@asynccontextmanager
async def open_source(settings: Settings, *, nats: bool) -> AsyncIterator[Source]:
    """Where this person reads histories."""
    async with open_cluster(settings) if by_cluster(settings, nats=nats) else open_log(settings) as source:
        yield source


def by_cluster(settings: Settings, *, nats: bool) -> bool:
    """True if the cluster is asked; false if the log itself is, by `--nats` or as the environment says where it is."""
    return not nats and not settings.names_log


async def ask(cluster: KubeCluster, question: Question) -> bytes:
    """The answer.  Raises `Trouble` with the words of the history service, or with what to do where there is none."""
    return (await _asked(cluster, question)).body


async def _asked(cluster: KubeCluster, question: Question) -> Answered:
    what = f"ask {cluster.url} for {path_of(question)}"
    try:
        return await cluster.ask(path_of(question), what=what, query=query_of(question))
    except Refused as refusal:
        if refusal.reason == "NotFound" and not await cluster.serves(HISTORIES):
            raise Refused(
                f"{cluster.url} does not serve {GROUP}: install the history service (`history.enabled` of the chart), "
                "or say in NATS_URL, NATS_USER and NATS_PASSWORD where the log is",
                reason="NotServed",
            ) from refusal
        raise Refused(refusal.words or str(refusal), reason=refusal.reason) from refusal
    except Transient as trouble:
        raise Transient(f"{trouble}; an administrator asks the log itself, with --nats") from trouble


async def streamed(cluster: KubeCluster, question: Question) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, to its end.  Raises as `ask`."""
    what, media = f"ask {cluster.url} for {path_of(question)}", NDJSON if question.part else "application/json"
    stream = cluster.lines(path_of(question), query_of(question), what=what, media=media, idle=IDLE_SECONDS)
    async with aclosing(stream) as lines:
        async for line in lines:
            yield line


async def patiently(
    look: Callable[[], AsyncGenerator[T, None]], tell: Tell = warn, tries: float = inf
) -> AsyncGenerator[T, None]:
    """Everything that `look` finds, begun anew each time it ends; tells once if it cannot be had.

    Raises `Transient` after so many `tries` in a row that found nothing.
    """
    failures = 0
    while True:
        try:
            async with aclosing(look()) as found:
                async for each in found:
                    failures = 0
                    yield each
        except Transient as trouble:
            failures += 1
            if failures >= tries:
                raise
            if failures == 1:
                tell(f"muster: {trouble}; asking on")
        await asyncio.sleep(LOOK_SECONDS)


async def answered_in(ask: Callable[[], Awaitable[T]], tries: int, tell: Tell = warn) -> T:
    """What `ask` brings, asked for as `patiently` does."""

    async def once() -> AsyncGenerator[T, None]:
        yield await ask()

    async with aclosing(patiently(once, tell, tries)) as found:
        return await anext(found)


async def pages_of(
    cluster: KubeCluster, asked: Asked, namespace: str, uid: str = ""
) -> AsyncGenerator[list[Stored], None]:
    """The events of the newest job of that name, or of the one with the uid, page by page."""
    question = Question(namespace, asked.word, "events", uid=uid, limit=PAGE_EVENTS)
    while True:
        answer = await _asked(cluster, question)
        # In a thread: a program may have others to answer meanwhile.
        yield (found := await asyncio.to_thread(lambda lines: [*map(event_of, lines)], answer.body.splitlines()))
        if "Link" not in answer.headers:
            return
        of = key_of(Subject.parse(found[-1].subject)).uid
        question = msgspec.structs.replace(question, uid=of, after=found[-1].sequence)


def until_now(
    source: Source, asked: Asked, namespace: str, uid: str = "", *, waiting: bool = False
) -> AsyncGenerator[list[Stored], None]:
    """The events of the newest job of a name, or of the one with the uid, in order; `waiting` is as for `find`.

    Raises `Refused` if there is none.
    """
    if isinstance(source, KubeCluster):
        return pages_of(source, asked, namespace, uid)
    return events_of(source, asked, namespace, uid=uid, waiting=waiting)


async def why(
    asked: Asked, about: str, namespace: str, settings: Settings, *, uid: str, as_json: bool, nats: bool = False
) -> None:
    """Print why the job, or the worker or request `about`, is in its state."""
    told = told_if_outside(settings, None if uid else asked, namespace)
    async with told, open_source(settings, nats=nats) as source:
        await warn_of_standstill(source, namespace)
        say(await why_of(source, asked, about, namespace, uid=uid, as_json=as_json), nl=False, exact=as_json)
    if not (asked.is_request or about or uid or as_json) and (queued := await _queued(settings, asked, namespace)):
        say(f"\nthe queue:\n        {queued}")


async def warn_of_standstill(source: Source, namespace: str) -> None:
    """Print on standard error why no service acts on the jobs of a namespace, if so, and the log is asked."""
    with suppress(Trouble):
        if isinstance(source, JetStreamEventLog) and (why := await standstill(source, namespace)):
            warn(f"muster: {why}")


@asynccontextmanager
async def told_if_outside(settings: Settings, asked: Asked | None, namespace: str) -> AsyncIterator[None]:
    """Where the log does not have this job, raise `Refused` with why it does not begin in its namespace, if so."""
    try:
        yield
    except Refused as refusal:
        if refusal.reason == "NotFound" and asked is not None and (why := await outside(settings, namespace, asked)):
            raise Refused(why, reason=refusal.reason) from refusal
        raise


async def outside(settings: Settings, namespace: str, asked: Asked | None = None) -> str:
    """Why this job, or without one another that has no status yet, does not begin in its namespace.

    Empty if there is none, if it may begin, or if the cluster cannot be asked.
    """
    with suppress(Trouble, TimeoutError):
        async with asyncio.timeout(QUEUE_SECONDS), open_cluster(settings) as cluster:
            of_namespace = await cluster.get(NAMESPACES, "", namespace)
            labels = of_namespace.metadata.labels if of_namespace is not None else {}
            why = why_outside(namespace, lacking(settings.namespace_selector or OPTED_IN, labels))
            if asked is None and not why:
                return ""
            if asked is None:
                every = await jobs.every(cluster, known_kinds(), namespace)
                return why if any(not job.status and kind.ours(job) for kind, job in every) else ""
            found = None if asked.is_request else await jobs.found(cluster, asked, namespace)
            if found is None:
                return ""
            target, job = found
            if target.framework is not None and not target.framework.ours(job):
                return f"{target.label} names another controller in managedBy, and is left to it"
            return why
    return ""


async def _queued(settings: Settings, asked: Asked, namespace: str) -> str:
    """What a job in a queue of Kueue waits for, as the cluster says; empty if that cannot be asked."""
    with suppress(Trouble, TimeoutError):
        async with asyncio.timeout(QUEUE_SECONDS), open_cluster(settings) as cluster:
            found = await jobs.found(cluster, asked, namespace)
            if found is not None:
                return await jobs.waits(cluster, *found)
    return ""


async def why_of(
    source: Source, asked: Asked, about: str, namespace: str, *, uid: str = "", as_json: bool = False
) -> str:
    """The answer of `muster why`, as text or as JSON.  Raises `Refused` if the log does not have the job."""
    if isinstance(source, KubeCluster):
        question = Question(namespace, asked.word, "why", about=about, uid=uid, text=not as_json)
        with accepting(TOO_LARGE):
            return (await ask(source, question)).decode()
    causes = await folded(until_now(source, asked, namespace, uid, waiting=True), Causes, seal=True)
    return "".join(f"{line}\n" for line in answered(causes, asked, about, as_json=as_json))


async def report(
    asked: Asked,
    namespace: str,
    settings: Settings,
    *,
    uid: str,
    since: str,
    as_json: bool,
    as_csv: bool = False,
    nats: bool = False,
) -> None:
    """Print the report of a job; what its places did is told from `since` on."""
    found = await _reported(asked, namespace, settings, uid=uid, since=since, nats=nats)
    table = (csv_line(COLUMNS), *csv_lines(found.job, found.shares)) if as_csv else ()
    for line in table or report_lines(found, as_json=as_json):
        say(line, exact=as_json or as_csv)


async def timeline(asked: Asked, namespace: str, settings: Settings, *, uid: str, nats: bool = False) -> None:
    """Draw what each place of a job did, in the width of the terminal."""
    found = await _reported(asked, namespace, settings, uid=uid, nats=nats)
    for line in timeline_of(found, width() or PAGE_WIDTH, coloured=has_colours()):
        say(line, coloured=has_colours())


async def _reported(
    asked: Asked, namespace: str, settings: Settings, *, uid: str, nats: bool, since: str = ""
) -> Report:
    async with open_source(settings, nats=nats) as source:
        return await report_of(source, asked, namespace, known_kinds(), uid=uid, since=since)


async def report_of(
    source: Source, asked: Asked, namespace: str, kinds: Kinds, *, uid: str = "", since: str = ""
) -> Report:
    """The report of the newest job of a name, or of the one with the uid.

    Raises `Refused` if there is none, or with the reason `OUTDATED`.
    """
    if isinstance(source, KubeCluster):
        question = Question(namespace, asked.word, "report", uid=uid, since=since)
        with accepting(TOO_LARGE):
            found = msgspec.json.decode(await ask(source, question), type=Report)
            if found.since != since:
                why = f"the history service at {source.url} is older than --since: upgrade it, or leave --since out"
                raise Refused(why, reason=OUTDATED)
            return found
    life = await folded(until_now(source, asked, namespace, uid), Life)
    return reported(life, kinds, until=stamp(datetime.now(UTC)), since=since)
