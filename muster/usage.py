"""`muster report` of all jobs in a namespace, or in all: where the time of their places went, and what cost most.

One job is read at a time, with the rights of `muster report JOB`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from time import monotonic

import msgspec

from muster.asking import OUTDATED, Source, open_source, report_of
from muster.following import Tell, warn
from muster.get import pages
from muster.terminal import say
from shared.backoff import doubled
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog
from shared.eventlog.subject import archived_under
from shared.frameworks.kinds import Kinds
from shared.job.fold import Histories
from shared.job.naming import namespace_filters
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.reading import fold_to_end
from shared.telling.report import Report
from shared.telling.sealed import row_of
from shared.telling.shown import Shown, listed
from shared.telling.targets import Asked, known_kinds, parse_target
from shared.telling.usage import COLUMNS, Sum, csv_line, csv_lines, usage_lines

TOLD_SECONDS = 5.0
"""Seconds between two lines about how far a long reading is."""
MOST_TRIES = 5
"""How often a job is asked for where the answer may come later."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 10.0
"""Between two of them, doubled each time."""
MOST_AWAY = 3
"""After so many jobs in a row without an answer the others are not asked for."""


class One(msgspec.Struct, frozen=True):
    """A job of the list."""

    namespace: str
    word: str
    """`KIND/NAME`."""
    uid: str


async def usage(
    settings: Settings, namespace: str, since: str, *, as_json: bool = False, as_csv: bool = False, nats: bool = False
) -> None:
    """Print what the jobs of a namespace cost, or of all without one, from a time on."""
    async with open_source(settings, nats=nats) as source:
        found = lines(source, namespace, since, known_kinds(), as_json=as_json, as_csv=as_csv)
        async with aclosing(found):
            async for line in found:
                say(line, exact=as_json or as_csv)


async def lines(
    source: Source, namespace: str, since: str, kinds: Kinds, *, as_json: bool, as_csv: bool, tell: Tell = warn
) -> AsyncGenerator[str, None]:
    """The lines of the answer; those of CSV come as jobs are read.

    A job that cannot be read is told, and in JSON; after the answer that raises `Refused`.
    """
    found, told, away = Sum(), monotonic(), 0
    if as_csv:
        yield csv_line(COLUMNS)
    jobs = [one async for one in _jobs(source, namespace, since, kinds)]
    for number, one in enumerate(jobs):
        if monotonic() - told > TOLD_SECONDS:
            told = monotonic()
            tell(f"muster: {number} of {len(jobs)} jobs are read")
        if away == MOST_AWAY:
            found.unread.append(f"{one.namespace}/{one.word}: not asked for, as the jobs before it had no answer")
            continue
        try:
            asked = parse_target(one.word, kinds)
            report = await _report(source, asked, one, kinds, since)
        except Trouble as trouble:
            if isinstance(trouble, Refused) and trouble.reason == OUTDATED:
                raise
            found.unread.append(f"{one.namespace}/{one.word}: {trouble}")
            tell(f"muster: left out {found.unread[-1]}")
            away = away + 1 if isinstance(trouble, Transient) else 0
            continue
        away = 0
        found.add(report.shares, report.incidents)
        for line in csv_lines(report.job, report.shares) if as_csv else ():
            yield line
    if not as_csv:
        for line in usage_lines(found.usage(namespace, since, stamp(datetime.now(UTC))), as_json=as_json):
            yield line
    if found.unread:
        raise Refused(f"{len(found.unread)} of {len(jobs)} jobs were not read, and are in no figure", reason="Unread")


async def _report(source: Source, asked: Asked, one: One, kinds: Kinds, since: str) -> Report:
    for failures in range(1, MOST_TRIES):
        try:
            return await report_of(source, asked, one.namespace, kinds, uid=one.uid, since=since)
        except Transient:
            await asyncio.sleep(doubled(FIRST_PAUSE_SECONDS, failures, LONGEST_PAUSE_SECONDS))
    return await report_of(source, asked, one.namespace, kinds, uid=one.uid, since=since)


async def _jobs(source: Source, namespace: str, since: str, kinds: Kinds) -> AsyncIterator[One]:
    """The jobs that may have held a place since then, those that are gone or left the log as well."""
    rows = _by_cluster(source, namespace) if isinstance(source, KubeCluster) else _by_log(source, namespace, kinds)
    async with aclosing(rows):
        async for shown, time in rows:
            # The pods of a job that is over may run on, and then it gets events.
            if not (shown.over or shown.gone) or shown.ready or time >= since:
                yield One(shown.namespace, f"{shown.called}/{shown.name}", shown.uid)


async def _by_cluster(cluster: KubeCluster, namespace: str) -> AsyncGenerator[tuple[Shown, str], None]:
    async with aclosing(pages(cluster, namespace)) as found:
        async for page in found:
            for item in page.items:
                yield item.job, item.last_event_time


async def _by_log(log: EventLog, namespace: str, kinds: Kinds) -> AsyncGenerator[tuple[Shown, str], None]:
    histories = Histories()
    await fold_to_end(log, histories.fold, namespace_filters(namespace))
    known = {history.job.key.uid for history in histories}
    for history in listed(histories, gone=True):
        yield Shown.of(history, kinds), history.time
    async with aclosing(log.archive.scan(subject=archived_under(namespace or "*"))) as parts:
        async for part in parts:
            if (row := row_of(part)) is not None and row.uid not in known:
                yield row, row.time
