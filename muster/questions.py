"""`muster why` and `muster report`: answered from the log, or by the history service."""

import asyncio
from contextlib import suppress

from muster import jobs, queues
from muster.asking import ask, by_cluster
from muster.reading import open_cluster, open_log
from muster.terminal import say
from shared.errors import Trouble
from shared.eventlog import EventLog
from shared.frameworks.kinds import Kinds
from shared.history_api import Question
from shared.process.settings import Settings
from shared.telling.kinds import known_kinds
from shared.telling.reading import everything, found_subjects
from shared.telling.report import Report, reported
from shared.telling.report import told as told_report
from shared.telling.targets import Asked, find
from shared.telling.why import answered

QUEUE_SECONDS = 3.0
"""Seconds for the question about a queue: the log explains a job also while the API server is away."""


async def why(
    asked: Asked, about: str, namespace: str, settings: Settings, *, uid: str, as_json: bool, nats: bool = False
) -> None:
    """Print why the job, or the worker or request `about`, is in its state."""
    if by_cluster(settings, nats=nats):
        question = Question(namespace, asked.word, "why", about=about, uid=uid, text=not as_json)
        async with open_cluster(settings) as cluster:
            say((await ask(cluster, question)).decode(), nl=False, exact=as_json)
    else:
        async with open_log(settings) as log:
            for line in await answer(log, asked, about, namespace, uid=uid, as_json=as_json):
                say(line, exact=as_json)
    if not (asked.is_request or about or uid or as_json) and (queued := await _queued(settings, asked, namespace)):
        say(f"\nthe queue:\n        {queued}")


async def _queued(settings: Settings, asked: Asked, namespace: str) -> str:
    """What a job in a queue of Kueue waits for, as the cluster says; empty if that cannot be asked."""
    with suppress(Trouble, TimeoutError):
        async with asyncio.timeout(QUEUE_SECONDS), open_cluster(settings) as cluster:
            found = await jobs.found(cluster, asked, namespace)
            if found is not None:
                return await queues.waits(cluster, *found)
    return ""


async def answer(
    log: EventLog, asked: Asked, about: str, namespace: str, *, uid: str = "", as_json: bool = False
) -> list[str]:
    """The lines of the answer.  Raises `Refused` if the log does not have the job."""
    histories, events = await everything(log, await found_subjects(log, asked, namespace, uid=uid))
    return answered(histories, events, asked, about, namespace, uid=uid, as_json=as_json)


async def report(
    asked: Asked, namespace: str, settings: Settings, *, uid: str, as_json: bool, nats: bool = False
) -> None:
    """Print the report of a job."""
    if by_cluster(settings, nats=nats):
        question = Question(namespace, asked.word, "report", uid=uid, text=not as_json)
        async with open_cluster(settings) as cluster:
            say((await ask(cluster, question)).decode(), nl=False, exact=as_json)
        return
    async with open_log(settings) as log:
        found = await report_by_log(log, asked, namespace, known_kinds(), uid=uid)
    for line in told_report(found, as_json=as_json):
        say(line, exact=as_json)


async def report_by_log(log: EventLog, asked: Asked, namespace: str, kinds: Kinds, *, uid: str = "") -> Report:
    """The report of the newest job of a name, or of the one with the uid.

    Raises `Refused` if the log does not have the job.
    """
    histories, events = await everything(log, await found_subjects(log, asked, namespace, uid=uid))
    _, history = find(histories, asked, namespace, uid=uid)
    return reported(history, events, kinds)
