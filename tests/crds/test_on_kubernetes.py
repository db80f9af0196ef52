"""Our definitions on a real API server, applied in every way people apply them."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from muster.crds import render
from shared.cluster.kube import KubeCluster
from shared.frameworks.training_job import TRAININGJOBS
from tests.crds.judges import real
from tests.crds.kubectl import CRDS, conditions, install, kubectl, tried
from tests.frameworks.documents import training_job
from tests.kit.clusters import NAMESPACES, eventually
from tests.kit.controlplane import require_control_plane

pytestmark = pytest.mark.real

MANY = len(render())
EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
    # That of the frameworks page is a package's own.
    if "kind: FlaxJob" not in path.read_text()
]
CLIENT_SIDE = ("apply", "-f", str(CRDS))
SERVER_SIDE = ("apply", "--server-side", "-f", str(CRDS))


@pytest.fixture
async def bare_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """A control plane of the test's own: the deletion of definitions deletes the jobs of other tests."""
    require_control_plane()
    async with ControlPlane(tmp_path / "plane", nodes=0) as plane:
        yield plane


async def test_definitions_are_applied_in_every_order(bare_plane: ControlPlane, tmp_path: Path) -> None:
    assert (await kubectl(bare_plane, *CLIENT_SIDE)).count("created") == MANY
    assert (await kubectl(bare_plane, *CLIENT_SIDE)).count("unchanged") == MANY
    # kubectl moves what it applied itself over to the server's side.
    assert (await kubectl(bare_plane, *SERVER_SIDE)).count("serverside-applied") == MANY
    assert (await kubectl(bare_plane, *SERVER_SIDE)).count("serverside-applied") == MANY
    await kubectl(bare_plane, *CLIENT_SIDE)
    for path in sorted(CRDS.glob("*.yaml")):
        # One by one: the API server takes seconds for each, and a command has a bound.
        ended = await tried(bare_plane, "delete", "--timeout=60s", "-f", str(path))
        if ended.code:
            # On a busy machine its storage is "(re)initializing" for so long that its controller backs off for
            # minutes; after a change it looks again.
            print(await _why_it_stays(bare_plane, path, tmp_path / "plane"))
            await tried(bare_plane, "annotate", "-f", str(path), "looked-at=again")
            ended = await tried(bare_plane, "delete", "--ignore-not-found", "--timeout=120s", "-f", str(path))
        assert not ended.code, f"{ended.complaint}\n{await _why_it_stays(bare_plane, path, tmp_path / 'plane')}"
    assert (await kubectl(bare_plane, *SERVER_SIDE)).count("serverside-applied") == MANY
    assert (await kubectl(bare_plane, *CLIENT_SIDE)).count("configured") == MANY
    await install(bare_plane)
    found = await conditions(bare_plane)
    assert len(found) == MANY
    for name, told in found.items():
        assert told["Established"] == told["NamesAccepted"] == "True", name
        assert "NonStructuralSchema" not in told, name


async def _why_it_stays(plane: ControlPlane, path: Path, data: Path) -> str:
    """What the API server says of a definition that it does not delete."""
    shown = "jsonpath={.metadata.deletionTimestamp} {.metadata.finalizers} {.status.conditions}"
    found = await tried(plane, "get", "-f", str(path), "-o", shown)
    lines = (data / "kube-apiserver.log").read_text().splitlines()
    return "\n".join([found.out, found.complaint, *(line for line in lines if "crd_finalizer" in line)])


async def test_what_muster_prints_can_be_applied(installed: ControlPlane) -> None:
    told = await kubectl(installed, "apply", "--dry-run=server", "-f", "-", given="---\n".join(render().values()))
    assert told.count("customresourcedefinition") == MANY


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_examples_are_accepted_as_people_send_them(installed: ControlPlane, path: Path) -> None:
    # kubectl validates strictly: an unknown or a repeated field is an error and no warning.
    told = await kubectl(installed, "create", "--dry-run=server", "--validate=strict", "-f", str(path))
    assert "created (server dry run)" in told


async def test_fields_are_explained(installed: ControlPlane) -> None:
    # The API server publishes the schema of what it serves a little later.
    field = "trainingjobs.spec.etReplicaSpecs.worker.maxReplicas"
    told = await eventually(lambda: tried(installed, "explain", field), lambda ended: ended.code == 0)
    assert "no bound when absent" in told.out


async def test_a_job_is_scaled_like_a_deployment_within_its_bounds(installed: ControlPlane) -> None:
    cluster = await KubeCluster.connect(installed.kubeconfig(ADMIN))
    namespace = f"scaled-{uuid4().hex[:8]}"
    await cluster.create(NAMESPACES, "", {"metadata": {"name": namespace}})
    await cluster.create(TRAININGJOBS, namespace, training_job() | {"metadata": {"name": "resnet"}})
    status = {"status": {"phase": "Running", "conditions": [], "replicas": 2, "selector": "a=b,c=d"}}
    await cluster.patch(TRAININGJOBS, namespace, "resnet", status, subresource="status")
    job = ("-n", namespace, "trainingjob/resnet")
    await kubectl(installed, "scale", *job, "--replicas=5")
    held = await cluster.get(TRAININGJOBS, namespace, "resnet")
    assert held is not None
    assert held.spec["etReplicaSpecs"]["worker"]["replicas"] == 5  # type: ignore[index]
    refused = await tried(installed, "scale", *job, "--replicas=10")
    assert refused.code
    assert "set replicas to at most maxReplicas" in refused.complaint
    # An autoscaler reads the same, and takes the pods that the selector names.
    found = await kubectl(installed, "autoscale", *job, "--max=6", "--dry-run=server", "-o", "name")
    assert "horizontalpodautoscaler" in found
    await cluster.close()


async def test_more_levels_than_python_follows_are_admitted_and_kept(installed: ControlPlane) -> None:
    deep = msgspec.Raw(b'{"a":' * 2_000 + b"1" + b"}" * 2_000)
    job = training_job()
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["new"] = deep
    async with real(installed) as judge:
        job["metadata"] = {"name": job["metadata"]["name"]}
        body, headers = msgspec.json.encode(job), {"Content-Type": "application/json"}
        async with judge.session.post(judge.path(job), data=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
        async with judge.session.get(judge.path(job, named=True)) as answer:
            kept = await answer.read()
    assert kept.count(b'{"a":') >= 2_000
