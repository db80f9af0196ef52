"""MXJob of kubeflow.org: upstream's own manifests, whose end is the job's, labels, what is refused."""

from functools import partial

import pytest
import yaml

from shared.frameworks.mxjob import MXJOB
from shared.job.naming import Slot
from tests.frameworks.documents import Document, changed, custom, kubeflow_mx_job, reasons_of, spec_of
from tests.kit.pods import pod_for, service_for

DIST = yaml.safe_load("""
apiVersion: "kubeflow.org/v1"
kind: "MXJob"
metadata: {name: "mxnet-job"}
spec:
  jobMode: MXTrain
  runPolicy: {cleanPodPolicy: Running}
  mxReplicaSpecs:
    Scheduler: &role
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - {name: mxnet, image: "mxjob/mxnet:gpu", ports: [{containerPort: 9991, name: mxjob-port}]}
    Server: *role
    Worker: *role
""")
TUNE = yaml.safe_load("""
apiVersion: "kubeflow.org/v1"
kind: "MXJob"
metadata: {name: "auto-tuning-job"}
spec:
  jobMode: MXTune
  mxReplicaSpecs:
    TunerTracker: &role
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - {name: mxnet, image: "mxjob/auto-tuning:gpu", command: ["python3"], args: ["/home/scripts/start-job.py"]}
    TunerServer: {label: 2080ti, <<: *role}
    Tuner: *role
""")
"""Examples of the training operator, in short."""


parsed = partial(spec_of, MXJOB)
reasons = partial(reasons_of, MXJOB)


@pytest.mark.parametrize(
    ("job", "judge"),
    [
        pytest.param(DIST, "scheduler", id="the scheduler's"),
        pytest.param(TUNE, "tuner", id="the tuner's"),
        pytest.param(kubeflow_mx_job(Worker=2), "worker", id="all workers' without a scheduler"),
        pytest.param(kubeflow_mx_job(Worker=1, Server=0), "worker", id="all workers' where the servers are none"),
        pytest.param(kubeflow_mx_job(Scheduler=0, Worker=1), "worker", id="all workers' where the scheduler is none"),
        pytest.param(changed(DIST, "spec.jobMode", ""), "scheduler", id="of no mode, as Go writes it"),
    ],
)
def test_whose_end_is_the_jobs(job: Document, judge: str):
    handling = parsed(job).handling
    assert (handling.leader, handling.succeeds, handling.restarts) == (judge, "All", "Pod")


def test_workers_whose_scheduler_is_none_are_told_of_none():
    pod = pod_for(custom(kubeflow_mx_job(Scheduler=0, Worker=1)), Slot(0, "worker", 0), MXJOB)
    told = {known["name"]: known["value"] for known in pod["spec"]["containers"][0]["env"]}
    assert (told["DMLC_PS_ROOT_URI"], told["DMLC_PS_ROOT_PORT"]) == ("", "0")


def test_the_run_policy_is_kept_and_pods_stay_without_one():
    assert parsed(DIST).clean_pod_policy == "Running"
    assert parsed(TUNE).clean_pod_policy == "None"


def test_types_are_taken_in_any_case():
    job = changed(DIST, "spec.mxReplicaSpecs", {name.upper(): r for name, r in DIST["spec"]["mxReplicaSpecs"].items()})
    assert parsed(job) == parsed(DIST)


def test_labels_and_names_are_upstreams():
    job = custom(DIST)
    server = pod_for(job, Slot(0, "server", 0), MXJOB)["metadata"]
    assert server["name"] == "mxnet-job-server-0"
    assert {
        "training.kubeflow.org/job-name": "mxnet-job",
        "training.kubeflow.org/operator-name": "mxjob-controller",
        "training.kubeflow.org/replica-type": "server",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }.items() <= server["labels"].items()
    assert "training.kubeflow.org/job-role" not in pod_for(job, Slot(0, "scheduler", 0), MXJOB)["metadata"]["labels"]
    assert service_for(job, Slot(0, "worker", 0), MXJOB)["spec"]["ports"] == [{"name": "mxjob-port", "port": 9991}]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param(kubeflow_mx_job(Server=1, Worker=1), "NoScheduler", id="no scheduler"),
        pytest.param(kubeflow_mx_job(Scheduler=0, Server=1, Worker=1), "NoScheduler", id="a scheduler, but none"),
        pytest.param(kubeflow_mx_job(Scheduler=2, Worker=1), "InvalidValue", id="two schedulers"),
        pytest.param(kubeflow_mx_job("MXTune", TunerTracker=1), "NoReplicas", id="no tuner"),
        pytest.param(kubeflow_mx_job("MXPlay"), "UnknownJobMode", id="another mode"),
        pytest.param(kubeflow_mx_job(Scheduler=1, Master=1), "UnknownReplicaType", id="another type"),
        pytest.param(changed(DIST, "spec.mxReplicaSpecs", {}), "NoReplicas", id="no types"),
        pytest.param(changed(TUNE, "spec.mxReplicaSpecs.TunerServer.label", 2080), "InvalidValue", id="a label's type"),
        pytest.param(
            changed(DIST, "spec.mxReplicaSpecs.Worker.template.spec.containers[0].name", "main"),
            "NoTrainingContainer",
            id="a container of another name",
        ),
    ],
)
def test_what_cannot_run_is_refused(job: Document, reason: str):
    assert reason in reasons(job)
