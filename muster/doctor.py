"""`muster doctor`: what is missing, one line each, with what to do about it."""

from collections.abc import AsyncIterator

import typer
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS

from muster.reading import everything, open_cluster, open_log
from shared.errors import Trouble
from shared.eventlog.subjects import HEADS, LEASES
from shared.service.settings import Settings

Finding = tuple[bool, str]


async def examine(settings: Settings) -> None:
    """Look at the log and the cluster from here; exit code 1 when something is wrong."""
    fine = True
    for look in (_log(settings), _cluster(settings)):
        async for good, line in look:
            typer.echo(f"{'ok  ' if good else 'FAIL'}  {line}")
            fine = fine and good
    if not fine:
        raise typer.Exit(1)


async def _log(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with open_log(settings) as log:
            yield True, f"log: {settings.nats_url} answers"
            yield True, f"log: stream set up, identity {await log.identity()}"
            for name in (LEASES, HEADS):
                await log.bucket(name)
            yield True, "log: buckets for leases and heads are there"
            for difference in await log.differences():
                yield False, f"log: {difference}"
            histories, events = await everything(log)
            yield True, f"log: {len(events)} events of {len(histories)} histories can be folded"
            for history in histories:
                if history.held or history.job.broken:
                    yield False, f"job {history.job.key} is held: {history.held or history.job.broken}"
    except Trouble as trouble:
        yield False, f"log: {trouble}"


async def _cluster(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with open_cluster(settings) as cluster:
            for resource in (TRAININGJOBS, SCALEINS, SCALEOUTS):
                missing = await cluster.missing(resource, settings.namespace)
                what = f"cluster: {resource.plural}.{resource.group}"
                yield not missing, f"{what}: {missing or 'served, and may be listed and watched'}"
    except Trouble as trouble:
        yield False, f"cluster: {trouble}"
