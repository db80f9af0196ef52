"""Bad weather: quotas, outages, calls that fail or whose answer is lost, watches that break, services that stop."""

import asyncio
from typing import Any

import msgspec

from shared.cluster.kinds import CONFIGMAPS, PODS, SERVICES
from shared.errors import Refused, Transient
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies.retries import LONGEST_EFFECT_SECONDS
from shared.job.timers import WAITING
from tests.kit.virtual_time import VirtualLoop
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job


async def test_a_quota_is_waited_for_and_shown(world: World):
    world.store.pod_quota[NAMESPACE] = 1
    world.apply(TRAININGJOBS, a_training_job(workers=3))
    world.apply(TRAININGJOBS, a_training_job("other", workers=1), "team-b")
    await world.shows("WorkersCreated", "QuotaExceeded")
    await world.phase("Running", name="other", namespace="team-b")
    assert ("QuotaExceeded", "resnet") in world.kubernetes_events()
    world.store.pod_quota.clear()
    await world.running()
    assert world.hosts() == [f"resnet-worker-{index}" for index in range(3)]
    assert world.condition(TRAININGJOBS, "resnet", "WorkersCreated") == ("True", "TrainingJobWorkersCreated")


async def test_a_job_whose_pods_a_policy_denies_begins_within_a_minute_of_the_policy_s_end(world: World):
    words = (
        "pods \"resnet-worker-0\" is forbidden: ValidatingAdmissionPolicy 'night' with binding 'night' denied request"
    )

    def denied(before: object, after: object) -> None:
        if before is None:
            raise Refused(words, reason="Denied", words=words)

    world.store.admit(PODS, denied)
    world.apply(TRAININGJOBS, a_training_job(workers=3))
    await world.shows("WorkersCreated", "Denied")
    await world.pass_seconds(3_600)
    assert ("Denied", "resnet") in world.kubernetes_events()
    world.store.admit(PODS, lambda before, after: None)
    await world.pass_seconds(LONGEST_EFFECT_SECONDS)
    await world.running()
    assert world.count("JobFailed") == 0


async def test_what_is_refused_for_ever_is_tried_on_and_written_no_more(world: World):
    world.store.pod_quota[NAMESPACE] = 1
    world.apply(TRAININGJOBS, a_training_job(workers=3))
    await world.shows("WorkersCreated", "QuotaExceeded")
    await world.pass_seconds(1_500)
    events, versions = len(world.journal.events), world.store.version
    await world.pass_seconds(36_000)
    assert (len(world.journal.events), world.store.version) == (events, versions)
    assert world.count("EffectRefused") < 15
    world.store.pod_quota.clear()
    await world.pass_seconds(LONGEST_EFFECT_SECONDS)
    await world.running()


def labelled(**metadata: Any) -> dict[str, Any]:
    """Metadata that claim to be of the first job that is made."""
    labels = {
        "muster.dev/job-uid": "00000001-0000-4000-8000-000000000000",
        "training-job-name": "resnet",
        "muster.dev/attempt": "first",
    }
    return {"labels": labels, **metadata}


ODD: list[tuple[Any, dict[str, Any]]] = [
    (PODS, {"metadata": labelled(), "spec": "text"}),
    (PODS, {"metadata": labelled(), "spec": {"nodeName": 5}}),
    (SERVICES, {"metadata": {"labels": {"muster.dev/job-uid": "x"}}}),
    (CONFIGMAPS, {"metadata": labelled(annotations={"muster.dev/hosts-version": "1e9"})}),
    (TRAININGJOBS, {"spec": {"etReplicaSpecs": [[], None, {"a": 1}]}}),
    (TRAININGJOBS, {"spec": "text"}),
    (SCALEOUTS, {"spec": {"selector": {"name": {"a": "b"}}}}),
    (SCALEOUTS, {"spec": {"selector": {"name": "none"}, "toAdd": {"count": 2**70}}}),
    (SCALEINS, {"spec": {"selector": {"name": "a.>.*"}, "toDelete": 7}}),
    (SCALEINS, {"spec": {"selector": {"name": "resnet"}, "toDelete": {"count": True}}}),
]


async def test_odd_objects_harm_no_job(world: World):
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    held = []
    for index, (resource, manifest) in enumerate(ODD):
        world.odd.add(name := f"odd-{index}")
        metadata = {**manifest.get("metadata", {}), "name": name}
        held.append((resource, world.store.create(resource, NAMESPACE, {**manifest, "metadata": metadata})))
    await world.running()
    world.apply(SCALEOUTS, a_scale_out(2, name="resnet-out"))
    await world.phase("ScaleSucceeded", SCALEOUTS, "resnet-out")
    await world.quiet()
    assert world.hosts() == [f"resnet-worker-{index}" for index in range(4)]
    for resource, odd in held:
        kept = world.store.get(resource, NAMESPACE, odd.at[1])
        assert kept is not None
        assert kept.metadata["uid"] == odd.metadata["uid"]


async def test_what_was_made_by_a_call_whose_answer_was_lost_is_no_conflict(world: World):
    await world.kill("scheduler")
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.until(lambda: world.count("JobCreated") == 1)
    await world.quiet()
    for plural in ("pods", "services"):
        world.store.faults.fail_next("create", Transient("timeout"), plural=plural, times=2, applied=True)
    # No watch shows the pod that was made, so it is made again.
    await world.kill("watcher")
    await world.start("scheduler")
    await world.pass_seconds(10)
    await world.start("watcher")
    await world.running()
    assert world.count("EffectRefused") == 0


async def test_training_goes_on_and_nothing_is_failed_during_a_long_outage(world: World):
    await world.trains(workers=2)
    await world.waits_in_a_scale_out("resnet-worker-2")
    world.store.outage.begin()
    await world.pass_seconds(3600)
    assert world.count("ScaleFailed") == 0, "an operator that is blind fails no request"
    world.stuck.clear()
    world.store.outage.end()
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")


def timers(world: World) -> list[str]:
    """The names of the timers that expired."""
    expired = (stored.body for stored in world.journal.events if stored.subject.endswith(".TimePassed"))
    return [msgspec.json.decode(body)["timer"] for body in expired]


async def test_a_deadline_that_ran_out_while_the_watcher_stood_still_runs_afresh():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with World() as world:
        await world.trains(workers=1)
        await world.waits_in_a_scale_out("resnet-worker-1")
        await world.pass_seconds(10)
        loop.stand_still(3_600)
        await world.pass_seconds(40)
        assert set(timers(world)) == {WAITING}, "what it waits for is told, and the deadline is not over"
        await world.pass_seconds(30)
        await world.phase("ScaleFailed", SCALEOUTS, "out")


async def test_a_watcher_that_was_away_finds_everything_that_changed(world: World):
    world.apply(TRAININGJOBS, a_training_job("leaves", workers=1))
    world.apply(TRAININGJOBS, a_training_job("ends", workers=1))
    world.apply(TRAININGJOBS, a_training_job("again", workers=1))
    world.apply(TRAININGJOBS, a_training_job("loses", workers=3))
    for name in ("leaves", "ends", "again", "loses"):
        await world.running(name)
    await world.quiet()
    await world.kill("watcher")
    world.delete(TRAININGJOBS, "leaves")
    world.exit_codes["ends-launcher"] = 0
    world.delete(TRAININGJOBS, "again")
    again = world.apply(TRAININGJOBS, a_training_job("again", workers=2)).metadata["uid"]
    world.delete(PODS, "loses-worker-1")
    world.apply(TRAININGJOBS, a_training_job("comes", workers=1))
    world.apply(SCALEOUTS, a_scale_out(1, name="grows", job="comes"))
    await world.until(lambda: not world.exit_codes and "loses-worker-1" not in world.pods())
    await world.start("watcher")
    await world.phase("Succeeded", name="ends")
    await world.phase("ScaleSucceeded", SCALEOUTS, "grows")
    await world.until(lambda: world.hosts("loses") == ["loses-worker-0", "loses-worker-2"])
    await world.until(lambda: len(world.owned_by(again)) == 6)
    await world.running("again")
    await world.quiet()
    assert not any(name.startswith("leaves") for name in world.pods())
    assert world.status(TRAININGJOBS, "loses")["phase"] == "Running"
    assert world.status(TRAININGJOBS, "comes")["workers"] == "2/2"


async def test_the_replica_that_takes_over_counts_the_restarts_before_it(world: World):
    await world.trains(workers=1, restartPolicy="OnFailure", backoffLimit=1)
    world.exit_codes["resnet-launcher"] = 1
    await world.phase("Restarting")
    await world.running()
    await world.restart("status")
    world.exit_codes["resnet-launcher"] = 1
    await world.phase("Failed")
    assert world.count("JobRestarted") == 1
    assert world.status(TRAININGJOBS, "resnet")["restartCount"] == 1
