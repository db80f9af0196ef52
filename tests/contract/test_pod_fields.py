"""The fields of pods that Muster knows are those of a real API server."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.cluster import pod_fields
from shared.cluster.kube import KubeCluster
from tests.docs.pods_page import CONTAINER, POD


def _lacking(schemas: dict[str, Any], name: str, seen: set[str]) -> Iterator[str]:
    """The fields of a schema, and of those below it, that the table lacks."""
    kind = name.rpartition(".")[2]
    fields = schemas.get(name, {}).get("properties")
    if fields is None or name in seen:
        return
    seen.add(name)
    known = pod_fields.types().get(kind, {})
    yield from (f"{kind}.{field}" for field in fields if field not in known)
    for field in fields.values():
        for each in (field, field.get("items") or {}):
            for part in (each, *(each.get("allOf") or ())):
                yield from _lacking(schemas, str(part.get("$ref", "")).rpartition("/")[2], seen)


@pytest.mark.real
async def test_every_field_of_a_real_api_server_is_in_the_tables(real_server: ControlPlane) -> None:
    cluster = await KubeCluster.connect(real_server.kubeconfig(ADMIN))
    try:
        answer = await cluster.ask("/openapi/v3/api/v1", what="read the fields of pods")
    finally:
        await cluster.close()
    schemas = msgspec.json.decode(answer.body)["components"]["schemas"]
    assert sorted(_lacking(schemas, "io.k8s.api.core.v1.PodSpec", set())) == []
    for kind, rules in (("PodSpec", POD), ("Container", CONTAINER)):
        assert schemas[f"io.k8s.api.core.v1.{kind}"]["properties"].keys() <= rules.keys()
