"""The effects on Workloads: Kueue may have admitted or evicted one since the decision, and no effect undoes that."""

from collections.abc import Callable
from typing import Any

import pytest

from services.scheduler.core.effects import (
    DeleteWorkload,
    FinishWorkload,
    ReadyWorkload,
    ReturnQuota,
    ShrinkWorkload,
    WriteWorkload,
)
from services.scheduler.shell import Scheduler
from shared.cluster import Resource
from shared.errors import Transient
from shared.frameworks.queueing import IN_USE, PRIORITIES, PRIORITY, QUEUE, REPLACES, WORKLOADS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.naming import JobKey, Uid, workload_name
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job
from shared.job.steps import Effect
from shared.runtime.acts import Context
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

SETS = ((LAUNCHER, 1), (WORKER, 3))
Conditions = dict[str, str]


class Queue(MemoryCluster):
    """A cluster with a job that has a Workload with quota for three workers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        super().__init__(self.store)
        self.store.create(PRIORITIES, "", {"metadata": {"name": "urgent"}, "value": 7})
        manifest = a_training_job(workers=3)
        manifest["metadata"]["labels"] = {QUEUE: "team-a", PRIORITY: "urgent"}
        self.key = JobKey(
            NAMESPACE, "resnet", Uid(self.store.create(TRAININGJOBS, NAMESPACE, manifest).metadata["uid"])
        )
        self.name = workload_name(self.key, 1)
        self.before_deletion: Callable[[], None] = lambda: None

    async def delete(self, resource: Resource[Any], namespace: str, name: str, *, uid: str, version: str = "") -> None:
        self.before_deletion()
        await super().delete(resource, namespace, name, uid=uid, version=version)

    async def act(self, effect: Effect) -> None:
        job: Job = a_history(a_running_job(3, queue="team-a"), self.key).job
        await Scheduler(self).act(effect, Context(job, Head(7, "0" * 64), "2030-01-01T00:00:00.000Z"))

    async def written(self) -> Uid:
        await self.act(WriteWorkload(self.name, "team-a", SETS))
        return Uid(self.workload()["metadata"]["uid"])

    def workload(self) -> dict[str, Any]:
        held = self.store.get(WORKLOADS, NAMESPACE, self.name)
        assert held is not None
        return held.manifest

    def says(self, **conditions: str) -> None:
        """What Kueue writes."""
        known = [{"type": kind, "status": status, "reason": kind} for kind, status in conditions.items()]
        self.store.patch(WORKLOADS, NAMESPACE, self.name, {"status": {"conditions": known}}, subresource="status")

    def conditions(self) -> Conditions:
        return {each["type"]: each["status"] for each in self.workload().get("status", {}).get("conditions", ())}


ADMITTED: Conditions = {"QuotaReserved": "True", "Admitted": "True"}
EVICTED: Conditions = ADMITTED | {"Evicted": "True"}


async def test_quota_that_went_back_and_was_given_anew_is_not_taken_away():
    queue = Queue()
    uid = await queue.written()
    queue.says(**EVICTED)
    await queue.act(ReturnQuota(queue.name, uid))
    returned = queue.conditions()
    assert (returned["QuotaReserved"], returned["Admitted"], returned["Requeued"]) == ("False", "False", "False")
    again = ADMITTED | {"Evicted": "False"}
    for conditions in (returned, again):
        queue.says(**conditions)
        await queue.act(ReturnQuota(queue.name, uid))
        assert queue.conditions() == conditions


@pytest.mark.parametrize("conditions", [EVICTED, ADMITTED | {"Finished": "True"}, {"QuotaReserved": "True"}])
async def test_kueue_is_told_of_ready_pods_only_while_the_workload_is_admitted(conditions: Conditions):
    queue = Queue()
    uid = await queue.written()
    queue.says(**conditions)
    await queue.act(ReadyWorkload(queue.name, uid))
    assert "PodsReady" not in queue.conditions()


async def test_a_workload_that_got_quota_meanwhile_is_not_written_anew():
    queue = Queue()
    uid = await queue.written()
    queue.says(**ADMITTED)
    before = queue.workload()
    await queue.act(WriteWorkload(queue.name, "team-a", ((LAUNCHER, 1), (WORKER, 4)), uid=uid))
    assert queue.workload() == before


async def test_a_workload_that_is_written_anew_keeps_nothing_that_its_job_lost():
    queue = Queue()
    await queue.act(WriteWorkload(queue.name, "team-a", SETS, replaces=workload_name(queue.key, 9)))
    before = queue.workload()
    assert (before["spec"]["priorityClassRef"]["name"], before["spec"]["priority"]) == ("urgent", 7)
    labels = {"metadata": {"labels": {PRIORITY: None}}}
    queue.store.patch(TRAININGJOBS, NAMESPACE, "resnet", labels)
    await queue.act(WriteWorkload(queue.name, "team-a", SETS, uid=Uid(before["metadata"]["uid"])))
    after = queue.workload()
    assert not {"priorityClassRef", "priority"} & after["spec"].keys()
    assert REPLACES not in after["metadata"]["annotations"]


async def test_shrinking_lowers_the_numbers_of_pods_and_changes_nothing_else():
    queue = Queue()
    uid = await queue.written()
    queue.says(**ADMITTED)
    # The labels of the job may have changed since it was admitted; Kueue refuses another queue or priority then.
    queue.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"metadata": {"labels": {QUEUE: "b", PRIORITY: "low"}}})
    before = queue.workload()["spec"]
    await queue.act(ShrinkWorkload(queue.name, uid, ((LAUNCHER, 1), (WORKER, 2))))
    launcher, worker = before["podSets"]
    assert queue.workload()["spec"] == before | {"podSets": [launcher, worker | {"count": 2}]}
    shrunk = queue.workload()
    await queue.act(ShrinkWorkload(queue.name, uid, SETS))
    assert queue.workload() == shrunk, "it never grows"


async def test_a_waiting_workload_that_got_quota_meanwhile_is_not_deleted():
    queue = Queue()
    uid = await queue.written()
    queue.before_deletion = lambda: queue.says(**ADMITTED)
    with pytest.raises(Transient):
        await queue.act(DeleteWorkload(queue.name, uid, waiting=True))
    await queue.act(DeleteWorkload(queue.name, uid, waiting=True))
    meta = queue.workload()["metadata"]
    assert (meta.get("deletionTimestamp"), meta["finalizers"]) == (None, [IN_USE])


@pytest.mark.parametrize("effect", [DeleteWorkload, FinishWorkload])
async def test_a_workload_goes_with_its_finalizer_and_another_s_is_left_alone(effect: Any):
    queue = Queue()
    uid = await queue.written()
    more = ("Succeeded",) if effect is FinishWorkload else ()
    await queue.act(effect(queue.name, Uid("another"), *more))
    assert queue.workload()["metadata"]["finalizers"] == [IN_USE]
    await queue.act(effect(queue.name, uid, *more))
    held = queue.store.get(WORKLOADS, NAMESPACE, queue.name)
    assert held is None if effect is DeleteWorkload else held and not held.metadata.get("finalizers")
    await queue.act(effect(queue.name, uid, *more))
