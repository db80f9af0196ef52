"""`muster doctor`: what is missing, one line each, with what to do about it."""

import asyncio
from collections.abc import AsyncIterator

import typer

from muster.reading import PATIENCE_SECONDS, everything, open_cluster, open_log
from shared.cluster import Blind, Cluster, Resource, Snapshot
from shared.cluster.objects import Custom
from shared.errors import Trouble
from shared.eventlog.setup import differences
from shared.eventlog.subjects import HEADS, LEASES
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS
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
            for difference in await differences(log):
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
                trouble = await _cannot_watch(cluster, resource, settings.namespace)
                what = f"cluster: {resource.plural}.{resource.group}"
                yield not trouble, f"{what}: {trouble or 'served, and may be listed and watched'}"
    except Trouble as trouble:
        yield False, f"cluster: {trouble}"


async def _cannot_watch(cluster: Cluster, resource: Resource[Custom], namespace: str) -> str:
    """Why a kind cannot be listed; empty when it can."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for seen in cluster.watch(resource, namespace=namespace):
                if isinstance(seen, Snapshot):
                    return ""
                if isinstance(seen, Blind):
                    return f"{seen.reason}; `muster crds | kubectl apply -f -` installs the definitions"
    except TimeoutError:
        pass
    return f"no answer within {PATIENCE_SECONDS:.0f} s"
