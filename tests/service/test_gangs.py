"""Gangs: all services against a kube-scheduler that places the pods of a PodGroup together or not at all."""

from typing import Any

import msgspec
import pytest

from services.watcher.watches import Options
from shared.frameworks.framework import true_conditions
from shared.frameworks.gangs import NOT_SERVED
from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import GANG
from tests.frameworks.documents import changed, mpi_job, pytorch_job, tf_job
from tests.kit import gangs
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job
from tests.memory.watching import Held


class Crowd(World):
    """A world with PodGroups, and room for so many pods."""

    def __init__(self, room: int, *, served: bool = True) -> None:
        super().__init__()
        self.room = room
        self._served = served

    def options(self) -> Options:
        groups = gangs.POD_GROUP if self._served else None
        return msgspec.structs.replace(super().options(), pod_groups=groups, no_gangs=NOT_SERVED)

    def _left_alone(self, held: Held) -> bool:
        return super()._left_alone(held) or (
            not held.metadata.get("deletionTimestamp") and gangs.waits(self.store, held, self.room)
        )

    def placed(self, job: str = "") -> list[str]:
        """The workers with a node."""
        there = {name: pod.manifest["spec"].get("nodeName") for name, pod in self.pods().items()}
        return sorted(name for name, node in there.items() if node and name.startswith(f"{job}-worker" if job else ""))

    def groups(self) -> list[Held]:
        return self.store.find(gangs.POD_GROUP, NAMESPACE)

    def submit(self, name: str, workers: int, gang: str = "") -> None:
        job: dict[str, Any] = a_training_job(name, workers=workers)
        if gang:
            job["metadata"]["annotations"] = {GANG: gang}
        self.apply(TRAININGJOBS, job)


async def test_two_jobs_do_not_hold_half_of_the_places_each():
    async with Crowd(room=5) as world:
        # Two pods of the first are there when those of the second come.
        world.submit("one", 4)
        world.submit("two", 4)
        await world.until(lambda: len(world.pods()) == 9, "all workers, and the launcher of one")
        await world.quiet()
        ran = {name: world.status(TRAININGJOBS, name).get("phase") for name in ("one", "two")}
        assert sorted(ran.values()) == ["Created", "Running"], ran
        first, second = sorted(ran, key=lambda name: ran[name] != "Running")
        assert (len(world.placed(first)), world.placed(second)) == (4, [])
        world.exit_codes[f"{first}-launcher"] = 0
        await world.running(second)
        await world.until(lambda: len(world.groups()) == 1, "the group of the job that is over goes")


async def test_a_group_has_the_priority_of_its_workers():
    async with Crowd(room=9) as world:
        job = a_training_job(workers=2)
        job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["priorityClassName"] = "high"
        world.apply(TRAININGJOBS, job)
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(2))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert [held.manifest["spec"]["priorityClassName"] for held in world.groups()] == ["high", "high"]
        world.submit("plain", 2)
        await world.running("plain")
        assert "priorityClassName" not in world.groups()[-1].manifest["spec"]


@pytest.mark.parametrize(
    ("kind", "job", "classes", "groups"),
    [
        pytest.param(PYTORCHJOB, pytorch_job(), ("high", "low"), [], id="two classes"),
        pytest.param(PYTORCHJOB, pytorch_job(), ("", "low"), [], id="one has none"),
        pytest.param(PYTORCHJOB, pytorch_job(), ("low", "low"), ["low"], id="the same"),
        pytest.param(TFJOB, tf_job(PS=2), ("low",), ["low"], id="no workers"),
        pytest.param(MPIJOB, mpi_job(), ("high", "low"), ["low"], id="the launcher is in no gang"),
    ],
)
async def test_pods_of_several_priorities_find_places_alone_and_the_job_is_told(
    kind: KubeflowJob, job: dict[str, Any], classes: tuple[str, ...], groups: list[str]
):
    for role, name in zip(job["spec"][kind.replica_specs], classes, strict=True):
        if name:
            job = changed(job, f"spec.{kind.replica_specs}.{role}.template.spec.priorityClassName", name)
    async with Crowd(room=9) as world:
        world.apply(kind.resource, changed(job, "metadata", {"name": "mnist"}))
        await world.until(lambda: "Running" in true_conditions(world.status(kind.resource, "mnist")))
        assert [held.manifest["spec"]["priorityClassName"] for held in world.groups()] == groups
        told = [event for event in world.kubernetes_events() if event[0] == "FieldIgnored"]
        assert told == [("FieldIgnored", "mnist")] * (not groups)


async def test_a_gang_without_room_for_all_begins_again_when_fewer_workers_are_asked_for():
    async with Crowd(room=2) as world:
        world.submit("one", 4)
        await world.until(lambda: len(world.pods()) == 4)
        await world.quiet()
        assert world.placed() == []
        fewer = {"spec": {"etReplicaSpecs": {"worker": {"replicas": 2}}}}
        world.store.patch(TRAININGJOBS, NAMESPACE, "one", fewer)
        world.room = 3
        await world.phase("Running", TRAININGJOBS, "one")
        assert world.placed("one") == ["one-worker-0", "one-worker-1"]
        assert [group.manifest["spec"]["schedulingPolicy"]["gang"]["minCount"] for group in world.groups()] == [2]
        assert world.status(TRAININGJOBS, "one")["restartCount"] == 0


async def test_a_scale_out_without_room_for_all_takes_no_place():
    async with Crowd(room=4) as world:
        await world.trains(workers=2)
        world.apply(SCALEOUTS, a_scale_out(2, timeout=30))
        await world.until(lambda: len(world.pods()) == 5)
        await world.quiet()
        assert world.placed() == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        world.room = 5
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert len(world.placed("resnet")) == 4


async def test_without_the_api_jobs_run_alone_and_who_asked_is_told():
    async with Crowd(room=9, served=False) as world:
        world.submit("resnet", 2)
        world.submit("asked", 2, gang="true")
        await world.running()
        await world.running("asked")
        assert world.groups() == []
        assert not any(pod.manifest["spec"].get("schedulingGroup") for pod in world.pods().values())
        told = [event for event in world.kubernetes_events() if event[0] == "FieldIgnored"]
        assert told == [("FieldIgnored", "asked")]


async def test_a_gang_of_which_the_api_went_and_came_back_goes_on():
    async with Crowd(room=2) as world:
        world.submit("resnet", 3)
        await world.until(lambda: len(world.pods()) == 3)
        world._served = False
        await world.restart("watcher", "scheduler")
        await world.quiet()
        assert len(world.groups()) == 1
        world._served = True
        await world.restart("watcher", "scheduler")
        world.room = 4
        await world.running()
