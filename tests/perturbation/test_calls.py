"""What a call meets in each way: whether the API server heard of it, and what its sender hears."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.cluster.calls import Timeouts
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.errors import Transient
from tests.kit.apiserver import ScriptedApiServer, a_pod, ok, write_kubeconfig
from tests.kit.faultproxy import to_server
from tests.perturbation.calls import WAYS, Call, CallProxy, Strike, Way
from tests.perturbation.run import Plan

CALL = Call("scheduler", "create", "pods", "resnet-worker-0", 2)
POD = a_pod("resnet-worker-0", 7)
INSTEAD = {"409": "Conflict", "500": "InternalError"}


class Service:
    """One that creates pods through the proxy."""

    def __init__(self) -> None:
        self.server = ScriptedApiServer()
        self.calls: list[Call] = []
        self.crashed = asyncio.Event()
        self.remembered: list[str] = []

    @asynccontextmanager
    async def at(self, folder: Path, authority: Path, way: Way) -> AsyncIterator[KubeCluster]:
        async def remember(plural: str) -> Any:
            self.remembered.append(plural)
            return lambda: self.remembered.append("recalled")

        async with self.server, to_server(authority) as session:
            like = write_kubeconfig(folder / "server", self.server.url, {"token": "first"})
            proxy = CallProxy(
                self.server.url,
                authority,
                session,
                CALL.service,
                Strike(CALL, way),
                self.calls,
                crash=self.crashed.set,
                remember=remember,
            )
            async with proxy:
                cluster = await KubeCluster.connect(proxy.kubeconfig(folder, like=like), timeouts=Timeouts(total=0.5))
                try:
                    yield cluster
                finally:
                    await cluster.close()

    async def create(self, cluster: KubeCluster) -> str:
        """How a second creation ends, after one that nothing disturbs."""
        self.server.answers.extend([ok(POD), ok(POD)])
        await cluster.create(PODS, "team-a", {"metadata": {"name": CALL.name}})
        try:
            await cluster.create(PODS, "team-a", {"metadata": {"name": CALL.name}})
        except Transient as trouble:
            return str(trouble)
        return ""


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_meets_trouble_is_carried_out_or_not_as_the_way_says(
    tmp_path: Path, certificates: Path, way: Way
):
    service = Service()
    async with service.at(tmp_path, certificates / "ca.crt", way) as cluster:
        heard = await service.create(cluster)
    # The client sends again what it is asked to send again.
    again = [msgspec.structs.replace(CALL, nth=3)] if way == "429" else []
    assert service.calls == [Call("scheduler", "create", "pods", "resnet-worker-0", 1), CALL, *again]
    # A client that got no answer in time also asks whether the server is ready.
    created = [asked for asked in service.server.asked if asked.method == "POST"]
    assert len(created) == 1 + (way in ("crash-after", "timeout-applied", "stale-read", "429"))
    assert service.crashed.is_set() == (way in ("crash-before", "crash-after"))
    assert service.remembered == (["pods", "recalled"] if way == "stale-read" else [])
    assert bool(heard) == (way not in ("stale-read", "429"))
    assert INSTEAD.get(way, "") in heard


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_is_a_line_that_repeats_it(way: Way):
    plan = Plan("scale-out", Strike(Call("status", "patch", "trainingjobs", "resnet/status", 3), way))
    assert str(plan) == f"scale-out status patch trainingjobs resnet/status 3 {way}"
    assert Plan.parse(str(plan)) == plan


@pytest.mark.parametrize("words", ["", "nothing at all", "create status patch pods x 1 sideways", "create x 500"])
def test_words_that_are_no_plan_are_refused(words: str):
    with pytest.raises(ValueError, match="no"):
        Plan.parse(words)
