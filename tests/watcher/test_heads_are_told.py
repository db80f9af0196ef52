"""A wrong head is recorded whatever the log does meanwhile: no service acts on a lost history."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.watcher.asking import ASK_AGAIN_SECONDS, ENDS
from services.watcher.shell import Watcher
from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.errors import Conflict, Transient
from shared.eventlog import Entry
from shared.eventlog.account import HEADS
from shared.frameworks.framework import metadata, slot_labels
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.job.naming import ACCEPT_HISTORY, JobKey, Slot, Uid
from shared.job.spec import WORKER
from shared.runtime.run import Runtime
from tests.kit.virtual_time import until
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog
from tests.watcher.test_shell import Bounded, Cluster, running


class Faltering(MemoryEventLog):
    """A log that answers the first append of one type with trouble."""

    trouble: Exception | None = None
    kind = ""

    async def append(self, entry: Entry, *, expect: int) -> int:
        if self.trouble is not None and entry.subject.endswith(f".{self.kind}"):
            trouble, self.trouble = self.trouble, None
            raise trouble
        return await super().append(entry, expect=expect)


async def watched_with(cluster: Cluster, trouble: Exception, kind: str) -> None:
    """A watcher on a log that falters, until nothing is left to say."""
    eventlog = Faltering(cluster.journal, user="watcher")
    eventlog.trouble, eventlog.kind = trouble, kind
    watcher = Watcher(MemoryCluster(cluster.store), eventlog, await eventlog.bucket(HEADS))
    async with running(Runtime(watcher, eventlog)):
        await until(lambda: eventlog.trouble is None, f"the first try of {kind}")
        await cluster.quiet()


@pytest.mark.parametrize(
    ("log", "trouble"),
    [
        pytest.param("another", Transient("no answer"), id="of another log, no answer"),
        pytest.param("another", Conflict("another writer was quicker"), id="of another log, a conflict"),
        pytest.param("memory", Transient("no answer"), id="of this log"),
    ],
)
async def test_a_lost_head_is_told_until_the_log_has_it_and_once(log: str, trouble: Exception):
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    lost = {"log": log, "sequence": 5 if log == "another" else 1, "hash": "0" * 64}
    cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": lost}}, subresource="status")
    await watched_with(cluster, trouble, "HistoryBroken")
    assert cluster.kinds() == ["HistoryBroken"]


async def test_a_log_that_ends_before_a_head_is_asked_again_before_that_is_believed():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    ahead = {"log": "memory", "sequence": 5, "hash": "0" * 64}
    cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": ahead}}, subresource="status")
    async with cluster.watched():
        await asyncio.sleep((ENDS - 1) * ASK_AGAIN_SECONDS - 0.5)
        assert cluster.kinds() == [], "its leader may lag"
        await cluster.quiet()
    assert cluster.kinds() == ["HistoryBroken"]


class Counted(Bounded):
    """A log that counts the looks at its end."""

    asked = 0

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        Counted.asked += 1
        return await super().end(subjects)


async def test_a_head_that_the_fold_read_in_the_log_asks_the_log_nothing():
    cluster, asked = Cluster(), list[int]()
    async with cluster.watched(log=Counted) as runtime:
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
        for generation in range(1, 4):
            await cluster.quiet()
            history = next(each for each in runtime.histories if each.job.resource.generation)
            shown = {"log": "memory", "sequence": history.head.sequence, "hash": history.head.hash}
            cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": shown}}, subresource="status")
            await cluster.quiet()
            asked.append(Counted.asked)
            edit = {"spec": {"cleanPodPolicy": ("All", "None", "Running")[generation - 1]}}
            cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", edit)
        shown["sequence"] = 10**6
        cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": shown}}, subresource="status")
        await cluster.quiet()
    assert asked[1:] == asked[:1] * 2
    assert Counted.asked > asked[-1], "a head that the fold does not know"


class PodsComeLate(MemoryCluster):
    """A cluster whose list of pods takes a minute."""

    async def watch(
        self, resource: Resource[Any], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncIterator[Any]:
        if resource.kind == PODS.kind:
            await asyncio.sleep(60)
        async for seen in super().watch(resource, namespace=namespace, selector=selector, name=name):
            yield seen


async def test_an_accepted_loss_waits_for_the_list_of_pods_that_it_takes_on():
    cluster = Cluster()
    held = cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    lost = {"log": "another", "sequence": 5, "hash": "0" * 64}
    cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": lost}}, subresource="status")
    key = JobKey(NAMESPACE, "resnet", Uid(held.metadata["uid"]))
    meta = metadata(TRAININGJOB, key, "resnet-worker-7")
    meta["labels"] = slot_labels(TRAININGJOB, key, Slot(0, WORKER, 7))
    cluster.store.create(PODS, NAMESPACE, {"metadata": meta, "spec": {"nodeName": "node-0"}})
    async with cluster.watched():
        await until(lambda: "HistoryBroken" in cluster.kinds(), "the broken history")
    wish = {"metadata": {"annotations": {ACCEPT_HISTORY: f"5:{'0' * 64}"}}}
    cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", wish)
    eventlog = MemoryEventLog(cluster.journal, user="watcher")
    watcher = Watcher(PodsComeLate(cluster.store), eventlog, await eventlog.bucket(HEADS))
    async with running(Runtime(watcher, eventlog)):
        await until(lambda: "JobObserved" in cluster.kinds(), "the job taken on", seconds=120)
    assert cluster.kinds()[:5] == ["HistoryBroken", "PodsObserved", "JobAdopted", "HistoryAccepted", "JobObserved"]
