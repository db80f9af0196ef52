"""A release's life on a real API server: installed, upgraded, rolled back, refused beside another, uninstalled.

The server has no nodes, so that nothing runs: what is tested is what helm and the server make of the chart.
"""

import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from cryptography import x509

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from tests.crds.kubectl import kubectl
from tests.deploy.charts import require
from tests.deploy.rendering import CHART
from tests.kit.commands import Ended, run

pytestmark = pytest.mark.real


class Release(NamedTuple):
    plane: ControlPlane
    name: str

    async def helm(self, *words: str) -> Ended:
        """In the namespace of the release's name."""
        where = ("--kubeconfig", str(self.plane.kubeconfig(ADMIN)), "--namespace", self.name)
        return await run(str(require()), *words, *where)

    async def install(self, *options: str) -> Ended:
        return await self.helm("install", self.name, str(CHART), "--create-namespace", *options)

    async def upgrade(self, *options: str) -> None:
        done = await self.helm("upgrade", self.name, str(CHART), *options)
        assert not done.code, done.complaint

    async def those(self, kind: str) -> list[dict[str, Any]]:
        words = ("get", kind, "--namespace", self.name, "-l", f"app.kubernetes.io/instance={self.name}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(await kubectl(self.plane, *words))["items"]
        return found

    async def kubectl(self, *words: str, given: str = "") -> str:
        return await kubectl(self.plane, "--namespace", self.name, *words, given=given)

    async def set_up(self) -> str:
        """The one Job's name."""
        [name] = [job["metadata"]["name"] for job in await self.those("jobs")]
        return str(name)


@pytest.fixture
async def release(control_plane: ControlPlane) -> AsyncIterator[Release]:
    found = Release(control_plane, f"muster-{uuid4().hex[:8]}")
    yield found
    await found.helm("uninstall", found.name)


async def test_upgrade_and_rollback_set_up_anew_and_keep_the_rest(release: Release) -> None:
    done = await release.install()
    assert not done.code, done.complaint
    assert "muster doctor" in done.out
    first, deployments = await release.set_up(), uids(await release.those("deployments"))
    assert len(deployments) == 5

    await release.upgrade("--set", "image.tag=9.9.9")
    assert await release.set_up() != first

    back = await release.helm("rollback", release.name)
    assert not back.code, back.complaint
    assert await release.set_up() == first
    assert uids(await release.those("deployments")) == deployments

    gone = await release.helm("uninstall", release.name)
    assert not gone.code, gone.complaint
    assert not await release.those("deployments,jobs,serviceaccounts,clusterroles,clusterrolebindings")


async def test_one_process_becomes_four(release: Release) -> None:
    assert not (await release.install("--set", "mode=all-in-one")).code
    archiver = f"{release.name}-archiver"
    assert {*uids(await release.those("deployments"))} == {release.name, archiver}
    await release.upgrade("--set", "replicas=2")
    wanted = {f"{release.name}-{service}" for service in ("watcher", "scheduler", "scaler", "status")}
    assert {*uids(await release.those("deployments"))} == {*wanted, archiver}
    assert {*uids(await release.those("serviceaccounts"))} == {*wanted, archiver, f"{release.name}-setup"}


async def test_the_number_of_servers_that_keep_a_log_is_not_changed(release: Release) -> None:
    for one, other in (("1", "3"), ("3", "1")):
        done = await release.install("--set", f"nats.replicas={one}")
        assert not done.code, done.complaint
        refused = await release.helm("upgrade", release.name, str(CHART), "--set", f"nats.replicas={other}")
        assert refused.code
        assert f"nats.replicas is {other} and the log that is there is of {one}" in refused.complaint
        await release.upgrade("--set", f"nats.replicas={one},replicas=2")
        await release.helm("uninstall", release.name)
        await release.kubectl("delete", "persistentvolumeclaims", "--all", "--wait=false")
        await release.kubectl("wait", "--for=delete", "persistentvolumeclaims", "--all", "--timeout=60s")


async def test_an_upgrade_signs_another_certificate_with_the_authority_that_is_there(release: Release) -> None:
    made = []
    for again in (release.install, release.upgrade):
        await again()
        found = {
            name: json.loads(await release.kubectl("get", "secret", f"{release.name}-nats-{name}", "-o", "json"))
            for name in ("ca", "tls")
        }
        assert found["ca"]["data"]["tls.crt"] == found["tls"]["data"]["ca.crt"]
        made.append(found)
    first, second = made
    assert first["ca"]["data"] == second["ca"]["data"]
    assert first["tls"]["data"]["tls.key"] != second["tls"]["data"]["tls.key"]
    authority, ours = (
        x509.load_pem_x509_certificate(b64decode(second["tls"]["data"][name])) for name in ("ca.crt", "tls.crt")
    )
    ours.verify_directly_issued_by(authority)


async def test_three_servers_that_run_are_not_changed_to_tls(release: Release) -> None:
    done = await release.install("--set", "nats.replicas=3,nats.tls.enabled=false")
    assert not done.code, done.complaint
    refused = await release.helm("upgrade", release.name, str(CHART), "--set", "nats.replicas=3")
    assert "nats.tls.enabled is true and is not so at the three servers that run" in refused.complaint
    (command,) = re.findall(r"`kubectl (.*?)`", refused.complaint)
    await release.kubectl(*command.split())
    await release.upgrade("--set", "nats.replicas=3", "--force-conflicts")


async def test_a_volume_that_was_kept_is_taken_up_by_as_many_servers(release: Release) -> None:
    await release.kubectl("create", "namespace", release.name)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"data-{release.name}-nats-0"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await release.kubectl("apply", "-f", "-", given=json.dumps(claim))
    refused = await release.install("--set", "nats.replicas=3")
    assert "nats.replicas is 3 and the log that is there is of 1" in refused.complaint
    assert not (await release.install()).code


async def test_a_second_release_for_the_whole_cluster_is_refused(release: Release) -> None:
    assert not (await release.install()).code
    other = Release(release.plane, f"{release.name}-too")
    try:
        refused = await other.install()
        assert refused.code
        assert f"release {release.name} in namespace {release.name} is a Muster for the whole cluster" in (
            refused.complaint
        )
        # Another life of its own it may have.
        assert not (await other.install("--set", "scope.namespace=default")).code
    finally:
        await other.helm("uninstall", other.name)


def uids(objects: list[dict[str, Any]]) -> dict[str, str]:
    return {found["metadata"]["name"]: found["metadata"]["uid"] for found in objects}
