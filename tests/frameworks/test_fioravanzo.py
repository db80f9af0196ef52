"""MXJob of fioravanzo.org: mx-operator's own manifest, names, labels, status and words."""

from functools import partial

import msgspec
import pytest
import yaml

from services.status.core.announce import announcements
from services.status.core.decide import decide
from services.status.core.effects import Announce
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.mxnet import runtime_id
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated, JobFailed, JobRunning, JobSucceeded
from shared.job.events.watcher import JobDeleting, JobObserved, PodsObserved
from shared.job.naming import Slot
from shared.job.spec import Problem
from tests.frameworks.documents import ABSENT, Document, changed, custom, fioravanzo_job, reasons_of, spec_of
from tests.kit.histories import a_history
from tests.kit.pods import pod_for, service_for
from tests.kit.replicas import all_slots, ended, replica

PUBLISHED = yaml.safe_load("""
apiVersion: fioravanzo.org/v1alpha1
kind: MXJob
metadata: {name: mx-test-dist}
spec:
  replicaSpecs:
  - &entry
    replicas: 1
    mxReplicaType: SCHEDULER
    template:
      spec:
        containers:
        - {image: "stefanofioravanzo/mxnet-linear-dist:cpu", name: mxnet, imagePullPolicy: Always}
        restartPolicy: OnFailure
  - {<<: *entry, mxReplicaType: SERVER}
  - {<<: *entry, mxReplicaType: WORKER}
""")
"""The example of mx-operator's README."""


parsed = partial(spec_of, FIORAVANZO_MXJOB)
reasons = partial(reasons_of, FIORAVANZO_MXJOB)


class TestManifests:
    def test_the_published_one_applies_unchanged(self):
        assert [(role.name, role.replicas) for role in parsed(PUBLISHED).roles] == [
            ("scheduler", 1),
            ("server", 1),
            ("worker", 1),
        ]

    def test_replicas_are_one_and_an_entry_without_type_is_the_scheduler(self):
        short = changed(
            changed(PUBLISHED, "spec.replicaSpecs[0].mxReplicaType", ABSENT), "spec.replicaSpecs[0].replicas", ABSENT
        )
        assert parsed(short).role("scheduler").replicas == 1

    def test_servers_and_workers_may_be_none(self):
        assert [role.name for role in parsed(fioravanzo_job(SCHEDULER=1)).roles] == ["scheduler"]
        assert parsed(fioravanzo_job(SCHEDULER=1, WORKER=0, SERVER=0)).role("worker").replicas == 0

    @pytest.mark.parametrize(
        "policy",
        [
            {},
            None,
            {"chief": {}},
            {"chief": None},
            {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}},
            {"chief": {"replicaName": ""}},
        ],
    )
    def test_the_scheduler_is_the_chief_however_that_is_said(self, policy: object):
        assert parsed(changed(PUBLISHED, "spec.terminationPolicy", policy)).handling.leader == "scheduler"

    @pytest.mark.parametrize("chief", [{"replicaName": "WORKER"}, {"replicaName": "SCHEDULER", "replicaIndex": 1}])
    def test_another_chief_is_refused(self, chief: Document):
        assert reasons(changed(PUBLISHED, "spec.terminationPolicy", {"chief": chief})) == ["UnsupportedChief"]

    @pytest.mark.parametrize("port", [0, 65_536, "9000", True])
    def test_what_is_no_port_is_refused(self, port: object):
        assert reasons(changed(PUBLISHED, "spec.replicaSpecs[0].mxPort", port)) == ["InvalidValue"]

    @pytest.mark.parametrize(
        ("theirs", "held"),
        [
            pytest.param(ABSENT, "Always", id="as Kubernetes has it when absent"),
            pytest.param("Always", "Always", id="Always"),
            pytest.param("OnFailure", "OnFailure", id="OnFailure, as in the published examples"),
            pytest.param("Never", "OnFailure", id="Never: the operator replaced pods that failed"),
            pytest.param({"a": 1}, "Always", id="nonsense"),
        ],
    )
    def test_servers_and_workers_restart_when_they_exit_as_their_template_says(self, theirs: object, held: str):
        job = fioravanzo_job()
        for index in range(3):
            job = changed(job, f"spec.replicaSpecs[{index}].template.spec.restartPolicy", theirs)
        spec = parsed(job)
        assert [spec.policy(role) for role in ("scheduler", "server", "worker")] == ["ExitCode", held, held]

    def test_pods_stay_after_the_end(self):
        assert parsed(PUBLISHED).clean_pod_policy == "None"


class TestNames:
    def name(self, document: Document) -> str:
        name: str = pod_for(custom(document), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["metadata"]["name"]
        return name

    def test_they_have_the_runtime_id(self):
        assert self.name(fioravanzo_job()) == "mnist-worker-1kkf-0"

    def test_without_one_it_is_made_of_the_uid(self):
        job = changed(fioravanzo_job(), "spec.RuntimeId", ABSENT)
        made = runtime_id(custom(job))
        assert len(made) == 4
        assert self.name(job) == f"mnist-worker-{made}-0"
        assert runtime_id(custom(changed(job, "metadata.resourceVersion", "99"))) == made
        assert runtime_id(custom(changed(job, "metadata.uid", "uid-2"))) != made

    def test_a_long_name_of_a_job_is_cut(self):
        assert self.name(changed(fioravanzo_job(), "metadata.name", "m" * 63)) == f"{'m' * 40}-worker-1kkf-0"
        assert reasons(changed(fioravanzo_job(), "metadata.name", "m" * 64)) == ["InvalidName"]

    @pytest.mark.parametrize("word", ["1KKF", "a.b", "é1kk", "-", "x" * 17, "x" * 70])
    def test_a_runtime_id_that_no_name_can_have_is_refused(self, word: str):
        assert reasons(changed(fioravanzo_job(), "spec.RuntimeId", word)) == ["InvalidRuntimeId"]

    def test_a_long_runtime_id_leaves_less_of_a_jobs_name_and_that_much_fits(self):
        job = changed(fioravanzo_job(), "spec.RuntimeId", "x" * 16)
        (problem,) = FIORAVANZO_MXJOB.parse(custom(changed(job, "metadata.name", "m" * 50)))
        assert problem.reason == "InvalidName"
        assert "at most 34 lower-case letters" in problem.message
        assert reasons(changed(job, "metadata.name", "m" * 35)) == ["InvalidName"]
        assert parsed(changed(job, "metadata.name", "m" * 34))

    def test_the_length_is_told_of_names_that_are_too_long_alone(self):
        (problem,) = FIORAVANZO_MXJOB.parse(custom(changed(fioravanzo_job(), "metadata.name", "9lives")))
        assert problem.reason == "InvalidName"
        assert "at most" not in problem.message


class TestPods:
    def test_labels_are_theirs_beside_ours_and_the_service_has_them_too(self):
        job, slot = custom(fioravanzo_job()), Slot(0, "server", 1)
        theirs = {
            "fioravanzo.org": "",
            "job_type": "SERVER",
            "runtime_id": "1kkf",
            "mx_job_name": "mnist",
            "task_index": "1",
        }
        for made in (pod_for(job, slot, FIORAVANZO_MXJOB), service_for(job, slot, FIORAVANZO_MXJOB)):
            assert theirs.items() <= made["metadata"]["labels"].items()

    def test_the_schedulers_name_is_the_specs_unless_the_template_has_its_own(self):
        job = changed(fioravanzo_job(), "spec.schedulerName", "volcano")
        assert pod_for(custom(job), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["spec"]["schedulerName"] == "volcano"
        own = changed(job, "spec.replicaSpecs[2].template.spec.schedulerName", "yunikorn")
        assert pod_for(custom(own), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["spec"]["schedulerName"] == "yunikorn"
        none = pod_for(custom(fioravanzo_job()), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["spec"]
        assert "schedulerName" not in none


SPEC = parsed(fioravanzo_job(SCHEDULER=1, SERVER=1, WORKER=2))
CREATED: list[AnyEvent] = [
    JobObserved(kind="MXJob", api_version="fioravanzo.org/v1alpha1", generation=1, version=1, spec=SPEC),
    JobCreated(reason="MXJobCreated"),
    SlotsAssigned(slots=all_slots(SPEC), reason="JobCreated"),
]
PODS = PodsObserved(
    pods=(replica("scheduler", 0), replica("server", 0), replica("worker", 0), replica("worker", 1)),
)
RUNNING = [*CREATED, PODS, JobRunning(reason="MXJobRunning")]


def shown(*events: AnyEvent) -> Document:
    return FIORAVANZO_MXJOB.status(a_history(events).job)


def words(*events: AnyEvent) -> tuple[str, str, str]:
    status = shown(*events)
    return status["phase"], status["state"], status["reason"]


def states(status: Document) -> dict[str, Document]:
    return {known["mx_replica_type"]: known["ReplicasStates"] for known in status["replicaStatuses"]}


class TestStatus:
    def test_it_is_creating_and_then_running(self):
        assert words(*CREATED) == ("Creating", "Running", "")
        assert words(*RUNNING) == ("Running", "Running", "")
        assert states(shown(*CREATED)) == {
            "SCHEDULER": {"Unknown": 1},
            "SERVER": {"Unknown": 1},
            "WORKER": {"Unknown": 2},
        }
        assert shown(*RUNNING)["replicaStatuses"][2] == {
            "mx_replica_type": "WORKER",
            "state": "Running",
            "ReplicasStates": {"Running": 2},
        }

    def test_the_schedulers_end_is_the_jobs(self):
        over = [*RUNNING, ended("worker", 0, 0, container="mxnet"), ended("scheduler", 0, 0, container="mxnet")]
        status = shown(*over, JobSucceeded(reason="MXJobSucceeded"))
        assert (status["phase"], status["state"]) == ("Done", "Succeeded")
        assert states(status) == {
            "SCHEDULER": {"Succeeded": 1},
            "SERVER": {"Running": 1},
            "WORKER": {"Running": 1, "Succeeded": 1},
        }

    def test_a_failure_says_why(self):
        over = [*RUNNING, ended("scheduler", 0, 3, container="mxnet")]
        failed = JobFailed(reason="MXJobFailed", message="mnist-scheduler-1kkf-0 exited with 3 (Error)")
        assert words(*over, failed) == ("Done", "Failed", f"{failed.reason}: {failed.message}")
        assert states(shown(*over, failed))["SCHEDULER"] == {"Failed": 1}

    def test_one_that_never_ran_is_done_too(self):
        failed = JobFailed(reason="Invalid", message="CreatePod was refused for good")
        assert words(*CREATED, failed) == ("Done", "Failed", "Invalid: CreatePod was refused for good")

    def test_an_invalid_spec_is_told_until_it_is_corrected(self):
        problem = Problem(reason="NoReplicas", field="spec.replicaSpecs", message="add 1 SCHEDULER")
        observed = msgspec.structs.replace(CREATED[0], spec=None, problems=(problem,))
        assert words(observed) == ("Failed", "Failed", "NoReplicas: spec.replicaSpecs: add 1 SCHEDULER")

    def test_what_a_pod_waits_for_is_told(self):
        waits = PodsObserved(pods=(replica("scheduler", 0, phase="Pending", reason="ImagePullBackOff"),))
        assert words(*CREATED, waits)[2] == "resnet-scheduler-0: ImagePullBackOff"

    def test_a_worker_that_comes_back_is_not_failed(self):
        assert states(shown(*RUNNING, ended("worker", 1, 137, container="mxnet")))["WORKER"] == {
            "Running": 1,
            "Unknown": 1,
        }

    @pytest.mark.parametrize(
        ("phase", "state", "ours"),
        [
            ("", "Unknown", ""),
            ("Failed", "Failed", ""),
            ("Creating", "Running", "Created"),
            ("Running", "Running", "Running"),
            ("Done", "Succeeded", "Succeeded"),
            ("Done", "Failed", "Failed"),
            ([], {}, ""),
        ],
    )
    def test_a_phase_can_be_told_from_it(self, phase: object, state: object, ours: str):
        assert FIORAVANZO_MXJOB.phase({"phase": phase, "state": state}) == ours

    def test_it_is_cleaned_up_when_it_is_deleted(self):
        assert words(*RUNNING, JobDeleting(version=9))[0] == "CleanUp"


class TestKubernetesEvents:
    def told(self, *events: AnyEvent) -> list[str]:
        return [step.reason for step in announcements(a_history(events).job) if isinstance(step, Announce)]

    def test_pods_that_were_made_are_told_of_once(self):
        assert "SuccessfulCreate" not in self.told(*CREATED)
        assert self.told(*RUNNING) == ["SuccessfulCreate", "MXJobRunning"]

    def test_pods_that_cannot_be_made_are_told_of(self):
        refused = EffectRefused(effect="CreatePod", reason="Forbidden", field="spec.containers")
        history = a_history([*CREATED, refused])
        (told,) = [step for step in decide(history.job) if isinstance(step, Announce)]
        assert (told.reason, told.warning) == ("FailedCreate", True)
        assert told.message == "CreatePod was refused: Forbidden (spec.containers)"


def test_the_image_of_the_spec_has_no_effect_and_the_job_says_so():
    spec = parsed(changed(fioravanzo_job(), "spec.mxImage", "mxnet:1"))
    assert [known.field for known in spec.ignored] == ["spec.mxImage"]
