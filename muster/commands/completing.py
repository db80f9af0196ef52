"""The names of jobs, for the completion of a shell: those that the API server has now."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from shared.process.settings import Settings

PATIENCE_SECONDS = 2.0
"""How long a person waits for a completion; without an answer by then there is none."""


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """What may be meant: `trainingjob/resnet` and the like, and names alone once one is begun."""
    from muster.commands.arguments import settings

    found: list[tuple[str, str]] = []
    # No line of an error may come between a person and the prompt.
    with suppress(Exception, SystemExit):
        namespace = str(context.params.get("namespace") or "")
        found = asyncio.run(asyncio.wait_for(_jobs(settings(), namespace), PATIENCE_SECONDS))
    return sorted({word for kind, name in found for word in _words(kind, name, incomplete)})


def _words(kind: str, name: str, incomplete: str) -> Iterator[str]:
    if incomplete and name.startswith(incomplete):
        yield name
    if f"{kind}/{name}".startswith(incomplete):
        yield f"{kind}/{name}"


async def _jobs(settings: "Settings", namespace: str) -> list[tuple[str, str]]:
    """The kind, as commands call it, and the name of each job; a kind that cannot be listed is left out."""
    from muster.listing import objects
    from muster.reading import open_cluster
    from shared.cluster.access import current_namespace
    from shared.telling.kinds import called, known_kinds

    kinds = known_kinds()
    where = namespace or current_namespace(settings.kubeconfig, settings.context)
    async with open_cluster(settings) as cluster:
        lists = await asyncio.gather(
            *(objects(cluster, kind.resource.by_metadata, where) for kind in kinds), return_exceptions=True
        )
    return [
        (called(kind, kinds), job.metadata.name)
        for kind, listed in zip(kinds, lists, strict=True)
        if isinstance(listed, tuple)
        for job in listed
    ]
