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
from tests.kit.world import NAMESPACE, a_training_job
from tests.service.stage import Stage

TFJOBS = TFJOB.resource


def a_tf_job(name: str = "mnist", *, policy: dict[str, Any] | None = None, restart: str = "", **replicas: int) -> Any:
    job = changed(tf_job(**replicas), "spec.runPolicy", policy or {})
    job["metadata"] = {"name": name}
    for spec in job["spec"]["tfReplicaSpecs"].values():
        spec["restartPolicy"] = restart
    return job


class Theatre(Stage):
    """A stage on which the TFJob `mnist` plays."""

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
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(Chief=1, PS=2, Worker=2, Evaluator=1))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        names = [*(f"mnist-{pod}" for pod in ("chief-0", "evaluator-0", "ps-0", "ps-1", "worker-0", "worker-1"))]
        assert sorted(stage.pods()) == names
        assert stage.services() == names
        stage.exit_codes |= {"mnist-worker-0": 0, "mnist-worker-1": 0}
        await stage.until(lambda: stage.counts("Worker") == (0, 2, 0))
        await stage.quiet()
        assert stage.state() == "Running"
        stage.exit_codes["mnist-chief-0"] = 0
        await stage.comes_to("Succeeded")
        await stage.quiet()
        # cleanPodPolicy None, which is the default: everything stays, the servers that never end too.
        assert sorted(stage.pods()) == names
        assert stage.status(TFJOBS, "mnist")["completionTime"]
        told = [reason for reason, name in stage.kubernetes_events() if name == "mnist"]
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
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(policy={"cleanPodPolicy": policy}, PS=1, Worker=2))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        stage.exit_codes["mnist-worker-0"] = 0
        await stage.comes_to("Succeeded")
        await stage.quiet()
        assert sorted(stage.pods()) == left
        assert stage.counts("Worker")[1] == 1


@in_virtual_time
async def test_with_all_workers_every_one_of_them_has_to_end_well():
    async with Theatre() as stage:
        stage.apply(TFJOBS, changed(a_tf_job(Worker=2), "spec.successPolicy", "AllWorkers"))
        await stage.comes_to("Running")
        stage.exit_codes["mnist-worker-0"] = 0
        await stage.until(lambda: stage.counts("Worker") == (1, 1, 0))
        await stage.quiet()
        assert stage.state() == "Running"
        stage.exit_codes["mnist-worker-1"] = 0
        await stage.comes_to("Succeeded")


@in_virtual_time
async def test_a_worker_that_fails_comes_back_in_its_place():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(restart="OnFailure", PS=1, Worker=2))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        first, services = stage.uid("mnist-worker-1"), stage.services()
        others = [stage.uid(name) for name in ("mnist-ps-0", "mnist-worker-0")]
        stage.exit_codes["mnist-worker-1"] = 1
        await stage.until(lambda: stage.count("PodsGone") == 1)
        stage.stuck.add("mnist-worker-1")
        await stage.comes_to("Restarting")
        stage.stuck.clear()
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 1), "two workers run again")
        assert stage.uid("mnist-worker-1") != first
        assert [stage.uid(name) for name in ("mnist-ps-0", "mnist-worker-0")] == others
        assert stage.services() == services
        assert stage.state() == "Running"


@pytest.mark.parametrize(("code", "state"), [(1, "Failed"), (127, "Failed"), (128, "Running"), (137, "Running")])
@in_virtual_time
async def test_exit_codes_from_128_on_are_tried_again(code: int, state: str):
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(restart="ExitCode", Chief=1, Worker=1))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (1, 0, 0))
        stage.exit_codes["mnist-worker-0"] = code
        await stage.until(lambda: stage.counts("Worker")[2] == 1)
        await stage.comes_to(state)
        await stage.quiet()
        assert stage.state() == state


@in_virtual_time
async def test_beyond_the_backoff_limit_the_job_fails_and_is_cleaned_up():
    async with Theatre() as stage:
        policy = {"backoffLimit": 2, "cleanPodPolicy": "Running"}
        stage.apply(TFJOBS, a_tf_job(policy=policy, restart="OnFailure", PS=1, Worker=1))
        await stage.comes_to("Running")
        for life in range(3):
            await stage.until(lambda: stage.counts("Worker")[0] == 1)
            stage.exit_codes["mnist-worker-0"] = 1
            await stage.until(lambda life=life: stage.counts("Worker")[2] == life + 1)  # type: ignore[misc]
        await stage.comes_to("Failed")
        assert stage.why().startswith("BackoffLimitExceeded: mnist-worker-0 ")
        await stage.quiet()
        assert [*stage.pods()] == ["mnist-worker-0"]


@in_virtual_time
async def test_a_job_that_takes_too_long_fails_when_its_time_is_over_and_not_before():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(policy={"activeDeadlineSeconds": 60}, Worker=2))
        await stage.comes_to("Running")
        await stage.pass_seconds(55)
        assert stage.state() == "Running"
        await stage.pass_seconds(10)
        await stage.comes_to("Failed")
        assert stage.why().startswith("DeadlineExceeded")


@in_virtual_time
async def test_a_job_that_is_over_goes_with_all_that_it_had_and_does_not_come_back():
    async with Theatre() as stage:
        uid = stage.apply(TFJOBS, a_tf_job(policy={"ttlSecondsAfterFinished": 30}, Worker=1)).metadata["uid"]
        await stage.comes_to("Running")
        stage.exit_codes["mnist-worker-0"] = 0
        await stage.comes_to("Succeeded")
        await stage.pass_seconds(20)
        assert stage.state() == "Succeeded"
        await stage.pass_seconds(20)
        await stage.until(lambda: stage.store.get(TFJOBS, NAMESPACE, "mnist") is None)
        await stage.until(lambda: stage.owned_by(uid) == [])
        await stage.quiet()
        assert not stage.pods()


@in_virtual_time
async def test_a_pause_takes_the_pods_and_brings_them_back():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(policy={"suspend": True}, PS=1, Worker=2))
        await stage.comes_to("Suspended")
        await stage.quiet()
        assert not stage.pods()
        stage.edit({"runPolicy": {"suspend": False}})
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        stage.edit({"runPolicy": {"suspend": True}})
        await stage.comes_to("Suspended")
        assert not stage.pods()
        assert stage.counts("Worker")[0] == 0
        assert stage.condition(TFJOBS, "mnist", "Running") == ("False", "TFJobSuspended")
        stage.edit({"runPolicy": {"suspend": False}})
        await stage.comes_to("Running")
        await stage.until(lambda: len(stage.pods()) == 3)
        assert stage.condition(TFJOBS, "mnist", "Suspended") == ("False", "TFJobResumed")


@in_virtual_time
async def test_a_person_may_have_it_begin_again():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(PS=1, Worker=2))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        before = {name: held.metadata["uid"] for name, held in stage.pods().items()}
        stage.store.patch(TFJOBS, NAMESPACE, "mnist", {"metadata": {"annotations": {RESTART: "once more"}}})
        await stage.until(lambda: stage.count("JobRestarted") == 1)
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (2, 0, 0))
        after = {name: held.metadata["uid"] for name, held in stage.pods().items()}
        assert before.keys() == after.keys()
        assert not {*before.values()} & {*after.values()}
        assert stage.condition(TFJOBS, "mnist", "Restarting") == ("False", "TFJobRunning")
        stage.exit_codes["mnist-worker-0"] = 0
        await stage.comes_to("Succeeded")


@in_virtual_time
async def test_a_job_that_cannot_run_says_why_and_runs_once_it_is_corrected():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(Chief=1, Master=1))
        await stage.comes_to("Failed")
        assert stage.condition(TFJOBS, "mnist", "Failed") == ("True", "TFJobFailedValidation")
        assert stage.why().startswith("TwoChiefs: ")
        await stage.quiet()
        assert not stage.pods()
        stage.edit({"tfReplicaSpecs": {"Master": None}})
        await stage.comes_to("Running")
        assert stage.condition(TFJOBS, "mnist", "Failed") is None


@in_virtual_time
async def test_dynamic_workers_follow_the_wanted_size():
    async with Theatre() as stage:
        job = changed(a_tf_job(PS=1, Worker=1), "spec.enableDynamicWorker", True)
        stage.apply(TFJOBS, job)
        await stage.comes_to("Running")
        stage.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
        await stage.until(lambda: stage.counts("Worker") == (3, 0, 0))
        first = stage.uid("mnist-worker-0")
        stage.edit({"tfReplicaSpecs": {"Worker": {"replicas": 2}}})
        await stage.until(lambda: sorted(stage.pods()) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        await stage.until(lambda: stage.services() == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"])
        assert stage.uid("mnist-worker-0") == first
        assert stage.state() == "Running"
        stage.exit_codes["mnist-worker-1"] = 1
        await stage.until(lambda: stage.counts("Worker") == (1, 0, 1))
        await stage.quiet()
        assert stage.state() == "Running"
        stage.exit_codes["mnist-worker-0"] = 0
        await stage.comes_to("Succeeded")


@in_virtual_time
async def test_a_dynamic_job_that_has_no_worker_left_fails_after_a_while():
    async with Theatre() as stage:
        stage.apply(TFJOBS, changed(a_tf_job(PS=1, Worker=1), "spec.enableDynamicWorker", True))
        await stage.comes_to("Running")
        stage.exit_codes["mnist-worker-0"] = 1
        await stage.until(lambda: stage.counts("Worker") == (0, 0, 1))
        await stage.pass_seconds(590)
        assert stage.state() == "Running"
        await stage.pass_seconds(20)
        await stage.comes_to("Failed")
        assert stage.why().startswith("BelowMinimum")


@in_virtual_time
async def test_a_suspended_job_may_change_its_size():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(PS=1, Worker=1))
        await stage.comes_to("Running")
        stage.edit({"runPolicy": {"suspend": True}})
        await stage.comes_to("Suspended")
        await stage.until(lambda: not stage.pods())
        stage.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}, "PS": {"replicas": 2}}})
        stage.edit({"runPolicy": {"suspend": False}})
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("Worker") == (3, 0, 0) and stage.counts("PS") == (2, 0, 0))
        (config,) = stage.pods()["mnist-worker-2"].manifest["spec"]["containers"][0]["env"]
        cluster = json.loads(config["value"])["cluster"]
        assert (len(cluster["ps"]), len(cluster["worker"])) == (2, 3)


@in_virtual_time
async def test_a_type_that_is_taken_out_of_the_resource_breaks_nothing():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(Chief=1, PS=1, Worker=1))
        await stage.comes_to("Running")
        await stage.until(lambda: len(stage.pods()) == 3)
        stage.edit({"tfReplicaSpecs": {"PS": None}})
        stage.delete(PODS, "mnist-ps-0")
        await stage.until(lambda: "mnist-ps-0" not in stage.pods())
        await stage.quiet()
        assert stage.state() == "Running"
        stage.exit_codes["mnist-chief-0"] = 0
        await stage.comes_to("Succeeded")
        assert {*stage.status(TFJOBS, "mnist")["replicaStatuses"]} == {"Chief", "Worker"}


@in_virtual_time
async def test_workers_of_other_jobs_keep_their_number():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(Worker=2))
        await stage.comes_to("Running")
        stage.edit({"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
        await stage.until(lambda: stage.count("ScaleRejected") == 1)
        await stage.quiet()
        assert len(stage.pods()) == 2
        assert stage.state() == "Running"


@pytest.mark.parametrize("first", ["TFJob", "TrainingJob"])
@in_virtual_time
async def test_of_two_jobs_that_want_one_pod_name_the_later_one_waits_and_says_so(first: str):
    """Both call their first worker `mnist-worker-0`: neither takes the other's pod for its own."""
    async with Theatre() as stage:
        wants = {
            "TFJob": (TFJOBS, a_tf_job(Worker=1)),
            "TrainingJob": (TRAININGJOBS, a_training_job("mnist", workers=1)),
        }
        second = next(kind for kind in wants if kind != first)
        owner = stage.apply(*wants[first]).metadata["uid"]
        await stage.until(lambda: len(stage.pods()) == (1 if first == "TFJob" else 2))
        await stage.quiet()
        before = {name: held.metadata["uid"] for name, held in stage.pods().items()}
        stage.apply(*wants[second])
        await stage.until(lambda: "NameConflict" in str(stage.status(wants[second][0], "mnist").get("conditions")))
        await stage.quiet()
        assert {name: held.metadata["uid"] for name, held in stage.pods().items()} == before
        assert stage.pods()["mnist-worker-0"].metadata["ownerReferences"][0]["uid"] == owner
        stage.delete(wants[first][0], "mnist")
        await stage.until(
            lambda: stage.state() == "Running" or stage.status(TRAININGJOBS, "mnist").get("phase") == "Running"
        )


@in_virtual_time
async def test_two_jobs_of_one_name_with_other_pods_live_side_by_side():
    async with Theatre() as stage:
        stage.apply(TRAININGJOBS, a_training_job("mnist", workers=1))
        stage.apply(TFJOBS, a_tf_job(Chief=1, PS=1))
        await stage.comes_to("Running")
        await stage.phase("Running", TRAININGJOBS, "mnist")
        assert sorted(stage.pods()) == ["mnist-chief-0", "mnist-launcher", "mnist-ps-0", "mnist-worker-0"]
        stage.exit_codes["mnist-chief-0"] = 0
        await stage.comes_to("Succeeded")
        assert stage.status(TRAININGJOBS, "mnist")["phase"] == "Running"
        stage.delete(TFJOBS, "mnist")
        await stage.until(lambda: sorted(stage.pods()) == ["mnist-launcher", "mnist-worker-0"])


@in_virtual_time
async def test_a_pod_that_a_person_deletes_comes_back_under_its_name():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job(PS=1, Worker=1))
        await stage.comes_to("Running")
        await stage.until(lambda: stage.counts("PS") == (1, 0, 0))
        first = stage.uid("mnist-ps-0")
        stage.delete(PODS, "mnist-ps-0")
        await stage.until(lambda: "mnist-ps-0" in stage.pods() and stage.uid("mnist-ps-0") != first)
        await stage.until(lambda: stage.counts("PS") == (1, 0, 0))
        assert stage.state() == "Running"


@in_virtual_time
async def test_a_job_that_another_controller_manages_is_not_ours_to_touch():
    async with Theatre() as stage:
        stage.apply(TFJOBS, a_tf_job("theirs", policy={"managedBy": "kueue.x-k8s.io/multikueue"}))
        stage.apply(TFJOBS, a_tf_job(policy={"managedBy": "kubeflow.org/training-operator"}, Worker=1))
        await stage.comes_to("Running")
        await stage.quiet()
        assert [*stage.pods()] == ["mnist-worker-0"]
        assert stage.status(TFJOBS, "theirs") == {}
        assert not any(".theirs." in stored.subject for stored in stage.journal.events)
        # Handed over while it runs: it is said that this cannot be, and the job goes on.
        stage.edit({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
        await stage.until(lambda: "ManagedByAnother" in str(stage.status(TFJOBS, "mnist")["conditions"]))
        await stage.quiet()
        assert [*stage.pods()] == ["mnist-worker-0"]
