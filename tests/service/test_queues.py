"""A TrainingJob in a queue: all services against the answers that Kueue writes into Workloads and flavors."""

from typing import Any

import msgspec
import pytest

from services.watcher.watches import Options
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.queueing import (
    FLAVORS,
    IN_USE,
    POD_SET,
    PRIORITIES,
    PRIORITY,
    QUEUE,
    WORKLOAD,
    WORKLOADS,
)
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies import capacity
from shared.job.policies.retries import LONGEST_EFFECT_SECONDS
from shared.job.state import with_pods
from shared.job.waiting import waiting
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job

TOLERATION = {"key": "busy", "operator": "Exists", "effect": "NoSchedule"}
NOON = "2030-01-01T12:00:00Z"


class Queued(World):
    """A world whose watcher follows Workloads, with a flavor."""

    def __init__(self) -> None:
        super().__init__()
        flavor = {"metadata": {"name": "pool"}, "spec": {"nodeLabels": {"pool": "a"}, "tolerations": [TOLERATION]}}
        self.apply(FLAVORS, flavor, "")

    def options(self) -> Options:
        return msgspec.structs.replace(super().options(), kueue=True)

    def join(self, workers: int = 2, *, least: int | None = None, **labels: str) -> None:
        """Apply a job with the label of a queue; with `least` it goes by capacity."""
        job = a_training_job(workers=workers, **({"elasticity": {"size": "Capacity"}} if least else {}))
        job["spec"]["etReplicaSpecs"]["worker"] |= {"minReplicas": least} if least else {}
        job["metadata"]["labels"] = {QUEUE: "team-a", **labels}
        self.apply(TRAININGJOBS, job)

    def workloads(self) -> dict[str, dict[str, Any]]:
        """The manifests of all Workloads, by number."""
        found = self.store.find(WORKLOADS, NAMESPACE)
        return {held.at[1].rpartition("-")[2]: held.manifest for held in found}

    async def workload(self, number: str = "1") -> dict[str, Any]:
        await self.until(lambda: number in self.workloads(), f"no Workload {number}")
        return self.workloads()[number]

    async def answer(self, number: str, *kinds: str, message: str = "", reason: str = "", **status: Any) -> None:
        """What Kueue writes: these conditions; one with a minus before it is False."""
        workload = await self.workload(number)
        known = {each["type"]: each for each in (workload.get("status") or {}).get("conditions", ())}
        for kind in kinds:
            known[kind.strip("-")] = {
                "type": kind.strip("-"),
                "status": "False" if kind.startswith("-") else "True",
                "reason": reason or kind.strip("-"),
                "message": message,
                "lastTransitionTime": NOON,
            }
        patch = {"status": {"conditions": [*known.values()], **status}}
        self.store.patch(WORKLOADS, NAMESPACE, workload["metadata"]["name"], patch, subresource="status")

    async def admit(self, number: str = "1") -> None:
        workload = await self.workload(number)
        sets = [
            {"name": each["name"], "count": each["count"], "flavors": {"cpu": "pool"}}
            for each in workload["spec"]["podSets"]
        ]
        admission = {"clusterQueue": "all", "podSetAssignments": sets}
        await self.answer(number, "QuotaReserved", "Admitted", "-Evicted", admission=admission)

    def asked(self) -> list[int]:
        """The numbers of workers of the Workloads that are made from now on."""
        made: list[int] = []
        self.store.listeners.append(
            lambda of, before, after: (
                made.append(counts(after.manifest)["worker"])
                if of.plural == WORKLOADS.plural and before is None and after is not None
                else None
            )
        )
        return made

    async def is_condition(self, number: str, kind: str, status: str) -> None:
        """Wait until a Workload has this condition."""

        def so() -> bool:
            known = (self.workloads().get(number, {}).get("status") or {}).get("conditions", ())
            return any((each["type"], each["status"]) == (kind, status) for each in known)

        await self.until(so, f"Workload {number} is not {kind}={status}")


def counts(workload: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["count"] for each in workload["spec"]["podSets"]}


async def test_a_job_waits_runs_where_its_flavor_says_and_finishes_its_workload():
    async with Queued() as world:
        world.apply(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 7}, "")
        world.join(**{PRIORITY: "urgent"})
        await world.phase("Suspended")
        workload = await world.workload()
        assert (counts(workload), workload["metadata"]["finalizers"]) == ({"launcher": 1, "worker": 2}, [IN_USE])
        assert (workload["spec"]["queueName"], workload["spec"]["priority"]) == ("team-a", 7)
        assert not world.pods()
        await world.admit()
        await world.running()
        for held in world.pods().values():
            assert held.manifest["spec"]["nodeSelector"] == {"pool": "a"}
            assert TOLERATION in held.manifest["spec"]["tolerations"]
            assert held.metadata["labels"][POD_SET] == held.metadata["labels"]["training-job-role"]
            assert held.metadata["annotations"][WORKLOAD] == workload["metadata"]["name"]
        await world.is_condition("1", "PodsReady", "True")
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        await world.is_condition("1", "Finished", "True")
        await world.until(lambda: not world.workloads()["1"]["metadata"].get("finalizers"), "its finalizer")


LESS = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor pool, 6 more needed"


@pytest.mark.parametrize(
    ("reason", "message", "asked"),
    [
        pytest.param("WaitingForQuota", LESS, ["1", "3"], id="no quota, with the reasons of an option"),
        pytest.param("Pending", f"{LESS}. Pending the preemption of 2 workload(s)", ["1", "2"], id="evictions"),
        pytest.param("WaitingForPreemptedWorkloads", LESS, ["1", "2"], id="evictions, with that option"),
        pytest.param("WaitingForPodsReady", "", ["1", "2"], id="pods of others are waited for"),
    ],
)
async def test_a_job_by_capacity_asks_for_less_only_if_kueue_has_no_quota(reason: str, message: str, asked: list[str]):
    async with Queued() as world:
        world.join(workers=8, least=2)
        await world.admit()
        await world.running()
        await world.answer("2", "-QuotaReserved", reason=reason, message=message)
        await world.pass_seconds(60)
        assert list(world.workloads()) == asked


async def test_a_job_that_goes_by_capacity_asks_for_less_until_there_is_quota_and_takes_what_it_gets():
    async with Queued() as world:
        made = world.asked()
        world.join(workers=8, least=2)
        await world.admit()
        await world.running()
        asks = []
        for number in ("2", "3", "4"):
            asks.append(counts(await world.workload(number))["worker"])
            if asks[-1] == 3:
                break
            # As Kueue 0.19 writes it.
            words = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor pool"
            await world.answer(number, "-QuotaReserved", reason="Pending", message=words)
        assert asks == [8, 5, 3]
        await world.answer("4", "-QuotaReserved", reason="Pending")
        await world.pass_seconds(60)
        assert list(world.workloads()) == ["1", "4"], "one more is the least that it waits for"
        await world.admit("4")
        await world.answer("1", "Finished", reason="WorkloadSliceReplaced")
        await world.until(lambda: len(world.hosts()) == 3, "it trains with what it got")
        assert capacity.deciders(world.job()) == ["its resource asked for 8 workers", "its queue admitted 3"]
        assert counts(await world.workload("5"))["worker"] == 8
        words = "3 of 8 workers train; resnet-worker-3 is not created: its queue has admitted 3 workers"
        await world.until(lambda: words in str(world.status(TRAININGJOBS, "resnet")), words)
        job = world.job()
        others = {uid: pod for uid, pod in job.pods.views.items() if pod.name != "resnet-worker-0"}
        wait = waiting(with_pods(job, views=others))
        assert wait is not None
        assert wait.message == "resnet-worker-0 is not created yet", "it has quota"
        await world.admit("5")
        await world.answer("4", "Finished", reason="WorkloadSliceReplaced")
        await world.until(lambda: len(world.hosts()) == 8, "it has all")
        assert world.job().attempt.number == 0
        assert made == [2, 8, 5, 3, 8], "it asks once for each"


async def test_a_job_that_goes_by_capacity_begins_with_quota_for_its_minimum_and_asks_for_the_rest():
    async with Queued() as world:
        world.join(workers=4, least=2)
        assert counts(await world.workload()) == {"launcher": 1, "worker": 2}
        await world.admit()
        await world.running()
        assert len(world.hosts()) == 2
        await world.until(lambda: "WaitsForQuota" in str(world.status(TRAININGJOBS, "resnet")["conditions"]))
        assert capacity.deciders(world.job()) == ["its resource asked for 4 workers", "its queue admitted 2"]
        assert counts(await world.workload("2")) == {"launcher": 1, "worker": 4}
        await world.admit("2")
        await world.answer("1", "Finished", reason="WorkloadSliceReplaced")
        await world.until(lambda: len(world.hosts()) == 4, "it has all")
        await world.until(lambda: list(world.workloads()) == ["2"])
        await world.answer("2", "Evicted", reason="Preempted")
        await world.phase("Suspended")
        await world.until(lambda: counts(world.workloads()["2"])["worker"] == 2, "it asks for its minimum again")
        await world.admit("2")
        await world.running()
        assert (len(world.hosts()), world.job().attempt.number) == (2, 1)
        assert "replicas-1-1" in world.job().scaling.requests, "what the first attempt asked for is over"


async def test_a_job_by_capacity_that_loses_all_its_workers_at_once_keeps_its_place_in_the_queue():
    async with Queued() as world:
        made = world.asked()
        world.join(workers=8, least=1)
        await world.admit()
        await world.running()
        await world.workload("2")
        world.delete(PODS, "resnet-worker-0")
        await world.until(lambda: "resnet-worker-0" not in world.pods())
        await world.pass_seconds(60)
        assert len(world.hosts()) == 1, "another takes its place"
        assert (made, list(world.workloads()), world.job().attempt.number) == ([1, 8], ["1", "2"], 0)


async def test_without_kueue_other_jobs_run_and_those_in_queues_wait_for_it():
    async with Queued() as world:
        world.store.withdraw(WORKLOADS)
        world.join()
        other = a_training_job("other")
        world.apply(TRAININGJOBS, other)
        await world.until(lambda: "other-launcher" in world.pods(), "the other job waits")
        await world.phase("Suspended")
        await world.pass_seconds(60)
        assert not [name for name in world.pods() if name.startswith("resnet")]
        world.store.install(WORKLOADS)
        await world.admit()
        await world.running()


async def test_jobs_wait_while_kueues_definitions_are_deleted_and_go_on_when_they_are_back():
    def terminating(before: object, after: object) -> None:
        if before is None:
            raise Refused("create not allowed while the definition is terminating", reason="MethodNotAllowed")

    async with Queued() as world:
        world.join()
        await world.admit()
        await world.running()
        world.apply(TRAININGJOBS, a_training_job("late") | {"metadata": {"name": "late", "labels": {QUEUE: "team-a"}}})
        await world.until(lambda: len(world.store.find(WORKLOADS, NAMESPACE)) == 2, "a Workload of each")
        await world.phase("Suspended", name="late")
        # As the API server does: their finalizers keep them until Muster has let them go.
        world.store.admit(WORKLOADS, terminating)
        for held in world.store.find(WORKLOADS, NAMESPACE):
            world.delete(WORKLOADS, held.at[1])
        await world.until(lambda: not world.store.find(WORKLOADS, NAMESPACE), "the Workloads are left")
        world.store.withdraw(WORKLOADS)
        await world.phase("Suspended")
        await world.until(lambda: not world.pods(), "pods without quota")
        await world.pass_seconds(600)
        assert not world.pods()
        world.store.patch(TRAININGJOBS, NAMESPACE, "late", {"metadata": {"labels": {QUEUE: None}}})
        await world.running("late")
        world.store.admit(WORKLOADS, lambda before, after: None)
        world.store.install(WORKLOADS)
        await world.pass_seconds(LONGEST_EFFECT_SECONDS)
        (number,) = world.workloads()
        await world.admit(number)
        await world.running()
        assert world.job().attempt.number == 1


@pytest.mark.parametrize("deleted", [False, True], ids=["ends", "is deleted"])
async def test_a_job_whose_workload_went_unseen_with_its_definition_runs_on_and_closes_when_it(deleted: bool):
    async with Queued() as world:
        world.join()
        await world.admit()
        await world.running()
        await world.kill("watcher")
        world.store.withdraw(WORKLOADS)
        await world.start("watcher")
        await world.pass_seconds(60)
        assert world.job().status.phase == "Running"
        if deleted:
            world.delete(TRAININGJOBS, "resnet")
            await world.until(lambda: not world.pods())
        else:
            world.exit_codes["resnet-launcher"] = 0
            await world.phase("Succeeded")
        await world.until(
            lambda: not any(child.workload for child in world.job().objects.children.values()), "its Workload"
        )


async def test_kueue_that_is_away_for_an_hour_disturbs_no_job_and_finds_all_that_it_missed():
    def no_webhook(before: object, after: object) -> None:
        raise Transient("failed calling webhook")

    async with Queued() as world:
        world.join(workers=1)
        await world.admit()
        await world.running()
        world.store.admit(WORKLOADS, no_webhook)
        world.apply(TRAININGJOBS, a_training_job("late") | {"metadata": {"name": "late", "labels": {QUEUE: "team-a"}}})
        await world.phase("Suspended", name="late")
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.shows("Pending", "WaitsForQuota", SCALEOUTS, "out")
        pods, said = [*world.pods()], len(world.types())
        await world.pass_seconds(3600)
        assert ([*world.pods()], len(world.types())) == (pods, said)
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        world.store.admit(WORKLOADS, lambda before, after: None)
        await world.is_condition("1", "Finished", "True")
        await world.until(lambda: len(world.store.find(WORKLOADS, NAMESPACE)) == 2, "a Workload of the late job")


def test_muster_queues_training_jobs_alone():
    assert [kind.name for kind in BUILT_IN if kind.is_queued] == ["TrainingJob.kai.alibabacloud.com"]
