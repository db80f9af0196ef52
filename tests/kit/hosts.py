"""The clusters that end-to-end tests run on, each with the mark of the target that asks for it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from devcluster.cluster import Devcluster
from devcluster.realnode import RealCluster, obstacle
from muster.borrowed import K3sCluster, docker_engine
from muster.stack import Host
from shared.errors import Refused
from tests.kit.controlplane import require_control_plane
from tests.kit.recordings import RecordedPlane

SHELL = {"shell:1": Path(__file__).parents[1] / "e2e" / "shell"}

MakeHost = Callable[..., Host]


def embedded() -> MakeHost:
    """Our own small API server."""
    return Devcluster


def real() -> MakeHost:
    """The real control plane with our node agent; its audit log is held against the roles when it ends."""
    require_control_plane()
    return RecordedPlane


def k3s() -> MakeHost:
    """K3s in a container."""
    try:
        docker_engine()
    except Refused as refusal:
        pytest.skip(str(refusal))

    def make(
        data: Path, users: Sequence[str] = (), images: Mapping[str, Path] | None = None, *, audit: Path | None = None
    ) -> Host:
        return K3sCluster(data, users, {**(images or {}), **SHELL}, audit=audit)

    return make


def node() -> MakeHost:
    """The real control plane with a real kubelet and containerd."""
    require_control_plane()
    if reason := obstacle():
        pytest.skip(reason)
    return RealCluster


HOSTS = [
    pytest.param(embedded, id="embedded"),
    pytest.param(real, id="real", marks=pytest.mark.real),
    pytest.param(k3s, id="k3s", marks=pytest.mark.k3s),
]
"""Each makes what makes a cluster, or skips the test with the reason why it cannot."""

EMBEDDED = HOSTS[:1]
"""For stories that ask nothing of a cluster but what `tests/contract` compares with the real API server."""

NODE = pytest.param(node, id="node", marks=pytest.mark.node)
"""For stories in which the kubelet has a part; the others would only take longer on it."""
