"""Bad weather: quotas, outages, calls that fail or whose answer is lost, watches that break, services that stop."""

import asyncio
from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SERVICES
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Stored
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies.back_off import LONGEST_SECONDS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import AUTHORS, NAMESPACE, a_scale_in, a_scale_out, a_training_job
from tests.service.stage import Stage


async def a_whole_life(stage: Stage, name: str = "resnet") -> None:
    stage.apply(TRAININGJOBS, a_training_job(name, workers=2))
    await stage.running(name)
    stage.apply(SCALEOUTS, a_scale_out(2, name=f"{name}-out", job=name))
    stage.apply(SCALEINS, a_scale_in(1, name=f"{name}-in", job=name))
    await stage.phase("ScaleSucceeded", SCALEOUTS, f"{name}-out")
    await stage.phase("ScaleSucceeded", SCALEINS, f"{name}-in")
    await stage.running(name)


async def is_right(stage: Stage, name: str = "resnet") -> None:
    await stage.quiet()
    assert stage.hosts(name) == [f"{name}-worker-{index}" for index in range(3)]
    assert sorted(pod for pod in stage.pods() if pod.startswith(name)) == [
        f"{name}-launcher",
        *(f"{name}-worker-{index}" for index in range(3)),
    ]
    status = stage.status(TRAININGJOBS, name)
    assert (status["phase"], status["workers"], status["restartCount"]) == ("Running", "3/3", 0)


@in_virtual_time
async def test_a_quota_is_waited_for_and_shown():
    async with Stage() as stage:
        stage.store.pod_quota[NAMESPACE] = 1
        stage.apply(TRAININGJOBS, a_training_job(workers=3))
        stage.apply(TRAININGJOBS, a_training_job("other", workers=1), "team-b")
        await stage.shows("WorkersCreated", "QuotaExceeded")
        await stage.phase("Running", name="other", namespace="team-b")
        assert ("QuotaExceeded", "resnet") in stage.kubernetes_events()
        stage.store.pod_quota.clear()
        await stage.running()
        assert stage.hosts() == [f"resnet-worker-{index}" for index in range(3)]
        assert stage.condition(TRAININGJOBS, "resnet", "WorkersCreated") == ("True", "TrainingJobWorkersCreated")


@in_virtual_time
async def test_what_is_refused_for_ever_is_tried_on_and_written_no_more():
    async with Stage() as stage:
        stage.store.pod_quota[NAMESPACE] = 1
        stage.apply(TRAININGJOBS, a_training_job(workers=3))
        await stage.shows("WorkersCreated", "QuotaExceeded")
        await stage.pass_seconds(1_500)
        events, versions = len(stage.journal.events), stage.store.version
        await stage.pass_seconds(36_000)
        assert (len(stage.journal.events), stage.store.version) == (events, versions)
        assert stage.count("EffectRefused") < 15
        stage.store.pod_quota.clear()
        await stage.pass_seconds(LONGEST_SECONDS)
        await stage.running()


@in_virtual_time
async def test_a_scale_out_beyond_the_quota_fails_at_its_deadline_and_the_next_one_goes_on_at_once():
    async with Stage() as stage:
        stage.store.pod_quota[NAMESPACE] = 4
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        request = a_scale_out(3, name="first")
        request["spec"]["timeout"] = 6
        stage.apply(SCALEOUTS, request)
        await stage.phase("ScaleFailed", SCALEOUTS, "first")
        assert stage.condition(SCALEOUTS, "first", "ScaleFailed") == ("True", "QuotaExceeded")
        await stage.until(lambda: len(stage.pods()) == 3, "half a scale-out is taken back")
        stage.apply(SCALEOUTS, a_scale_out(1, name="second"))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "second")
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-1", "resnet-worker-5"]


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


@in_virtual_time
async def test_odd_objects_harm_no_job():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        held = []
        for index, (resource, manifest) in enumerate(ODD):
            stage.odd.add(name := f"odd-{index}")
            metadata = {**manifest.get("metadata", {}), "name": name}
            held.append((resource, stage.store.create(resource, NAMESPACE, {**manifest, "metadata": metadata})))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(2, name="resnet-out"))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "resnet-out")
        await stage.quiet()
        assert stage.hosts() == [f"resnet-worker-{index}" for index in range(4)]
        for resource, odd in held:
            kept = stage.store.get(resource, NAMESPACE, odd.at[1])
            assert kept is not None
            assert kept.metadata["uid"] == odd.metadata["uid"]


WRITES = [
    ("patch", "configmaps"),
    ("patch", "pods"),
    ("patch", "scaleouts"),
    ("patch", "scaleins"),
    ("patch", "trainingjobs"),
    ("delete", "pods"),
    ("create", "pods"),
    ("create", "services"),
    ("create", "secrets"),
    ("create", "configmaps"),
    ("create", "events"),
]
READS = [("get", "trainingjobs"), ("get", "configmaps"), ("get", "scaleouts")]


@pytest.mark.parametrize("applied", [False, True], ids=["nothing was done", "the answer was lost"])
@in_virtual_time
async def test_every_kind_of_call_may_fail(applied: bool):
    async with Stage() as stage:
        for verb, plural in [*WRITES, *READS]:
            stage.store.faults.fail_next(verb, Transient("timeout"), plural=plural, applied=applied)
        await a_whole_life(stage)
        await is_right(stage)
        assert stage.count("EffectRefused") == 0, "what we made ourselves is there, not in the way"


@in_virtual_time
async def test_every_patch_may_meet_a_conflict():
    async with Stage() as stage:
        for verb, plural in WRITES:
            if verb == "patch":
                stage.store.faults.fail_next(verb, Conflict("409"), plural=plural, times=2)
        await a_whole_life(stage)
        await is_right(stage)


@in_virtual_time
async def test_what_was_made_by_a_call_whose_answer_was_lost_is_no_conflict():
    async with Stage() as stage:
        await stage.kill("scheduler")
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.until(lambda: stage.count("JobCreated") == 1)
        await stage.quiet()
        for plural in ("pods", "services"):
            stage.store.faults.fail_next("create", Transient("timeout"), plural=plural, times=2, applied=True)
        # No watch shows the pod that was made, so it is made again.
        await stage.kill("watcher")
        await stage.start("scheduler")
        await stage.pass_seconds(10)
        await stage.start("watcher")
        await stage.running()
        assert stage.count("EffectRefused") == 0


@in_virtual_time
async def test_the_last_status_is_written_whatever_it_meets():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1, cleanPodPolicy="None"))
        await stage.running()
        await stage.quiet()
        stage.store.faults.fail_next("patch", Conflict("409"), plural="trainingjobs", times=3)
        stage.exit_codes["resnet-launcher"] = 0
        await stage.phase("Succeeded")


@in_virtual_time
async def test_a_refused_status_is_tried_again():
    async with Stage() as stage:
        for plural in ("trainingjobs", "scaleouts"):
            stage.store.faults.fail_next("patch", Refused("no", reason="Forbidden"), plural=plural)
        await a_whole_life(stage)
        await is_right(stage)


@in_virtual_time
async def test_17_an_outage_at_any_event_loses_nothing():
    """The API server goes away after every seventh event and comes back a little later."""
    async with Stage() as stage:

        def on_event(stored: Stored) -> None:
            if stored.sequence % 7 == 0:
                stage.store.outage.begin()

        stage.journal.listeners.append(on_event)

        async def repair() -> None:
            while True:
                await stage.until(lambda: bool(stage.store.outage.reason))
                stage.store.outage.end()

        repairing = asyncio.create_task(repair())
        try:
            await a_whole_life(stage)
        finally:
            repairing.cancel()
        stage.journal.listeners.clear()
        stage.store.outage.end()
        await is_right(stage)


@in_virtual_time
async def test_training_goes_on_and_nothing_is_failed_during_a_long_outage():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.stuck.add("resnet-worker-2")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("Scaling", SCALEOUTS, "out")
        stage.store.outage.begin()
        await stage.pass_seconds(3600)
        assert stage.count("ScaleFailed") == 0, "an operator that is blind fails no request"
        stage.stuck.clear()
        stage.store.outage.end()
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")


@pytest.mark.parametrize("compacted", [False, True], ids=["go on", "list again"])
@in_virtual_time
async def test_watches_that_are_cut_at_every_event_lose_nothing(compacted: bool):
    async with Stage() as stage:

        def on_event(stored: Stored) -> None:
            stage.store.outage.cut_watches()
            if compacted:
                stage.store.compact()

        stage.journal.listeners.append(on_event)
        await a_whole_life(stage)
        stage.exit_codes["resnet-launcher"] = 0
        await stage.phase("Succeeded")
        await stage.until(lambda: list(stage.pods()) == ["resnet-launcher"])


@in_virtual_time
async def test_a_watcher_that_was_away_fails_no_job_for_what_it_did_not_see():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.stuck.add("resnet-worker-2")
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("Scaling", SCALEOUTS, "out")
        await stage.until(lambda: "resnet-worker-2" in stage.pods())
        await stage.kill("watcher")
        stage.stuck.clear()
        await stage.pass_seconds(3600)
        await stage.start("watcher")
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert stage.count("TimePassed") == 0


@in_virtual_time
async def test_a_watcher_that_was_away_finds_everything_that_changed():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job("leaves", workers=1))
        stage.apply(TRAININGJOBS, a_training_job("ends", workers=1))
        stage.apply(TRAININGJOBS, a_training_job("again", workers=1))
        stage.apply(TRAININGJOBS, a_training_job("loses", workers=3))
        for name in ("leaves", "ends", "again", "loses"):
            await stage.running(name)
        await stage.quiet()
        await stage.kill("watcher")
        stage.delete(TRAININGJOBS, "leaves")
        stage.exit_codes["ends-launcher"] = 0
        stage.delete(TRAININGJOBS, "again")
        again = stage.apply(TRAININGJOBS, a_training_job("again", workers=2)).metadata["uid"]
        stage.delete(PODS, "loses-worker-1")
        stage.apply(TRAININGJOBS, a_training_job("comes", workers=1))
        stage.apply(SCALEOUTS, a_scale_out(1, name="grows", job="comes"))
        await stage.until(lambda: not stage.exit_codes and "loses-worker-1" not in stage.pods())
        await stage.start("watcher")
        await stage.phase("Succeeded", name="ends")
        await stage.phase("ScaleSucceeded", SCALEOUTS, "grows")
        await stage.until(lambda: stage.hosts("loses") == ["loses-worker-0", "loses-worker-2"])
        await stage.until(lambda: len(stage.owned_by(again)) == 6)
        await stage.running("again")
        await stage.quiet()
        assert not any(name.startswith("leaves") for name in stage.pods())
        assert stage.status(TRAININGJOBS, "loses")["phase"] == "Running"
        assert stage.status(TRAININGJOBS, "comes")["workers"] == "2/2"


@in_virtual_time
async def test_a_service_that_is_away_holds_up_only_its_own_part():
    async with Stage() as stage:
        await stage.kill("status")
        await stage.kill("scaler")
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.until(lambda: stage.count("ScaleRequested") == 1)
        for author in ("scaler", "status"):
            await stage.start(author)
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")


@in_virtual_time
async def test_the_replica_that_takes_over_counts_the_restarts_before_it():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1, restartPolicy="OnFailure", backoffLimit=1))
        await stage.running()
        stage.exit_codes["resnet-launcher"] = 1
        await stage.phase("Restarting")
        await stage.running()
        await stage.kill("status")
        await stage.start("status")
        stage.exit_codes["resnet-launcher"] = 1
        await stage.phase("Failed")
        assert stage.count("JobRestarted") == 1
        assert stage.status(TRAININGJOBS, "resnet")["restartCount"] == 1


@pytest.mark.parametrize("author", AUTHORS)
@in_virtual_time
async def test_two_replicas_write_nothing_twice_and_one_may_die(author: str):
    async with Stage() as stage, Stage(of=stage, journal=stage.journal) as second:
        stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(2, name="resnet-out"))
        await stage.phase("Scaling", SCALEOUTS, "resnet-out")
        await second.kill(author)
        stage.apply(SCALEINS, a_scale_in(1, name="resnet-in"))
        await stage.phase("ScaleSucceeded", SCALEINS, "resnet-in")
        await stage.running()
        await is_right(stage)
        once = ("JobCreated", "ScaleAccepted", "ScaleSucceeded", "WorkersReleased")
        assert [stage.count(kind) for kind in once] == [1, 2, 2, 1]
        names = [(held.at, held.manifest["reason"]) for held in stage.store.find(EVENTS)]
        assert len(names) == len(set(names))
