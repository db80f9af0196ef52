"""What is tried again and again in silence: a name that a terminating pod holds, a webhook that is away.

Once that has lasted for ten seconds the job says so, once, and it goes on by itself.
"""

import pytest

from shared.cluster.answers import Status, trouble
from shared.cluster.kinds import PODS
from shared.errors import Transient
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies.retries import LONGEST_EFFECT_SECONDS
from shared.runtime.queue import LONGEST_RETRY_SECONDS
from tests.kit.world import World, a_scale_out, a_training_job

AWAY = 'Internal error occurred: failed calling webhook "gpu.example.com": connect: connection refused'


async def made_again(world: World, *names: str, workers: int = 2) -> None:
    """The job is deleted and made again while these pods cannot go."""
    job = a_training_job(workers=workers)
    job["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = workers
    world.apply(TRAININGJOBS, job)
    await world.running()
    world.lingering |= {pod.metadata["uid"] for name, pod in world.pods().items() if name in names}
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: len(world.pods()) == len(names), "the other pods go")
    world.apply(TRAININGJOBS, job)


def reasons(world: World) -> list[str]:
    return [refusal.reason for refusal in world.job().efforts.refusals.values()]


def told(world: World) -> str:
    """Why the workers are not created."""
    conditions = world.status(TRAININGJOBS, "resnet")["conditions"]
    return next(str(known["message"]) for known in conditions if known["type"] == "WorkersCreated")


async def test_a_name_that_a_terminating_pod_of_an_earlier_job_holds_is_told_once_until_the_pod_ends(world: World):
    await made_again(world, "resnet-worker-1")
    await world.shows("WorkersCreated", "NameHeld")
    for words in (
        "pod resnet-worker-1",
        "an earlier TrainingJob resnet",
        "being deleted since",
        "node-0",
        "--force",
    ):
        assert words in told(world)
    await world.until(lambda: ("NameHeld", "resnet") in world.kubernetes_events(), "the Kubernetes Event")
    assert "resnet-worker-0" in world.pods(), "no other pod waits for that name"
    await world.pass_seconds(3_600)
    assert world.count("EffectRefused") == 1
    world.lingering.clear()
    await world.pass_seconds(4)
    await world.running()
    assert reasons(world) == []
    assert world.condition(TRAININGJOBS, "resnet", "WorkersCreated") == ("True", "TrainingJobWorkersCreated")


async def test_a_pod_that_ends_within_ten_seconds_is_told_to_nobody(world: World):
    await made_again(world, "resnet-worker-1")
    await world.pass_seconds(8)
    world.lingering.clear()
    await world.running()
    assert world.count("EffectRefused") == 0


async def test_the_names_of_many_pods_are_told_together_and_filled_one_after_the_other(world: World):
    await made_again(world, *(f"resnet-worker-{index}" for index in range(100)), workers=100)
    await world.pass_seconds(600)
    assert world.count("EffectRefused") == 1
    assert "99 more" in told(world)
    world.lingering.clear()
    await world.pass_seconds(15)
    await world.running()
    assert world.count("EffectRefused") < 4


def away(before: object, after: object) -> None:
    if before is None:
        raise Transient(f"create Pod: 500 InternalError: {AWAY}", reason="WebhookFailed", words=AWAY)


async def is_told_seldom_and_ends_with_its_cause(world: World) -> None:
    await world.pass_seconds(3_600)
    assert world.count("EffectRefused") < 9
    world.store.admit(PODS, lambda before, after: None)
    await world.pass_seconds(LONGEST_EFFECT_SECONDS)
    await world.running()
    assert reasons(world) == []


async def test_a_webhook_that_is_away_is_named_after_ten_seconds_and_the_job_goes_on_when_it_is_back(world: World):
    world.store.admit(PODS, away)
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.pass_seconds(9)
    assert reasons(world) == []
    await world.pass_seconds(3)
    assert reasons(world) == ["WebhookFailed"]
    assert told(world) == f"CreatePod fails: {AWAY}"
    assert ("WebhookFailed", "resnet") in world.kubernetes_events()
    await is_told_seldom_and_ends_with_its_cause(world)
    # It goes away again while the job runs.
    world.store.admit(PODS, away)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.pass_seconds(30)
    assert reasons(world) == ["WebhookFailed"]
    assert world.kubernetes_events().count(("WebhookFailed", "resnet")) == 2


PATCH = "Internal error occurred: jsonpatch add operation does not apply: doc is missing path: /spec/volumes/-"
SLOW = "the API server is ready, but not in time with the object; a webhook may hang"


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        # A patch of a webhook, a quota that is not counted in time: each answer is about this pod.
        pytest.param(
            trouble(Status(code=500, reason="InternalError", message=PATCH), "create Pod", method="POST"),
            PATCH,
            id="and says why",
        ),
        pytest.param(Transient("create Pod: timed out", reason="Timeout"), SLOW, id="by its silence"),
    ],
)
async def test_an_api_server_that_fails_on_a_pod_is_told(world: World, failure: Transient, words: str):
    def broken(before: object, after: object) -> None:
        if before is None:
            raise failure

    world.store.admit(PODS, broken)
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.pass_seconds(12)
    assert told(world) == f"CreatePod fails: {words}"
    await is_told_seldom_and_ends_with_its_cause(world)


@pytest.mark.parametrize("failure", [Transient("timeout"), Transient("503 ServiceUnavailable", retry_after=1)])
async def test_an_api_server_that_is_away_is_no_news_of_each_job(world: World, failure: Transient):
    def silent(before: object, after: object) -> None:
        raise failure

    world.store.admit(PODS, silent)
    world.apply(TRAININGJOBS, a_training_job(workers=2))
    await world.pass_seconds(120)
    world.store.admit(PODS, lambda before, after: None)
    await world.pass_seconds(2 * LONGEST_RETRY_SECONDS)
    await world.running()
    assert world.count("EffectRefused") == 0
