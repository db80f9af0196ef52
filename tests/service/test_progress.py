"""Training programs that report, with the four services: what is recorded, when, and what is refused."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.watcher.core import progress
from services.watcher.core.budgets import Limits
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster.kinds import PODS
from shared.errors import Refused, accepting
from shared.eventlog import Entry
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.scale_requests import SCALEOUTS
from shared.job.events.catalog import read_event
from shared.job.events.scheduler import JobRestarted, SlotsAssigned
from shared.job.events.status import JobRestarting
from shared.job.events.watcher import ProgressReported
from shared.job.naming import ATTEMPT, JOB_UID, ROLE, Uid
from shared.job.spec import WORKER
from shared.job.views import Exit, Slots
from shared.telling.shown import Shown
from tests.kit.builders import a_running_job, report_body, worker
from tests.kit.kubelet import NAMESPACE
from tests.kit.services import AUTHORS
from tests.kit.stories import given
from tests.kit.world import TRAININGJOBS, World, a_scale_out, a_training_job


def the_watcher(world: World) -> Watcher:
    watcher = world._running["watcher"][0].service
    assert isinstance(watcher, Watcher)
    return watcher


def report(world: World, pod: str = "worker-0", **said: Any) -> None:
    """One from a pod of the job `resnet`."""
    uid = Uid(world.pods()[f"resnet-{pod}"].metadata["uid"])
    the_watcher(world).reports.take(world.job().key, uid, report_body(**said))


def recorded(world: World) -> list[ProgressReported]:
    stored = (each for each in world.journal.events if each.subject.endswith(".ProgressReported"))
    return [read_event(each.body, "ProgressReported") for each in stored]  # type: ignore[misc]


def steps(world: World) -> list[int | None]:
    return [event.step for event in recorded(world) if not event.backwards]


async def test_a_report_is_recorded_and_those_that_follow_within_the_interval_are_merged(world: World):
    await world.trains(workers=2)
    for step in range(1, 26):
        report(world, current_step=step, total_steps=100, loss=1 / step)
        await world.pass_seconds(1)
    await world.pass_seconds(10)
    assert steps(world) == [1, 10, 20, 25]
    last = recorded(world)[-1]
    assert (last.total, last.metrics) == (100, (("loss", "0.04"),))
    known = world.job().training
    assert known.words == "step 25 of 100"


async def test_what_a_report_that_waits_said_holds_where_the_one_after_it_is_silent(world: World):
    await world.trains(workers=2)
    report(world, current_step=1)
    await world.quiet()
    report(world, progressPercentage=2, current_step=2, total_steps=100, loss=0.5)
    report(world, current_step=3)
    await world.pass_seconds(10)
    last = recorded(world)[-1]
    assert (last.step, last.total, last.percentage, last.metrics) == (3, 100, 2, (("loss", "0.5"),))


async def test_a_report_in_per_cent_alone_counts_beside_one_of_a_step_that_waits(world: World):
    await world.trains(workers=2)
    report(world, progressPercentage=40, current_step=100)
    await world.quiet()
    report(world, current_step=100, checkpoint_step=100)
    report(world, "worker-1", progressPercentage=50)
    await world.pass_seconds(10)
    assert recorded(world)[-1].percentage == 50


async def test_the_last_report_of_a_job_is_recorded_before_its_end(world: World):
    await world.trains(workers=2)
    for step in (1, 2, 3):
        report(world, current_step=step)
        await world.pass_seconds(0.5)
    world.exit_codes["resnet-launcher"] = 0
    await world.phase("Succeeded")
    await world.quiet()
    assert steps(world) == [1, 3]


async def test_a_program_that_goes_on_after_its_last_step_is_recorded_once_in_ten_seconds(world: World):
    await world.trains(workers=2)
    for step in range(1, 101):
        report(world, current_step=step, total_steps=step)
        await world.pass_seconds(1)
    assert 10 <= len(recorded(world)) <= 12


async def test_a_program_that_begins_again_and_again_is_recorded_once_a_second_at_most(world: World):
    await world.trains(workers=2)
    for _ in range(1_000):
        report(world, progressPercentage=0, total_steps=9)
        report(world, current_step=1)
        await world.pass_seconds(0.01)
    assert len(recorded(world)) <= 11


async def test_after_a_scaling_the_first_step_says_that_the_group_trains_again(world: World):
    await world.trains(workers=2)
    report(world, current_step=100)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await world.pass_seconds(3)
    assert world.job().training.changed is not None
    report(world, current_step=95)
    await world.quiet()
    assert steps(world) == [100, 95], "the interval does not delay it, and a restored checkpoint is no lie"
    assert world.job().training.changed is None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param({"current_step": 9}, "StepBackwards", id="backwards"),
        pytest.param({"current_step": 10**30}, "OutOfRange", id="10^30"),
        pytest.param({"current_step": "nan"}, "OutOfRange", id="NaN"),
        pytest.param({"current_step": -1}, "OutOfRange", id="negative"),
        pytest.param({"current_step": 11, "total_steps": 10}, "BeyondTheEnd", id="beyond the total"),
        pytest.param({"progressPercentage": 101}, "OutOfRange", id="101 %"),
        pytest.param({"estimatedRemainingSeconds": -1}, "OutOfRange", id="in the past"),
        pytest.param({"current_step": 11, "checkpoint_step": 12}, "BeyondTheEnd", id="a checkpoint of the future"),
        pytest.param({"checkpoint_step": 5}, "Malformed", id="a checkpoint without a step"),
    ],
)
def test_a_trainer_that_lies_is_refused_with_a_reason(said: dict[str, Any], reason: str):
    pod = worker(0).uid
    told = [ProgressReported(pod=pod, attempt=0, step=step, backwards=step < 10) for step in (10, 9)]
    job = given(*a_running_job(), *told).job
    with pytest.raises(Refused) as refused:
        progress.events(job, progress.read(report_body(**said), pod))
    assert refused.value.reason == reason


async def test_a_program_that_counts_anew_in_each_epoch_is_told_so_once_in_an_attempt(world: World):
    await world.trains(workers=2)
    for _ in range(3):
        for step in range(1, 31):
            with accepting("StepBackwards"):
                report(world, current_step=step, total_steps=30)
            await world.pass_seconds(1)
    (told,) = [event for event in recorded(world) if event.backwards]
    assert steps(world)[-1] == 30
    note = Shown.of(world.history(world.job().key.uid), BUILT_IN).note
    refused = f"a report of step {told.step}, which was done before, is refused: count steps over the whole training"
    assert note.startswith(f"step 30 of 30; {refused}")


async def test_a_report_that_another_one_overtook_is_refused_and_not_told(world: World):
    await world.trains(workers=2)
    for step in range(10, 60, 2):
        report(world, current_step=step)
        await world.pass_seconds(1)
        with accepting("StepBackwards"):
            report(world, current_step=step - 5)
    assert not [event for event in recorded(world) if event.backwards]


async def test_the_token_of_another_jobs_pod_and_that_of_an_earlier_attempt_report_nothing(world: World):
    await world.trains(workers=2, restartPolicy="OnFailure")
    world.apply(TRAININGJOBS, a_training_job("other", workers=1))
    await world.running("other")
    theirs = Uid(world.pods()["other-worker-0"].metadata["uid"])
    with pytest.raises(Refused) as refused:
        the_watcher(world).reports.take(world.job().key, theirs, report_body(current_step=1))
    assert refused.value.reason == "NotOfThisJob"
    earlier = Uid(world.pods()["resnet-worker-0"].metadata["uid"])
    world.lingering.add(earlier)
    world.exit_codes["resnet-launcher"] = 1
    await world.phase("Restarting")
    with pytest.raises(Refused) as refused:
        the_watcher(world).reports.take(world.job().key, earlier, report_body(current_step=1))
    assert refused.value.reason == "Over"
    assert not recorded(world)


def test_a_pod_of_an_earlier_attempt_that_still_runs_reports_nothing():
    again = [
        JobRestarting(reason="TrainingJobFailed"),
        JobRestarted(attempt=1),
        SlotsAssigned(slots=(Slots(1, WORKER, ((0, 1),)),), reason="Restarted"),
    ]
    job = given(*a_running_job(), *again).job
    earlier = worker(0).uid
    assert not job.between_attempts
    with pytest.raises(Refused) as refused:
        progress.events(job, progress.read(report_body(current_step=9), earlier))
    assert refused.value.reason == "Over"


async def test_a_standby_watcher_records_what_it_is_told():
    async with World() as world:
        await world.trains(workers=2)
        async with World(sharing=world) as second:
            second.standby |= {"watcher", "scheduler", "scaler", "status"}
            await second.quiet()
            report(second, current_step=7)
            await world.quiet()
            assert steps(world) == [7]


@contextmanager
def no_answer(world: World) -> Iterator[None]:
    """The watcher's reports reach the log only after this."""
    log, may_go = the_watcher(world)._runtime.appends._log, asyncio.Event()
    append = log.append

    async def late(entry: Entry, *, expect: int) -> int:
        if entry.subject.endswith((".ProgressReported", ".CheckpointTaken")):
            await may_go.wait()
        return await append(entry, expect=expect)

    log.append = late  # type: ignore[method-assign]
    yield
    may_go.set()


async def test_a_report_on_its_way_is_not_stored_after_a_later_one_of_another_replica():
    async with World() as world:
        await world.trains(workers=2)
        async with World(sharing=world) as second:
            second.standby |= {"watcher", "scheduler", "scaler", "status"}
            await second.quiet()
            with no_answer(world):
                report(world, current_step=7, checkpoint_step=7)
                await world.pass_seconds(1)
                report(second, current_step=9, checkpoint_step=9)
                await world.quiet()
            await world.pass_seconds(30)
            assert steps(world) == [9]
            assert world.count("CheckpointTaken") == 1


async def test_a_report_that_waits_for_another_fact_is_made_of_the_history_of_then(world: World):
    await world.trains(workers=2)
    appends, history = the_watcher(world)._runtime.appends, the_watcher(world)._runtime.histories[world.job().key]
    pod = Uid(world.pods()["resnet-worker-0"].metadata["uid"])
    first, second = (ProgressReported(pod=pod, attempt=0, step=step) for step in (8, 7))
    with no_answer(world):
        earlier = asyncio.create_task(appends.append_until_stored(history, first))
        later = asyncio.create_task(
            appends.append_until_stored(history, second, lambda: None if history.job.training.reported else second)
        )
        await world.quiet()
    assert await earlier
    assert not await later
    assert steps(world) == [8]


async def test_no_report_follows_the_seal_and_one_that_waits_for_its_time_goes_with_its_job():
    async with World(seal_after=1) as world:
        await world.trains(workers=2)
        key, reports = world.job().key, the_watcher(world).reports
        with no_answer(world):
            report(world, current_step=1)
            await world.quiet()
            report(world, current_step=2)
            world.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
            await world.until(lambda: bool(world.count("JobGone")), "it is gone")
            await world.quiet()
            assert key not in reports._waiting
            await world.until(lambda: bool(world.count("JobSealed")), "it is sealed")
        await world.pass_seconds(30)
        assert not steps(world)


async def test_a_full_log_takes_no_progress(world: World):
    await world.trains(workers=2)
    world.full = True
    with pytest.raises(Refused) as refused:
        report(world, current_step=1)
    assert refused.value.reason == "LogFull"


async def test_a_namespace_of_which_the_services_keep_too_much_goes_on_reporting(world: World):
    await world.trains(workers=2)
    watcher = the_watcher(world)
    watcher._options = replace(watcher._options, limits=Limits(memory=1))
    report(world, current_step=1)
    await world.quiet()
    assert steps(world) == [1]


async def test_metrics_alone_are_no_beginning_after_which_steps_go_back(world: World):
    await world.trains(workers=2)
    report(world, current_step=100)
    await world.quiet()
    report(world, eval_loss=0.5)
    with pytest.raises(Refused, match="step 50 is before step 100"):
        report(world, current_step=50)
    assert steps(world) == [100]


def ends_saying(world: World, pod: str, message: str) -> None:
    """The training container of a pod ends after SIGTERM, with this termination message."""
    ended = {"name": "main", "state": {"terminated": {"exitCode": 143, "reason": "Error", "message": message}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    world.store.patch(PODS, NAMESPACE, pod, {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ('{"checkpoint_step": 99}', 99),
        ('saved\n{"checkpoint_step": 99, "path": "/ckpt"}\n', 99),
        ('{"checkpoint_step": -1}', None),
        ('{"checkpoint_step": 1e30}', None),
        ('{"checkpoint_step": "99"}', None),
        ("checkpoint_step 99", None),
        ("{" * 2_000, None),
    ],
)
def test_a_termination_message_says_which_step_a_checkpoint_has(message: str, step: int | None):
    assert progress.checkpoint_in(message) == step


@pytest.mark.parametrize(("message", "step"), [('{"checkpoint_step": 99}', 99), ("checkpoint_step 99", None)])
async def test_a_checkpoint_that_a_pod_takes_at_its_end_is_recorded(world: World, message: str, step: int | None):
    await world.trains(workers=2)
    report(world, current_step=100)
    await world.quiet()
    ends_saying(world, "resnet-worker-1", message)
    await world.until(lambda: world.count("PodsObserved") > 2 and bool(world.job().attempt.spent), "it ended")
    await world.quiet()
    taken = world.job().training.checkpoint
    assert (taken.step if taken is not None else None) == step
    assert world.count("CheckpointTaken") == (step is not None)
    assert world.job().training.at_stake == (1 if step is not None else None)


async def test_the_checkpoint_of_a_pod_that_is_removed_as_it_ends_is_recorded(world: World):
    await world.trains(workers=2)
    watcher, key = the_watcher(world), world.job().key
    # Changes of its pods are coalesced just now.
    watcher._paused.add(key)
    ends_saying(world, "resnet-worker-1", '{"checkpoint_step": 99}')
    world.store.remove(PODS, NAMESPACE, "resnet-worker-1")
    await world.quiet()
    watcher._resume(key, watcher._paused)
    await world.until(lambda: bool(world.count("PodsGone")), "it is gone")
    taken = world.job().training.checkpoint
    assert taken is not None
    assert taken.step == 99
    await world.pass_seconds(2)
    assert not watcher._cache._ended_of


async def test_the_checkpoint_of_a_pod_that_comes_and_goes_before_the_log_has_it_is_recorded(world: World):
    await world.trains(workers=2)
    await world.quiet()
    watcher, key = the_watcher(world), world.job().key
    # Changes of its pods are coalesced for longer than such a pod lives.
    watcher._paused.add(key)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.until(lambda: "resnet-worker-2" in world.pods(), "the worker is there")
    ends_saying(world, "resnet-worker-2", '{"checkpoint_step": 99}')
    await world.pass_seconds(0.1)
    world.store.remove(PODS, NAMESPACE, "resnet-worker-2")
    await world.pass_seconds(3)
    watcher._resume(key, watcher._paused)
    await world.until(lambda: bool(world.count("CheckpointTaken")), "its checkpoint is recorded")
    await world.pass_seconds(2)
    assert not watcher._cache._ended_of


@pytest.mark.parametrize(("attempt", "kept"), [(0, False), (1, True), (2, False)])
async def test_the_newest_checkpoint_of_the_next_attempt_is_kept_until_the_log_is_read_to_there(
    world: World, attempt: int, kept: bool
):
    await world.trains(workers=2)
    report(world, current_step=9, checkpoint_step=9)
    await world.quiet()
    for step in (7, 8, 6):
        ends = (Exit("main", 143, checkpoint=step),)
        pod = msgspec.structs.replace(worker(step, phase="Failed", exits=ends), attempt=attempt)
        world.seen().set_pod((NAMESPACE, pod.name), (world.job().key, pod))
        world.seen().set_pod((NAMESPACE, pod.name), None)
    await world.pass_seconds(2)
    found = [end.checkpoint for pod in world.seen().ended_of(world.job().key) for end in pod.exits]
    assert found == ([8] if kept else [])


@pytest.mark.parametrize("takes_over", [False, True])
async def test_a_standby_keeps_the_checkpoint_of_a_removed_pod_until_the_log_has_its_removal(takes_over: bool):
    async with World() as world:
        await world.trains(workers=2)
        async with World(sharing=world) as second:
            second.standby |= {*AUTHORS}
            await second.quiet()
            if takes_over:
                await world.kill("watcher")
            ends_saying(world, "resnet-worker-1", '{"checkpoint_step": 99}')
            world.store.remove(PODS, NAMESPACE, "resnet-worker-1")
            if takes_over:
                await world.pass_seconds(10)
                await second.lead("watcher")
            await world.until(lambda: bool(world.count("PodsGone")), "it is gone")
            await world.pass_seconds(2)
            assert world.count("CheckpointTaken") == 1
            assert not second.seen()._ended_of


async def test_no_checkpoint_is_kept_of_the_pods_of_a_job_that_may_not_begin():
    class Selecting(World):
        def options(self) -> Options:
            return Options(namespace_selector=("muster.dev/jobs=enabled",))

    async with Selecting() as world:
        uid = world.apply(TRAININGJOBS, a_training_job()).metadata["uid"]
        owner = {"apiVersion": TRAININGJOBS.api_version, "kind": TRAININGJOBS.kind, "name": "resnet", "uid": uid}
        meta = {
            "labels": {JOB_UID: uid, ATTEMPT: "1", ROLE: "worker"},
            "ownerReferences": [owner | {"controller": True}],
        }
        names = [f"pod-{number}" for number in range(50)]
        for name in names:
            world.store.create(PODS, NAMESPACE, {"metadata": {"name": name, **meta}, "spec": {"containers": []}})
            ends_saying(world, name, '{"checkpoint_step": 5}')
        await world.until(lambda: len(world.seen().pods) == 50, "they are seen")
        for name in names:
            world.store.remove(PODS, NAMESPACE, name)
        await world.until(lambda: bool(world.seen()._ended_of), "they are removed")
        await world.pass_seconds(2)
        assert not world.seen()._ended_of


async def test_a_checkpoint_in_a_report_is_recorded_once(world: World):
    await world.trains(workers=2)
    for step in range(1, 100):
        report(world, current_step=step, checkpoint_step=step // 10 * 10)
        await world.pass_seconds(1)
    await world.pass_seconds(10)
    assert 2 <= world.count("CheckpointTaken") <= 10
    assert world.job().training.at_stake == 9


async def test_the_status_shows_it_as_kubeflow_trainers_does(world: World):
    await world.trains(workers=2)
    assert "trainerStatus" not in world.status(TRAININGJOBS, "resnet")
    report(world, current_step=1, total_steps=4, progressPercentage=25, estimatedRemainingSeconds=9, loss=0.5)
    await world.quiet()
    shown = dict(world.status(TRAININGJOBS, "resnet")["trainerStatus"])
    assert shown.pop("lastUpdatedTime").startswith("2030-")
    assert shown == {
        "progressPercentage": 25,
        "estimatedRemainingSeconds": 9,
        "metrics": [
            {"name": "current_step", "value": "1"},
            {"name": "total_steps", "value": "4"},
            {"name": "loss", "value": "0.5"},
        ],
    }
