"""The demo as a new user runs it, and interrupted at any moment: nothing is left."""

import re
import signal
import sys
from pathlib import Path

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from devcluster.realnode import machine
from muster.crds import manifests
from muster.stack import APPLIED, CRDS, DIGITS
from shared.cluster import Snapshot
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom, Object
from tests.kit.clusters import eventually
from tests.kit.commands import Ended, run
from tests.kit.controlplane import require_control_plane
from tests.kit.demo import demo
from tests.kit.traces import nothing_running

pytestmark = pytest.mark.e2e

STOP_SECONDS = 60.0
"""After Ctrl-C; four on a quiet machine, and each of the programs may take five before it is killed."""
LONGEST_SECONDS = 120.0


def interfaces() -> set[str]:
    """The machine's, but for those of a real node, which make test-node may have beside us: its bridge, and its pods'
    cables by the names that the CNI plugin gives.  What a demo makes has other names.
    """
    found = {entry.name for entry in Path("/sys/class/net").iterdir()}
    return {name for name in found if name != machine.BRIDGE and not re.fullmatch("veth[0-9a-f]{8}", name)}


REAL = pytest.mark.real


@pytest.mark.parametrize(
    ("cluster", "after"),
    [
        pytest.param("embedded", "", id="at once"),
        pytest.param("embedded", "up: ", id="when all is up"),
        pytest.param("embedded", "is Running", id="while it trains"),
        pytest.param("embedded", "applied scaleout", id="while it scales"),
        pytest.param("real", "applied scaleout", id="while it scales on the real one", marks=REAL),
    ],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, cluster: str, after: str):
    if cluster == "real":
        require_control_plane()
    before = interfaces()
    with demo(tmp_path, "--cluster", cluster) as process:
        assert process.stdout is not None
        if after:
            assert any(after in line for line in process.stdout), f"never said {after!r}"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode in (130, -signal.SIGINT) or (not after and never_began(said)), said
    assert nothing_running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    # Others of this machine may have taken theirs away meanwhile.
    assert interfaces() <= before


def never_began(said: str) -> bool:
    """The interpreter was interrupted before it came to us; then its exit code is another."""
    return "Fatal Python error: init_" in said and said.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("cluster", ["embedded", pytest.param("real", marks=REAL)])
def test_a_killed_demo_leaves_no_process(tmp_path: Path, cluster: str):
    if cluster == "real":
        require_control_plane()
    with demo(tmp_path, "--cluster", cluster) as process:
        assert process.stdout is not None
        assert any("is Running" in line for line in process.stdout)
        process.kill()
        process.wait()
    assert nothing_running(tmp_path) == []


@REAL
async def test_the_current_cluster_is_left_as_it_was_found(tmp_path: Path):
    require_control_plane()
    async with ControlPlane(tmp_path / "cluster", images={"mine": DIGITS}) as plane:
        kube = await KubeCluster.connect(plane.kubeconfig(ADMIN))
        try:
            before = await _installed(kube)
            (tmp_path / "demo").mkdir()
            ended = await on_current(plane, "--image", "mine:1", TMPDIR=str(tmp_path / "demo"))
            assert ended.code == 0, ended
            await eventually(lambda: _installed(kube), lambda now: now == before, patience=LONGEST_SECONDS)
        finally:
            await kube.close()
    assert list((tmp_path / "demo").iterdir()) == []


@REAL
async def test_a_cluster_that_has_muster_already_is_not_touched(tmp_path: Path):
    require_control_plane()
    async with ControlPlane(tmp_path / "cluster", nodes=0) as plane:
        kube = await KubeCluster.connect(plane.kubeconfig(ADMIN))
        try:
            await kube.create(CRDS, "", manifests()[-1])
            before = await _installed(kube)
            ended = await on_current(plane, "--data", str(tmp_path / "demo"))
            assert ended.code == 1
            assert ended.out.splitlines()[-1].startswith("muster demo: CustomResourceDefinition ")
            await eventually(lambda: _installed(kube), lambda now: now == before, patience=LONGEST_SECONDS)
        finally:
            await kube.close()


async def on_current(plane: ControlPlane, *options: str, **environment: str) -> Ended:
    """`muster demo` on a cluster that is there already."""
    command = (sys.executable, "-m", "muster", "demo", "--cluster", "current", *options)
    environment["KUBECONFIG"] = str(plane.kubeconfig(ADMIN))
    return await run(*command, environment=environment, patience=LONGEST_SECONDS)


async def _installed(kube: KubeCluster) -> set[tuple[str, str, str]]:
    """Everything that an installation could have brought, and the pods; not what a cluster makes for itself."""
    found: set[tuple[str, str, str]] = set()
    for resource in (*APPLIED.values(), PODS):
        async for seen in kube.watch(resource):
            assert isinstance(seen, Snapshot)
            theirs = [one.metadata for one in seen.objects if not _of_the_cluster(one)]
            found |= {(resource.kind, metadata.namespace, metadata.name) for metadata in theirs}
            break
    return found


def _of_the_cluster(one: Object) -> bool:
    """It is the server's own, or a definition that it was asked to take away and fails to.

    One that goes as soon as it came may stay for minutes (`storage is (re)initializing`): it is tried ever more seldom.
    """
    metadata = one.metadata
    if "kubernetes.io/bootstrapping" in (metadata.labels or ()):
        return True
    if isinstance(one, Custom) and isinstance(one.status, dict) and metadata.deletion_timestamp is not None:
        reasons = [known.get("reason") for known in one.status.get("conditions") or ()]
        if "InstanceDeletionFailed" in reasons:
            return True
    return any(part.startswith(("kube-", "system:", "default")) for part in (metadata.namespace, metadata.name))
