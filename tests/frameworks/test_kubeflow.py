"""What the training operator's kinds share: run policy, labels, Services, status; told with TFJobs."""

from collections.abc import Mapping
from functools import partial

import msgspec
import pytest

from shared.frameworks.kubeflow import KubeflowJob
from shared.frameworks.replicated import ContainerProperties, Replica, ReplicaType
from shared.frameworks.tfjob import TFJOB
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import JobRestarted, SlotsAssigned, SlotsReleased
from shared.job.events.status import (
    JobCreated,
    JobFailed,
    JobRestarting,
    JobRunning,
    JobSucceeded,
    JobSuspended,
    JobSuspending,
)
from shared.job.events.watcher import JobObserved, PodsGone, PodsObserved, TimePassed
from shared.job.naming import RESTART_REQUESTED, Slot, Uid
from shared.job.spec import UNLIMITED, JobSpec, Problem
from shared.job.timing import next_due
from shared.job.views import Exit, Slots
from tests.frameworks.documents import Document, changed, custom, kubeflow_job, reasons_of, spec_of, tf_job
from tests.kit.histories import a_history
from tests.kit.pods import context_of, pod_for, service_for
from tests.kit.replicas import all_slots, ended, replica
from tests.kit.stories import given

WORKER = "spec.tfReplicaSpecs.Worker"


parsed = partial(spec_of, TFJOB)
reasons = partial(reasons_of, TFJOB)


class TestRunPolicy:
    def test_all_limits_are_off_when_it_says_nothing(self):
        spec = parsed(tf_job())
        assert spec.clean_pod_policy == "None"
        assert spec.backoff_limit == UNLIMITED
        assert (spec.active_deadline_seconds, spec.ttl_seconds_after_finished, spec.suspend) == (None, None, False)

    @pytest.mark.parametrize("at", ["spec.runPolicy", "spec"])
    def test_its_limits_stand_in_run_policy_or_as_once_in_the_spec(self, at: str):
        job = tf_job()
        for name, value in {
            "cleanPodPolicy": "All",
            "ttlSecondsAfterFinished": 60,
            "activeDeadlineSeconds": 3600,
            "backoffLimit": 3,
        }.items():
            job = changed(job, f"{at}.{name}", value)
        spec = parsed(job)
        assert (spec.clean_pod_policy, spec.backoff_limit) == ("All", 3)
        assert (spec.active_deadline_seconds, spec.ttl_seconds_after_finished) == (3600, 60)

    def test_of_a_scheduling_policy_the_gang_and_the_priority_count_and_the_rest_is_told(self):
        policy = {"minAvailable": 2, "queue": "default", "priorityClass": "high", "scheduleTimeoutSeconds": 60}
        job = changed(tf_job(), "spec.runPolicy.schedulingPolicy", policy)
        spec = parsed(job)
        told = [known.field.rpartition(".")[2] for known in spec.ignored]
        assert told == ["queue", "scheduleTimeoutSeconds"]
        assert msgspec.structs.replace(spec, ignored=(), gang=None) == parsed(tf_job())
        assert spec.gang == 2
        assert pod_for(custom(job), Slot(0, "worker", 1), TFJOB)["spec"]["priorityClassName"] == "high"
        own = changed(job, f"{WORKER}.template.spec.priorityClassName", "low")
        assert pod_for(custom(own), Slot(0, "worker", 1), TFJOB)["spec"]["priorityClassName"] == "low"

    def test_a_minimum_that_is_no_number_is_refused(self):
        job = changed(tf_job(), "spec.runPolicy.schedulingPolicy", {"minAvailable": "half"})
        assert reasons(job) == ["InvalidValue"]

    def test_a_field_without_effect_is_told_in_the_status_as_long_as_the_job_is_there(self):
        spec = parsed(changed(tf_job(), "spec.runPolicy.schedulingPolicy", {"queue": "default"}))
        observed = JobObserved(kind="TFJob", api_version="kubeflow.org/v1", generation=1, version=1, spec=spec)
        created, running = JobCreated(reason="TFJobCreated"), JobRunning(reason="TFJobRunning")
        job = a_history([observed, created, SlotsAssigned(slots=all_slots(spec), reason="JobCreated"), running]).job
        (told,) = (known for known in TFJOB.status(job)["conditions"] if known["type"] == "Created")
        assert "; spec.runPolicy.schedulingPolicy.queue has no effect: name a queue of Kueue" in told["message"]

    @pytest.mark.parametrize(
        ("path", "value", "reason"),
        [
            ("cleanPodPolicy", "Some", "UnknownCleanPodPolicy"),
            ("backoffLimit", -1, "InvalidValue"),
            ("managedBy", "kueue.x-k8s.io/multikueue", "ManagedByAnother"),
        ],
    )
    def test_what_it_cannot_mean_is_refused(self, path: str, value: object, reason: str):
        assert reasons(changed(tf_job(), f"spec.runPolicy.{path}", value)) == [reason]

    def test_an_empty_word_is_an_absent_one(self):
        job = changed(changed(tf_job(), "spec.runPolicy.cleanPodPolicy", ""), f"{WORKER}.restartPolicy", "")
        assert parsed(job) == parsed(tf_job())


class TestReplicas:
    def test_types_are_known_in_upper_and_lower_case(self):
        assert parsed(tf_job(chief=1, WORKER=2)).roles == parsed(tf_job(Chief=1, Worker=2)).roles
        pod_for(custom(tf_job(chief=1, WORKER=2)), Slot(0, "worker", 1), TFJOB)

    def test_a_type_that_is_written_twice_is_refused(self):
        assert reasons(tf_job(worker=1, Worker=2)) == ["DuplicateReplicaType"]

    def test_an_unknown_type_is_refused(self):
        assert reasons(tf_job(Worker=1, Scheduler=1)) == ["UnknownReplicaType"]

    def test_what_an_unknown_type_is_called_is_not_repeated(self):
        job = changed(tf_job(), "spec.tfReplicaSpecs", {"t0ken": False})
        assert "t0ken" not in str(TFJOB.parse(custom(job)))

    def test_no_type_at_all_is_refused(self):
        assert "NoReplicas" in reasons(changed(tf_job(), "spec.tfReplicaSpecs", {}))
        assert "NoReplicas" in reasons(changed(tf_job(), "spec.tfReplicaSpecs", None))


class TestNames:
    def test_labels_say_what_upstream_says(self):
        pod = pod_for(custom(tf_job(Worker=2)), Slot(0, "worker", 1), TFJOB)
        ours = {name: value for name, value in pod["metadata"]["labels"].items() if "kubeflow" in name}
        assert ours == {
            "training.kubeflow.org/operator-name": "tfjob-controller",
            "training.kubeflow.org/job-name": "mnist",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "1",
        }

    def test_the_pod_that_leads_is_labelled_master(self):
        def role(job: Document, slot: Slot) -> str | None:
            pod = pod_for(custom(job), slot, TFJOB)
            found: str | None = pod["metadata"]["labels"].get("training.kubeflow.org/job-role")
            return found

        assert role(tf_job(Worker=2), Slot(0, "worker", 0)) == "master"
        assert role(tf_job(Chief=1, Worker=2), Slot(0, "worker", 0)) is None
        assert role(tf_job(Chief=1, Worker=2), Slot(0, "chief", 0)) == "master"

    def test_every_pod_has_a_headless_service_of_its_name(self):
        service = service_for(custom(tf_job(PS=1, Worker=2)), Slot(0, "ps", 0), TFJOB)
        assert service["metadata"]["name"] == "mnist-ps-0"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["ports"] == [{"name": "tfjob-port", "port": 2222}]

    def test_it_has_all_ports_of_the_container_that_have_a_name(self):
        ports = [{"name": "board", "containerPort": 6006}, {"containerPort": 80}]
        job = changed(tf_job(), f"{WORKER}.template.spec.containers[0].ports", ports)
        service = service_for(custom(job), Slot(0, "worker", 0), TFJOB)
        assert service["spec"]["ports"] == [{"name": "tfjob-port", "port": 2222}, {"name": "board", "port": 6006}]

    def test_it_has_the_port_of_the_kind_when_an_edit_renamed_the_training_container(self):
        context = context_of(custom(tf_job()), Slot(0, "worker", 0), TFJOB, sizes={})
        job = changed(tf_job(), f"{WORKER}.template.spec.containers[0].name", "renamed")
        assert TFJOB.ports(custom(job), parsed(tf_job()), context) == [{"name": "tfjob-port", "port": 2222}]


class HerdJob(KubeflowJob):
    """A kind of a user's package, in a group of its own, that names no container."""

    job_type, group = "HerdJob", "farms.test.muster.dev"
    replica_types = (ReplicaType("Worker"),)

    def environment(self, replica: Replica) -> Mapping[str, str]:
        return {"HERD": replica.host("worker")}


class ListeningHerdJob(HerdJob):
    container_properties = ContainerProperties(port_name="herd", port=7000)


class TestAKindOfAnotherGroup:
    def test_its_pods_have_the_labels_of_the_training_operator(self):
        job = kubeflow_job("HerdJob", "replicaSpecs", "cow", Worker=2)
        labels = pod_for(custom(job), Slot(0, "worker", 0), HerdJob())["metadata"]["labels"]
        assert {name.partition("/")[2] for name in labels if name.startswith("training.kubeflow.org/")} == {
            "operator-name",
            "job-name",
            "replica-type",
            "replica-index",
            "job-role",
        }

    def test_a_job_that_another_controller_manages_is_left_alone(self):
        job = kubeflow_job("HerdJob", "replicaSpecs", "cow", Worker=2)
        assert HerdJob().ours(custom(job))
        assert not HerdJob().ours(custom(changed(job, "spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue")))


class TestTheFirstContainerTrainsInAKindThatNamesNone:
    def job(self, *, first: list[Document], second: list[Document]) -> Document:
        job = kubeflow_job("HerdJob", "replicaSpecs", "cow", Worker=1)
        containers = [
            {"name": "cow", "image": "cow", "ports": first},
            {"name": "dog", "image": "dog", "ports": second},
        ]
        return changed(job, "spec.replicaSpecs.Worker.template.spec.containers", containers)

    def ports(self, kind: HerdJob, job: Document) -> object:
        return service_for(custom(job), Slot(0, "worker", 0), kind)["spec"]["ports"]

    def test_the_service_of_a_pod_has_its_named_ports(self):
        job = self.job(
            first=[{"name": "board", "containerPort": 6006}], second=[{"name": "bark", "containerPort": 6007}]
        )
        assert self.ports(HerdJob(), job) == [{"name": "board", "port": 6006}]

    def test_the_port_of_another_container_is_not_that_of_the_kind(self):
        job = self.job(first=[], second=[{"name": "herd", "containerPort": 7001}])
        assert self.ports(ListeningHerdJob(), job) == [{"name": "herd", "port": 7000}]
        cow, dog = pod_for(custom(job), Slot(0, "worker", 0), ListeningHerdJob())["spec"]["containers"]
        assert (cow["ports"], dog["ports"][0]["containerPort"]) == ([{"name": "herd", "containerPort": 7000}], 7001)

    def test_its_own_port_of_that_name_is_that_of_the_kind(self):
        job = self.job(first=[{"name": "herd", "containerPort": 7002}], second=[])
        assert self.ports(ListeningHerdJob(), job) == [{"name": "herd", "port": 7002}]


ANSWER = TFJOB.parse(custom(tf_job(PS=1, Worker=2)))
assert isinstance(ANSWER, JobSpec)
SPEC = ANSWER
CREATED = JobCreated(reason="TFJobCreated")
RUNNING = JobRunning(reason="TFJobRunning")
COUNTS = ("active", "succeeded", "failed")
PODS = PodsObserved(pods=(replica("ps", 0), replica("worker", 0), replica("worker", 1)))


def observed(spec: JobSpec | None = SPEC, *problems: Problem) -> JobObserved:
    return JobObserved(
        kind="TFJob", api_version="kubeflow.org/v1", generation=1, version=1, spec=spec, problems=problems
    )


def begun(spec: JobSpec = SPEC) -> list[AnyEvent]:
    return [observed(spec), CREATED, SlotsAssigned(slots=all_slots(spec), reason="JobCreated")]


def running(spec: JobSpec = SPEC) -> list[AnyEvent]:
    return [*begun(spec), PODS, RUNNING]


def status(*events: AnyEvent) -> Document:
    return TFJOB.status(a_history(events).job)


def shown(document: Document) -> list[tuple[str, str, str]]:
    return [(known["type"], known["status"], known["reason"]) for known in document["conditions"]]


class TestStatus:
    def test_a_job_that_is_taken_on(self):
        document = status(observed(), CREATED)
        assert shown(document) == [("Created", "True", "TFJobCreated")]
        assert document["startTime"] == "2030-01-01T00:00:02Z"
        assert document["completionTime"] is None

    def test_a_job_that_runs(self):
        document = status(*running())
        assert shown(document) == [("Created", "True", "TFJobCreated"), ("Running", "True", "TFJobRunning")]
        selector = "training.kubeflow.org/operator-name=tfjob-controller,training.kubeflow.org/job-name=resnet"
        assert document["replicaStatuses"] == {
            "PS": {
                "active": 1,
                "succeeded": 0,
                "failed": 0,
                "selector": f"{selector},training.kubeflow.org/replica-type=ps",
            },
            "Worker": {
                "active": 2,
                "succeeded": 0,
                "failed": 0,
                "selector": f"{selector},training.kubeflow.org/replica-type=worker",
            },
        }

    def test_a_job_that_ended_well(self):
        document = status(*running(), ended("worker", 0, 0), JobSucceeded(reason="TFJobSucceeded"))
        assert shown(document) == [
            ("Created", "True", "TFJobCreated"),
            ("Running", "False", "TFJobSucceeded"),
            ("Succeeded", "True", "TFJobSucceeded"),
        ]
        assert document["completionTime"] is not None

    def test_pods_that_run_when_the_job_succeeds_count_as_succeeded_whatever_becomes_of_them(self):
        """Pipelines wait for `status.replicaStatuses.Worker.succeeded == 2`, which upstream writes then."""
        over = [*running(), ended("worker", 0, 0), JobSucceeded(reason="TFJobSucceeded")]
        cleaned = [*over, SlotsReleased(slots=all_slots(SPEC), reason="CleanPodPolicyAll")]
        gone = PodsGone(uids=tuple(pod.uid for pod in PODS.pods))
        for story in (over, [*over, ended("worker", 1, 0)], [*over, ended("worker", 1, 1)], [*cleaned, gone]):
            found = status(*story)["replicaStatuses"]
            assert {name: [known[word] for word in COUNTS] for name, known in found.items()} == {
                "PS": [0, 1, 0],
                "Worker": [0, 2, 0],
            }

    def test_a_pod_that_fails_is_counted_as_failed_unless_it_begins_again(self):
        """Pipelines give a job up at `status.replicaStatuses.Worker.failed > 0`."""
        lost = ended("worker", 1, 1, container="tensorflow")
        for policy, failed in (("OnFailure", 0), ("Never", 1)):
            spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", policy))
            assert status(*running(spec), lost)["replicaStatuses"]["Worker"]["failed"] == failed
        end = JobFailed(reason="BackoffLimitExceeded")
        assert status(*running(spec), lost, end)["replicaStatuses"]["Worker"]["failed"] == 1

    def test_a_pod_that_ends_again_and_again_counts_once_and_not_while_it_begins_again(self):
        place = Slots(0, "worker", ((1, 1),))
        filled = SlotsAssigned(slots=(place,), replaces=(place,), reason="PodsReplaced")
        again = [PodsGone(uids=(Uid("worker-1-0"),)), filled, PodsObserved(pods=(replica("worker", 1, life=1),))]
        succeeded, failed = JobSucceeded(reason="TFJobSucceeded"), JobFailed(reason="BackoffLimitExceeded")
        for code, policy, end, counts in ((0, "Always", succeeded, [0, 2, 0]), (1, "OnFailure", failed, [1, 0, 1])):
            spec = parsed(changed(tf_job(Chief=1, Worker=2), f"{WORKER}.restartPolicy", policy))
            begins = [*begun(spec), PodsObserved(pods=(replica("chief", 0), *PODS.pods[1:])), RUNNING]
            lost = [*begins, ended("worker", 1, code, container="tensorflow")]
            lost_again = [*lost, *again, ended("worker", 1, code, life=1, container="tensorflow")]
            back = [*lost, *again]
            over = [*(back if code == 0 else lost_again), end]
            for story, numbers in ((lost, [1, 0, 0]), (back, [2, 0, 0]), (lost_again, [1, 0, 0]), (over, counts)):
                found = status(*story)["replicaStatuses"]["Worker"]
                assert [found[word] for word in COUNTS] == numbers

    def test_a_job_that_failed_says_in_the_kinds_word_that_and_in_the_message_why(self):
        end = JobFailed(reason="DeadlineExceeded", message="it was active for 5 s (activeDeadlineSeconds)")
        last = status(*running(), end)["conditions"][-1]
        assert (last["type"], last["reason"]) == ("Failed", "TFJobFailed")
        assert last["message"] == "DeadlineExceeded: it was active for 5 s (activeDeadlineSeconds)"

    def test_a_pod_that_begins_again_is_restarting_until_it_runs(self):
        spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "OnFailure"))
        lost = [*running(spec), ended("worker", 1, 1, container="tensorflow")]
        document = status(*lost)
        assert shown(document)[-1] == ("Restarting", "True", "TFJobRestarting")
        assert document["conditions"][-1]["message"] == "mnist-worker-1 exited with 1 (Error); it is replaced"
        again = all_slots(spec)[1:]
        place = type(again[0])(0, "worker", ((1, 1),))
        filled = SlotsAssigned(slots=(place,), replaces=(place,), reason="PodsReplaced")
        refilled = [*lost, PodsGone(uids=(Uid("worker-1-0"),)), filled]
        assert shown(status(*refilled))[-1] == ("Restarting", "True", "TFJobRestarting")
        kinds = shown(status(*refilled, PodsObserved(pods=(replica("worker", 1, life=1),))))
        assert kinds[-1] == ("Running", "True", "TFJobRunning")
        assert ("Restarting", "False", "TFJobRunning") in kinds
        back = [PodsObserved(pods=(replica("worker", 1, life=1),)), ended("worker", 1, 0, life=1)]
        over = shown(status(*refilled, *back, ended("worker", 0, 0), JobSucceeded(reason="TFJobSucceeded")))
        assert ("Restarting", "False", "TFJobRunning") in over
        assert over[-1] == ("Succeeded", "True", "TFJobSucceeded")

    def test_a_job_whose_pod_was_rejected_before_it_ran_shows_no_running(self):
        spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "OnFailure"))
        place = Slots(0, "worker", ((1, 1),))
        story = [
            *running(spec)[:3],
            PodsObserved(pods=(replica("worker", 1, phase="Failed", reason="OutOfcpu", message="Pod was rejected"),)),
            PodsGone(uids=(Uid("worker-1-0"),)),
            SlotsAssigned(slots=(place,), replaces=(place,), reason="PodsReplaced"),
        ]
        assert [kind for kind, _, _ in shown(status(*story))] == ["Created"]

    def test_a_job_whose_next_attempt_replaces_a_pod_before_it_runs_stays_restarting(self):
        spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "OnFailure"))
        place = Slots(1, "worker", ((1, 1),))
        crashed = msgspec.structs.replace(ended("worker", 1, 1, container="tensorflow").pods[0], attempt=1)
        again = [
            JobRestarting(reason=RESTART_REQUESTED, message="a person asked for it"),
            SlotsReleased(slots=all_slots(spec), reason="JobRestarting"),
            JobRestarted(attempt=1, counted=False, reason=RESTART_REQUESTED),
            SlotsAssigned(slots=(Slots(1, "ps", ((0, 0),)), Slots(1, "worker", ((0, 1),))), reason="JobRestarted"),
            PodsObserved(pods=(msgspec.structs.replace(crashed, uid=Uid("again")),)),
            PodsGone(uids=(Uid("again"),)),
            SlotsAssigned(slots=(place,), replaces=(place,), reason="PodsReplaced"),
        ]
        found = [known for known in status(*running(spec), *again)["conditions"] if known["type"] == "Restarting"]
        assert [known["status"] for known in found] == ["True"]

    def test_a_pod_that_begins_again_is_told_with_its_last_words(self):
        spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "OnFailure"))
        (crashed,) = ended("worker", 1, 1, container="tensorflow").pods
        exits = (Exit("tensorflow", 1, "Error", "line 3\nValueError: no data"),)
        crashed = msgspec.structs.replace(crashed, exits=exits)
        message = status(*running(spec), PodsObserved(pods=(crashed,)))["conditions"][-1]["message"]
        assert message == "mnist-worker-1 exited with 1 (Error); it is replaced: line 3 | ValueError: no data"

    def test_a_pod_that_waits_for_the_name_of_the_lost_one_is_told_of_that(self):
        spec = parsed(changed(tf_job(PS=1, Worker=2), f"{WORKER}.restartPolicy", "OnFailure"))
        (crashed,) = ended("worker", 1, 1, container="tensorflow").pods
        held = msgspec.structs.replace(crashed, deleting=True, finalizers=("example.com/keep",))
        lost = [*running(spec), PodsObserved(pods=(held,))]
        (timer,) = (timer for timer in next_due(given(*lost).job) if timer.name == "Waiting")
        late = TimePassed(anchor=timer.anchor, timer=timer.name)
        assert "its finalizers keep it (example.com/keep)" in status(*lost, late)["conditions"][-1]["message"]

    def test_a_suspended_job_and_one_that_goes_on(self):
        suspending = [*running(), JobSuspending(reason="TFJobSuspending")]
        assert shown(status(*suspending)) == [
            ("Created", "True", "TFJobCreated"),
            ("Running", "False", "TFJobSuspending"),
            ("Suspending", "True", "TFJobSuspending"),
        ]
        suspended = [*suspending, JobSuspended(reason="TFJobSuspended")]
        assert status(*suspended)["conditions"][2]["message"] == "TFJob team-a/resnet is suspended"
        document = status(*suspended)
        assert shown(document) == [
            ("Created", "True", "TFJobCreated"),
            ("Running", "False", "TFJobSuspended"),
            ("Suspended", "True", "TFJobSuspended"),
        ]
        assert document["startTime"] is None
        document = status(*suspended, JobCreated(reason="TFJobResumed"))
        assert ("Suspended", "False", "TFJobResumed") in shown(document)
        assert shown(document)[-1] == ("Created", "True", "TFJobCreated")
        assert document["startTime"] == "2030-01-01T00:00:08Z"

    def test_while_it_is_suspended_its_pods_are_active_until_they_are_gone(self):
        """Kueue gives the quota of a job back once nothing is active."""
        going = tuple(msgspec.structs.replace(pod, version=9, deleting=True) for pod in PODS.pods)
        suspending = [
            *running(),
            JobSuspending(reason="TFJobSuspending"),
            SlotsReleased(slots=all_slots(SPEC), reason="JobSuspending"),
            PodsObserved(pods=going),
        ]
        active = [known["active"] for known in status(*suspending)["replicaStatuses"].values()]
        assert active == [1, 2]
        left = [*suspending, ended("worker", 0, 137), PodsGone(uids=(going[0].uid,))]
        assert [known["active"] for known in status(*left)["replicaStatuses"].values()] == [0, 1]

    def test_an_invalid_job_is_shown_as_upstream_shows_it(self):
        problem = Problem(reason="NoReplicas", field="spec.tfReplicaSpecs", message="say which replicas the job has")
        document = status(observed(None, problem))
        assert shown(document) == [("Failed", "True", "TFJobFailedValidation")]
        assert document["conditions"][0]["message"].startswith("NoReplicas: spec.tfReplicaSpecs")
        assert document["replicaStatuses"] == {}

    def test_what_keeps_a_job_from_starting_is_told_where_people_look(self):
        stuck = PodsObserved(pods=(replica("worker", 0, phase="Pending", reason="ImagePullBackOff"),))
        (created,) = status(*begun(), stuck)["conditions"]
        assert created["message"] == "resnet-worker-0: ImagePullBackOff"

    def test_a_name_of_another_owner_is_told_where_people_look(self):
        refused = EffectRefused(
            effect="CreatePod", reason="NameConflict", field="mnist-worker-0", permanent=False, slots=all_slots(SPEC)
        )
        (created,) = status(*begun(), refused)["conditions"]
        assert created["type"] == "Created"
        assert "NameConflict: CreatePod was refused (mnist-worker-0)" in created["message"]
