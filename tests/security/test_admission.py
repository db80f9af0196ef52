"""Rights that admission asks for without a line in the audit log; here each is left out once.

The plugin is `OwnerReferencesPermissionEnforcement`.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster import crds, permissions
from muster.stack import APPLIED
from shared.cluster import Resource
from shared.cluster.examination import Right
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.cluster.kube import KubeCluster
from shared.errors import Refused
from shared.frameworks.framework import metadata, owner_reference
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.job.events.event import Author
from shared.job.naming import JobKey, Uid
from tests.kit.clusters import define
from tests.kit.nats import until
from tests.kit.operator import a_job, a_request
from tests.security.accounts import Accounts, accounts

pytestmark = pytest.mark.real

ROLES = APPLIED["Role"]
FINALIZERS = ("update", "trainingjobs/finalizers")
BODIES: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [{"name": "main", "image": "training"}]}},
    "Service": {"spec": {"clusterIP": "None"}},
    "ConfigMap": {"data": {}},
    "Secret": {"data": {}},
}


def without(service: Author, namespace: str, verb: str, resource: str) -> list[dict[str, Any]]:
    """A service's manifests with one right less."""
    account, role, binding = permissions.manifests(service, namespace, home=namespace)
    rules = []
    for rule in role["rules"]:
        left = [name for name in rule["resources"] if name != resource]
        rules += [{**rule, "resources": left}] if left else []
        if resource in rule["resources"] and (verbs := [known for known in rule["verbs"] if known != verb]):
            rules.append({**rule, "resources": [resource], "verbs": verbs})
    assert rules != role["rules"]
    return [account, {**role, "rules": rules}, binding]


async def install(plane: ControlPlane, admin: KubeCluster) -> None:
    """Our kinds, served."""
    await define(plane, *crds.manifests())

    async def served() -> bool:
        return all([await admin.serves(resource) for resource in (TRAININGJOBS, SCALEINS, SCALEOUTS)])

    await until(served)


def child(resource: Resource[Any], job: JobKey) -> dict[str, Any]:
    """What a service makes for a job."""
    return {"metadata": metadata(TRAININGJOB, job, "child"), **BODIES[resource.kind]}


@pytest.mark.parametrize(
    ("service", "resource"),
    [("scheduler", PODS), ("scheduler", SERVICES), ("scheduler", SECRETS), ("scaler", CONFIGMAPS)],
    ids=lambda value: getattr(value, "plural", value),
)
async def test_who_makes_a_child_may_hold_up_its_owner(
    control_plane: ControlPlane, tmp_path: Path, service: Author, resource: Resource[Any]
):
    async with world(control_plane) as (admin, own, job):
        await own.apply(without(service, own.namespace, *FINALIZERS))
        async with own.client(service, tmp_path) as cluster:
            await until(lambda: cluster.may(Right("create", resource.group, resource.plural), own.namespace))
            with pytest.raises(Refused, match="blockOwnerDeletion") as refusal:
                await cluster.create(resource, own.namespace, child(resource, job))
            assert refusal.value.reason == "Forbidden"
            await grant_all(admin, service, own.namespace)
            await until(lambda: is_allowed(cluster.create(resource, own.namespace, child(resource, job))))


@pytest.mark.parametrize("resource", [SCALEINS, SCALEOUTS], ids=lambda resource: resource.plural)
@pytest.mark.parametrize("left_out", ["delete", "finalizers"])
async def test_who_gives_a_request_an_owner_may_delete_it_and_hold_up_the_owner(
    control_plane: ControlPlane, tmp_path: Path, resource: Resource[Any], left_out: str
):
    async with world(control_plane) as (admin, own, job):
        right = FINALIZERS if left_out == "finalizers" else ("delete", resource.plural)
        await own.apply(without("scaler", own.namespace, *right))
        wish = {"toDelete": {"count": 1}} if resource is SCALEINS else {"toAdd": {"count": 1}}
        request = a_request(resource.kind, "request", job.name, **wish)
        del request["metadata"]["namespace"]
        await admin.create(resource, own.namespace, request)
        patch = {"metadata": {"ownerReferences": [owner_reference(TRAININGJOB.resource, job)]}}
        async with own.client("scaler", tmp_path) as cluster:
            await until(lambda: cluster.may(Right("patch", resource.group, resource.plural), own.namespace))
            with pytest.raises(Refused, match=r"cannot set an ownerRef|blockOwnerDeletion") as refusal:
                await cluster.patch(resource, own.namespace, "request", patch)
            assert refusal.value.reason == "Forbidden"
            await grant_all(admin, "scaler", own.namespace)
            await until(lambda: is_allowed(cluster.patch(resource, own.namespace, "request", patch)))


@asynccontextmanager
async def world(plane: ControlPlane) -> AsyncIterator[tuple[KubeCluster, Accounts, JobKey]]:
    """The administrator, a namespace, and a job in it."""
    admin = await KubeCluster.connect(plane.kubeconfig(ADMIN))
    try:
        await install(plane, admin)
        async with accounts(plane) as own:
            manifest = a_job("owner", "true")
            del manifest["metadata"]["namespace"]
            made = await admin.create(TRAININGJOBS, own.namespace, manifest)
            yield admin, own, JobKey(own.namespace, "owner", Uid(made.metadata.uid))
    finally:
        await admin.close()


async def grant_all(admin: KubeCluster, service: Author, namespace: str) -> None:
    """The role as it is shipped."""
    _, role, _ = permissions.manifests(service, namespace, home=namespace)
    await admin.patch(ROLES, namespace, role["metadata"]["name"], {"rules": role["rules"]})


async def is_allowed(call: Awaitable[object]) -> bool:
    """Roles are effective once the authorizer has seen them."""
    try:
        await call
    except Refused as refusal:
        if refusal.reason != "Forbidden":
            raise
        return False
    return True
