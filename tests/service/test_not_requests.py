"""What must not happen to scale requests: the lines of the contract's list that speak of them."""

import asyncio
from typing import Any

from shared.cluster.kinds import CONFIGMAPS
from shared.eventlog import Entry
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.event import EffectRefused
from shared.job.events.scaler import ScaleAccepted, ScaleFailed
from shared.job.events.status import JobRunning, JobScaling
from shared.job.naming import NO_UID, JobKey, Slot
from shared.job.spec import WORKER
from tests.kit.builders import R2, a_running_job, scale_out, scaling_out, workers
from tests.kit.histories import folded
from tests.kit.stories import given, scheduler
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job
from tests.memory.eventlog import MemoryEventLog


def with_timeout(request: dict[str, Any], seconds: int) -> dict[str, Any]:
    return {**request, "spec": {**request["spec"], "timeout": seconds}}


async def test_8_a_scaling_that_hangs_ends_at_its_timeout_and_the_next_one_is_served(world: World):
    await world.trains(workers=2)
    world.stuck.add("resnet-worker-2")
    world.apply(SCALEOUTS, with_timeout(a_scale_out(1, name="hangs"), 1))
    world.apply(SCALEOUTS, a_scale_out(1, name="next"))
    await world.phase("ScaleFailed", SCALEOUTS, "hangs")
    assert world.condition(SCALEOUTS, "hangs", "ScaleFailed") == ("True", "DeadlineExceeded")
    # The pod that hung was taken back; its name comes again if it is gone by then.
    world.stuck.clear()
    await world.phase("ScaleSucceeded", SCALEOUTS, "next")
    await world.until(lambda: sorted(world.pods())[1:] == world.hosts())
    *left, added = world.hosts()
    assert left == ["resnet-worker-0", "resnet-worker-1"]
    assert added in ("resnet-worker-2", "resnet-worker-3")


async def test_a_request_whose_job_does_not_come_within_its_timeout_ends_and_scales_no_later_job(world: World):
    world.apply(SCALEOUTS, a_scale_out(1, timeout=5))
    await world.phase("Pending", SCALEOUTS, "out")
    await world.restart("watcher")
    await world.phase("ScaleFailed", SCALEOUTS, "out")
    assert world.condition(SCALEOUTS, "out", "ScaleFailed") == ("True", "JobNotFound")
    await world.until(lambda: ("JobNotFound", "out") in world.kubernetes_events(), "there is no job to say so")
    await world.trains(workers=2)
    await world.quiet()
    assert world.job().scaling.requests == {}
    assert len(world.pods()) == 3
    world.delete(SCALEOUTS, "out")
    await world.until(lambda: world.count("ScaleRequestGone") == 1)
    (room,) = (life.job for life in folded(world.journal.events) if life.job.key == JobKey(NAMESPACE, "resnet", NO_UID))
    assert room.scaling.requests == {}, "nothing is kept of it"


class SlowTimers(MemoryEventLog):
    """A log that takes long to store that a timer expired."""

    async def append(self, entry: Entry, *, expect: int) -> int:
        if entry.subject.endswith(".TimePassed"):
            await asyncio.sleep(3.0)
        return await super().append(entry, expect=expect)


class WithSlowTimers(World):
    def log(self, author: str) -> MemoryEventLog:
        return SlowTimers(self.journal, user=author)


async def test_a_request_whose_timeout_passed_before_its_job_came_ends_once():
    async with WithSlowTimers() as world:
        world.apply(SCALEOUTS, a_scale_out(1, timeout=5))
        await world.phase("Pending", SCALEOUTS, "out")
        await world.pass_seconds(6)
        assert "TimePassed" not in world.types(), "under way"
        await world.trains(workers=1)
        await world.phase("ScaleFailed", SCALEOUTS, "out")
        await world.quiet()
        assert world.condition(SCALEOUTS, "out", "ScaleFailed") == ("True", "JobNotFound")
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        assert "ScaleAccepted" not in world.types(), "and it is not carried out all the same"


async def test_a_request_does_not_end_for_want_of_a_job_that_came_while_nobody_looked(world: World):
    world.apply(SCALEOUTS, a_scale_out(1, timeout=5))
    await world.phase("Pending", SCALEOUTS, "out")
    await world.kill("watcher")
    world.apply(TRAININGJOBS, a_training_job(workers=1))
    await world.pass_seconds(60)
    await world.start("watcher")
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")


async def test_a_request_with_another_controller_is_refused_once_with_a_reason_and_blocks_no_other(world: World):
    await world.trains(workers=1)
    # Any object may control a request; this one is there, so that the garbage collector leaves it alone.
    workflow = world.apply(CONFIGMAPS, {"metadata": {"name": "nightly"}}).metadata
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nightly", "uid": workflow["uid"], "controller": True}
    theirs = a_scale_out(1, name="theirs")
    theirs["metadata"]["ownerReferences"] = [owner]
    world.apply(SCALEOUTS, theirs)
    world.apply(SCALEOUTS, a_scale_out(1, name="ours"))
    await world.phase("ScaleSucceeded", SCALEOUTS, "ours")
    await world.phase("ScaleFailed", SCALEOUTS, "theirs")
    assert world.condition(SCALEOUTS, "theirs", "ScaleFailed") == ("True", "OwnedByAnother")
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: world.count("JobGone") == 1 and not world.pods())
    await world.trains(workers=1)
    await world.quiet()
    assert world.count("ScaleRejected") == 1, "the next job of that name has nothing to do with it"
    assert world.status(SCALEOUTS, "theirs")["phase"] == "ScaleFailed"


def test_32_a_second_scale_out_does_not_wait_for_the_back_off_of_the_first():
    first = [
        *a_running_job(workers=2),
        *scaling_out(2),
        EffectRefused(effect="CreatePod", reason="QuotaExceeded", slots=(workers(2),)),
        ScaleFailed(request=scale_out().uid, reason="QuotaExceeded", released=(workers(2),)),
        JobRunning(reason="TrainingJobRunning"),
    ]
    second = [
        scale_out(1, request=R2),
        ScaleAccepted(request=R2, kind="ScaleOut", added=(workers(3),), deadline=60, drain=0),
        JobScaling(reason="ScalingStart"),
    ]
    created = [getattr(step, "slot", None) for step in given(*first, *second).steps(scheduler)]
    assert created == [Slot(0, WORKER, 3)]
