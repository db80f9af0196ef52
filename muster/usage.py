"""`muster report` of all jobs in a namespace, or in all: where the time of their places went, and what cost most.

One job is read at a time, with the rights of `muster report JOB`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from time import monotonic

import msgspec

from muster.asking import OUTDATED, Source, answered_in, open_source, report_of
from muster.following import Tell, warn
from muster.get import pages
from muster.terminal import say
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient, Trouble
from shared.eventlog import EventLog
from shared.eventlog.subject import Subject, archived_under, of_type, seals
from shared.frameworks.kinds import Kinds
from shared.job.events.watcher import JobObserved
from shared.job.naming import Uid, history_filters, key_of
from shared.process.settings import Settings
from shared.runtime.appends import stamp
from shared.telling.sealed import row_of
from shared.telling.shown import Shown
from shared.telling.targets import ANY_JOB, known_kinds, parse_target
from shared.telling.usage import COLUMNS, Sum, csv_line, csv_lines, usage_lines

TOLD_SECONDS = 5.0
"""Seconds between two lines about how far a long reading is."""
MOST_TRIES = 8
"""How often the list and a job are asked for where the answer may come later."""
OBSERVED = str(JobObserved.__struct_config__.tag)
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
    jobs = await answered_in(lambda: _jobs(source, namespace, since), MOST_TRIES, tell)
    for number, one in enumerate(jobs):
        if monotonic() - told > TOLD_SECONDS:
            told = monotonic()
            tell(f"muster: {number} of {len(jobs)} jobs are read")
        if away == MOST_AWAY:
            found.unread.append(f"{one.namespace}/{one.word}: not asked for, as the jobs before it had no answer")
            continue
        try:
            asked = parse_target(one.word, kinds)
            ask = partial(report_of, source, asked, one.namespace, kinds, uid=one.uid, since=since)
            report = await answered_in(ask, MOST_TRIES, tell)
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


async def _jobs(source: Source, namespace: str, since: str) -> list[One]:
    """The jobs that may have held a place since then, those that are gone or left the log as well."""
    rows = (
        _by_cluster(source, namespace, since) if isinstance(source, KubeCluster) else _by_log(source, namespace, since)
    )
    async with aclosing(rows):
        return [one async for one in rows]


async def _by_cluster(cluster: KubeCluster, namespace: str, since: str) -> AsyncGenerator[One, None]:
    async with aclosing(pages(cluster, namespace)) as found:
        async for page in found:
            for job, time in ((item.job, item.last_event_time) for item in page.items):
                # The pods of a job that is over may run on, and then it gets events.
                if not (job.over or job.gone) or job.ready or time >= since:
                    yield _one(job)


async def _by_log(log: EventLog, namespace: str, since: str) -> AsyncGenerator[One, None]:
    """By the subjects that the log has: the states of all jobs may be more than this process has room for."""
    observed = await log.counted(of_type(namespace or "*", OBSERVED))
    known = sorted({key_of(Subject.parse(subject)) for subject in observed})
    over = {key_of(Subject.parse(subject)) for subject in await log.counted(seals(namespace or "*"))}
    for key in known:
        # A sealed job has no pods any more.
        ends = [await log.last(scope) for scope in history_filters(key)] if since and key in over else ()
        if not ends or any(last is not None and last.time >= since for last in ends):
            yield One(key.namespace, f"{ANY_JOB}/{key.name}", key.uid)
    uids = {key.uid for key in known}
    async with aclosing(log.archive.scan(subject=archived_under(namespace or "*"))) as parts:
        async for part in parts:
            if (row := row_of(part.row)) is not None and row.uid not in uids and row.time >= since:
                # A restored log may have sealed it again.
                uids.add(Uid(row.uid))
                yield _one(row)


def _one(job: Shown) -> One:
    return One(job.namespace, f"{job.called}/{job.name}", job.uid)
