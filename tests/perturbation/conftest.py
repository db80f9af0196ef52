"""A control plane of these tests' own: they stop its store, take its definitions and permissions."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
import yaml

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster.crds import manifests
from shared.cluster import Resource
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom
from tests.kit.clusters import DEFINITIONS
from tests.kit.controlplane import require_control_plane

ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", Custom)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", Custom)
PERMISSIONS = Path(__file__).parents[2] / "deploy" / "rbac" / "cluster" / "watcher.yaml"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def plane(tmp_path_factory) -> AsyncIterator[ControlPlane]:
    """With Muster's definitions, and the watcher's permissions as they are deployed."""
    require_control_plane()
    async with ControlPlane(tmp_path_factory.mktemp("plane"), users=["watcher"], nodes=0) as plane:
        admin = await KubeCluster.connect(plane.kubeconfig(ADMIN))
        for manifest in manifests():
            await admin.create(DEFINITIONS, "", manifest)
        for manifest in permissions():
            await admin.create(ROLES if manifest["kind"] == ROLES.kind else BINDINGS, "", manifest)
        await admin.close()
        yield plane


def permissions() -> list[dict]:
    """The watcher's role and binding."""
    deployed = yaml.safe_load_all(PERMISSIONS.read_text())
    return [manifest for manifest in deployed if manifest["kind"] in (ROLES.kind, BINDINGS.kind)]
