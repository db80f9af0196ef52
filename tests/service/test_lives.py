"""Jobs and requests deleted, made again under their names, and left behind."""

import pytest

from services.status.shell import Status
from services.watcher.shell import Watcher
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import key_of
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job


@pytest.mark.parametrize("collecting", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("kind", ["ScaleOut", "ScaleIn"])
@in_virtual_time
async def test_a_job_deleted_at_any_event_of_a_scaling_leaves_nothing(kind: str, collecting: bool):
    """Job k is deleted with the k-th event after its request was seen, with and without a garbage collector.

    Which event is the k-th differs, as several services take turns: the last job is deleted with its acceptance.
    """
    jobs = 21
    resource, make = {"ScaleOut": (SCALEOUTS, a_scale_out), "ScaleIn": (SCALEINS, a_scale_in)}[kind]
    async with World() as world:
        world.collecting = collecting
        events: dict[str, int] = {}
        deleted: dict[str, str] = {}

        def on_event(stored: Stored) -> None:
            _, _, name, _, _, what = stored.subject.split(".")
            if what == "ScaleRequested":
                events.setdefault(name, 0)
            if name in events and name not in deleted:
                number = int(name.removeprefix("job-"))
                if what == "ScaleAccepted" if number == jobs - 1 else events[name] == number:
                    deleted[name] = what
                    world.delete(TRAININGJOBS, name)
                events[name] += 1

        names = [f"job-{index}" for index in range(jobs)]
        uids = {name: world.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names}
        for name in names:
            await world.running(name)
        world.journal.listeners.append(on_event)
        for name in names:
            world.apply(resource, make(1, name=f"{name}-request", job=name))
        await world.until(
            lambda: all(
                name in deleted or world.status(resource, f"{name}-request").get("phase") == "ScaleSucceeded"
                for name in names
            )
        )
        # The turning points are all hit.
        assert {"ScaleRequested", "ScaleAccepted"} <= {*deleted.values()}
        assert len(deleted) >= 8, deleted
        await world.until(lambda: not any(world.owned_by(uids[name]) for name in deleted), "nothing is left")
        await world.quiet()
        for name in deleted:
            assert world.owned_by(uids[name]) == []
            job = world.life(uids[name])
            assert job.gone
            assert job.scaling.open_request is None
            assert all(request.over or request.phase == "Pending" for request in job.scaling.requests.values())
        kept = [name for name in names if name not in deleted]
        assert all(world.status(TRAININGJOBS, name)["phase"] == "Running" for name in kept)


@in_virtual_time
async def test_a_deleted_job_leaves_nothing_at_any_event_of_its_start():
    jobs = 16
    async with World() as world:
        events: dict[str, int] = {}
        deleted: set[str] = set()

        def on_event(stored: Stored) -> None:
            name = key_of(Subject.parse(stored.subject)).name
            if name.startswith("job-") and name not in deleted:
                if events.get(name, 0) == int(name.removeprefix("job-")):
                    deleted.add(name)
                    world.delete(TRAININGJOBS, name)
                events[name] = events.get(name, 0) + 1

        world.journal.listeners.append(on_event)
        names = [f"job-{index}" for index in range(jobs)]
        uids = {name: world.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names}
        await world.until(
            lambda: all(name in deleted or world.status(TRAININGJOBS, name).get("phase") == "Running" for name in names)
        )
        await world.until(lambda: not any(world.owned_by(uids[name]) for name in deleted), "nothing is left")
        await world.quiet()
        assert len(deleted) > 8
        assert not any(world.owned_by(uids[name]) for name in deleted)


@in_virtual_time
async def test_a_job_made_again_under_its_name_is_another_job():
    async with World() as world:
        old = world.apply(TRAININGJOBS, a_training_job(workers=3)).metadata["uid"]
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        world.delete(TRAININGJOBS, "resnet")
        new = world.apply(TRAININGJOBS, a_training_job(workers=2)).metadata["uid"]
        await world.running()
        await world.quiet()
        assert old != new
        assert sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        assert {held.metadata["labels"]["muster.dev/job-uid"] for held in world.pods().values()} == {new}
        assert (world.owned_by(old), len(world.owned_by(new))) == ([], 6)
        assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        subjects = [stored.subject.split(".") for stored in world.journal.events]
        assert ["facts", NAMESPACE, "resnet", old, "watcher", "JobGone"] in subjects


@in_virtual_time
async def test_a_job_made_again_while_old_pods_linger_waits_for_them():
    async with World() as world:
        old = world.apply(TRAININGJOBS, a_training_job(workers=1)).metadata["uid"]
        await world.running()
        lingering = world.pods()["resnet-worker-0"].metadata["uid"]
        world.lingering.add(lingering)
        world.delete(TRAININGJOBS, "resnet")
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.until(lambda: world.life(old).gone and list(world.pods()) == ["resnet-worker-0"])
        await world.quiet(0.4)
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Created"
        assert world.count("EffectRefused") == 0, "an older life of the same job is no conflict of names"
        world.lingering.clear()
        await world.running()
        assert world.pods()["resnet-worker-0"].metadata["uid"] != lingering


@in_virtual_time
async def test_an_orphaning_delete_leaves_the_children():
    async with World() as world:
        job = world.apply(TRAININGJOBS, a_training_job(workers=2))
        await world.running()
        world.collecting = False
        world.store.delete(TRAININGJOBS, NAMESPACE, "resnet", cascade=False)
        await world.until(lambda: world.count("JobDeleting") == 1)
        world.collecting = True
        await world.until(lambda: world.job().gone)
        await world.quiet()
        assert sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        assert world.owned_by(job.metadata["uid"]) == []


@in_virtual_time
async def test_a_finished_request_never_runs_again_for_a_new_job_of_the_same_name():
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        world.collecting = False
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: world.job().gone and not world.pods())
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.running()
        await world.quiet()
        assert world.hosts() == ["resnet-worker-0"]
        assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"


@in_virtual_time
async def test_a_finished_request_that_was_orphaned_never_runs_again_either():
    """An orphaning delete takes the owner from the request: what is left to tell is the log."""
    async with World() as world:
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.running()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        world.collecting = False
        world.store.delete(TRAININGJOBS, NAMESPACE, "resnet", cascade=False)
        await world.until(lambda: world.count("JobDeleting") == 1)
        world.collecting = True
        await world.until(lambda: world.job().gone)
        await world.quiet()
        assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
        for name in world.pods():
            world.delete(PODS, name)
        for resource, name in ((SERVICES, "resnet"), (SECRETS, "resnet"), (CONFIGMAPS, "resnet-config")):
            world.delete(resource, name)
        await world.until(lambda: not world.pods())
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.running()
        await world.kill("watcher")
        await world.start("watcher")
        await world.quiet()
        assert world.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
        assert world.hosts() == ["resnet-worker-0"]


@in_virtual_time
async def test_a_request_that_still_waits_when_its_job_goes_serves_the_next_one():
    async with World() as world:
        world.stuck.add("resnet-worker-0")
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.shows("Pending", "JobNotRunning", SCALEOUTS, "out")
        world.delete(TRAININGJOBS, "resnet")
        await world.shows("Pending", "JobNotFound", SCALEOUTS, "out")
        world.stuck.clear()
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert world.hosts() == ["resnet-worker-0", "resnet-worker-1"]


@pytest.mark.parametrize("controller", [True, False], ids=["as its controller", "as an owner"])
@in_virtual_time
async def test_a_request_that_names_the_uid_of_a_deleted_job_is_not_carried_out_for_the_next_one(controller: bool):
    async with World() as world:
        old = world.apply(TRAININGJOBS, a_training_job(workers=1)).metadata["uid"]
        await world.running()
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: world.life(old).gone and not world.pods())
        world.apply(TRAININGJOBS, a_training_job(workers=1))
        await world.running()
        world.collecting = False
        request = a_scale_out(1)
        owner = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "uid": old}
        request["metadata"]["ownerReferences"] = [owner | {"controller": controller}]
        world.apply(SCALEOUTS, request)
        await world.quiet()
        assert world.hosts() == ["resnet-worker-0"]
        assert world.count("ScaleAccepted") == 0


@in_virtual_time
async def test_of_jobs_that_are_gone_nothing_is_kept_but_their_histories():
    async with World() as world:
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
        await world.until(lambda: all(world.life(uid).gone for uid in uids))
        await world.quiet()
        assert kept_of_jobs(world) == dict.fromkeys(kept_of_jobs(world), 0)


def kept_of_jobs(world: World) -> dict[str, int]:
    """How many jobs each service remembers beside their histories, by what it remembers."""
    kept = {}
    for runtime in world.runtimes():
        author, service = runtime.service.author, runtime.service
        kept[f"{author}: appends"] = len(runtime.appends._under_way)
        kept[f"{author}: effects"] = len(runtime._acts._lanes)
        if isinstance(service, Status):
            kept["statuses"] = len(service._written) + len(service._repaired)
            kept["checkpoints"] = len(service._checkpoints._kept)
        if isinstance(service, Watcher):
            kept["answers"] = len(service._asking._answers)
            kept["jobs that were there at the start"] = len(service._cache.found)
    return kept
