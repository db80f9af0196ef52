"""Jobs and requests deleted, made again under their names, and left behind."""

import asyncio

from services.status.shell import Status
from services.watcher.shell import Watcher
from shared.cluster import Manifest
from shared.cluster.kinds import CONFIGMAPS, PODS, SERVICES
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import NO_UID
from tests.kit.world import NAMESPACE, World, a_scale_out, a_training_job


async def test_a_job_made_again_under_its_name_is_another_job(world: World):
    old = (await world.trains(workers=3)).metadata["uid"]
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    world.delete(TRAININGJOBS, "resnet")
    new = (await world.trains(workers=2)).metadata["uid"]
    await world.quiet()
    assert old != new
    assert sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
    assert {held.metadata["labels"]["muster.dev/job-uid"] for held in world.pods().values()} == {new}
    assert (world.owned_by(old), len(world.owned_by(new))) == ([], 6)
    assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]
    subjects = [stored.subject.split(".") for stored in world.journal.events]
    assert ["facts", NAMESPACE, "resnet", old, "watcher", "JobGone"] in subjects


async def orphaned(world: World) -> None:
    """The job is deleted, and what it owns stays."""
    world.collecting = False
    world.store.delete(TRAININGJOBS, NAMESPACE, "resnet", cascade=False)
    await world.until(lambda: world.count("JobDeleting") == 1)
    world.collecting = True
    await world.until(lambda: world.job().resource.gone)
    await world.quiet()


async def test_a_finished_request_that_was_orphaned_never_runs_again_for_a_new_job_of_the_same_name(world: World):
    """An orphaning delete takes the owner from the request: what is left to tell is the log."""
    await world.trains(workers=1)
    world.apply(SCALEOUTS, a_scale_out(1))
    await world.phase("ScaleSucceeded", SCALEOUTS, "out")
    await orphaned(world)
    assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
    for name in world.pods():
        world.delete(PODS, name)
    for resource, name in ((SERVICES, "resnet"), (CONFIGMAPS, "resnet-config")):
        world.delete(resource, name)
    await world.until(lambda: not world.pods())
    await world.trains(workers=1)
    await world.restart("watcher")
    await world.quiet()
    assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
    assert world.hosts() == ["resnet-worker-0"]


async def test_the_end_of_a_request_that_was_orphaned_is_shown_before_the_history_that_tells_it_is_sealed():
    """Without both it would run once more, for the next job of that name, or fail for want of one."""
    async with World(seal_after=0) as world:
        await world.trains(workers=1)
        await world.waits_in_a_scale_out("resnet-worker-1")
        await world.kill("status")
        await orphaned(world)
        assert world.status(SCALEOUTS, "out")["phase"] == "Scaling"
        await world.start("status")
        await world.until(lambda: world.count("JobSealed") == 1)
        await world.quiet()
        assert world.condition(SCALEOUTS, "out", "ScaleFailed") == ("True", "JobDeleting")
        assert not [stored.subject for stored in world.journal.events[1:] if f".{NO_UID}." in stored.subject]


async def test_of_jobs_that_are_gone_nothing_is_kept_but_their_histories(world: World):
    names = [f"job-{number}" for number in range(5)]
    uids = [world.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names]
    for name in names:
        await world.running(name)
    for name in names:
        world.apply(SCALEOUTS, a_scale_out(1, name=f"{name}-more", job=name))
    await world.until(
        lambda: all(world.status(SCALEOUTS, f"{name}-more").get("phase") == "ScaleSucceeded" for name in names)
    )
    assert any(kept_of_jobs(world).values())
    for name in names:
        world.delete(TRAININGJOBS, name)
    await world.until(lambda: all(world.life(uid).resource.gone for uid in uids))
    # What was made last is remembered for some seconds.
    await world.pass_seconds(6)
    assert kept_of_jobs(world) == dict.fromkeys(kept_of_jobs(world), 0)


def kept_of_jobs(world: World) -> dict[str, int]:
    """How many jobs each service remembers beside their histories, by what it remembers."""
    kept = {}
    for runtime in world.runtimes():
        author, service = runtime.service.author, runtime.service
        kept[f"{author}: appends"] = len(runtime.appends._under_way)
        kept[f"{author}: effects"] = len(runtime._acts._lanes)
        if isinstance(service, Status):
            kept["statuses"] = len(service._written)
            kept["checkpoints"] = len(service._checkpoints._kept)
        if isinstance(service, Watcher):
            kept["answers"] = len(service._asking._answers)
            kept["jobs that were there at the start"] = len(service._cache.found)
    return kept


async def test_a_hosts_file_that_vanishes_whenever_it_is_made_is_not_made_in_a_loop(world: World):
    await world.trains(workers=1)
    made: list[str] = []

    def vanish(_: object, after: Manifest) -> None:
        made.append(after["metadata"]["uid"])
        asyncio.get_running_loop().call_soon(world.store.delete, CONFIGMAPS, NAMESPACE, "resnet-config")

    world.store.admit(CONFIGMAPS, vanish)
    world.store.delete(CONFIGMAPS, NAMESPACE, "resnet-config")
    await world.pass_seconds(20)
    assert 2 <= len(made) <= 5
