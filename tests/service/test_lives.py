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
from tests.kit.world import NAMESPACE, a_scale_in, a_scale_out, a_training_job
from tests.service.stage import Stage


@pytest.mark.parametrize("collecting", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("kind", ["ScaleOut", "ScaleIn"])
@in_virtual_time
async def test_a_job_deleted_at_any_event_of_a_scaling_leaves_nothing(kind: str, collecting: bool):
    """Job k is deleted with the k-th event after its request was seen, with and without a garbage collector.

    Which event is the k-th differs, as several services take turns: the last job is deleted with its acceptance.
    """
    jobs = 21
    resource, make = {"ScaleOut": (SCALEOUTS, a_scale_out), "ScaleIn": (SCALEINS, a_scale_in)}[kind]
    async with Stage() as stage:
        stage.collecting = collecting
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
                    stage.delete(TRAININGJOBS, name)
                events[name] += 1

        names = [f"job-{index}" for index in range(jobs)]
        uids = {name: stage.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names}
        for name in names:
            await stage.running(name)
        stage.journal.listeners.append(on_event)
        for name in names:
            stage.apply(resource, make(1, name=f"{name}-request", job=name))
        await stage.until(
            lambda: all(
                name in deleted or stage.status(resource, f"{name}-request").get("phase") == "ScaleSucceeded"
                for name in names
            )
        )
        # The turning points are all hit.
        assert {"ScaleRequested", "ScaleAccepted"} <= {*deleted.values()}
        assert len(deleted) >= 8, deleted
        await stage.until(lambda: not any(stage.owned_by(uids[name]) for name in deleted), "nothing is left")
        await stage.quiet()
        for name in deleted:
            assert stage.owned_by(uids[name]) == []
            job = stage.life(uids[name])
            assert job.gone
            assert job.scaling.open_request is None
            assert all(request.over or request.phase == "Pending" for request in job.scaling.requests.values())
        kept = [name for name in names if name not in deleted]
        assert all(stage.status(TRAININGJOBS, name)["phase"] == "Running" for name in kept)


@in_virtual_time
async def test_a_deleted_job_leaves_nothing_at_any_event_of_its_start():
    jobs = 16
    async with Stage() as stage:
        events: dict[str, int] = {}
        deleted: set[str] = set()

        def on_event(stored: Stored) -> None:
            name = key_of(Subject.parse(stored.subject)).name
            if name.startswith("job-") and name not in deleted:
                if events.get(name, 0) == int(name.removeprefix("job-")):
                    deleted.add(name)
                    stage.delete(TRAININGJOBS, name)
                events[name] = events.get(name, 0) + 1

        stage.journal.listeners.append(on_event)
        names = [f"job-{index}" for index in range(jobs)]
        uids = {name: stage.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names}
        await stage.until(
            lambda: all(name in deleted or stage.status(TRAININGJOBS, name).get("phase") == "Running" for name in names)
        )
        await stage.until(lambda: not any(stage.owned_by(uids[name]) for name in deleted), "nothing is left")
        await stage.quiet()
        assert len(deleted) > 8
        assert not any(stage.owned_by(uids[name]) for name in deleted)


@in_virtual_time
async def test_a_job_made_again_under_its_name_is_another_job():
    async with Stage() as stage:
        old = stage.apply(TRAININGJOBS, a_training_job(workers=3)).metadata["uid"]
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        stage.delete(TRAININGJOBS, "resnet")
        new = stage.apply(TRAININGJOBS, a_training_job(workers=2)).metadata["uid"]
        await stage.running()
        await stage.quiet()
        assert old != new
        assert sorted(stage.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        assert {held.metadata["labels"]["muster.dev/job-uid"] for held in stage.pods().values()} == {new}
        assert (stage.owned_by(old), len(stage.owned_by(new))) == ([], 6)
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        subjects = [stored.subject.split(".") for stored in stage.journal.events]
        assert ["facts", NAMESPACE, "resnet", old, "watcher", "JobGone"] in subjects


@in_virtual_time
async def test_a_job_made_again_while_old_pods_linger_waits_for_them():
    async with Stage() as stage:
        old = stage.apply(TRAININGJOBS, a_training_job(workers=1)).metadata["uid"]
        await stage.running()
        lingering = stage.pods()["resnet-worker-0"].metadata["uid"]
        stage.lingering.add(lingering)
        stage.delete(TRAININGJOBS, "resnet")
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.until(lambda: stage.life(old).gone and list(stage.pods()) == ["resnet-worker-0"])
        await stage.quiet(0.4)
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Created"
        assert stage.count("EffectRefused") == 0, "an older life of the same job is no conflict of names"
        stage.lingering.clear()
        await stage.running()
        assert stage.pods()["resnet-worker-0"].metadata["uid"] != lingering


@in_virtual_time
async def test_an_orphaning_delete_leaves_the_children():
    async with Stage() as stage:
        job = stage.apply(TRAININGJOBS, a_training_job(workers=2))
        await stage.running()
        stage.collecting = False
        stage.store.delete(TRAININGJOBS, NAMESPACE, "resnet", cascade=False)
        await stage.until(lambda: stage.count("JobDeleting") == 1)
        stage.collecting = True
        await stage.until(lambda: stage.job().gone)
        await stage.quiet()
        assert sorted(stage.pods()) == ["resnet-launcher", "resnet-worker-0", "resnet-worker-1"]
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-1"]
        assert stage.owned_by(job.metadata["uid"]) == []


@in_virtual_time
async def test_a_finished_request_never_runs_again_for_a_new_job_of_the_same_name():
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        stage.collecting = False
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: stage.job().gone and not stage.pods())
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.quiet()
        assert stage.hosts() == ["resnet-worker-0"]
        assert stage.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"


@in_virtual_time
async def test_a_finished_request_that_was_orphaned_never_runs_again_either():
    """An orphaning delete takes the owner from the request: what is left to tell is the log."""
    async with Stage() as stage:
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        stage.collecting = False
        stage.store.delete(TRAININGJOBS, NAMESPACE, "resnet", cascade=False)
        await stage.until(lambda: stage.count("JobDeleting") == 1)
        stage.collecting = True
        await stage.until(lambda: stage.job().gone)
        await stage.quiet()
        assert stage.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
        for name in stage.pods():
            stage.delete(PODS, name)
        for resource, name in ((SERVICES, "resnet"), (SECRETS, "resnet"), (CONFIGMAPS, "resnet-config")):
            stage.delete(resource, name)
        await stage.until(lambda: not stage.pods())
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        await stage.kill("watcher")
        await stage.start("watcher")
        await stage.quiet()
        assert stage.status(SCALEOUTS, "out")["phase"] == "ScaleSucceeded"
        assert stage.hosts() == ["resnet-worker-0"]


@in_virtual_time
async def test_a_request_that_still_waits_when_its_job_goes_serves_the_next_one():
    async with Stage() as stage:
        stage.stuck.add("resnet-worker-0")
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.shows("Pending", "JobNotRunning", SCALEOUTS, "out")
        stage.delete(TRAININGJOBS, "resnet")
        await stage.shows("Pending", "JobNotFound", SCALEOUTS, "out")
        stage.stuck.clear()
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert stage.hosts() == ["resnet-worker-0", "resnet-worker-1"]


@pytest.mark.parametrize("controller", [True, False], ids=["as its controller", "as an owner"])
@in_virtual_time
async def test_a_request_that_names_the_uid_of_a_deleted_job_is_not_carried_out_for_the_next_one(controller: bool):
    async with Stage() as stage:
        old = stage.apply(TRAININGJOBS, a_training_job(workers=1)).metadata["uid"]
        await stage.running()
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: stage.life(old).gone and not stage.pods())
        stage.apply(TRAININGJOBS, a_training_job(workers=1))
        await stage.running()
        stage.collecting = False
        request = a_scale_out(1)
        owner = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "uid": old}
        request["metadata"]["ownerReferences"] = [owner | {"controller": controller}]
        stage.apply(SCALEOUTS, request)
        await stage.quiet()
        assert stage.hosts() == ["resnet-worker-0"]
        assert stage.count("ScaleAccepted") == 0


@in_virtual_time
async def test_of_jobs_that_are_gone_nothing_is_kept_but_their_histories():
    async with Stage() as stage:
        names = [f"job-{number}" for number in range(5)]
        uids = [stage.apply(TRAININGJOBS, a_training_job(name)).metadata["uid"] for name in names]
        for name in names:
            await stage.running(name)
        for name in names:
            stage.apply(SCALEOUTS, a_scale_out(1, name=f"{name}-more", job=name))
        await stage.until(
            lambda: all(stage.status(SCALEOUTS, f"{name}-more").get("phase") == "ScaleSucceeded" for name in names)
        )
        assert any(kept_of_jobs(stage).values())
        for name in names:
            stage.delete(TRAININGJOBS, name)
        await stage.until(lambda: all(stage.life(uid).gone for uid in uids))
        await stage.quiet()
        assert kept_of_jobs(stage) == dict.fromkeys(kept_of_jobs(stage), 0)


def kept_of_jobs(stage: Stage) -> dict[str, int]:
    """How many jobs each service remembers beside their histories, by what it remembers."""
    kept = {}
    for runtime in stage.runtimes():
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
