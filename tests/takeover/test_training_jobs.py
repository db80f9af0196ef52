"""TrainingJobs that et-operator began, with the four services on a cluster in memory."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog.account import HEADS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out
from tests.memory.eventlog import MemoryEventLog
from tests.takeover.recorded import Launcher, put, recorded, uids

BOTH = ["resnet-worker-0", "resnet-worker-1"]
ALL = ["resnet-launcher", *BOTH]


def a_world(*, takes_over: bool = True, **status: Any) -> tuple[World, Launcher, str]:
    """et-operator's job as recorded, its status changed in some fields."""
    world = World(takes_over=takes_over)
    objects = recorded("et-operator-running")
    objects[0]["status"] |= status
    uid = put(world.store, objects)
    return world, Launcher(world.store, "resnet-worker-0:1\nresnet-worker-1:1\n"), uid


async def test_a_running_job_goes_on_with_its_pods():
    world, launcher, uid = a_world()
    before = uids(world)
    async with world:
        await world.until(lambda: bool(launcher.links), "the hosts files are links")
        await world.quiet()
        assert uids(world) == before
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        assert world.status(TRAININGJOBS, "resnet")["startTime"] == "2029-12-31T22:00:00Z"
        assert world.status(TRAININGJOBS, "resnet")["currentWorkers"] == BOTH
        assert launcher.hosts == BOTH
        assert launcher.links == {
            "/etc/edl/hostfile": "/etc/mpi/hostfile",
            "/job/hostfile": "/etc/mpi/deepspeed-hostfile",
        }
        for resource, names in ((PODS, ALL), (SERVICES, [*BOTH, "resnet"])):
            for name in names:
                held = world.store.get(resource, NAMESPACE, name)
                assert held is not None
                assert held.metadata["labels"]["muster.dev/job-uid"] == uid, (resource, name)
        [secret] = world.store.find(SECRETS)
        assert secret.at[1] == "resnet"
        assert "labels" not in secret.metadata, "it stays as it is"
        assert (world.count("JobOfAnother"), world.count("JobAdopted"), world.count("SlotsAssigned")) == (1, 1, 0)
        assert world.count("EffectRefused") == 0
        # What is not ours in the files stays: the old launcher's volume names it.
        held = world.store.get(CONFIGMAPS, NAMESPACE, "resnet-config")
        assert held is not None
        assert "kubexec.sh" in held.manifest["data"]
        # et-operator's own request is over, and is not looked at again.
        assert world.status(SCALEOUTS, "grow")["phase"] == "ScaleSucceeded"
        assert "history" not in world.status(SCALEOUTS, "grow")


async def test_it_scales_both_ways_and_finishes():
    world, launcher, uid = a_world()
    before = uids(world)
    async with world:
        await world.running()
        # The Services have Muster's labels, too.
        await world.quiet()
        world.apply(SCALEOUTS, a_scale_out(1))
        await world.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert launcher.hosts == [*BOTH, "resnet-worker-2"]
        assert world.store.get(SERVICES, NAMESPACE, "resnet-worker-2"), "old pods know no other way to its name"
        world.apply(
            SCALEINS, {**a_scale_in(1), "spec": {"selector": {"name": "resnet"}, "toDelete": {"podNames": BOTH[1:]}}}
        )
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        await world.quiet()
        assert launcher.hosts == ["resnet-worker-0", "resnet-worker-2"]
        assert world.store.get(SERVICES, NAMESPACE, "resnet-worker-1") is None
        assert {name: before[name] for name in ("resnet-launcher", "resnet-worker-0")}.items() <= uids(world).items()
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
        await world.quiet()
        assert sorted(world.pods()) == ["resnet-launcher"]
        assert uids(world)["resnet-launcher"] == before["resnet-launcher"]
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: not world.owned_by(uid))


async def test_nothing_is_touched_while_the_other_operator_may_be_running():
    world, launcher, _ = a_world(takes_over=False)
    before = world.store.version
    async with world:
        await world.pass_seconds(600)
        assert world.store.version == before
        assert [kind for kind in world.types() if kind != "LogCreated"] == ["JobOfAnother", "JobObserved"]
        await world.kill("watcher")
        world.takes_over = True
        await world.start("watcher")
        await world.until(lambda: bool(launcher.links), "a person said so, and it was taken over")
        await world.quiet()
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Running"


async def test_the_new_files_are_read_only_once_they_say_what_is_wanted():
    """et-operator never wrote the ConfigMap again: a link made too early would take workers from the training."""
    world, launcher, _ = a_world()
    launcher.lags = 5
    async with world:

        def linked() -> bool:
            assert launcher.hosts == BOTH
            return bool(launcher.links)

        await world.until(linked)
        assert launcher.hosts == BOTH
        assert launcher.lags == 0


async def test_a_finished_job_is_never_run_again_and_its_time_to_live_counts_from_its_end():
    world = World(takes_over=True)
    objects = recorded("et-operator-running")
    job = objects[0]
    job["spec"]["ttlSecondsAfterFinished"] = 7260
    job["status"] |= {"phase": "Succeeded", "completionTime": "2029-12-31T23:00:00Z"}
    done = {
        "type": "Succeeded",
        "status": "True",
        "reason": "TrainingJobSucceeded",
        "lastTransitionTime": "2029-12-31T23:00:00Z",
    }
    job["status"]["conditions"].append(done)
    job["status"]["replicaStatuses"] = {"Launcher": {"succeeded": 1}, "Worker": {}}
    put(world.store, [job])
    async with world:
        await world.until(lambda: "history" in world.status(TRAININGJOBS, "resnet"))
        await world.quiet()
        status = world.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["completionTime"]) == ("Succeeded", "2029-12-31T23:00:00Z")
        assert status["replicaStatuses"]["Launcher"] == {"active": 0, "succeeded": 1, "failed": 0}
        assert world.pods() == {}
        assert world.store.get(TRAININGJOBS, NAMESPACE, "resnet") is not None
        await world.pass_seconds(2600)
        assert world.store.get(TRAININGJOBS, NAMESPACE, "resnet") is not None
        await world.pass_seconds(100)
        assert world.store.get(TRAININGJOBS, NAMESPACE, "resnet") is None


async def test_a_failed_job_with_pods_that_were_not_cleaned_up_is_cleaned_up():
    failed = {"phase": "Failed", "completionTime": "2029-12-31T23:00:00Z"}
    world, _, _ = a_world(**failed)
    world.store.patch(
        PODS,
        NAMESPACE,
        "resnet-launcher",
        {"status": {"phase": "Failed", "containerStatuses": None}},
        subresource="status",
    )
    async with world:
        await world.until(lambda: sorted(world.pods()) == ["resnet-launcher"])
        await world.quiet()
        assert world.status(TRAININGJOBS, "resnet")["phase"] == "Failed"
        assert world.count("JobRestarting") == 0


async def test_a_job_that_never_began_there_is_simply_taken_on():
    world = World(takes_over=True)
    job = recorded("et-operator-running")[0]
    job["status"] = {
        "phase": "Created",
        "conditions": job["status"]["conditions"][:1],
        "replicaStatuses": {},
        "restartCount": 0,
    }
    put(world.store, [job])
    async with world:
        await world.running()
        assert sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0"]


async def test_a_launcher_that_went_unseen_is_lost_and_not_started_again():
    world, _, _ = a_world()
    world.store.remove(PODS, NAMESPACE, "resnet-launcher")
    async with world:
        await world.phase("Failed")
        assert world.condition(TRAININGJOBS, "resnet", "Failed") == ("True", "LauncherLost")


async def test_a_launcher_that_ended_meanwhile_ends_the_job():
    world, _, _ = a_world()
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    status = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
    world.store.patch(PODS, NAMESPACE, "resnet-launcher", status, subresource="status")
    async with world:
        await world.phase("Succeeded")
        await world.quiet()
        assert sorted(world.pods()) == ["resnet-launcher"]


@pytest.mark.parametrize("turn", range(1, 13))
async def test_all_services_may_die_at_any_event_of_it(turn: int):
    world, launcher, _ = a_world()
    before = uids(world)
    async with world:
        await world.until(lambda: len(world.journal.events) > turn)
        await world.restart()
        await world.running()
        await world.until(lambda: bool(launcher.links))
        await world.quiet()
        assert uids(world) == before
        assert (world.count("JobAdopted"), world.count("SlotsAssigned")) == (1, 0)


async def test_a_status_of_ours_whose_head_was_dropped_is_no_other_operators():
    """A definition that is not ours keeps no heads; that the log was lost is known from the checkpoint."""
    world, launcher, uid = a_world()
    heads = await MemoryEventLog(world.journal, user="status").bucket(HEADS)
    await heads.put(uid, b"another-log/7:ab")
    async with world:
        await world.until(lambda: world.count("HistoryBroken") == 1)
        await world.quiet()
        assert (world.count("JobOfAnother"), world.count("JobAdopted"), launcher.commands) == (0, 0, [])


async def test_the_next_attempt_is_all_ours():
    world = World(takes_over=True)
    objects = recorded("et-operator-running")
    objects[0]["spec"]["restartPolicy"] = "OnFailure"
    objects[0]["status"]["restartCount"] = 1
    put(world.store, objects)
    launcher = Launcher(world.store, "resnet-worker-0:1\nresnet-worker-1:1\n")
    before = uids(world)
    async with world:
        await world.until(lambda: bool(launcher.links))
        await world.quiet()
        world.exit_codes["resnet-launcher"] = 1
        await world.phase("Restarting")
        await world.running()
        await world.quiet()
        assert sorted(uids(world)) == ALL
        assert not {*before.values()} & {*uids(world).values()}
        assert world.status(TRAININGJOBS, "resnet")["restartCount"] == 2
        services = sorted(held.at[1] for held in world.store.find(SERVICES, NAMESPACE))
        assert services == ["resnet"], "their workers' names resolve through the one Service"
        mounts = world.pods()["resnet-launcher"].manifest["spec"]["containers"][0]["volumeMounts"]
        assert {"/etc/edl", "/etc/mpi"} <= {mount["mountPath"] for mount in mounts}
        assert launcher.hosts == BOTH


async def test_a_second_replica_of_every_service_changes_nothing():
    world, launcher, _ = a_world()
    before = uids(world)
    async with world, World(of=world, journal=world.journal, takes_over=True):
        await world.until(lambda: bool(launcher.links))
        await world.running()
        await world.quiet()
        assert uids(world) == before
        counts = (world.count("JobOfAnother"), world.count("JobAdopted"), world.count("SlotsAssigned"))
        assert counts == (1, 1, 0)


async def test_the_word_may_be_taken_back_before_all_is_labelled():
    world, launcher, uid = a_world()
    before = uids(world)
    async with world:
        await world.kill("scheduler")
        await world.until(lambda: world.count("JobAdopted") == 1)
        await world.kill("watcher")
        world.takes_over = False
        await world.start("watcher")
        await world.pass_seconds(60)
        assert world.count("PodsGone") == 0, "no service watches them, so none misses them"
        await world.start("scheduler")
        await world.until(lambda: bool(launcher.links))
        await world.quiet()
        assert uids(world) == before
        assert all(pod.claimed for pod in world.life(uid).pods.views.values())
        world.exit_codes["resnet-launcher"] = 0
        await world.phase("Succeeded")
