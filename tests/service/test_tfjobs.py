"""TFJobs from their creation to their end, with all four services."""

import json
from typing import Any

import pytest

from shared.cluster.kinds import PODS, SERVICES
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import RESTART
from tests.frameworks.documents import changed, tf_job
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, World, a_training_job

TFJOBS = TFJOB.resource


def a_tf_job(name: str = "mnist", *, policy: dict[str, Any] | None = None, restart: str = "", **replicas: int) -> Any:
    job = changed(tf_job(**replicas), "spec.runPolicy", policy or {})
    job["metadata"] = {"name": name}
    for spec in job["spec"]["tfReplicaSpecs"].values():
        spec["restartPolicy"] = restart
    return job


class Theatre(World):
    """A world on which the TFJob `mnist` plays."""

    def state(self, name: str = "mnist") -> str:
        """What the column State shows."""
        conditions = self.status(TFJOBS, name).get("conditions") or [{}]
        return str(conditions[-1].get("type", ""))

    def why(self, name: str = "mnist") -> str:
        return str(self.status(TFJOBS, name)["conditions"][-1]["message"])

    async def comes_to(self, state: str, name: str = "mnist") -> None:
        await self.until(lambda: self.state(name) == state, f"{name} is {state} and not {self.status(TFJOBS, name)}")

    def counts(self, kind: str) -> tuple[int, int, int]:
        found = self.status(TFJOBS, "mnist")["replicaStatuses"][kind]
        return found["active"], found["succeeded"], found["failed"]

    def uid(self, pod: str) -> str:
        return str(self.pods()[pod].metadata["uid"])

    def services(self) -> list[str]:
        return sorted(held.at[1] for held in self.store.find(SERVICES, NAMESPACE))

    def edit(self, patch: dict[str, Any]) -> None:
        self.store.patch(TFJOBS, NAMESPACE, "mnist", {"spec": patch})


@in_virtual_time
async def test_the_chiefs_end_is_the_jobs_whatever_servers_and_workers_do():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(Chief=1, PS=2, Worker=2, Evaluator=1))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        names = [*(f"mnist-{pod}" for pod in ("chief-0", "evaluator-0", "ps-0", "ps-1", "worker-0", "worker-1"))]
        assert sorted(world.pods()) == names
        assert world.services() == names
        world.exit_codes |= {"mnist-worker-0": 0, "mnist-worker-1": 0}
        await world.until(lambda: world.counts("Worker") == (0, 2, 0))
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-chief-0"] = 0
        await world.comes_to("Succeeded")
        await world.quiet()
        # cleanPodPolicy None, which is the default: everything stays, the servers that never end too.
        assert sorted(world.pods()) == names
        assert world.status(TFJOBS, "mnist")["completionTime"]
        told = [reason for reason, name in world.kubernetes_events() if name == "mnist"]
        assert {"TFJobRunning", "TFJobSucceeded"} <= {*told}


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("None", ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]),
        ("Running", ["mnist-worker-0"]),
        ("All", []),
    ],
)
@in_virtual_time
async def test_servers_never_end_by_themselves_and_go_by_the_clean_up(policy: str, left: list[str]):
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(policy={"cleanPodPolicy": policy}, PS=1, Worker=2))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        world.exit_codes["mnist-worker-0"] = 0
        await world.comes_to("Succeeded")
        await world.quiet()
        assert sorted(world.pods()) == left
        assert world.counts("Worker")[1] == 1


@in_virtual_time
async def test_with_all_workers_every_one_of_them_has_to_end_well():
    async with Theatre() as world:
        world.apply(TFJOBS, changed(a_tf_job(Worker=2), "spec.successPolicy", "AllWorkers"))
        await world.comes_to("Running")
        world.exit_codes["mnist-worker-0"] = 0
        await world.until(lambda: world.counts("Worker") == (1, 1, 0))
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-worker-1"] = 0
        await world.comes_to("Succeeded")


@in_virtual_time
async def test_a_worker_that_fails_comes_back_in_its_place():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(restart="OnFailure", PS=1, Worker=2))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        first, services = world.uid("mnist-worker-1"), world.services()
        others = [world.uid(name) for name in ("mnist-ps-0", "mnist-worker-0")]
        world.exit_codes["mnist-worker-1"] = 1
        await world.until(lambda: world.count("PodsGone") == 1)
        world.stuck.add("mnist-worker-1")
        await world.comes_to("Restarting")
        world.stuck.clear()
        await world.until(lambda: world.counts("Worker") == (2, 0, 1), "two workers run again")
        assert world.uid("mnist-worker-1") != first
        assert [world.uid(name) for name in ("mnist-ps-0", "mnist-worker-0")] == others
        assert world.services() == services
        assert world.state() == "Running"


@pytest.mark.parametrize(("code", "state"), [(1, "Failed"), (127, "Failed"), (128, "Running"), (137, "Running")])
@in_virtual_time
async def test_exit_codes_from_128_on_are_tried_again(code: int, state: str):
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(restart="ExitCode", Chief=1, Worker=1))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (1, 0, 0))
        world.exit_codes["mnist-worker-0"] = code
        await world.until(lambda: world.counts("Worker")[2] == 1)
        await world.comes_to(state)
        await world.quiet()
        assert world.state() == state


@in_virtual_time
async def test_beyond_the_backoff_limit_the_job_fails_and_is_cleaned_up():
    async with Theatre() as world:
        policy = {"backoffLimit": 2, "cleanPodPolicy": "Running"}
        world.apply(TFJOBS, a_tf_job(policy=policy, restart="OnFailure", PS=1, Worker=1))
        await world.comes_to("Running")
        for life in range(3):
            await world.until(lambda: world.counts("Worker")[0] == 1)
            world.exit_codes["mnist-worker-0"] = 1
            await world.until(lambda life=life: world.counts("Worker")[2] == life + 1)  # type: ignore[misc]
        await world.comes_to("Failed")
        assert world.why().startswith("BackoffLimitExceeded: mnist-worker-0 ")
        await world.quiet()
        assert [*world.pods()] == ["mnist-worker-0"]


@in_virtual_time
async def test_a_job_that_takes_too_long_fails_when_its_time_is_over_and_not_before():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(policy={"activeDeadlineSeconds": 60}, Worker=2))
        await world.comes_to("Running")
        await world.pass_seconds(55)
        assert world.state() == "Running"
        await world.pass_seconds(10)
        await world.comes_to("Failed")
        assert world.why().startswith("DeadlineExceeded")


@in_virtual_time
async def test_a_job_that_is_over_goes_with_all_that_it_had_and_does_not_come_back():
    async with Theatre() as world:
        uid = world.apply(TFJOBS, a_tf_job(policy={"ttlSecondsAfterFinished": 30}, Worker=1)).metadata["uid"]
        await world.comes_to("Running")
        world.exit_codes["mnist-worker-0"] = 0
        await world.comes_to("Succeeded")
        await world.pass_seconds(20)
        assert world.state() == "Succeeded"
        await world.pass_seconds(20)
        await world.until(lambda: world.store.get(TFJOBS, NAMESPACE, "mnist") is None)
        await world.until(lambda: world.owned_by(uid) == [])
        await world.quiet()
        assert not world.pods()


@in_virtual_time
async def test_a_pause_takes_the_pods_and_brings_them_back():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(policy={"suspend": True}, PS=1, Worker=2))
        await world.comes_to("Suspended")
        await world.quiet()
        assert not world.pods()
        world.edit({"runPolicy": {"suspend": False}})
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        world.edit({"runPolicy": {"suspend": True}})
        await world.comes_to("Suspended")
        assert not world.pods()
        assert world.counts("Worker")[0] == 0
        assert world.condition(TFJOBS, "mnist", "Running") == ("False", "TFJobSuspended")
        world.edit({"runPolicy": {"suspend": False}})
        await world.comes_to("Running")
        await world.until(lambda: len(world.pods()) == 3)
        assert world.condition(TFJOBS, "mnist", "Suspended") == ("False", "TFJobResumed")


@in_virtual_time
async def test_a_person_may_have_it_begin_again():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(PS=1, Worker=2))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        before = {name: held.metadata["uid"] for name, held in world.pods().items()}
        world.store.patch(TFJOBS, NAMESPACE, "mnist", {"metadata": {"annotations": {RESTART: "once more"}}})
        await world.until(lambda: world.count("JobRestarted") == 1)
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (2, 0, 0))
        after = {name: held.metadata["uid"] for name, held in world.pods().items()}
        assert before.keys() == after.keys()
        assert not {*before.values()} & {*after.values()}
        assert world.condition(TFJOBS, "mnist", "Restarting") == ("False", "TFJobRunning")
        world.exit_codes["mnist-worker-0"] = 0
        await world.comes_to("Succeeded")


@in_virtual_time
async def test_a_job_that_cannot_run_says_why_and_runs_once_it_is_corrected():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(Chief=1, Master=1))
        await world.comes_to("Failed")
        assert world.condition(TFJOBS, "mnist", "Failed") == ("True", "TFJobFailedValidation")
        assert world.why().startswith("TwoChiefs: ")
        await world.quiet()
        assert not world.pods()
        world.edit({"tfReplicaSpecs": {"Master": None}})
        await world.comes_to("Running")
        assert world.condition(TFJOBS, "mnist", "Failed") is None


@in_virtual_time
async def test_dynamic_workers_follow_the_wanted_size():
    async with Theatre() as world:
        job = changed(a_tf_job(PS=1, Worker=1), "spec.enableDynamicWorker", True)
        world.apply(TFJOBS, job)
        await world.comes_to("Running")
        world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
        await world.until(lambda: world.counts("Worker") == (3, 0, 0))
        first = world.uid("mnist-worker-0")
        world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
        await world.until(lambda: sorted(world.pods()) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        await world.until(lambda: world.services() == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        assert world.uid("mnist-worker-0") == first
        assert world.state() == "Running"
        world.exit_codes["mnist-worker-1"] = 1
        await world.until(lambda: world.counts("Worker") == (1, 0, 1))
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-worker-0"] = 0
        await world.comes_to("Succeeded")


@in_virtual_time
async def test_a_dynamic_job_that_has_no_worker_left_fails_after_a_while():
    async with Theatre() as world:
        world.apply(TFJOBS, changed(a_tf_job(PS=1, Worker=1), "spec.enableDynamicWorker", True))
        await world.comes_to("Running")
        world.exit_codes["mnist-worker-0"] = 1
        await world.until(lambda: world.counts("Worker") == (0, 0, 1))
        await world.pass_seconds(590)
        assert world.state() == "Running"
        await world.pass_seconds(20)
        await world.comes_to("Failed")
        assert world.why().startswith("BelowMinimum")


@in_virtual_time
async def test_a_suspended_job_may_change_its_size():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(PS=1, Worker=1))
        await world.comes_to("Running")
        world.edit({"runPolicy": {"suspend": True}})
        await world.comes_to("Suspended")
        await world.until(lambda: not world.pods())
        world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}, "PS": {"replicas": 2}}})
        world.edit({"runPolicy": {"suspend": False}})
        await world.comes_to("Running")
        await world.until(lambda: world.counts("Worker") == (3, 0, 0) and world.counts("PS") == (2, 0, 0))
        (config,) = world.pods()["mnist-worker-2"].manifest["spec"]["containers"][0]["env"]
        cluster = json.loads(config["value"])["cluster"]
        assert (len(cluster["ps"]), len(cluster["worker"])) == (2, 3)


@in_virtual_time
async def test_a_type_that_is_taken_out_of_the_resource_breaks_nothing():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(Chief=1, PS=1, Worker=1))
        await world.comes_to("Running")
        await world.until(lambda: len(world.pods()) == 3)
        world.edit({"tfReplicaSpecs": {"PS": None}})
        world.delete(PODS, "mnist-ps-0")
        await world.until(lambda: "mnist-ps-0" not in world.pods())
        await world.quiet()
        assert world.state() == "Running"
        world.exit_codes["mnist-chief-0"] = 0
        await world.comes_to("Succeeded")
        assert {*world.status(TFJOBS, "mnist")["replicaStatuses"]} == {"Chief", "Worker"}


@in_virtual_time
async def test_workers_of_other_jobs_keep_their_number():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(Worker=2))
        await world.comes_to("Running")
        world.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
        await world.until(lambda: world.count("ScaleRejected") == 1)
        await world.quiet()
        assert len(world.pods()) == 2
        assert world.state() == "Running"


@pytest.mark.parametrize("first", ["TFJob", "TrainingJob"])
@in_virtual_time
async def test_of_two_jobs_that_want_one_pod_name_the_later_one_waits_and_says_so(first: str):
    """Both call their first worker `mnist-worker-0`: neither takes the other's pod for its own."""
    async with Theatre() as world:
        wants = {
            "TFJob": (TFJOBS, a_tf_job(Worker=1)),
            "TrainingJob": (TRAININGJOBS, a_training_job("mnist", workers=1)),
        }
        second = next(kind for kind in wants if kind != first)
        owner = world.apply(*wants[first]).metadata["uid"]
        await world.until(lambda: len(world.pods()) == (1 if first == "TFJob" else 2))
        await world.quiet()
        before = {name: held.metadata["uid"] for name, held in world.pods().items()}
        world.apply(*wants[second])
        await world.until(lambda: "NameConflict" in str(world.status(wants[second][0], "mnist").get("conditions")))
        await world.quiet()
        assert {name: held.metadata["uid"] for name, held in world.pods().items()} == before
        assert world.pods()["mnist-worker-0"].metadata["ownerReferences"][0]["uid"] == owner
        world.delete(wants[first][0], "mnist")
        await world.until(
            lambda: world.state() == "Running" or world.status(TRAININGJOBS, "mnist").get("phase") == "Running"
        )


@in_virtual_time
async def test_two_jobs_of_one_name_with_other_pods_live_side_by_side():
    async with Theatre() as world:
        world.apply(TRAININGJOBS, a_training_job("mnist", workers=1))
        world.apply(TFJOBS, a_tf_job(Chief=1, PS=1))
        await world.comes_to("Running")
        await world.phase("Running", TRAININGJOBS, "mnist")
        assert sorted(world.pods()) == ["mnist-chief-0", "mnist-launcher", "mnist-ps-0", "mnist-worker-0"]
        world.exit_codes["mnist-chief-0"] = 0
        await world.comes_to("Succeeded")
        assert world.status(TRAININGJOBS, "mnist")["phase"] == "Running"
        world.delete(TFJOBS, "mnist")
        await world.until(lambda: sorted(world.pods()) == ["mnist-launcher", "mnist-worker-0"])


@in_virtual_time
async def test_a_pod_that_a_person_deletes_comes_back_under_its_name():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job(PS=1, Worker=1))
        await world.comes_to("Running")
        await world.until(lambda: world.counts("PS") == (1, 0, 0))
        first = world.uid("mnist-ps-0")
        world.delete(PODS, "mnist-ps-0")
        await world.until(lambda: "mnist-ps-0" in world.pods() and world.uid("mnist-ps-0") != first)
        await world.until(lambda: world.counts("PS") == (1, 0, 0))
        assert world.state() == "Running"


@in_virtual_time
async def test_a_job_that_another_controller_manages_is_not_ours_to_touch():
    async with Theatre() as world:
        world.apply(TFJOBS, a_tf_job("theirs", policy={"managedBy": "kueue.x-k8s.io/multikueue"}))
        world.apply(TFJOBS, a_tf_job(policy={"managedBy": "kubeflow.org/training-operator"}, Worker=1))
        await world.comes_to("Running")
        await world.quiet()
        assert [*world.pods()] == ["mnist-worker-0"]
        assert world.status(TFJOBS, "theirs") == {}
        assert not any(".theirs." in stored.subject for stored in world.journal.events)
        # Handed over while it runs: it is said that this cannot be, and the job goes on.
        world.edit({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
        await world.until(lambda: "ManagedByAnother" in str(world.status(TFJOBS, "mnist")["conditions"]))
        await world.quiet()
        assert [*world.pods()] == ["mnist-worker-0"]
