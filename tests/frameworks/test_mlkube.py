"""MxJob of mxnet.mlkube.io: mxnet-operator's own manifests, local and distributed, names, labels, status."""

from functools import partial

import pytest
import yaml

from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobFailed, JobRunning
from shared.job.events.watcher import JobObserved, PodsObserved
from shared.job.naming import Slot
from shared.job.policies.retries import may_restart
from shared.job.policies.verdict import verdict
from shared.job.spec import JobSpec
from tests.frameworks.documents import ABSENT, Document, changed, custom, mlkube_job, reasons_of, spec_of
from tests.kit.histories import a_history
from tests.kit.pods import pod_for, service_for
from tests.kit.replicas import all_slots, ended, replica

PUBLISHED = yaml.safe_load("""
apiVersion: "mxnet.mlkube.io/v1beta1"
kind: "MxJob"
metadata: {name: "example-dist-job"}
spec:
  jobMode: "dist"
  replicaSpecs:
  - replicas: 1
    mxReplicaType: SCHEDULER
    PsRootPort: 9091
    template: &template
      spec:
        containers:
        - image: library/mxnet-gpu-dist:0.12.0
          name: mxnet
          command: ["python"]
          args: ["train_cifar10.py"]
          workingDir: "/mxnet/example/image-classification"
        restartPolicy: OnFailure
  - replicas: 2
    mxReplicaType: SERVER
    template: *template
  - replicas: 3
    mxReplicaType: WORKER
    template:
      spec:
        containers:
        - image: library/mxnet-gpu-dist:0.12.0
          name: mxnet
          resources:
            limits:
              alpha.kubernetes.io/nvidia-gpu: 1
        restartPolicy: OnFailure
""")
"""examples/mx_job_dist.yaml of mxnet-operator."""


parsed = partial(spec_of, MLKUBE_MXJOB)
reasons = partial(reasons_of, MLKUBE_MXJOB)


class TestManifests:
    def test_the_published_distributed_one_applies_unchanged(self):
        assert {role.name: role.replicas for role in parsed(PUBLISHED).roles} == {
            "scheduler": 1,
            "server": 2,
            "worker": 3,
        }
        (container,) = pod_for(custom(PUBLISHED), Slot(0, "worker", 2), MLKUBE_MXJOB)["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}

    def test_a_local_job_is_one_worker_whose_end_is_the_jobs(self):
        local = changed(mlkube_job(mode="local", WORKER=1), "spec.replicaSpecs[0].mxReplicaType", ABSENT)
        spec = parsed(local)
        assert [(role.name, role.replicas, role.restart_policy) for role in spec.roles] == [("worker", 1, "ExitCode")]
        assert spec.handling.leader == "worker"

    def test_a_local_job_gets_no_variables_so_that_all_are_the_users(self):
        theirs = [{"name": "DMLC_ROLE", "value": "worker"}]
        job = changed(
            mlkube_job(mode="local", WORKER=1), "spec.replicaSpecs[0].template.spec.containers[0].env", theirs
        )
        assert parsed(job)
        (container,) = pod_for(custom(job), Slot(0, "worker", 0), MLKUBE_MXJOB)["spec"]["containers"]
        assert container["env"] == theirs

    @pytest.mark.parametrize(
        ("job", "reason"),
        [
            pytest.param(mlkube_job(mode="local", WORKER=2), "NotLocal", id="two local workers"),
            pytest.param(mlkube_job(mode="local"), "NotLocal", id="a scheduler in a local job"),
            pytest.param(mlkube_job(mode="local", WORKER=0), "NoReplicas", id="no local worker"),
            pytest.param(mlkube_job(SCHEDULER=1, WORKER=1), "NoReplicas", id="no server"),
            pytest.param(mlkube_job(SCHEDULER=1, SERVER=1), "NoReplicas", id="no worker"),
            pytest.param(mlkube_job(SERVER=1, WORKER=1), "NoReplicas", id="no scheduler"),
            pytest.param(mlkube_job(SCHEDULER=1, SERVER=0, WORKER=1), "NoReplicas", id="servers, but none"),
            pytest.param(mlkube_job(mode="both"), "UnknownJobMode", id="an unknown mode"),
            pytest.param(changed(mlkube_job(), "spec.jobMode", ABSENT), "NoJobMode", id="no mode"),
            pytest.param(changed(mlkube_job(), "metadata.name", "m" * 50), "InvalidName", id="a name that is not cut"),
            pytest.param(mlkube_job("9lives"), "InvalidName", id="a name that no host can have"),
        ],
    )
    def test_what_cannot_run_is_refused(self, job: Document, reason: str):
        assert reason in reasons(job)


def test_names_and_labels_are_theirs():
    job, slot = custom(mlkube_job()), Slot(0, "worker", 2)
    pod = pod_for(job, slot, MLKUBE_MXJOB)
    assert pod["metadata"]["name"] == "mnist-worker-1kkf-2"
    theirs = {"mxnet.mlkube.io": "", "job_type": "WORKER", "runtime_id": "1kkf", "task_index": "2"}
    assert theirs.items() <= pod["metadata"]["labels"].items()
    assert theirs.items() <= service_for(job, slot, MLKUBE_MXJOB)["metadata"]["labels"].items()


def test_its_columns_include_the_kind_and_with_wide_the_counts():
    definition = MLKUBE_MXJOB.definition
    assert definition is not None
    columns = {column["name"]: column for column in definition.columns}
    assert columns["Kind"]["jsonPath"] == ".kind"
    assert columns["Desired"]["priority"] == columns["Successful"]["priority"] == 1


def events(spec: JobSpec) -> list[AnyEvent]:
    pods = [replica(role.name, index) for role in spec.roles for index in range(role.replicas)]
    return [
        JobObserved(kind="MxJob", api_version="mxnet.mlkube.io/v1beta1", generation=1, version=1, spec=spec),
        JobCreated(reason="MxJobCreated"),
        SlotsAssigned(slots=all_slots(spec), reason="JobCreated"),
        PodsObserved(pods=tuple(pods)),
        JobRunning(reason="MxJobRunning"),
    ]


DIST = parsed(mlkube_job(SCHEDULER=1, SERVER=1, WORKER=2))
LOCAL = parsed(mlkube_job(mode="local", WORKER=1))


class TestEnds:
    @pytest.mark.parametrize(("spec", "judge"), [(DIST, "scheduler"), (LOCAL, "worker")], ids=["dist", "local"])
    @pytest.mark.parametrize(
        ("code", "reason", "end"),
        [
            pytest.param(0, "", "success", id="0 is success"),
            pytest.param(1, "", "failure", id="1 is permanent"),
            pytest.param(127, "", "failure", id="127 is permanent"),
            pytest.param(128, "", "again", id="128 is retried"),
            pytest.param(255, "", "again", id="255 is retried"),
            pytest.param(137, "OOMKilled", "failure", id="out of memory is permanent"),
        ],
    )
    def test_of_the_one_that_counts(self, spec: JobSpec, judge: str, code: int, reason: str, end: str):
        job = a_history([*events(spec), ended(judge, 0, code, reason=reason, container="mxnet")]).job
        found = verdict(job)
        assert found is not None
        assert ("success" if found.success else "again" if may_restart(job, found) else "failure") == end

    @pytest.mark.parametrize("role", ["server", "worker"])
    @pytest.mark.parametrize("code", [0, 1, 137])
    def test_of_servers_and_workers_end_no_job(self, role: str, code: int):
        assert verdict(a_history([*events(DIST), ended(role, 0, code, container="mxnet")]).job) is None


class TestStatus:
    def test_it_has_their_spellings_conditions_and_counts(self):
        job = a_history([*events(DIST), ended("worker", 1, 0, container="mxnet")]).job
        status = MLKUBE_MXJOB.status(job)
        assert (status["phase"], status["state"], status["controlPaused"]) == ("Running", "Running", False)
        assert status["replicaStatuses"][2] == {
            "Mx_replica_type": "WORKER",
            "state": "Running",
            "ReplicasStates": {"Running": 1, "Succeeded": 1},
        }
        assert (status["desired"], status["successful"]) == (4, 1)
        running = next(known for known in status["conditions"] if known["type"] == "Running")
        assert running["reason"] == "MxJobRunning"
        assert running["transitionTime"].endswith("Z")

    def test_what_still_ran_when_it_failed_is_deleted(self):
        assert DIST.clean_pod_policy == "Running"
        over = [*events(DIST), ended("scheduler", 0, 1, container="mxnet"), JobFailed(reason="MxJobFailed")]
        rest = tuple(known for known in all_slots(DIST) if known.role != "scheduler")
        status = MLKUBE_MXJOB.status(a_history([*over, SlotsReleased(slots=rest, reason="CleanPodPolicyRunning")]).job)
        assert [(known["Mx_replica_type"], known["ReplicasStates"]) for known in status["replicaStatuses"]] == [
            ("SCHEDULER", {"Failed": 1}),
            ("SERVER", {"Unknown": 1}),
            ("WORKER", {"Unknown": 2}),
        ]

    def test_at_most_ten_conditions_are_kept(self):
        assert len(MLKUBE_MXJOB.status(a_history(events(DIST)).job)["conditions"]) <= 10
