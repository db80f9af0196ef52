"""kubectl itself against the server as a process: what people type in the demonstration, and a few things around it."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster import binaries
from devcluster.binaries import MissingProgram
from devcluster.cluster import Devcluster

BOUND = 60
"""Seconds a single command may take on a busy machine."""

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trainjobs.example.dev}
spec:
  group: example.dev
  scope: Namespaced
  names: {plural: trainjobs, kind: TrainJob, shortNames: [tj], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Workers, type: integer, jsonPath: .spec.replicas, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: The model to train.
            x-kubernetes-validations:
            - {rule: self.replicas <= 8, message: eight workers are the most}
            - {rule: self.framework == oldSelf.framework, message: framework is immutable}
            properties:
              replicas: {type: integer, minimum: 0, description: How many workers train.}
              framework: {type: string, default: torch}
          status:
            type: object
            properties:
              phase: {type: string}
              replicas: {type: integer}
"""
JOB = """
apiVersion: example.dev/v1
kind: TrainJob
metadata: {name: mnist, labels: {team: a}}
spec: {replicas: 2}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  containers: [{name: main, image: "trainer:1"}]
"""


class Kubectl:
    def __init__(self, program: Path, kubeconfig: Path, cache: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)]

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=BOUND, check=False
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    try:
        program = binaries.kubectl()
    except MissingProgram as missing:
        pytest.skip(f"these tests speak as users of kubectl do: {missing}")
    folder = tmp_path_factory.mktemp("cluster")
    cluster = Devcluster(folder, users=["trainer"], nodes=0)
    with asyncio.Runner() as runner:
        runner.run(cluster.__aenter__())
        try:
            yield Kubectl(program, cluster.kubeconfig("trainer"), folder / "cache")
        finally:
            runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def jobs(kubectl: Kubectl) -> Kubectl:
    kubectl("apply", "-f", "-", stdin=DEFINITION)
    kubectl("wait", "--for=condition=Established", "crd/trainjobs.example.dev", "--timeout=10s")
    return kubectl


@pytest.fixture
def job(jobs: Kubectl) -> Iterator[Kubectl]:
    jobs("apply", "-f", "-", stdin=JOB)
    yield jobs
    jobs("delete", "tj", "mnist", "--ignore-not-found")


def test_apply_creates_changes_and_leaves_alone(jobs):
    assert jobs("apply", "-f", "-", stdin=JOB) == "trainjob.example.dev/mnist created\n"
    assert jobs("apply", "-f", "-", stdin=JOB) == "trainjob.example.dev/mnist unchanged\n"
    changed = JOB.replace("replicas: 2", "replicas: 3")
    assert jobs("apply", "-f", "-", stdin=changed) == "trainjob.example.dev/mnist configured\n"
    assert jobs("get", "tj/mnist", "-o", "jsonpath={.spec.replicas} {.spec.framework}") == "3 torch"
    assert jobs("delete", "tj", "mnist") == 'trainjob.example.dev "mnist" deleted\n'


def test_a_kind_that_is_not_there_is_named(kubectl):
    answer = kubectl.run("apply", "-f", "-", stdin="apiVersion: no.such/v1\nkind: Thing\nmetadata: {name: a}\n")
    assert answer.returncode == 1
    assert 'no matches for kind "Thing" in version "no.such/v1"' in answer.stderr


def test_what_the_schema_forbids_is_said(job):
    too_many = job.run("apply", "-f", "-", stdin=JOB.replace("replicas: 2", "replicas: 9"))
    assert 'The TrainJob "mnist" is invalid: spec: Invalid value: eight workers' in too_many.stderr
    unknown = job.run("apply", "-f", "-", stdin=JOB.replace("replicas: 2", "replicas: 2, colour: red"))
    assert 'unknown field "spec.colour"' in unknown.stderr
    immutable = job.run("patch", "tj", "mnist", "--type=merge", "-p", '{"spec":{"framework":"jax"}}')
    assert "framework is immutable" in immutable.stderr


def test_get_shows_the_columns(job):
    job("patch", "tj", "mnist", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Running"}}')
    header, row = job("get", "trainjobs").splitlines()
    assert header.split() == ["NAME", "PHASE", "AGE"]
    assert row.split()[:2] == ["mnist", "Running"]
    assert job("get", "tj", "-o", "wide").split()[:4] == ["NAME", "PHASE", "WORKERS", "AGE"]
    assert job("get", "tj", "mnist", "-o", "name") == "trainjob.example.dev/mnist\n"
    assert yaml.safe_load(job("get", "tj", "mnist", "-o", "yaml"))["spec"]["replicas"] == 2
    assert json.loads(job("get", "all", "-o", "json"))["items"][0]["kind"] == "TrainJob"
    assert job("get", "tj", "-l", "team=b", "--ignore-not-found") == ""


def test_a_watch_prints_what_changes(job):
    with job.start("get", "tj", "mnist", "-w", "-o", "jsonpath={.status.phase}.{'\\n'}") as watching:
        assert watching.stdout.readline() == ".\n"
        job("patch", "tj", "mnist", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Scaling"}}')
        assert watching.stdout.readline() == "Scaling.\n"
        watching.terminate()


def test_wait_sees_the_state_it_waits_for(job):
    with job.start("wait", "tj/mnist", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=15s") as waiting:
        job("patch", "tj", "mnist", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Succeeded"}}')
        assert waiting.stdout.read() == "trainjob.example.dev/mnist condition met\n"


def test_describe_shows_events_of_the_newer_group(job):
    uid = job("get", "tj", "mnist", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "mnist.1", "namespace": "default"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reportingController": "muster.dev/status",
        "reportingInstance": "status-0",
        "action": "Announce",
        "reason": "TrainingJobRunning",
        "note": "Two workers train.",
        "type": "Normal",
        "regarding": {
            "apiVersion": "example.dev/v1",
            "kind": "TrainJob",
            "name": "mnist",
            "namespace": "default",
            "uid": uid,
        },
    }
    job("create", "-f", "-", stdin=json.dumps(event))
    described = job("describe", "tj", "mnist")
    assert "TrainingJobRunning" in described
    assert "Two workers train." in described
    assert "trainjob/mnist" in job("get", "events")
    assert "Two workers train." in job("events", "--for", "trainjob/mnist")


def test_labels_annotations_and_scale(job):
    job("label", "tj", "mnist", "team=b", "--overwrite")
    job("annotate", "tj", "mnist", "note=hello")
    assert job("get", "tj", "-l", "team=b", "-o", "name") == "trainjob.example.dev/mnist\n"
    job("scale", "tj", "mnist", "--replicas=4")
    assert job("get", "tj", "mnist", "-o", "jsonpath={.spec.replicas}") == "4"


def test_json_patches_and_edits_by_replacement(job):
    job("patch", "tj", "mnist", "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":5}]')
    whole = yaml.safe_load(job("get", "tj", "mnist", "-o", "yaml"))
    whole["spec"]["replicas"] = 6
    job("replace", "-f", "-", stdin=yaml.safe_dump(whole))
    stale = job.run("replace", "-f", "-", stdin=yaml.safe_dump(whole))
    assert "the object has been modified" in stale.stderr


def test_server_side_apply_merges(jobs):
    assert jobs("apply", "--server-side", "-f", "-", stdin=JOB) == "trainjob.example.dev/mnist serverside-applied\n"
    jobs("apply", "--server-side", "-f", "-", stdin=JOB.replace("replicas: 2", "replicas: 7"))
    assert jobs("get", "tj", "mnist", "-o", "jsonpath={.spec.replicas}") == "7"
    jobs("delete", "tj", "mnist")


def test_explain_reads_the_definition(jobs):
    assert "How many workers train." in jobs("explain", "trainjob.spec.replicas")


def test_typed_commands_speak_protobuf(kubectl):
    kubectl("create", "namespace", "team")
    kubectl("create", "configmap", "-n", "team", "settings", "--from-literal=a=1")
    kubectl("create", "secret", "generic", "-n", "team", "key", "--from-literal=b=2")
    assert kubectl("get", "secret", "-n", "team", "key", "-o", "jsonpath={.data.b}") == "Mg=="
    kubectl("delete", "namespace", "team", "--timeout=15s")
    assert kubectl.run("get", "ns", "team").returncode == 1


def test_pods_are_shown_and_described(kubectl):
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("apply", "-f", "-", stdin=POD.replace("trainer:1", "trainer:2"))
    assert kubectl("get", "pod", "worker").splitlines()[1].split()[:4] == ["worker", "0/1", "Pending", "0"]
    assert "trainer:2" in kubectl("describe", "pod", "worker")
    logs = kubectl.run("logs", "worker")
    assert logs.returncode == 1
    kubectl("delete", "pod", "worker", "--timeout=10s")


def test_discovery_and_version(kubectl):
    resources = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "leases.coordination.k8s.io", "events.events.k8s.io"} <= set(resources)
    assert "v1.32.0+muster" in kubectl("version")
