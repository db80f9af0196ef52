"""A node leaves the machine as it found it, also when the run before was killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.controlplane import ControlPlane
from devcluster.realnode import USER, NodeError, RealCluster, RealNode, leftovers, machine
from tests.kit import traces
from tests.kit.hosts import MakeHost

pytestmark = pytest.mark.node

ROOT = Path(__file__).parents[2]


@pytest.fixture
def killed_run(host: MakeHost, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another run, with its node up."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killed_run.py")), str(tmp_path / "killed")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_run_cleans_up_after_one_that_was_killed_and_after_itself(
    killed_run: subprocess.Popen[str], tmp_path: Path
):
    set_before = json.loads(machine.SYSCTLS_BEFORE.read_text())
    with pytest.raises(NodeError, match="another real node runs"):
        await RealNode(ControlPlane(tmp_path / "second", users=[USER], nodes=0), tmp_path / "node").__aenter__()
    killed_run.kill()
    killed_run.wait()
    assert _traces(), "the killed run has left something"
    async with RealCluster(tmp_path / "next") as cluster, cluster.session() as session:
        async with session.get("/api/v1/nodes/muster-node") as answer:
            assert answer.status == 200
        async with session.get("/api/v1/pods") as answer:
            assert (await answer.json())["items"] == []
    assert _traces() == []
    assert {name: (Path("/proc/sys") / name).read_text().strip() for name in set_before} == set_before


def _traces() -> list[str]:
    """What of a node is on the machine: groups, folders, mounts, networks, processes."""
    folders = [*leftovers.cgroup_folders(), machine.STATE, machine.DATA, Path("/sys/class/net") / machine.BRIDGE]
    found = [str(folder) for folder in folders if folder.exists()]
    found += [*traces.mounts(machine.STATE, machine.DATA), *traces.processes(machine.STATE, machine.DATA)]
    return [*found, *(str(file) for file in machine.CNI_CACHE.glob("*") if str(machine.STATE) in file.read_text())]
