"""TrainingJobs that et-operator began, with the four services on a cluster in memory."""

from typing import Any

import pytest

from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog.account import HEADS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import AUTHORS, NAMESPACE, a_scale_in, a_scale_out
from tests.memory.eventlog import MemoryEventLog
from tests.service.stage import Stage
from tests.takeover.recorded import Launcher, put, recorded

BOTH = ["resnet-worker-0", "resnet-worker-1"]
ALL = ["resnet-launcher", *BOTH]


def a_stage(*, takes_over: bool = True, **status: Any) -> tuple[Stage, Launcher, str]:
    """et-operator's job as recorded, its status changed in some fields."""
    stage = Stage(takes_over=takes_over)
    objects = recorded("et-operator-running")
    objects[0]["status"] |= status
    uid = put(stage.store, objects)
    return stage, Launcher(stage.store, "resnet-worker-0:1\nresnet-worker-1:1\n"), uid


def uids(stage: Stage) -> dict[str, str]:
    return {name: held.metadata["uid"] for name, held in stage.pods().items()}


@in_virtual_time
async def test_a_running_job_goes_on_with_its_pods():
    stage, launcher, uid = a_stage()
    before = uids(stage)
    async with stage:
        await stage.until(lambda: bool(launcher.links), "the hosts files are links")
        await stage.quiet()
        assert uids(stage) == before
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Running"
        assert stage.status(TRAININGJOBS, "resnet")["startTime"] == "2029-12-31T22:00:00Z"
        assert stage.status(TRAININGJOBS, "resnet")["currentWorkers"] == BOTH
        assert launcher.hosts == BOTH
        assert launcher.links == {
            "/etc/edl/hostfile": "/etc/mpi/hostfile",
            "/job/hostfile": "/etc/mpi/deepspeed-hostfile",
        }
        for resource, names in ((PODS, ALL), (SERVICES, [*BOTH, "resnet"]), (SECRETS, ["resnet"])):
            for name in names:
                held = stage.store.get(resource, NAMESPACE, name)
                assert held is not None
                assert held.metadata["labels"]["muster.dev/job-uid"] == uid, (resource, name)
        assert (stage.count("JobOfAnother"), stage.count("JobAdopted"), stage.count("SlotsAssigned")) == (1, 1, 0)
        assert stage.count("EffectRefused") == 0
        # What is not ours in the files stays: the old launcher's volume names it.
        held = stage.store.get(CONFIGMAPS, NAMESPACE, "resnet-config")
        assert held is not None
        assert "kubexec.sh" in held.manifest["data"]
        # et-operator's own request is over, and is not looked at again.
        assert stage.status(SCALEOUTS, "grow")["phase"] == "ScaleSucceeded"
        assert "history" not in stage.status(SCALEOUTS, "grow")


@in_virtual_time
async def test_it_scales_both_ways_and_finishes():
    stage, launcher, uid = a_stage()
    before = uids(stage)
    async with stage:
        await stage.running()
        stage.apply(SCALEOUTS, a_scale_out(1))
        await stage.phase("ScaleSucceeded", SCALEOUTS, "out")
        assert launcher.hosts == [*BOTH, "resnet-worker-2"]
        assert stage.store.get(SERVICES, NAMESPACE, "resnet-worker-2"), "old pods know no other way to its name"
        stage.apply(
            SCALEINS, {**a_scale_in(1), "spec": {"selector": {"name": "resnet"}, "toDelete": {"podNames": BOTH[1:]}}}
        )
        await stage.phase("ScaleSucceeded", SCALEINS, "in")
        await stage.quiet()
        assert launcher.hosts == ["resnet-worker-0", "resnet-worker-2"]
        assert stage.store.get(SERVICES, NAMESPACE, "resnet-worker-1") is None
        assert {name: before[name] for name in ("resnet-launcher", "resnet-worker-0")}.items() <= uids(stage).items()
        stage.exit_codes["resnet-launcher"] = 0
        await stage.phase("Succeeded")
        await stage.quiet()
        assert sorted(stage.pods()) == ["resnet-launcher"]
        assert uids(stage)["resnet-launcher"] == before["resnet-launcher"]
        stage.delete(TRAININGJOBS, "resnet")
        await stage.until(lambda: not stage.owned_by(uid))


@in_virtual_time
async def test_nothing_is_touched_while_the_other_operator_may_be_running():
    stage, launcher, _ = a_stage(takes_over=False)
    before = stage.store.version
    async with stage:
        await stage.pass_seconds(600)
        assert stage.store.version == before
        assert [kind for kind in stage.types() if kind != "LogCreated"] == ["JobOfAnother", "JobObserved"]
        await stage.kill("watcher")
        stage.takes_over = True
        await stage.start("watcher")
        await stage.until(lambda: bool(launcher.links), "a person said so, and it was taken over")
        await stage.quiet()
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Running"


@in_virtual_time
async def test_the_new_files_are_read_only_once_they_say_what_is_wanted():
    """et-operator never wrote the ConfigMap again: a link made too early would take workers from the training."""
    stage, launcher, _ = a_stage()
    launcher.lags = 5
    async with stage:

        def linked() -> bool:
            assert launcher.hosts == BOTH
            return bool(launcher.links)

        await stage.until(linked)
        assert launcher.hosts == BOTH
        assert launcher.lags == 0


@in_virtual_time
async def test_a_finished_job_is_never_run_again_and_its_time_to_live_counts_from_its_end():
    stage = Stage(takes_over=True)
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
    put(stage.store, [job])
    async with stage:
        await stage.until(lambda: "history" in stage.status(TRAININGJOBS, "resnet"))
        await stage.quiet()
        status = stage.status(TRAININGJOBS, "resnet")
        assert (status["phase"], status["completionTime"]) == ("Succeeded", "2029-12-31T23:00:00Z")
        assert status["replicaStatuses"]["Launcher"] == {"active": 0, "succeeded": 1, "failed": 0}
        assert stage.pods() == {}
        assert stage.store.get(TRAININGJOBS, NAMESPACE, "resnet") is not None
        await stage.pass_seconds(2600)
        assert stage.store.get(TRAININGJOBS, NAMESPACE, "resnet") is not None
        await stage.pass_seconds(100)
        assert stage.store.get(TRAININGJOBS, NAMESPACE, "resnet") is None


@in_virtual_time
async def test_a_failed_job_with_pods_that_were_not_cleaned_up_is_cleaned_up():
    failed = {"phase": "Failed", "completionTime": "2029-12-31T23:00:00Z"}
    stage, _, _ = a_stage(**failed)
    stage.store.patch(
        PODS,
        NAMESPACE,
        "resnet-launcher",
        {"status": {"phase": "Failed", "containerStatuses": None}},
        subresource="status",
    )
    async with stage:
        await stage.until(lambda: sorted(stage.pods()) == ["resnet-launcher"])
        await stage.quiet()
        assert stage.status(TRAININGJOBS, "resnet")["phase"] == "Failed"
        assert stage.count("JobRestarting") == 0


@in_virtual_time
async def test_a_job_that_never_began_there_is_simply_taken_on():
    stage = Stage(takes_over=True)
    job = recorded("et-operator-running")[0]
    job["status"] = {
        "phase": "Created",
        "conditions": job["status"]["conditions"][:1],
        "replicaStatuses": {},
        "restartCount": 0,
    }
    put(stage.store, [job])
    async with stage:
        await stage.running()
        assert sorted(stage.pods()) == ["resnet-launcher", "resnet-worker-0"]


@in_virtual_time
async def test_a_launcher_that_went_unseen_is_lost_and_not_started_again():
    stage, _, _ = a_stage()
    stage.store.remove(PODS, NAMESPACE, "resnet-launcher")
    async with stage:
        await stage.phase("Failed")
        assert stage.condition(TRAININGJOBS, "resnet", "Failed") == ("True", "LauncherLost")


@in_virtual_time
async def test_a_launcher_that_ended_meanwhile_ends_the_job():
    stage, _, _ = a_stage()
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    status = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
    stage.store.patch(PODS, NAMESPACE, "resnet-launcher", status, subresource="status")
    async with stage:
        await stage.phase("Succeeded")
        await stage.quiet()
        assert sorted(stage.pods()) == ["resnet-launcher"]


@pytest.mark.parametrize("turn", range(1, 13))
@in_virtual_time
async def test_all_services_may_die_at_any_event_of_it(turn: int):
    stage, launcher, _ = a_stage()
    before = uids(stage)
    async with stage:
        await stage.until(lambda: len(stage.journal.events) > turn)
        for author in AUTHORS:
            await stage.kill(author)
        for author in AUTHORS:
            await stage.start(author)
        await stage.running()
        await stage.until(lambda: bool(launcher.links))
        await stage.quiet()
        assert uids(stage) == before
        assert (stage.count("JobAdopted"), stage.count("SlotsAssigned")) == (1, 0)


@in_virtual_time
async def test_a_status_of_ours_whose_head_was_dropped_is_no_other_operators():
    """A definition that is not ours keeps no heads; that the log was lost is known from the checkpoint."""
    stage, launcher, uid = a_stage()
    heads = await MemoryEventLog(stage.journal, user="status").bucket(HEADS)
    await heads.put(uid, b"another-log/7:ab")
    async with stage:
        await stage.until(lambda: stage.count("HistoryBroken") == 1)
        await stage.quiet()
        assert (stage.count("JobOfAnother"), stage.count("JobAdopted"), launcher.commands) == (0, 0, [])


@in_virtual_time
async def test_the_next_attempt_is_all_ours():
    stage = Stage(takes_over=True)
    objects = recorded("et-operator-running")
    objects[0]["spec"]["restartPolicy"] = "OnFailure"
    objects[0]["status"]["restartCount"] = 1
    put(stage.store, objects)
    launcher = Launcher(stage.store, "resnet-worker-0:1\nresnet-worker-1:1\n")
    before = uids(stage)
    async with stage:
        await stage.until(lambda: bool(launcher.links))
        await stage.quiet()
        stage.exit_codes["resnet-launcher"] = 1
        await stage.phase("Restarting")
        await stage.running()
        await stage.quiet()
        assert sorted(uids(stage)) == ALL
        assert not {*before.values()} & {*uids(stage).values()}
        assert stage.status(TRAININGJOBS, "resnet")["restartCount"] == 2
        services = sorted(held.at[1] for held in stage.store.find(SERVICES, NAMESPACE))
        assert services == ["resnet"], "their workers' names resolve through the one Service"
        mounts = stage.pods()["resnet-launcher"].manifest["spec"]["containers"][0]["volumeMounts"]
        assert {"/etc/edl", "/etc/mpi"} <= {mount["mountPath"] for mount in mounts}
        assert launcher.hosts == BOTH


@in_virtual_time
async def test_a_second_replica_of_every_service_changes_nothing():
    stage, launcher, _ = a_stage()
    before = uids(stage)
    async with stage, Stage(of=stage, journal=stage.journal, takes_over=True):
        await stage.until(lambda: bool(launcher.links))
        await stage.running()
        await stage.quiet()
        assert uids(stage) == before
        counts = (stage.count("JobOfAnother"), stage.count("JobAdopted"), stage.count("SlotsAssigned"))
        assert counts == (1, 1, 0)


@in_virtual_time
async def test_the_word_may_be_taken_back_before_all_is_labelled():
    stage, launcher, uid = a_stage()
    before = uids(stage)
    async with stage:
        await stage.kill("scheduler")
        await stage.until(lambda: stage.count("JobAdopted") == 1)
        await stage.kill("watcher")
        stage.takes_over = False
        await stage.start("watcher")
        await stage.pass_seconds(60)
        assert stage.count("PodsGone") == 0, "no service watches them, so none misses them"
        await stage.start("scheduler")
        await stage.until(lambda: bool(launcher.links))
        await stage.quiet()
        assert uids(stage) == before
        assert all(pod.claimed for pod in stage.life(uid).pods.values())
        stage.exit_codes["resnet-launcher"] = 0
        await stage.phase("Succeeded")
