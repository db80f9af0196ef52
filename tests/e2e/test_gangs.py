"""Gangs on the real kube-scheduler: 1.36, and any other version that `KUBEBUILDER_ASSETS` has."""

import asyncio
import functools
import json
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from devcluster import binaries
from devcluster.cluster import ADMIN
from shared.cluster.kube import KubeCluster
from shared.frameworks.gangs import POD_GROUPS
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import GANG
from tests.kit.hosts import real
from tests.kit.operator import FOR_EVER, Operator, a_job, a_request, an_operator

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

PLACE = "muster.dev/place"
"""A resource of the node: each worker needs one."""
QUIET_SECONDS, LOOKS = 2.0, 8
"""The real one binds pods within a second."""


def served() -> str:
    """The version of PodGroups that this release of Kubernetes has."""
    command = [binaries.find("kube-apiserver"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "v1alpha2" if " v1.36." in said else "v1beta1"


def gated() -> dict[str, list[str]]:
    """The options with which a control plane has PodGroups; a program ends that is given those of another release."""
    of_all = "--feature-gates=GenericWorkload=true" + (",GangScheduling=true" if served() == "v1alpha2" else "")
    of_server = [of_all, f"--runtime-config=scheduling.k8s.io/{served()}=true"]
    return {"kube-apiserver": of_server, "kube-scheduler": [of_all], "kube-controller-manager": [of_all]}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    make = functools.partial(real(), more=gated())
    async with an_operator(tmp_path_factory.mktemp("gangs"), make, MUSTER_GANGS="true") as operator:
        for name, value in (("high", 1000), ("low", 1)):
            await operator.kubectl("create", "priorityclass", name, f"--value={value}")
        await operator.kubectl("create", "priorityclass", "patient", "--value=1000", "--preemption-policy=Never")
        yield operator


async def has_room(operator: Operator, places: int) -> None:
    room = {PLACE: str(places)}
    patch = json.dumps({"status": {"capacity": room, "allocatable": room}})
    await operator.kubectl("patch", "node", "node-0", "--subresource=status", "--type=merge", "-p", patch)


def a_gang(name: str, workers: int, *, gang: str = "", priority: str = "low", **spec: Any) -> dict[str, Any]:
    """A job of so many workers, each of which takes a place."""
    job = a_job(name, FOR_EVER, workers=workers, **spec)
    if gang:
        job["metadata"]["annotations"] = {GANG: gang}
    worker = job["spec"]["etReplicaSpecs"]["worker"]
    worker["maxReplicas"] = 8
    of_pod = worker["template"]["spec"]
    of_pod["priorityClassName"] = priority
    of_pod["containers"][0]["resources"] = {"limits": {PLACE: "1"}}
    return job


async def placed(operator: Operator, job: str) -> list[str]:
    """Its workers with a node."""
    selector = f"training-job-name={job},training-job-role=worker"
    return sorted(pod.metadata.name for pod in await operator.found(selector) if pod.spec.node_name)


async def all_made(operator: Operator, *jobs: str, workers: int) -> None:
    async def so() -> bool:
        listed = [await operator.selected(f"training-job-name={job},training-job-role=worker") for job in jobs]
        return all(len(each) >= workers for each in listed)

    await operator.until(so)


async def stays(operator: Operator, counts: dict[str, int]) -> None:
    """Wait until so many workers of each job have nodes, and no others get some."""

    async def so() -> bool:
        return {job: len(await placed(operator, job)) for job in counts} == counts

    await operator.until(so, lambda: f"not {counts}")
    for _ in range(LOOKS):
        assert await so()
        await asyncio.sleep(QUIET_SECONDS / LOOKS)


async def gone(operator: Operator, *jobs: str) -> None:
    await operator.delete(*jobs)
    for job in jobs:
        await operator.leaves_no_pod(job)


async def test_each_release_of_kubernetes_serves_one_version_of_the_two(operator: Operator) -> None:
    cluster = await KubeCluster.connect(operator.stack.cluster.kubeconfig(ADMIN))
    try:
        found = [each.version for each in POD_GROUPS if await cluster.serves(each)]
    finally:
        await cluster.close()
    assert found == [served()]


async def test_two_jobs_of_eight_hold_half_of_the_places_each_for_ever_without_gangs(operator: Operator) -> None:
    await has_room(operator, 4)
    await operator.apply(a_gang("one", 8, gang="false"))
    await stays(operator, {"one": 4})
    # The places that come next are for the second one, by its priority, which takes none from others.
    await operator.apply(a_gang("two", 8, gang="false", priority="patient"))
    await all_made(operator, "one", "two", workers=8)
    # The kube-scheduler tries a pod again a second after its first try, and until then takes those of the first job.
    await stays(operator, {"one": 4, "two": 0})
    await has_room(operator, 8)
    await stays(operator, {"one": 4, "two": 4})
    await gone(operator, "one", "two")


async def test_with_gangs_one_of_them_has_all_and_the_other_none_until_that_is_over(operator: Operator) -> None:
    await has_room(operator, 0)
    await operator.apply(*(a_gang(name, 8) for name in ("first", "second")))
    await all_made(operator, "first", "second", workers=8)
    await has_room(operator, 8)

    async def one_runs() -> bool:
        return sorted([len(await placed(operator, name)) for name in ("first", "second")]) == [0, 8]

    await operator.until(one_runs)
    [ran] = [name for name in ("first", "second") if await placed(operator, name)]
    other = "second" if ran == "first" else "first"
    await operator.phase("Running", TRAININGJOBS, ran)
    await stays(operator, {ran: 8, other: 0})
    assert "Unschedulable" in await operator.muster("why", f"trainingjob/{other}")
    await gone(operator, ran)
    await operator.phase("Running", TRAININGJOBS, other)
    await gone(operator, other)


async def test_a_gang_grows_whole_or_not_at_all_and_shrinks_and_replaces(operator: Operator) -> None:
    await has_room(operator, 5)
    await operator.apply(a_gang("grows", 3))
    await operator.phase("Running", TRAININGJOBS, "grows")
    await operator.apply(a_request("ScaleOut", "more", "grows", toAdd={"count": 3}, timeout=120))
    await all_made(operator, "grows", workers=6)
    await stays(operator, {"grows": 3})
    await has_room(operator, 6)
    await operator.phase("ScaleSucceeded", SCALEOUTS, "more")
    await operator.kubectl("scale", "trainingjob/grows", "--replicas=2")
    await operator.members("grows", "grows-worker-0", "grows-worker-1")
    # Two of a gang of three: a replacement that named its group would never be scheduled.
    await operator.kubectl("delete", "pod", "grows-worker-0")
    await operator.kubectl("scale", "trainingjob/grows", "--replicas=3")

    async def three() -> bool:
        return len(await placed(operator, "grows")) == 3

    await operator.until(three)
    await gone(operator, "grows")


async def test_a_gang_without_room_begins_again_with_the_fewer_workers_that_are_asked_for(operator: Operator) -> None:
    await has_room(operator, 2)
    await operator.apply(a_gang("large", 4))
    await all_made(operator, "large", workers=4)
    await operator.kubectl("scale", "trainingjob/large", "--replicas=2")
    await operator.phase("Running", TRAININGJOBS, "large")
    assert len(await placed(operator, "large")) == 2
    await gone(operator, "large")


async def test_a_job_by_capacity_has_its_minimum_at_once_and_then_takes_single_places(operator: Operator) -> None:
    await has_room(operator, 1)
    job = a_gang("elastic", 4, elasticity={"size": "Capacity"})
    job["spec"]["etReplicaSpecs"]["worker"]["minReplicas"] = 2
    await operator.apply(job)
    await all_made(operator, "elastic", workers=2)
    await stays(operator, {"elastic": 0})
    for places in (3, 4):
        await has_room(operator, places)
        await stays(operator, {"elastic": places})
    await gone(operator, "elastic")


async def test_preemption_takes_single_pods_below_the_minimum_and_the_rest_goes_on(operator: Operator) -> None:
    await has_room(operator, 4)
    await operator.apply(a_gang("cheap", 4))
    await operator.phase("Running", TRAININGJOBS, "cheap")
    await operator.apply(a_gang("dear", 2, priority="high"))
    await operator.phase("Running", TRAININGJOBS, "dear")
    await stays(operator, {"cheap": 2, "dear": 2})
    await gone(operator, "dear")
    await gone(operator, "cheap")


async def test_a_group_that_a_person_deletes_comes_back_and_its_job_begins(operator: Operator) -> None:
    await has_room(operator, 0)
    await operator.apply(a_gang("lost", 3))
    await all_made(operator, "lost", workers=3)
    group = (await operator.kubectl("get", "podgroups", "-o", "name")).strip()
    # Its finalizer keeps it while its pods are there; who takes that away deletes it.
    await operator.kubectl("delete", group, "--wait=false")
    await operator.kubectl("patch", group, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    await has_room(operator, 3)
    await operator.phase("Running", TRAININGJOBS, "lost")
    await gone(operator, "lost")

    async def none() -> bool:
        return not (await operator.kubectl("get", "podgroups", "-o", "name")).strip()

    await operator.until(none)
