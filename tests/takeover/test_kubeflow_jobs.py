"""Jobs that training-operator began, with the four services on a cluster in memory."""

from typing import Any

import pytest

from shared.cluster.kinds import PODS, SERVICES
from shared.frameworks.tfjob import TFJOB
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import AUTHORS, NAMESPACE
from tests.service.stage import Stage
from tests.takeover.recorded import put, recorded

TFJOBS = TFJOB.resource
MNIST = ["mnist-chief-0", "mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]


def a_stage(*, takes_over: bool = True, **status: Any) -> tuple[Stage, str]:
    stage = Stage(takes_over=takes_over)
    objects = recorded("tfjob-running")
    objects[0]["status"] |= status
    return stage, put(stage.store, objects)


def uids(stage: Stage) -> dict[str, str]:
    return {name: held.metadata["uid"] for name, held in stage.pods().items()}


def state(stage: Stage, name: str = "mnist") -> str:
    return str((stage.status(TFJOBS, name).get("conditions") or [{}])[-1].get("type"))


async def taken_over(stage: Stage, uid: str, pods: list[str]) -> None:
    """Wait until its pods and their Services carry our labels."""

    def claimed() -> bool:
        held = [stage.store.get(resource, NAMESPACE, name) for resource in (PODS, SERVICES) for name in pods]
        return all(thing and thing.metadata["labels"].get("muster.dev/job-uid") == uid for thing in held)

    await stage.until(claimed, "all is claimed")


@in_virtual_time
async def test_a_running_tf_job_goes_on_with_its_pods_and_finishes():
    stage, uid = a_stage()
    before = uids(stage)
    async with stage:
        await taken_over(stage, uid, MNIST)
        await stage.quiet()
        assert uids(stage) == before
        assert state(stage) == "Running"
        status = stage.status(TFJOBS, "mnist")
        assert status["startTime"] == "2029-12-31T22:00:00Z"
        assert {kind: counts["active"] for kind, counts in status["replicaStatuses"].items()} == {
            "Chief": 1,
            "PS": 1,
            "Worker": 2,
        }
        running = next(known for known in status["conditions"] if known["type"] == "Running")
        assert running["lastTransitionTime"] == "2029-12-31T22:01:00Z"
        assert (stage.count("SlotsAssigned"), stage.count("EffectRefused")) == (0, 0)
        stage.exit_codes["mnist-chief-0"] = 0
        await stage.until(lambda: state(stage) == "Succeeded")
        await stage.quiet()
        assert uids(stage) == before, "cleanPodPolicy None"


@in_virtual_time
async def test_a_worker_that_is_lost_afterwards_is_made_again_under_its_name():
    stage, uid = a_stage()
    before = uids(stage)
    async with stage:
        await taken_over(stage, uid, MNIST)
        stage.store.remove(PODS, NAMESPACE, "mnist-worker-1")
        await stage.until(lambda: uids(stage).get("mnist-worker-1") not in (None, before["mnist-worker-1"]))
        await stage.quiet()
        kept = [name for name in MNIST if name != "mnist-worker-1"]
        assert {name: uids(stage)[name] for name in kept} == {name: before[name] for name in kept}
        assert stage.store.get(SERVICES, NAMESPACE, "mnist-worker-1")


@in_virtual_time
async def test_a_worker_that_was_lost_before_is_made_again_and_nothing_else():
    stage, uid = a_stage()
    stage.store.remove(PODS, NAMESPACE, "mnist-worker-1")
    before = uids(stage)
    async with stage:
        await taken_over(stage, uid, MNIST)
        await stage.quiet()
        assert sorted(uids(stage)) == MNIST
        assert before.items() <= uids(stage).items()


@in_virtual_time
async def test_a_failed_worker_beyond_the_replicas_ends_nothing():
    """The job was scaled in there, and its third worker failed before the operator deleted it."""
    stage = Stage(takes_over=True)
    third = next(it for it in recorded("tfjob-running") if it["kind"] == "Pod" and it["metadata"]["name"] == MNIST[-1])
    third["metadata"]["name"] = "mnist-worker-2"
    third["metadata"]["labels"]["training.kubeflow.org/replica-index"] = "2"
    end = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    third["status"] = {"phase": "Failed", "containerStatuses": [end]}
    uid = put(stage.store, [*recorded("tfjob-running"), third])
    before = uids(stage)
    async with stage:
        await taken_over(stage, uid, MNIST)
        await stage.quiet()
        assert state(stage) == "Running"
        assert {name: uids(stage)[name] for name in MNIST} == {name: before[name] for name in MNIST}
        assert stage.count("SlotsAssigned") == 0


@in_virtual_time
async def test_nothing_is_touched_while_the_training_operator_may_be_running():
    stage, uid = a_stage(takes_over=False)
    before = stage.store.version
    async with stage:
        await stage.pass_seconds(600)
        assert stage.store.version == before
        await stage.kill("watcher")
        stage.takes_over = True
        await stage.start("watcher")
        await taken_over(stage, uid, MNIST)


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@in_virtual_time
async def test_a_finished_one_is_never_run_again(end: str):
    stage = Stage(takes_over=True)
    job = recorded("tfjob-running")[0]
    job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = 7260
    done = {"type": end, "status": "True", "reason": f"TFJob{end}", "lastTransitionTime": "2029-12-31T23:00:00Z"}
    job["status"]["conditions"][1]["status"] = "False"
    job["status"] |= {
        "completionTime": "2029-12-31T23:00:00Z",
        "conditions": [*job["status"]["conditions"], done],
        "replicaStatuses": {"Chief": {"succeeded": 1}, "PS": {}, "Worker": {"succeeded": 2}},
    }
    put(stage.store, [job])
    async with stage:
        await stage.until(lambda: stage.count("JobAdopted") == 1)
        await stage.quiet()
        assert (state(stage), stage.pods()) == (end, {})
        assert stage.status(TFJOBS, "mnist")["replicaStatuses"]["Worker"]["succeeded"] == 2
        await stage.pass_seconds(2600)
        assert stage.store.get(TFJOBS, NAMESPACE, "mnist") is not None
        await stage.pass_seconds(100)
        assert stage.store.get(TFJOBS, NAMESPACE, "mnist") is None


@in_virtual_time
async def test_one_that_never_began_there_is_simply_taken_on():
    stage = Stage(takes_over=True)
    job = recorded("tfjob-running")[0]
    job["status"] = {"conditions": job["status"]["conditions"][:1], "replicaStatuses": {}}
    put(stage.store, [job])
    async with stage:
        await stage.until(lambda: state(stage) == "Running")
        assert sorted(stage.pods()) == MNIST


@pytest.mark.parametrize("turn", range(1, 10))
@in_virtual_time
async def test_all_services_may_die_at_any_event_of_it(turn: int):
    stage, uid = a_stage()
    before = uids(stage)
    async with stage:
        await stage.until(lambda: len(stage.journal.events) > turn)
        for author in AUTHORS:
            await stage.kill(author)
        for author in AUTHORS:
            await stage.start(author)
        await taken_over(stage, uid, MNIST)
        await stage.quiet()
        assert uids(stage) == before
        assert (stage.count("JobAdopted"), stage.count("SlotsAssigned")) == (1, 0)
