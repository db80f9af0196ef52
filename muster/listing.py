"""Lists the present objects: one complete list of each kind."""

import asyncio
from contextlib import aclosing
from typing import TypeVar

from shared.cluster import Alive, Blind, Cluster, Resource, Snapshot
from shared.cluster.objects import Custom, Object
from shared.errors import Refused, Transient
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.telling.reading import PATIENCE_SECONDS

T = TypeVar("T", bound=Object)


async def every(cluster: Cluster, kinds: Kinds, namespace: str, selector: str = "") -> list[tuple[Framework, Custom]]:
    """The jobs of all kinds that the cluster serves, each kind in its first served version."""
    found: list[tuple[Framework, Custom]] = []
    for kind in kinds:
        for version in (kind, *kind.others):
            listed = await objects(cluster, version.resource, namespace, selector)
            if listed is not None:
                found += [(version, each) for each in listed]
                break
    return found


async def objects(cluster: Cluster, resource: Resource[T], namespace: str, selector: str = "") -> tuple[T, ...] | None:
    """All objects of a kind in a namespace, or in the whole cluster without one; None if the kind is not served.

    Raises `Refused` without the right to list them, `Transient` if no list comes in time.
    """
    what = f"list {resource.plural} in {namespace or 'the whole cluster'}"
    trouble = "no answer"
    try:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            aclosing(cluster.watch(resource, namespace=namespace, selector=selector)) as watch,
        ):
            async for seen in watch:
                match seen:
                    case Snapshot(found):
                        return found
                    case Blind("NotFound"):
                        return None
                    case Blind("Forbidden"):
                        raise Refused(f"{what}: forbidden; it needs the right to list them", reason="Forbidden")
                    case Blind(reason):
                        trouble = reason
                    case Alive() | _:
                        continue
    except TimeoutError as late:
        raise Transient(f"{what}: {trouble}") from late
    raise Transient(f"{what}: the client was closed")
