"""A job in a queue of Kueue: `muster suspend` and `resume` go to its Workload, `muster why` says what it waits for."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from muster import crds
from muster.jobs import of_workload, waits, without_workload, workload_of
from shared.cluster.objects import Custom, CustomMetadata
from shared.frameworks.queueing import JOB_UID, QUEUE, WORKLOADS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.watcher import ChildrenObserved
from shared.job.naming import Uid
from shared.job.spec import LAUNCHER, WORKER
from shared.job.state import Job, Objects
from shared.job.views import ChildView, PodSetView, WorkloadView
from shared.telling.causes.sentences import of_workloads
from shared.telling.targets import parse_target
from tests.kit import kueue
from tests.kit.histories import KEY
from tests.muster.conftest import NAME, MakeSite, Said, Site, resume, suspend

JOB = parse_target(f"trainingjob/{NAME}")
NOON = "2026-11-26T12:04:05Z"
NO_ROOM = "couldn't assign flavors to pod set worker: insufficient unused quota for cpu"


def condition(kind: str, status: str = "True", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": NOON}


PENDING = condition("QuotaReserved", "False", NO_ROOM)
ADMITTED = condition("Admitted")
RESERVED = condition("QuotaReserved", message="Reserved in all")
EVICTED = condition("Evicted", message="Preempted to accommodate\na workload")


@pytest.fixture
async def site(a_site: MakeSite) -> AsyncIterator[Site]:
    """With a job in a queue."""
    async with a_site([*crds.manifests(), kueue.DEFINITION]) as made:
        await made.cluster.patch(TRAININGJOBS, "default", NAME, {"metadata": {"labels": {QUEUE: "team-a"}}})
        yield made


async def queued(site: Site, *conditions: dict[str, Any]) -> None:
    """Kueue made a Workload for it, and suspended it."""
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": True}})
    labels = {JOB_UID: (await site.job()).metadata.uid}
    manifest = {"metadata": {"name": "w1", "labels": labels}, "spec": {"queueName": "team-a", "active": True}}
    await site.cluster.create(WORKLOADS, "default", manifest)
    status = {"status": {"conditions": [*conditions]}}
    await site.cluster.patch(WORKLOADS, "default", "w1", status, subresource="status")


async def active(site: Site) -> bool:
    found = await site.cluster.get(WORKLOADS, "default", "w1")
    assert found is not None
    return bool(found.spec["active"])


async def test_an_admitted_job_is_suspended_by_its_workload(site: Site, said: Said):
    await queued(site, ADMITTED)
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"spec": {"suspend": False}})
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)
    assert not await active(site)
    # Kueue suspends the job itself.
    assert (await site.job()).spec["suspend"] is False
    assert said.out.splitlines() == ["trainingjob/resnet asked to suspend, in queue team-a"]


async def test_it_is_resumed_by_its_workload(site: Site, said: Said):
    await queued(site)
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)
    await resume(site.cluster, JOB, "default", wait=False, timeout=10)
    assert await active(site)
    assert (await site.job()).spec["suspend"] is True
    assert said.out.splitlines()[-1] == "trainingjob/resnet asked to resume, in queue team-a"


async def test_nobody_resumes_a_job_that_waits_for_quota(site: Site, said: Said):
    await queued(site, PENDING)
    await resume(site.cluster, JOB, "default", wait=False, timeout=10)
    assert (await site.job()).spec["suspend"] is True
    assert said.out.splitlines() == [f"trainingjob/resnet waits for quota in queue team-a since {NOON}: {NO_ROOM}"]


async def test_without_a_workload_the_job_itself_is_asked(site: Site, said: Said):
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)
    assert (await site.job()).spec["suspend"] is True
    (target,) = JOB.targets
    told = await waits(site.cluster, target, await site.job())
    assert told == "a person suspended it, which gave its place in queue team-a up"


@pytest.mark.parametrize(
    ("word", "asked", "told"),
    [
        pytest.param(
            "trainingjob/resnet",
            False,
            "see that Kueue runs and MUSTER_KUEUE is true",
            id="Muster makes it",
        ),
        pytest.param(
            "pytorchjob/resnet",
            True,
            "see that Kueue runs, and that it knows PyTorchJob.v1.kubeflow.org",
            id="Kueue",
        ),
    ],
)
def test_who_has_no_workload_is_told_who_makes_it(word: str, asked: bool, told: str):
    (target,) = parse_target(word).targets
    said = without_workload("q", target, asked=asked, defined=True)
    assert said == f"it is in queue q and has no Workload: {told}"


@pytest.mark.parametrize(("word", "again"), [("trainingjob/resnet", ""), ("pytorchjob/resnet", " and resume it")])
async def test_a_job_in_a_queue_without_kueues_definitions_is_told_two_ways_out(
    a_site: MakeSite, word: str, again: str
):
    (target,) = parse_target(word).targets
    reached = [{"type": kind, "status": "True"} for kind in ("Created", "Suspended")]
    suspended = {"phase": "Suspended", "conditions": reached}
    async with a_site(crds.manifests()) as site:
        job = await site.job()
        metadata = msgspec.structs.replace(job.metadata, labels={QUEUE: "team-a"})
        told = await waits(site.cluster, target, msgspec.structs.replace(job, metadata=metadata, status=suspended))
    assert told == (
        "it is in queue team-a, and Kueue's definitions are not there: install Kueue, "
        f"or take the label {QUEUE} off{again}"
    )


async def test_a_job_that_waits_to_grow_is_suspended_by_the_workload_that_it_runs_with(site: Site):
    await queued(site, RESERVED, ADMITTED)
    labels = {JOB_UID: (await site.job()).metadata.uid}
    await site.cluster.create(WORKLOADS, "default", {"metadata": {"name": "w2", "labels": labels}, "spec": {}})
    held = await workload_of(site.cluster, await site.job())
    assert held is not None
    assert held.metadata.name == "w1"


HELD = WorkloadView(
    queue="team-a",
    pod_sets=(
        PodSetView(role=LAUNCHER, count=1, flavors=("spot",)),
        PodSetView(role=WORKER, count=2, flavors=("spot",)),
    ),
)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        pytest.param({}, "waits for quota in queue team-a: 1 launcher and 2 workers", id="waiting"),
        pytest.param({"reserved": True}, "has quota, and waits for its admission checks", id="reserved"),
        pytest.param({"admitted": True}, "was admitted by Kueue to spot: 1 launcher and 2 workers", id="admitted"),
        pytest.param(
            {"admitted": True, "evicted": "Preempted", "message": "for another"},
            "was evicted by Kueue: Preempted: for another",
            id="evicted",
        ),
        pytest.param({"deleting": True}, "is being deleted", id="deleted"),
        pytest.param({"finished": "WorkloadSliceReplaced"}, "is finished: WorkloadSliceReplaced", id="replaced"),
    ],
)
def test_why_says_what_kueue_decided_and_once(now: dict[str, Any], said: str):
    view = msgspec.structs.replace(HELD, **now)
    child = ChildView(kind="Workload", name="w", uid=Uid("w"), version=1, ours=True, workload=view)
    event = ChildrenObserved(children=(child,))
    assert of_workloads(event, Job(key=KEY)) == f"Workload w {said}"
    assert of_workloads(event, Job(key=KEY, objects=Objects(children={("Workload", "w"): child}))) == ""


async def test_a_workload_that_is_over_is_not_the_job_s(site: Site):
    await queued(site, {"type": "Finished", "status": "True"})
    await suspend(site.cluster, JOB, "default", wait=False, timeout=10)
    assert await active(site)


async def test_a_job_in_no_queue_has_nothing_to_say(site: Site):
    await queued(site, PENDING)
    (target,) = JOB.targets
    assert "waits for quota" in await waits(site.cluster, target, await site.job())
    await site.cluster.patch(TRAININGJOBS, "default", NAME, {"metadata": {"labels": {QUEUE: None}}})
    assert await waits(site.cluster, target, await site.job()) == ""


@pytest.mark.parametrize(
    ("active", "conditions", "words"),
    [
        pytest.param(True, [PENDING], f"waits for quota in queue q since {NOON}: {NO_ROOM}", id="waiting"),
        pytest.param(
            True,
            [PENDING | {"message": ""}, EVICTED],
            f"waits for quota in queue q since {NOON}; evicted since {NOON}: Preempted to accommodate a workload",
            id="preempted",
        ),
        pytest.param(True, [], "waits for quota in queue q since 2026-11-26T12:00:00Z", id="not looked at yet"),
        pytest.param(True, [RESERVED, ADMITTED], "queue q has admitted it, and Kueue is about to resume it", id="in"),
        pytest.param(
            True,
            [RESERVED],
            f"it has quota in queue q and waits for its admission checks since {NOON}: Reserved in all",
            id="an admission check",
        ),
        pytest.param(
            False,
            [PENDING],
            "a person suspended it in queue q (spec.active of Workload w1 is false)",
            id="switched off",
        ),
    ],
)
def test_what_a_workload_waits_for(active: bool, conditions: list[dict[str, Any]], words: str):
    metadata = CustomMetadata(name="w1", creation_timestamp="2026-11-26T12:00:00Z")
    workload = Custom(metadata=metadata, spec={"active": active}, status={"conditions": conditions})
    assert of_workload("q", workload) == words
