"""`muster scale`: the request that it makes, and how the waiting for it ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muster import crds
from muster.jobs import patch_at, value_at
from muster.steering import ask_for
from shared.cluster import Snapshot
from shared.cluster.objects import Custom
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.telling.targets import parse_target
from tests.muster.conftest import NAME, PATIENCE_SECONDS, MakeSite, Said, Site, refused, to

JOB = parse_target(NAME)
TWO = ["resnet-worker-0", "resnet-worker-1"]


pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
async def site(a_site: MakeSite) -> AsyncIterator[Site]:
    async with a_site(crds.manifests()) as made:
        await made.status("Running", targetWorkers=TWO)
        yield made


async def requests(site: Site) -> list[tuple[str, Custom]]:
    found = []
    for resource in (SCALEINS, SCALEOUTS):
        async for seen in site.cluster.watch(resource):
            assert isinstance(seen, Snapshot)
            found += [(resource.kind, request) for request in seen.objects]
            break
    return found


async def the_request(site: Site) -> tuple[str, Custom]:
    """The one request, once it is there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await requests(site)):
            await asyncio.sleep(0.005)
    (one,) = found
    return one


async def test_more_workers_are_a_scale_out_that_is_waited_for(site: Site, said: Said):
    waiting = asyncio.ensure_future(to(site.cluster, JOB, "default", 5, wait=True, timeout=10))
    kind, request = await the_request(site)
    assert (kind, request.spec) == ("ScaleOut", {"selector": {"name": NAME}, "toAdd": {"count": 3}})
    done = {"phase": "ScaleSucceeded", "conditions": [], "replicaStatuses": {}}
    await site.cluster.patch(SCALEOUTS, "default", request.metadata.name, {"status": done}, subresource="status")
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    created, ended = said.out.splitlines()
    assert created.endswith("created: 2 -> 5 workers")
    assert ended == f"scaleout/{request.metadata.name} ScaleSucceeded"


async def test_a_request_that_fails_ends_with_one_and_its_reason(site: Site, said: Said):
    waiting = asyncio.ensure_future(to(site.cluster, JOB, "default", 1, wait=True, timeout=10))
    kind, request = await the_request(site)
    assert (kind, request.spec) == ("ScaleIn", {"selector": {"name": NAME}, "toDelete": {"count": 1}})
    why = {"type": "ScaleFailed", "status": "True", "reason": "BelowMinimum", "message": "too few"}
    failed = {"phase": "ScaleFailed", "conditions": [why], "replicaStatuses": {}}
    await site.cluster.patch(SCALEINS, "default", request.metadata.name, {"status": failed}, subresource="status")
    await refused(waiting, said)
    assert "ScaleFailed (BelowMinimum: too few)" in said.out
    assert said.err == f"muster: scalein/{request.metadata.name} is ScaleFailed (BelowMinimum: too few)\n"


async def test_a_job_of_that_size_needs_no_request(site: Site, said: Said):
    await to(site.cluster, JOB, "default", 2, wait=True, timeout=10)
    assert "has 2 workers already" in said.out
    assert await requests(site) == []


async def test_beside_a_request_that_is_not_over_no_other_counts_from_a_size_that_it_changes(site: Site, said: Said):
    def named(name: str, job: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"selector": {"name": job}, "toAdd": {"count": 2}}}

    for name, job, phase in (("more", NAME, "Scaling"), ("over", NAME, "ScaleFailed"), ("another", "other", "Scaling")):
        await site.cluster.create(SCALEOUTS, "default", named(name, job))
        status = {"phase": phase, "conditions": [], "replicaStatuses": {}}
        await site.cluster.patch(SCALEOUTS, "default", name, {"status": status}, subresource="status")
    await site.status("Scaling", targetWorkers=[*TWO, "resnet-worker-2", "resnet-worker-3"])
    for size in (3, 4):
        await refused(to(site.cluster, JOB, "default", size, wait=True, timeout=10), said)
    (last,) = {*said.err.splitlines()}
    waits = "trainingjob/resnet has a request that is not over, scaleout/more"
    assert last == f"muster: {waits}: wait for its end, or delete it first"
    assert len(await requests(site)) == 3
    over = {"status": {"phase": "ScaleSucceeded"}}
    await site.cluster.patch(SCALEOUTS, "default", "more", over, subresource="status")
    await site.status("Running", targetWorkers=TWO)
    await to(site.cluster, JOB, "default", 3, wait=False, timeout=10)
    assert len(await requests(site)) == 4


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Scaling"}, id="it scales"),
        pytest.param({"phase": "Running", "observedGeneration": 1}, id="the edit was not read yet"),
        pytest.param({"phase": "Running", "replicas": 2}, id="the edit waits"),
    ],
)
async def test_while_an_edit_is_on_its_way_another_one_takes_its_place(site: Site, said: Said, status: dict[str, Any]):
    await site.cluster.patch(TRAININGJOBS, "default", NAME, patch_at(".spec.etReplicaSpecs.worker.replicas", 4))
    await site.status(**{"replicas": 4, "targetWorkers": TWO} | status)
    await to(site.cluster, JOB, "default", 3, wait=False, timeout=10)
    assert value_at(await site.job(), ".spec.etReplicaSpecs.worker.replicas") == 3
    assert await requests(site) == []


async def test_a_job_that_scales_to_the_size_does_not_have_it_already(site: Site, said: Said):
    await site.cluster.patch(TRAININGJOBS, "default", NAME, patch_at(".spec.etReplicaSpecs.worker.replicas", 4))
    four = [f"resnet-worker-{index}" for index in range(4)]
    await site.status("Scaling", targetWorkers=four, replicas=4)
    waiting = asyncio.ensure_future(to(site.cluster, JOB, "default", 4, wait=True, timeout=10))
    await said.until("trainingjob/resnet Scaling")
    assert not waiting.done()
    await site.status("Running", targetWorkers=four, replicas=4)
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert await requests(site) == []


async def test_a_size_that_the_owner_left_out_of_the_spec_is_asked_for_by_a_request(site: Site, said: Said):
    left_out = patch_at(".spec.etReplicaSpecs.worker", {"replicas": None, "minReplicas": 1})
    await site.cluster.patch(TRAININGJOBS, "default", NAME, left_out)
    three = {"targetWorkers": [*TWO, "resnet-worker-2"], "replicas": 3}
    await site.status("Scaling", **three)
    await refused(to(site.cluster, JOB, "default", 4, wait=False, timeout=10), said)
    await site.status("Running", **three)
    await to(site.cluster, JOB, "default", 4, wait=False, timeout=10)
    kind, request = await the_request(site)
    assert (kind, request.spec) == ("ScaleOut", {"selector": {"name": NAME}, "toAdd": {"count": 1}})
    assert value_at(await site.job(), ".spec.etReplicaSpecs.worker.replicas") is None


@pytest.mark.parametrize("workers", [1, 4])
async def test_the_size_of_the_spec_is_refused_while_a_request_that_is_not_seen_changes_it(
    site: Site, said: Said, workers: int
):
    four = [f"resnet-worker-{index}" for index in range(4)]
    await site.status("Scaling", targetWorkers=four[:workers], replicas=max(workers, 2))
    await refused(to(site.cluster, JOB, "default", 2, wait=True, timeout=10), said)
    assert said.err == "muster: trainingjob/resnet is scaling: wait until it is Running, then ask for 2 workers\n"


async def test_more_workers_than_the_job_allows_are_refused_at_once(site: Site, said: Said):
    await refused(to(site.cluster, JOB, "default", 99, wait=True, timeout=10), said)
    assert said.err == "muster: trainingjob/resnet has 1 to 6 workers, and not 99: change its bounds first\n"
    assert await requests(site) == []


async def test_bounds_that_a_running_job_keeps_are_not_told_to_be_changed_now(site: Site, said: Said):
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    spec = {
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}},
    }
    await site.cluster.create(PYTORCHJOB.resource, "default", {"metadata": {"name": "torch"}, "spec": spec})
    await refused(to(site.cluster, parse_target("pytorchjob/torch"), "default", 4, wait=True, timeout=10), said)
    when = "its bounds can be changed while it is suspended"
    assert said.err == f"muster: pytorchjob/torch has 1 to 3 workers, and not 4: {when}\n"


async def test_a_growing_mpi_job_is_waited_for_until_its_launcher_has_the_hosts_files(site: Site):
    pod = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    replicas = {"Launcher": {"replicas": 1, "template": pod}, "Worker": {"replicas": 2, "template": pod}}
    job = {"metadata": {"name": "mpi"}, "spec": {"mpiReplicaSpecs": replicas}}
    await site.cluster.create(MPIJOB.resource, "default", job)
    change = await ask_for(site.cluster, parse_target("mpijob/mpi"), "default", 3)

    def done(active: int, *true: str) -> bool | None:
        conditions = [{"type": kind, "status": "True"} for kind in ("Created", *true)]
        return change.answer({"conditions": conditions, "replicaStatuses": {"Worker": {"active": active}}})

    assert done(2, "Running") is None
    assert done(3, "Scaling", "Running") is None
    assert done(3, "Running")


async def test_a_kind_of_a_fixed_size_is_refused_at_once(site: Site, said: Said):
    container = {"name": "tensorflow", "image": "train:1"}
    replicas = {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
    await site.cluster.create(
        TFJOB.resource, "default", {"metadata": {"name": "mnist"}, "spec": {"tfReplicaSpecs": replicas}}
    )
    await refused(to(site.cluster, parse_target("tfjob/mnist"), "default", 3, wait=True, timeout=10), said)
    assert said.err == "muster: tfjob/mnist cannot be scaled: it is not elastic, its size is fixed\n"
    assert await requests(site) == []
