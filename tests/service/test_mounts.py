"""Pods whose kubelet says only in Events what keeps them: the four services tell its words, and do not ask too much."""

from typing import Any

from services.watcher.asking import HEAR_SECONDS
from shared.cluster.kinds import EVENTS
from shared.errors import Refused
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.weather import Noting, met_by
from tests.kit.world import NAMESPACE, World, a_training_job, wall_clock

NO_CONFIG = 'MountVolume.SetUp failed for volume "config" : configmap "settings" not found'


def says(world: World, pod: str, message: str, *, kind: str = "Warning", reason: str = "FailedMount") -> None:
    """The kubelet writes an Event about a pod, as client-go does: of the same words it is the same Event."""
    name = f"{pod}.{abs(hash((reason, message))):x}"
    time = wall_clock().strftime("%Y-%m-%dT%H:%M:%SZ")
    if (held := world.store.get(EVENTS, NAMESPACE, name)) is not None:
        world.store.patch(EVENTS, NAMESPACE, name, {"count": held.manifest["count"] + 1, "lastTimestamp": time})
        return
    about = {"kind": "Pod", "namespace": NAMESPACE, "name": pod, "uid": world.pods()[pod].metadata["uid"]}
    told = {"type": kind, "reason": reason, "message": message, "lastTimestamp": time, "count": 1}
    world.apply(EVENTS, {"metadata": {"name": name}, "involvedObject": about, **told})


def ready(world: World) -> tuple[str, str, str]:
    """Status, reason and message of the condition WorkersReady."""
    conditions: list[dict[str, Any]] = world.status(TRAININGJOBS, "resnet").get("conditions", [])
    found = [known for known in conditions if known["type"] == "WorkersReady"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


async def waits(world: World, job: str = "resnet", workers: int = 1) -> None:
    names = [f"{job}-worker-{index}" for index in range(workers)]
    world.stuck.update(names)
    world.apply(TRAININGJOBS, a_training_job(job, workers=workers))
    await world.until(lambda: world.pods().keys() >= {*names}, "the pods are there")


async def test_the_words_of_an_event_are_told_once_and_until_the_containers_begin(world: World):
    await waits(world)
    says(world, "resnet-worker-0", NO_CONFIG)
    told = ("False", "FailedMount", f"resnet-worker-0: FailedMount: {NO_CONFIG}")
    await world.until(lambda: ready(world) == told, "the words are told")
    assert ("FailedMount", "resnet") in world.kubernetes_events()
    before = len(world.journal.events)
    for _ in range(20):
        await world.pass_seconds(122)
        says(world, "resnet-worker-0", NO_CONFIG)
    assert len(world.journal.events) == before, world.types()[before:]
    says(world, "resnet-worker-0", "pulling the image", kind="Normal", reason="Pulling")
    await world.pass_seconds(400)
    assert ready(world)[1] == "Pending"
    world.stuck.clear()
    await world.running()
    assert ready(world)[0] == "True"


async def test_a_watcher_without_the_right_tells_the_usual_reason(world: World):
    world.store.faults.fail_next("list", Refused("no", reason="Forbidden"), plural="events", times=1_000)
    await waits(world)
    says(world, "resnet-worker-0", NO_CONFIG)
    await world.pass_seconds(3_600)
    usual = "resnet-worker-0: Pending: no kubelet of a node node-0 has taken it on yet"
    assert ready(world) == ("False", "Pending", usual)


def lists_of(calls: Noting) -> int:
    return sum(call.verb == "list" for call in calls.calls)


async def test_many_jobs_whose_pods_wait_take_turns():
    calls = Noting()
    async with World(weather=met_by("watcher", calls)) as world:
        for number in range(20):
            await waits(world, f"job-{number}", workers=3)
        await world.pass_seconds(30)
        asked = lists_of(calls)
        assert 20 <= asked <= 30 / HEAR_SECONDS + 1
        await world.pass_seconds(3_600)
        assert lists_of(calls) - asked <= 20 * 3_600 / 250


async def test_a_worker_that_is_added_to_a_running_job_is_asked_about_too(world: World):
    await world.trains(workers=2)
    await world.waits_in_a_scale_out("resnet-worker-2")
    says(world, "resnet-worker-2", NO_CONFIG)
    told = ("False", "FailedMount", f"resnet-worker-2: FailedMount: {NO_CONFIG}")
    await world.until(lambda: ready(world) == told, "the words are told")
    assert ("FailedMount", "resnet") in world.kubernetes_events()
    world.stuck.clear()
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    assert ready(world)[0] == "True"
