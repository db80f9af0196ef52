"""`muster doctor`: what is missing, one line each, with what to do about it."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import typer

from muster.reading import everything, open_cluster, open_log
from shared.cluster import Resource
from shared.cluster.examination import Right
from shared.cluster.examination import examine as must_do
from shared.errors import Trouble
from shared.eventlog.setup import differences
from shared.eventlog.subjects import HEADS, LEASES
from shared.service.permissions import definitions
from shared.service.plugins import in_served_versions, installed
from shared.service.settings import Settings

Finding = tuple[bool, str]


async def examine(settings: Settings) -> None:
    """Look at the log and the cluster from here; exit code 1 when something is wrong."""
    fine = True
    for look in (of_packages(), of_log(settings), of_cluster(settings)):
        async for good, line in look:
            typer.echo(f"{'ok  ' if good else 'FAIL'}  {line}")
            fine = fine and good
    if not fine:
        raise typer.Exit(1)


async def of_packages() -> AsyncIterator[Finding]:
    """Whether the frameworks of other packages can be used."""
    for why in installed().left_out:
        yield False, f"packages: {why}"


async def of_log(settings: Settings) -> AsyncIterator[Finding]:
    """Whether it is set up, whole, and as it would be made today."""
    try:
        async with open_log(settings) as log:
            yield True, f"log: {log.url} answers"
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


async def of_cluster(settings: Settings) -> AsyncIterator[Finding]:
    """Which of our kinds it serves, and whether it lets us see them."""
    wanted: dict[Resource[Any], tuple[Resource[Any], ...]] = {}

    def watching(served: Sequence[Resource[Any]]) -> list[Right]:
        seen = [each for kind in served for each in (kind, *wanted[kind])]
        return [Right(verb, each.group, each.plural) for each in seen for verb in ("list", "watch")]

    try:
        async with open_cluster(settings) as cluster:
            kinds = await in_served_versions(cluster, installed().kinds)
            wanted |= {kind.resource: definitions(kind) for kind in kinds}
            served = await must_do(cluster, wanted, watching, settings.namespace)
            names = ", ".join(f"{kind.plural}.{kind.group}" for kind in served)
            yield True, f"cluster: {cluster.url} serves {names}; they may be listed and watched"
            if others := ", ".join(f"{kind.plural}.{kind.group}" for kind in wanted if kind not in served):
                # Nobody needs all of them.
                yield True, f"cluster: not installed are {others}"
    except Trouble as trouble:
        yield False, f"cluster: {trouble}"
