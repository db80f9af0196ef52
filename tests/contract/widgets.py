"""Objects and watches for the contract suite of the cluster port."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from shared.cluster import Alive, Blind, Resource, Snapshot
from shared.cluster.objects import Object
from tests.kit.clusters import WIDGETS, ClusterUnderTest
from tests.kit.watching import next_of


def a_widget(
    name: str = "w",
    *,
    labels: dict[str, str] | None = None,
    owners: Sequence[Object] = (),
    status: Any = None,
    **metadata: Any,
) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}, "ownerReferences": references(owners), **metadata}
    widget = {"metadata": metadata, "spec": {"size": 1, "colour": "red"}}
    return widget | ({"status": status} if status else {})


def references(owners: Sequence[Object]) -> list[dict[str, Any]]:
    """Owner references to these widgets, the first of which is the controller."""
    return [
        {
            "apiVersion": WIDGETS.api_version,
            "kind": WIDGETS.kind,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": owner is owners[0],
        }
        for owner in owners
    ]


def a_container(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "train", **more}


def a_pod(name: str = "p", *, node: str = "") -> dict[str, Any]:
    # No scheduler knows it, so that no controller writes to it.
    spec: dict[str, Any] = {"containers": [a_container()], "schedulerName": "nobody"}
    return {"metadata": {"name": name}, "spec": spec | ({"nodeName": node} if node else {})}


def a_config(name: str, *owners: Object) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": references(owners)}, "data": {"key": "value"}}


@asynccontextmanager
async def watching(world: ClusterUnderTest, resource: Resource[Any] = WIDGETS, **more: str) -> AsyncIterator[Any]:
    """A watch of the test's namespace."""
    watch: Any = world.cluster.watch(resource, **{"namespace": world.namespace, **more})
    async with aclosing(watch):
        yield watch


async def news(watch: AsyncIterator[Any]) -> Any:
    """What the watch says next of objects."""
    seen = await next_of(watch)
    while isinstance(seen, Alive | Blind):
        seen = await next_of(watch)
    return seen


def names(snapshot: Snapshot[Any]) -> list[str]:
    return sorted(thing.metadata.name for thing in snapshot.objects)
