"""A job trains with the workers for which the real kube-scheduler finds room, and loses places by priority."""

import json
import time
from typing import Any

import pytest

from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import HOSTS
from tests.kit.operator import FOR_EVER, Operator, a_job, launcher_that

CLUSTERS = [HOSTS[1]]
pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PLACE = "example.com/place"
"""A resource of which each worker needs one."""
ONE = {"limits": {PLACE: "1"}}


async def give(operator: Operator, places: int) -> None:
    """Let the node have so many of them."""
    node = (await operator.kubectl("get", "nodes", "-o", "name")).split()[0]
    room = {PLACE: str(places)}
    patch = json.dumps({"status": {"capacity": room, "allocatable": room}})
    await operator.kubectl("patch", node, "--subresource=status", "--type=merge", "-p", patch)


def by_capacity(name: str, **elasticity: Any) -> dict[str, Any]:
    job = a_job(name, FOR_EVER, workers=6, elasticity={"size": "Capacity", **elasticity})
    worker = job["spec"]["etReplicaSpecs"]["worker"]
    worker["minReplicas"] = 2
    (container,) = worker["template"]["spec"]["containers"]
    worker["template"]["spec"]["containers"] = [container | {"resources": ONE}]
    return job


def of_priority(name: str) -> dict[str, Any]:
    spec = {"priorityClassName": "urgent", "containers": [launcher_that(FOR_EVER) | {"resources": ONE}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def trains_with(operator: Operator, number: int) -> None:
    def so(status: dict[str, Any]) -> bool:
        return len(status.get("currentWorkers") or ()) == number and status.get("phase") == "Running"

    await operator.shows(TRAININGJOBS, "resnet", so, f"Running with {number}")


async def test_a_job_takes_the_room_there_is_and_gives_it_to_those_of_higher_priority(operator: Operator):
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    await operator.apply(urgent | {"value": 1000})
    await give(operator, 3)
    begun = time.monotonic()
    await operator.apply(by_capacity("resnet", settleSeconds=2, growSeconds=1))
    await trains_with(operator, 3)
    print(f"with 3 of 6 after {time.monotonic() - begun:.2f} s, of which 2 s to settle")
    begun = time.monotonic()
    await give(operator, 4)
    await trains_with(operator, 4)
    print(f"with the fourth {time.monotonic() - begun:.2f} s after its place was there")
    begun = time.monotonic()
    await operator.apply(of_priority("first"))
    await trains_with(operator, 3)
    print(f"with 3 again {time.monotonic() - begun:.2f} s after a pod of higher priority was created")
    told = "its size: its resource asks for 6 workers; the kube-scheduler finds no node for 3"
    assert told in await operator.muster("why", "trainingjob/resnet")
    assert (await operator.job("resnet")).retries.disruptions == 0
    begun = time.monotonic()
    await operator.apply(of_priority("second"), of_priority("third"))
    await operator.phase("Restarting", TRAININGJOBS, "resnet")
    print(f"below its minimum it ended {time.monotonic() - begun:.2f} s after two more were created")
    assert "MinimumUnschedulable" in await operator.muster("why", "trainingjob/resnet")
    begun = time.monotonic()
    await operator.kubectl("delete", "pod", "first", "second", "third", "--grace-period=0", "--force")
    await trains_with(operator, 4)
    print(f"with 4 in its next attempt {time.monotonic() - begun:.2f} s after they went")
    members = [json.loads(s.body)["members"] for s in await operator.log() if s.subject.endswith("HostsPublished")]
    assert all(sum(high - low + 1 for low, high in each) >= 2 for each in members), members
    await operator.assert_replayed("resnet")
