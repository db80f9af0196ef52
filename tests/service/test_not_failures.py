"""What must not happen to jobs: the lines of the contract's list that speak of them, their files and their counts."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SECRETS, SERVICES
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.world import NAMESPACE, Document, World, a_scale_in, a_scale_out, a_training_job

OTHER = "team-b"


def without(job: Document, *paths: str) -> Document:
    """`job` less these fields, dots between their names."""
    job = copy.deepcopy(job)
    for path in paths:
        *way, last = path.split(".")
        inner = job["spec"]
        for step in way:
            inner = inner[step]
        inner.pop(last, None)
    return job


def with_field(job: Document, path: str, value: Any) -> Document:
    job = copy.deepcopy(job)
    *way, last = path.split(".")
    inner = job["spec"]
    for step in way:
        inner = inner[step]
    inner[last] = value
    return job


async def test_2_finishing_a_job_leaves_its_namesake_in_another_namespace_alone(world: World):
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    world.apply(TRAININGJOBS, a_training_job(workers=2), OTHER)
    for namespace in (NAMESPACE, OTHER):
        await world.phase("Running", namespace=namespace)
    await world.quiet()
    kinds = (TRAININGJOBS, PODS, SERVICES, CONFIGMAPS, SECRETS, EVENTS)
    before = {resource.kind: [held.manifest for held in world.store.find(resource, OTHER)] for resource in kinds}
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    # The pods of both have one name; only the one whose time had come was meant to end.
    await world.until(lambda: list(world.pods()) == ["resnet-launcher"])
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: not world.pods() and not world.hosts(), "the job is gone")
    await world.quiet()
    after = {resource.kind: [held.manifest for held in world.store.find(resource, OTHER)] for resource in kinds}
    assert after == before
    assert {name for name in world.statuses if name[1] == OTHER} == {("TrainingJob", OTHER, "resnet")}


WORKER = "etReplicaSpecs.worker"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        pytest.param(lambda job: without(job, WORKER), "NoWorker", id="no workers"),
        pytest.param(lambda job: {**job, "spec": [1, {"a": None}]}, "InvalidValue", id="a list for a spec"),
    ],
)
async def test_6_what_cannot_run_is_refused_with_a_reason_and_runs_when_corrected(
    world: World, spoil: Callable[[Document], Document], reason: str
):
    good = a_training_job(workers=1)
    world.apply(TRAININGJOBS, spoil(good))
    world.apply(TRAININGJOBS, a_training_job("other", workers=1))
    await world.shows("Created", reason)
    await world.running("other")
    status = world.status(TRAININGJOBS, "resnet")
    assert (status["phase"], world.condition(TRAININGJOBS, "resnet", "Created")) == ("Refused", ("False", reason))
    assert not any(name.startswith("resnet") for name in world.pods())
    world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"spec": good["spec"]})
    await world.running()


async def test_20_all_hosts_files_follow_each_scaling_in_one_write(world: World):
    job = with_field(a_training_job(workers=2), "slotsPerWorker", 4)
    world.apply(TRAININGJOBS, job)
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.quiet()
    written = world.hosts_files[NAMESPACE, "resnet-config"]
    names = [[f"resnet-worker-{index}" for index in range(size)] for size in (2, 4, 3)]
    assert [data["hostfile"] for data in written] == ["".join(f"{n}:4\n" for n in members) for members in names]
    assert [data["deepspeed-hostfile"] for data in written] == [
        "".join(f"{name} slots=4\n" for name in members) for members in names
    ]
    # The script prints the hostfile, whatever is in it.
    assert len({data["discover_hosts.sh"] for data in written}) == 1
    launcher = world.pods()["resnet-launcher"].manifest["spec"]
    sources = {
        (item["key"], item["path"], volume["configMap"]["name"])
        for volume in launcher["volumes"]
        if "configMap" in volume
        for item in volume["configMap"]["items"]
    }
    assert sources == {
        ("hostfile", "hostfile", "resnet-config"),
        ("discover_hosts.sh", "discover_hosts.sh", "resnet-config"),
        ("deepspeed-hostfile", "hostfile", "resnet-config"),
        ("deepspeed-hostfile", "deepspeed-hostfile", "resnet-config"),
    }


def counted(world: World) -> dict[str, dict[str, int]]:
    """What the pods in the cluster say, while none was deleted that had ended."""
    found = {role: {"active": 0, "succeeded": 0, "failed": 0} for role in ("Launcher", "Worker")}
    named = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
    for held in world.pods().values():
        phase = held.manifest["status"]["phase"]
        if phase in named:
            found[held.metadata["labels"]["training-job-role"].capitalize()][named[phase]] += 1
    return found


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
async def test_24_counts_are_right_at_every_stage_and_after_the_clean_up(world: World, policy: str):

    def right() -> bool:
        return bool(world.status(TRAININGJOBS, "resnet").get("replicaStatuses") == counted(world))

    world.stuck.add("resnet-worker-2")
    world.apply(TRAININGJOBS, with_field(a_training_job(workers=3), "cleanPodPolicy", policy))
    await world.until(lambda: counted(world)["Worker"]["active"] == 2 and right(), "two of three run")
    world.stuck.clear()
    await world.running()
    await world.until(right)
    world.apply(SCALEOUTS, a_scale_out(2))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.until(right)
    world.exit_codes |= {"resnet-worker-1": 0, "resnet-worker-2": 9}
    await world.until(lambda: counted(world)["Worker"] == {"active": 3, "succeeded": 1, "failed": 1} and right())
    world.apply(SCALEINS, a_scale_in(1))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.until(right)
    assert counted(world)["Worker"]["active"] == 2
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    kept = {"None": 5, "Running": 3, "All": 0}[policy]
    await world.until(lambda: len(world.pods()) == kept, "the pods are cleaned up")
    await world.quiet()
    # What ended by itself stays counted when its pod is gone; what was cleaned up is not a failure.
    assert world.status(TRAININGJOBS, "resnet")["replicaStatuses"] == {
        "Launcher": {"active": 0, "succeeded": 1, "failed": 0},
        "Worker": {"active": 2 if policy == "None" else 0, "succeeded": 1, "failed": 1},
    }


async def test_26_no_kubernetes_event_speaks_of_what_did_not_happen(world: World):
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    world.apply(TRAININGJOBS, a_training_job(workers=1), OTHER)
    await world.running()
    world.broken_images.add("resnet-worker-2")
    world.apply(SCALEOUTS, a_scale_out(1, name="breaks", backoffLimit=0))
    await world.phase("ScaleFailed", SCALEOUTS, "breaks")
    world.apply(SCALEOUTS, a_scale_out(99, name="too-many"))
    await world.phase("ScaleFailed", SCALEOUTS, "too-many")
    world.apply(SCALEINS, a_scale_in(1, name="works"))
    await world.phase("ScaleSucceeded", SCALEINS, "works")
    world.exit_codes["resnet-launcher"] = 2
    await world.phase("Failed")
    await world.phase("Running", namespace=OTHER)
    await world.quiet()
    assert sorted(world.kubernetes_events()) == sorted(
        [
            ("TrainingJobWorkerCreated", "resnet"),
            ("TrainingJobRunning", "resnet"),
            ("ScalingStart", "breaks"),
            ("TrainingJobWorkerFailed", "resnet"),
            ("WorkerFailed", "breaks"),
            ("ScalingOutFailed", "resnet"),
            ("AboveMaximum", "too-many"),
            ("ScalingStart", "works"),
            ("ScalingInSucceeded", "works"),
            ("ScalingInSucceeded", "resnet"),
            ("TrainingJobFailed", "resnet"),
        ]
    )
    assert sorted(world.kubernetes_events(OTHER)) == [
        ("TrainingJobRunning", "resnet"),
        ("TrainingJobWorkerCreated", "resnet"),
    ]


@pytest.mark.parametrize("kind", [SERVICES, CONFIGMAPS], ids=lambda kind: str(kind.plural))
async def test_17_what_a_person_deletes_comes_back(world: World, kind: Any):
    await world.trains(workers=2)
    [held] = world.store.find(kind)
    world.store.delete(kind, *held.at)
    await world.until(
        lambda: [now.metadata["uid"] for now in world.store.find(kind)] not in ([], [held.metadata["uid"]]),
        "another one is there",
    )
    await world.quiet()
    assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]
    assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"


async def test_35_a_name_that_cannot_be_a_pods_makes_nothing_and_shows_why(world: World):
    name = "a" * 51
    world.apply(TRAININGJOBS, a_training_job(name, workers=1))
    world.apply(TRAININGJOBS, a_training_job("other", workers=1))
    await world.shows("Created", "InvalidName", name=name)
    await world.running("other")
    await world.quiet()
    assert world.status(TRAININGJOBS, name)["phase"] == "Refused"
    assert sorted(world.pods()) == ["other-launcher", "other-worker-0"]
    assert [held.at[1] for held in world.store.find(SERVICES)] == ["other"]
