"""What the cluster in memory offers to tests and simulations beyond the port."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from shared.cluster import Alive, Applied, Blind, Execution, Snapshot
from shared.cluster.kinds import CONFIGMAPS, PODS
from shared.errors import Refused, Transient
from tests.kit.watching import next_of
from tests.memory.cluster import Call, MemoryCluster
from tests.memory.store import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cluster(store: MemoryStore) -> MemoryCluster:
    return MemoryCluster(store)


class TestTrouble:
    async def test_an_outage_blinds_the_watches_and_fails_the_calls(
        self, store: MemoryStore, cluster: MemoryCluster
    ) -> None:
        async with aclosing(cluster.watch(PODS)) as watch:
            await next_of(watch)
            store.outage.begin("ConnectionRefused")
            with pytest.raises(Transient, match="ConnectionRefused"):
                await cluster.get(PODS, "ns", "p")
            assert await next_of(watch) == Blind("ConnectionRefused")
            waiting = asyncio.ensure_future(next_of(watch))
            held = store.create(PODS, "ns", {"metadata": {"name": "p"}})
            await asyncio.sleep(0)
            assert not waiting.done()
            store.outage.end()
            assert await waiting == Alive()
            assert await next_of(watch) == Applied(held.read(PODS))

    async def test_what_was_compacted_is_listed(self, store: MemoryStore, cluster: MemoryCluster) -> None:
        async with aclosing(cluster.watch(PODS)) as watch:
            await next_of(watch)
            store.create(PODS, "ns", {"metadata": {"name": "p"}})
            store.compact()
            assert isinstance(await next_of(watch), Snapshot)

    async def test_weather_sees_every_call_and_may_fail_it(self, store: MemoryStore) -> None:
        class Storm:
            def __init__(self) -> None:
                self.calls: list[Call] = []

            async def before(self, call: Call) -> None:
                self.calls.append(call)

            async def after(self, call: Call) -> None:
                if call.verb == "create":
                    raise Transient("the answer was lost")

        storm = Storm()
        cluster = MemoryCluster(store, weather=storm)
        with pytest.raises(Transient):
            await cluster.create(PODS, "ns", {"metadata": {"name": "p"}})
        assert await cluster.get(PODS, "ns", "p") is not None
        assert storm.calls == [Call("create", "pods", "ns", "p"), Call("get", "pods", "ns", "p")]


class TestPrograms:
    async def test_trouble_comes_before_the_program_or_after_it(
        self, store: MemoryStore, cluster: MemoryCluster
    ) -> None:
        runs: list[str] = []

        async def program(_: str, pod: str, *__: Any) -> Execution:
            runs.append(pod)
            return Execution(0, b"")

        store.program = program
        store.create(PODS, "ns", {"metadata": {"name": "p"}})
        for applied, runs_after in ((False, 0), (True, 1)):
            store.faults.fail_next("execute", Transient("lost"), applied=applied)
            with pytest.raises(Transient, match="lost"):
                await cluster.execute("ns", "p", "main", ["true"], timeout=1)
            assert len(runs) == runs_after
        store.outage.begin()
        with pytest.raises(Transient, match="cannot be reached"):
            await cluster.execute("ns", "p", "main", ["true"], timeout=1)
        assert len(runs) == 1


class TestControllers:
    def test_a_quota_counts_pods_that_are_not_over(self, store: MemoryStore) -> None:
        store.pod_quota["ns"] = 1
        store.create(PODS, "ns", {"metadata": {"name": "a"}})
        with pytest.raises(Refused) as refusal:
            store.create(PODS, "ns", {"metadata": {"name": "b"}})
        assert refusal.value.reason == "QuotaExceeded"
        store.patch(PODS, "ns", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
        store.create(PODS, "ns", {"metadata": {"name": "b"}})

    def test_what_was_handed_over_is_the_stores_own(self, store: MemoryStore) -> None:
        manifest: dict[str, Any] = {"metadata": {"name": "c", "labels": {"a": "b"}}, "data": {"key": "value"}}
        store.create(CONFIGMAPS, "ns", manifest)
        manifest["metadata"]["labels"]["a"] = manifest["data"]["key"] = "changed"
        held = store.get(CONFIGMAPS, "ns", "c")
        assert held is not None
        assert (held.metadata["labels"], held.manifest["data"]) == ({"a": "b"}, {"key": "value"})
