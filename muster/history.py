"""`muster history`: the events of a job, from the log; and `muster audit`: who changed what, when, with what outcome.

`muster history accept` accepts a lost history, `muster history disown` an event that is nonsense.
"""

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import msgspec
import typer

from muster.asking import (
    Source,
    open_cluster,
    open_log,
    open_source,
    patiently,
    streamed,
    until_now,
)
from muster.following import Tell, warn
from muster.terminal import fail, say, wrong_usage
from shared.cluster import Cluster
from shared.cluster.kube import KubeCluster
from shared.eventlog import Entry, EventLog, Stored, ignore_trouble
from shared.eventlog.account import ADMIN, ARCHIVE, STREAM
from shared.eventlog.parts import Part as Archived
from shared.eventlog.subject import Subject, archived_under, is_decision, people, people_of
from shared.frameworks.kinds import Kinds
from shared.history_api import Question
from shared.job import text
from shared.job.events.catalog import Malformed, read_event
from shared.job.events.event import At, ChangeAttributed, EventDisowned
from shared.job.fold import Histories, History
from shared.job.naming import ACCEPT_HISTORY, JobKey, history_filters, key_of, namespace_filters, subject_of
from shared.job.state import Job
from shared.process.settings import Settings
from shared.telling.changes import Change, Noted, by_of
from shared.telling.reading import (
    as_json_text,
    event_of,
    fold_to_end,
    folded,
    is_seal,
    line_of,
    moment_of,
    of_history,
    unknown_then,
    until,
)
from shared.telling.sealed import events_in
from shared.telling.targets import Asked, Target, find, known_kinds
from shared.telling.words import aligned, one_line
from shared.untrusted import whole_number

COLUMNS = ("SEQUENCE", "TIME", "JOB", "BY", "OUTCOME")
CHANGE = "CHANGE"
"""The last column, because its length is not bounded."""
LONGEST = timedelta(days=36_500)
"""No log is older."""
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Part(msgspec.Struct, frozen=True):
    """The options of the command."""

    follow: bool = False
    """True to go on with later events."""
    at: str = ""
    """The last sequence or RFC 3339 time; the state at that point follows."""
    decisions: bool = False
    """True to leave the facts out."""
    as_json: bool = False
    """True for whole events, one JSON object a line."""


async def show(asked: Asked, namespace: str, settings: Settings, part: Part, *, nats: bool = False) -> None:
    """Print a job's events."""
    early = _early(part)
    async with (
        open_source(settings, nats=nats) as source,
        aclosing(lines(job_events(source, asked, namespace), part, early)) as told,
    ):
        async for line in told:
            say(line, exact=part.as_json)


async def job_events(
    source: Source, asked: Asked, namespace: str, *, uid: str = "", trouble: Tell | None = None
) -> AsyncGenerator[Sequence[Stored], None]:
    """A job's events as `until_now` has them, an empty batch, then later ones."""
    last: Stored | None = None
    async with aclosing(until_now(source, asked, namespace, uid)) as early:
        async for batch in early:
            if batch:
                last = batch[-1]
                yield batch
    yield []
    assert last is not None, asked
    key, after = key_of(Subject.parse(last.subject)), last.sequence
    if isinstance(source, KubeCluster):
        later = _later_by_cluster(source, asked.word, key, after, trouble or warn)
    else:
        later = _later_by_log(source, key, after, trouble or ignore_trouble)
    async with aclosing(later):
        async for batch in later:
            yield batch


async def events_now(asked: Asked, namespace: str, settings: Settings, *, uid: str = "", nats: bool) -> list[Stored]:
    async with open_source(settings, nats=nats) as source, aclosing(until_now(source, asked, namespace, uid)) as found:
        return [stored async for batch in found for stored in batch]


async def _later_by_cluster(
    cluster: KubeCluster, word: str, key: JobKey, after: int, trouble: Tell
) -> AsyncGenerator[list[Stored], None]:
    async def later() -> AsyncGenerator[Stored, None]:
        nonlocal after
        question = Question(key.namespace, word, "events", uid=key.uid, after=after, watch=True)
        async with aclosing(streamed(cluster, question)) as found:
            async for line in found:
                stored = event_of(line)
                after = stored.sequence
                yield stored

    async with aclosing(patiently(later, trouble)) as events:
        async for stored in events:
            yield [stored]


async def _later_by_log(log: EventLog, key: JobKey, after: int, trouble: Tell) -> AsyncGenerator[list[Stored], None]:
    async with aclosing(log.read(after=after, subjects=history_filters(key), trouble=trouble)) as batches:
        async for batch in batches:
            yield [stored for stored in batch.events if of_history(stored, key)]


async def lines(
    found: AsyncGenerator[Sequence[Stored], None], part: Part, early: Callable[[Stored], bool] | None = None
) -> AsyncGenerator[str, None]:
    """A job's events, one a line, up to the sequence or time of `part`; with `follow` there is no end.

    Raises `Refused` if there is no event up to that point.
    """
    # A later event may have an earlier time.
    end = whole_number(part.at)
    first: Stored | None = None
    then: History | None = None
    sealed = False
    async with aclosing(found):
        async for batch in found:
            if not batch and not part.follow:
                break
            for stored in batch:
                first = first or stored
                if early is not None:
                    if not early(stored):
                        continue
                    then = then or History(key_of(Subject.parse(stored.subject)))
                    then.fold(stored)
                if is_decision(stored.subject) or not part.decisions:
                    line = line_of(stored) if part.as_json else one_line(stored)
                    yield line + ("  (after the seal)" if sealed and not part.as_json else "")
                sealed = sealed or is_seal(stored)
            if end is not None and batch[-1].sequence >= end:
                break
    if early is not None:
        if then is None:
            assert first is not None, part
            raise unknown_then(first)
        yield as_json_text(then.job)


def _early(part: Part) -> Callable[[Stored], bool] | None:
    if part.at and part.follow:
        raise typer.BadParameter("--at looks back and --follow ahead; say one of them")
    with wrong_usage():
        return until(part.at) if part.at else None


async def accept(asked: Asked, namespace: str, settings: Settings, *, nats: bool = False) -> None:
    """Annotate the resource with the head that raised the doubt; the watcher records that a person accepted it."""
    if asked.is_request:
        raise fail("only a job has a history to accept; name the job")
    async with open_cluster(settings) as cluster, open_source(settings, nats=nats) as source:
        history = await folded(until_now(source, asked, namespace), History)
        target, _ = find([history], asked, namespace)
        say(await annotate(cluster, target, history.job, known_kinds()))


async def annotate(cluster: Cluster, target: Target, job: Job, kinds: Kinds) -> str:
    """Name in the resource the head that raised the doubt; return what was accepted.

    Exits with one line if the history is whole, or the resource is gone.
    """
    doubt = job.integrity.doubt
    if doubt is None:
        raise fail(f"the history of {target.label} is not in doubt; there is nothing to accept")
    kind = kinds.seen(job).resource
    resource = await cluster.get(kind, job.key.namespace, job.key.name)
    if resource is None or resource.metadata.uid != job.key.uid:
        raise fail(f"no {kind.kind} {job.key} with the uid {job.key.uid}")
    patch = {"metadata": {"uid": job.key.uid, "annotations": {ACCEPT_HISTORY: str(doubt.head)}}}
    await cluster.patch(kind, job.key.namespace, job.key.name, patch)
    return f"{target.label}: accepted that this log does not lead to {str(doubt.head)[:24]}..."


async def disown(sequence: int, reason: str, settings: Settings) -> None:
    """Record, with an administrator's credentials, that an event counts for nothing."""
    must_be_administrator(settings, "disowns an event")
    async with open_log(settings) as log:
        say(await disowned(log, sequence, reason, uuid4().hex, datetime.now(UTC)))


async def disowned(log: EventLog, sequence: int, reason: str, event_id: str, now: datetime) -> str:
    """Append the `EventDisowned`; return what was done.

    Exits with one line if the event holds no job.
    """
    found = await _event(log, sequence)
    try:
        key = key_of(Subject.parse(found.subject))
    except ValueError:
        raise fail(f"the event {sequence} is of no job: {found.subject}") from None
    # As the services do, which fold the seal, too: it may be the one that does not fit.
    histories = Histories()
    await fold_to_end(log, histories.fold, history_filters(key))
    history = histories[key]
    if sequence not in history.nonsense:
        others = ", ".join(map(str, history.nonsense))
        raise fail(f"the event {sequence} does not hold {key}; " + (f"these do: {others}" if others else "none does"))
    event = EventDisowned(sequence=sequence, reason=text.first(reason))
    subject = subject_of(key, "facts", "setup", "EventDisowned")
    time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entry = Entry(subject=subject, event_id=event_id, time=time, body=msgspec.json.encode(event))
    await log.append(entry, expect=history.facts.get("setup", 0))
    left = ", ".join(str(other) for other in history.nonsense if other != sequence)
    return f"{key}: the event {sequence} counts for nothing" + (f"; still held by {left}" if left else "")


async def _event(log: EventLog, sequence: int) -> Stored:
    if 0 < sequence <= await log.end():
        async with aclosing(log.read(after=sequence - 1)) as batches:
            async for batch in batches:
                if batch.events:
                    if batch.events[0].sequence == sequence:
                        return batch.events[0]
                    break
    raise fail(f"the log has no event {sequence}")


async def audit(settings: Settings, namespace: str, since: str, now: datetime, *, as_json: bool) -> None:
    """Print the changes in a namespace, or in all without one, the oldest first."""
    begin = begin_of(since, now)
    async with open_log(settings) as log:
        found = await changes(log, namespace, known_kinds())
    shown = [change for change in found if begin is None or datetime.fromisoformat(change.time) >= begin]
    for line in (msgspec.json.encode(change).decode() for change in shown) if as_json else table(shown, namespace):
        say(line, exact=as_json)


async def forget(settings: Settings, namespace: str, user: str, before: str, now: datetime) -> None:
    """Remove, with an administrator's credentials, who made the changes in a namespace, or in all.

    Those of one user, or all; those before a time, or all.  The server removes all up to an event: who made earlier
    changes of the same job goes, too.
    """
    end = begin_of(before, now, "--before")
    must_be_administrator(settings, "forgets who made changes")
    newest: dict[tuple[str, str], int] = {}

    def note(stream: str, of: Stored | Archived, events: Iterable[Stored]) -> None:
        old = (event for event in events if end is None or datetime.fromisoformat(event.time) < end)
        if any(not user or _names(event, user) for event in old):
            newest[stream, of.subject] = of.sequence

    async with open_log(settings) as log:
        await fold_to_end(log, lambda stored: note(STREAM, stored, [stored]), (people(namespace or "*"),))
        async with aclosing(log.archive.parts(people_of(archived_under(namespace or "*")))) as parts:
            async for part in parts:
                note(ARCHIVE, part, events_in(part))
        for at, sequence in newest.items():
            await log.archive.purge(*at, sequence + 1)
    say(f"removed who made changes of {text.counted(len(newest), 'job')}")


def _names(stored: Stored, user: str) -> bool:
    """True if the event says that this user made a change."""
    try:
        event = read_event(stored.body, Subject.parse(stored.subject).type)
    except Malformed:
        return False
    return isinstance(event, ChangeAttributed) and user in (event.user, event.acting_as)


def must_be_administrator(settings: Settings, what: str) -> None:
    """Exit with one line where another user's credentials are set."""
    if (user := settings.nats_user or ADMIN) != ADMIN:
        raise fail(f"only the log's administrator {what}: set NATS_USER={ADMIN}, not {user}, and its password")


def begin_of(since: str, now: datetime, option: str = "--since") -> datetime | None:
    """The time that `--since` names, as an age (`90s`, `30m`, `2h`, `7d`) or in RFC 3339; None without one."""
    if not since:
        return None
    if (age := _AGO.fullmatch(since)) is not None:
        return now - min(timedelta(**{_UNITS[age[2]]: int(age[1])}), LONGEST)
    with wrong_usage():
        return moment_of(since, f"{option} {since!r} is neither an age (30m, 2h, 7d) nor a time (2030-01-31T12:00:00Z)")


async def changes(log: EventLog, namespace: str, kinds: Kinds) -> list[Change]:
    """The changes that the log has, in its order."""
    noted = Noted()
    histories = Histories(
        lambda before, event, after, time: noted.note(before, event, after, At(histories.position, time))
    )
    # At its seal a job would be forgotten, with what became of its changes.
    await fold_to_end(log, lambda stored: is_seal(stored) or histories.fold(stored), namespace_filters(namespace))
    return noted.changes(kinds, lambda key: histories[key].job)


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
