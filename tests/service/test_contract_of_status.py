"""What a job and its requests show, step by step, through a whole life."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from shared.cluster import Resource
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, Document, World, a_scale_in, a_scale_out

CREATED = ("Created", "True", "TrainingJobCreated")
WORKERS_CREATED = ("WorkersCreated", "True", "TrainingJobWorkersCreated")
WORKERS_READY = ("WorkersReady", "True", "TrainingJobWorkersReady")
LAUNCHER_CREATED = ("LauncherCreated", "True", "TrainingJobLauncherCreated")
RUNNING = ("Running", "True", "TrainingJobRunning")


def conditions(status: Document) -> list[tuple[str, str, str]]:
    return [(known["type"], known["status"], known["reason"]) for known in status["conditions"]]


def changes(values: Iterable[Any]) -> list[Any]:
    """Values without repetitions."""

    def fresh() -> Iterator[Any]:
        last: Any = object()
        for value in values:
            if value != last:
                yield value
            last = value

    return list(fresh())


def phases(world: World, resource: Resource[Any] = TRAININGJOBS, name: str = "resnet") -> list[str]:
    return changes(status.get("phase") for status in world.statuses[resource.kind, NAMESPACE, name])


async def a_life(world: World, code: int = 0) -> None:
    await world.trains(workers=2)
    world.apply(SCALEOUTS, a_scale_out(2))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.running()
    world.apply(SCALEINS, a_scale_in(3))
    await world.phase("ScaleSucceeded", SCALEINS, "in")
    await world.running()
    world.exit_codes["resnet-launcher"] = code
    await world.phase("Failed" if code else "Succeeded")
    await world.until(lambda: list(world.pods()) == ["resnet-launcher"])
    await world.quiet()


@pytest.fixture(scope="module")
def life() -> World:
    """One whole life, beside a job that cannot run; each test reads something else of what was shown."""
    world = World()

    @in_virtual_time
    async def play() -> None:
        async with world:
            world.apply(TRAININGJOBS, {"metadata": {"name": "bad"}, "spec": {}})
            await world.shows("Created", "NoLauncher", name="bad")
            await a_life(world)

    play()
    return world


def test_the_conditions_of_a_job_come_in_their_order_with_their_reasons(life: World):
    seen = changes(map(conditions, life.statuses["TrainingJob", NAMESPACE, "resnet"]))
    milestones = [CREATED, WORKERS_CREATED, WORKERS_READY, LAUNCHER_CREATED, RUNNING]
    # Milestones may be shown together; each list continues the one before.
    started = [found for found in seen if found == milestones[: len(found)]]
    assert started[0][0] == CREATED
    assert started[-1] == milestones
    rest = seen[len(started) :]
    out, into = ("True", "ScalingOutSucceeded"), ("True", "ScalingInSucceeded")
    scaling = ("Scaling", "True", "ScalingStart")
    assert rest[0] == [*milestones, scaling]
    assert [*milestones, ("Scaling", "False", "TrainingJobRunning"), ("ScaleSucceeded", *out)] in rest
    assert [*milestones, ("ScaleSucceeded", "False", "ScalingStart"), scaling] in rest
    assert [*milestones, ("Scaling", "False", "TrainingJobRunning"), ("ScaleSucceeded", *into)] in rest
    assert rest[-1] == [
        *milestones[:-1],
        ("Running", "False", "TrainingJobSucceeded"),
        ("Scaling", "False", "TrainingJobRunning"),
        ("ScaleSucceeded", *into),
        ("Succeeded", "True", "TrainingJobSucceeded"),
    ]


async def test_a_failed_job_shows_why(world: World):
    await a_life(world, code=3)
    last = conditions(world.status(TRAININGJOBS, "resnet"))
    assert ("Running", "False", "TrainingJobFailed") in last
    assert last[-1] == ("Failed", "True", "TrainingJobFailed")
    message = world.status(TRAININGJOBS, "resnet")["conditions"][-1]["message"]
    assert "exited with 3" in message


def test_phases_follow_their_path(life: World):
    path = ["Created", "Running", "Scaling", "Running", "Scaling", "Running", "Succeeded"]
    assert phases(life) == path
    for resource, name in ((SCALEOUTS, "out"), (SCALEINS, "in")):
        shown = phases(life, resource, name)
        assert [phase for phase in shown if phase not in ("Created", "Pending")] == ["Scaling", "ScaleSucceeded"]


@pytest.mark.parametrize(("resource", "name", "added"), [(SCALEOUTS, "out", "Out"), (SCALEINS, "in", "In")])
def test_the_conditions_of_a_request_come_in_their_order(life: World, resource: Resource[Any], name: str, added: str):
    seen = changes(map(conditions, life.statuses[resource.kind, NAMESPACE, name]))
    created = ("Created", "True", "ScaleRequestCreated")
    assert [created, ("Scaling", "True", "ScalingStart")] in seen
    assert seen[-1] == [
        created,
        ("Scaling", "False", f"Scaling{added}Succeeded"),
        ("ScaleSucceeded", "True", f"Scaling{added}Succeeded"),
    ]


def test_the_current_scaler_is_named_while_it_scales_and_cleared_afterwards(life: World):
    seen = changes(status.get("currentScaler") for status in life.statuses["TrainingJob", NAMESPACE, "resnet"])
    assert seen == [None, "ScaleOut:team-a/out", None, "ScaleIn:team-a/in", None]


def test_target_and_current_workers_show_where_it_goes_and_where_it_is(life: World):
    two, four, one = ([f"resnet-worker-{index}" for index in range(size)] for size in (2, 4, 1))
    statuses = life.statuses["TrainingJob", NAMESPACE, "resnet"]
    targets = changes(status["targetWorkers"] for status in statuses)
    assert [target for target in targets if target] == [two, four, one]
    current = changes(status["currentWorkers"] for status in statuses)
    assert current == [[], two, four, one, []]
    assert life.status(SCALEOUTS, "out")["addPods"] == ["resnet-worker-2", "resnet-worker-3"]
    assert life.status(SCALEINS, "in")["toDeletePods"] == [f"resnet-worker-{index}" for index in (3, 2, 1)]


def test_a_request_shows_its_pods_from_its_acceptance_on(life: World):
    for kind, name, field in (("ScaleOut", "out", "addPods"), ("ScaleIn", "in", "toDeletePods")):
        for status in life.statuses[kind, NAMESPACE, name]:
            assert bool(status[field]) == (status["phase"] in ("Scaling", "ScaleSucceeded")), status


def test_required_fields_are_always_written(life: World):
    for name in ("bad", "resnet"):
        for status in life.statuses["TrainingJob", NAMESPACE, name]:
            assert {"phase", "conditions", "replicaStatuses", "restartCount"} <= {*status}, status
            assert {*status["replicaStatuses"]} == {"Launcher", "Worker"}
            assert {*status["replicaStatuses"]["Worker"]} == {"active", "succeeded", "failed"}
            assert {*status["history"]} == {"log", "sequence", "hash"}
    last = life.status(TRAININGJOBS, "resnet")
    assert last["startTime"] <= last["completionTime"]
    held = life.store.get(TRAININGJOBS, NAMESPACE, "resnet")
    assert held is not None
    assert last["observedGeneration"] == held.metadata["generation"]


def test_sequences_of_heads_only_grow(life: World):
    sequences = [s["history"]["sequence"] for s in life.statuses["TrainingJob", NAMESPACE, "resnet"]]
    assert sequences == sorted(sequences)


def test_the_kubernetes_events_of_a_whole_life(life: World):
    assert sorted(told for told in life.kubernetes_events() if told[1] != "bad") == sorted(
        [
            ("TrainingJobWorkerCreated", "resnet"),
            ("TrainingJobRunning", "resnet"),
            ("ScalingStart", "out"),
            ("ScalingOutSucceeded", "out"),
            ("ScalingOutSucceeded", "resnet"),
            ("ScalingStart", "in"),
            ("ScalingInSucceeded", "in"),
            ("ScalingInSucceeded", "resnet"),
            ("TrainingJobSucceeded", "resnet"),
        ]
    )
