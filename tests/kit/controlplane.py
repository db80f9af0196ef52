"""The real control plane for tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devcluster.binaries import CONTROL_PLANE, MissingProgram, find
from devcluster.child import Child
from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane

PATIENCE_SECONDS = 90.0
"""For nodes to become schedulable."""
_RAISED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
UNLIMITED = {"kube-scheduler": _RAISED, "kube-controller-manager": _RAISED}
"""Their own limits would be what is measured: 50 requests a second for kube-scheduler, 20 for the controllers."""


def require_control_plane(*more: str) -> None:
    """Skip the test where programs of the control plane, or `more`, are missing, with the words that say what to do."""
    try:
        for program in (*CONTROL_PLANE, *more):
            find(program)
    except MissingProgram as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One without nodes, shared by all tests: each has namespaces of its own."""
    require_control_plane()
    # Its pods are bound to nodes that do not exist, and after 40 s they would be collected.
    more = {"kube-controller-manager": ["--controllers=*,-pod-garbage-collector-controller"]}
    users = ("watcher", "scheduler", "scaler", "status")
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), users, nodes=0, more=more)

    async def enter() -> None:
        await plane.__aenter__()

    asyncio.run(enter())
    try:
        yield plane
    finally:
        asyncio.run(plane.__aexit__(None, None, None))


@asynccontextmanager
async def fake_nodes(
    plane: ControlPlane, folder: Path, *, nodes: int, pods: int = 1_000, writers: int = 0
) -> AsyncIterator[None]:
    """Nodes that take so many pods each, on which every pod runs and is ready at once, and nothing is ever run.

    So many `writers` keep the API server busy with statuses of other pods.  The controllers begin anew: they look for
    new kinds twice a minute, and until then collect nothing of theirs.
    """
    await plane.controllers.restart()
    kubeconfig = str(plane.kubeconfig(ADMIN))
    command = [str(find("fakenodes")), "--kubeconfig", kubeconfig, f"--nodes={nodes}", f"--pods={pods}"]
    command.append(f"--writers={writers}")
    child = Child("fakenodes", command, folder / "fakenodes.log", {})
    child.start()
    try:
        await child.line("ready ", PATIENCE_SECONDS)
        yield
    finally:
        await child.stop()
