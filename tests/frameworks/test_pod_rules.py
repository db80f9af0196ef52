"""Templates that would break what a kind promises: refused with the path, or overridden and said; and tokens."""

from typing import Any

import pytest

from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.kubeflow import JOB_ROLE
from shared.frameworks.mpijob import MPIJOB
from shared.frameworks.pods import AUDIENCE, AUTHORITY, URL, Port, key_at, with_reporting, with_token_if_asked
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.runtimes import joined
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.job.naming import JobKey, Slot, Uid
from shared.job.spec import JobSpec
from tests.frameworks.documents import (
    changed,
    custom,
    fioravanzo_job,
    jax_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    paddle_job,
    pytorch_job,
    spec_of,
    tf_job,
    training_job,
    xgboost_job,
)
from tests.kit.pods import pod_for
from tests.kit.trainer import as_read, torch_runtime, train_job

LAUNCHER, WORKER = "spec.etReplicaSpecs.launcher.template", "spec.etReplicaSpecs.worker.template"
OF_TORCH, OF_MPI = "spec.pytorchReplicaSpecs.Worker.template", "spec.mpiReplicaSpecs.Launcher.template"
ELASTIC = pytorch_job(policy={"minReplicas": 2, "maxReplicas": 4}, Worker=3)
LED, OF_MASTER = pytorch_job(Master=1, Worker=2), "spec.pytorchReplicaSpecs.Master.template"
KINDS = {
    f"{job['kind']}.{job['apiVersion'].partition('/')[0]}": (job, path)
    for job, path in (
        (training_job(), WORKER),
        (pytorch_job(), OF_TORCH),
        (tf_job(), "spec.tfReplicaSpecs.Worker.template"),
        (mpi_job(), "spec.mpiReplicaSpecs.Worker.template"),
        (jax_job(), "spec.jaxReplicaSpecs.Worker.template"),
        (paddle_job(), "spec.paddleReplicaSpecs.Worker.template"),
        (xgboost_job(), "spec.xgbReplicaSpecs.Worker.template"),
        (kubeflow_mx_job(), "spec.mxReplicaSpecs.Worker.template"),
        (mlkube_job(), "spec.replicaSpecs[0].template"),
        (fioravanzo_job(), "spec.replicaSpecs[0].template"),
        (mpba_job(), "spec[0].template"),
    )
}


def problems_of(framework: Framework, job: dict[str, Any]) -> list[tuple[str, str]]:
    found = framework.parse(custom(job))
    return [(problem.reason, problem.field) for problem in found] if isinstance(found, tuple) else []


def said_of(framework: Framework, job: dict[str, Any]) -> dict[str, str]:
    return {known.field: known.effect for known in spec_of(framework, job).ignored}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("field", "value"), [("hostname", "own"), ("hostnameOverride", "own.name"), ("setHostnameAsFQDN", True)]
)
def test_the_name_of_a_pod_is_its_host_name_in_every_kind(kind: str, field: str, value: object) -> None:
    job, path = KINDS[kind]
    framework = next(known for known in BUILT_IN if known.name == kind)
    assert f"{path}.spec.{field}" in said_of(framework, changed(job, f"{path}.spec.{field}", value))


@pytest.mark.parametrize("field", ["hostname", "hostnameOverride", "setHostnameAsFQDN"])
def test_a_worker_of_an_elastic_group_is_called_like_its_pod(field: str) -> None:
    job = changed(ELASTIC, f"{OF_TORCH}.spec.{field}", "own")
    assert field not in pod_for(custom(job), Slot(0, "worker", 0), PYTORCHJOB)["spec"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        pytest.param("spec.subdomain", "own", True, id="pods of one Service have its name as their subdomain"),
        pytest.param("spec.dnsPolicy", "Default", True, id="a node's name server knows no pods"),
        pytest.param("spec.dnsPolicy", "None", False, id="name servers of one's own stay"),
        pytest.param("spec.restartPolicy", "OnFailure", True, id="a restartPolicy at the wrong place"),
        pytest.param("spec.restartPolicy", "Never", False, id="the restartPolicy that holds anyway"),
        pytest.param("spec.hostname", None, False, id="a null is no hostname"),
        pytest.param("spec.setHostnameAsFQDN", False, False, id="the hostname that holds anyway"),
        pytest.param("metadata.labels", {"training-job-name": "own"}, True, id="another value of Muster's label"),
        pytest.param("metadata.labels", {"team": "vision"}, False, id="a label of one's own"),
    ],
)
def test_a_field_without_effect_is_said(field: str, value: object, said: bool) -> None:
    found = said_of(TRAININGJOB, changed(training_job(), f"{WORKER}.{field}", value))
    where = f"{WORKER}.{field}" + ("[training-job-name]" if field.endswith("labels") else "")
    assert found == ({where: "has no effect"} if said else {})


@pytest.mark.parametrize(
    ("role", "context", "said"),
    [
        pytest.param("launcher", {"fsGroup": 1000}, True, id="root's ssh refuses its key"),
        pytest.param("launcher", {"fsGroup": 1000, "runAsUser": 0}, True, id="root by name"),
        pytest.param("launcher", {"fsGroup": 1000, "runAsUser": 1000}, False, id="of another user ssh checks nothing"),
        pytest.param("worker", {"fsGroup": 1000}, False, id="sshd lets a group read what is public"),
    ],
)
def test_a_launcher_whose_key_a_group_may_read_is_told(role: str, context: dict[str, int], said: bool) -> None:
    path = f"spec.etReplicaSpecs.{role}.template.spec.securityContext"
    found = said_of(TRAININGJOB, changed(training_job(), path, context))
    assert found == ({f"{path}.fsGroup": "lets a group read the launcher's private key"} if said else {})


@pytest.mark.parametrize("kind", KINDS)
def test_each_label_that_muster_gives_a_pod_is_its_own_and_said(kind: str) -> None:
    job, path = KINDS[kind]
    framework = next(known for known in BUILT_IN if known.name == kind)
    role = pod_for(custom(job), Slot(0, "scheduler" if "[0]" in path else "worker", 0), framework)
    labels = role["metadata"]["labels"]
    said = said_of(framework, changed(job, f"{path}.metadata", {"labels": dict.fromkeys(labels, "own")}))
    assert {f"{path}.metadata.labels[{name}]" for name in labels} <= {*said}


@pytest.mark.parametrize(
    ("job", "path", "value", "said"),
    [
        pytest.param(LED, OF_MASTER, "own", True, id="of the pod that leads"),
        pytest.param(LED, OF_MASTER, "master", False, id="with the value that it has anyway"),
        pytest.param(LED, OF_TORCH, "own", False, id="of a worker that is led"),
        pytest.param(ELASTIC, OF_TORCH, "own", True, id="of workers, the first of which leads"),
    ],
)
def test_the_label_of_the_leader_is_overridden_where_it_is_set(
    job: dict[str, Any], path: str, value: str, said: bool
) -> None:
    found = said_of(PYTORCHJOB, changed(job, f"{path}.metadata", {"labels": {JOB_ROLE: value}}))
    assert found == ({f"{path}.metadata.labels[{JOB_ROLE}]": "has no effect"} if said else {})


def test_each_label_that_muster_gives_a_node_of_a_train_job_is_its_own_and_said() -> None:
    job, runtime = custom(changed(train_job(), "metadata.uid", "uid-1")), torch_runtime()
    labels = pod_for(joined(job, as_read(runtime)), Slot(0, "worker", 0), TRAINJOB)["metadata"]["labels"]
    path = "spec.template.spec.replicatedJobs[0].template.spec.template.metadata"
    own = changed(runtime, path, {"labels": dict.fromkeys(labels, "own")})
    spec = TRAINJOB.parse(joined(job, as_read(own)))
    assert isinstance(spec, JobSpec)
    said = {known.field.partition("labels[")[2].rstrip("]") for known in spec.ignored}
    assert said == {*labels}


@pytest.mark.parametrize(
    ("host_network", "policy", "expected"),
    [
        pytest.param(True, None, "ClusterFirstWithHostNet", id="in the node's network"),
        pytest.param(True, "ClusterFirst", "ClusterFirstWithHostNet", id="in the node's network, spelt out"),
        pytest.param(True, "None", "None", id="with name servers of one's own"),
        pytest.param(False, "Default", "ClusterFirst", id="with the node's name server"),
        pytest.param(False, None, None, id="otherwise"),
    ],
)
def test_pods_find_each_other_by_name(host_network: bool, policy: str | None, expected: str | None) -> None:
    job = changed(tf_job(), "spec.tfReplicaSpecs.Worker.template.spec.hostNetwork", host_network)
    job = changed(job, "spec.tfReplicaSpecs.Worker.template.spec.dnsPolicy", policy)
    assert pod_for(custom(job), Slot(0, "worker", 0), TFJOB)["spec"].get("dnsPolicy") == expected


def mounting(job: dict[str, Any], path: str, at: str, source: str = "emptyDir", **mount: Any) -> dict[str, Any]:
    job = changed(job, f"{path}.spec.volumes", [{"name": "own", source: {}}])
    return changed(job, f"{path}.spec.containers[0].volumeMounts", [{"name": "own", "mountPath": at, **mount}])


@pytest.mark.parametrize(
    ("framework", "job", "path"), [(TRAININGJOB, training_job(), LAUNCHER), (MPIJOB, mpi_job(), OF_MPI)]
)
@pytest.mark.parametrize(
    ("at", "source", "mount", "reason"),
    [
        pytest.param("/etc/mpi", "emptyDir", {}, "InvalidPath", id="at our path"),
        pytest.param("/etc//mpi/", "emptyDir", {}, "InvalidPath", id="at our path, spelt in another way"),
        pytest.param("etc/mpi", "emptyDir", {}, "InvalidPath", id="at our path, without the first slash"),
        pytest.param("/etc/mpi/hostfile", "emptyDir", {"subPath": "a"}, "InvalidPath", id="at a file of ours"),
        pytest.param("/etc", "configMap", {}, "InvalidPath", id="around our path, read-only"),
        pytest.param("/etc", "emptyDir", {"readOnly": True}, "InvalidPath", id="around our path, mounted read-only"),
        pytest.param("/etc", "emptyDir", {}, "", id="around our path"),
        pytest.param("/etc/mpirun", "emptyDir", {}, "", id="beside our path"),
        pytest.param("/root", "secret", {}, "InvalidPath", id="around the keys, read-only"),
    ],
)
def test_a_mount_over_the_hosts_files_is_refused(
    framework: Framework, job: dict[str, Any], path: str, at: str, source: str, mount: dict[str, Any], reason: str
) -> None:
    field = f"{path}.spec.containers[0].volumeMounts[0].mountPath"
    assert problems_of(framework, mounting(job, path, at, source, **mount)) == ([(reason, field)] if reason else [])


@pytest.mark.parametrize(
    ("at", "source", "effect"),
    [
        pytest.param("/job/data", "emptyDir", "hides the hosts files in /job", id="over copies"),
        pytest.param("/root/.ssh", "emptyDir", "hides Muster's ssh keys in /root/.ssh", id="over the keys"),
        pytest.param("/root/.ssh", "secret", None, id="keys of one's own"),
        pytest.param("/root/.ssh/config", "emptyDir", None, id="a file of one's own among the keys"),
    ],
)
def test_a_mount_that_stays_is_said(at: str, source: str, effect: str | None) -> None:
    found = said_of(TRAININGJOB, mounting(training_job(), LAUNCHER, at, source))
    assert found == ({f"{LAUNCHER}.spec.containers[0].volumeMounts[0].mountPath": effect} if effect else {})


@pytest.mark.parametrize(
    ("framework", "job", "path", "name"),
    [
        (TRAININGJOB, training_job(), LAUNCHER, "muster-hosts-edl"),
        (TRAININGJOB, training_job(), WORKER, "muster-ssh"),
        (MPIJOB, mpi_job(), OF_MPI, "muster-hosts-mpi"),
    ],
)
def test_a_volume_of_musters_name_is_refused(framework: Framework, job: dict[str, Any], path: str, name: str) -> None:
    job = changed(job, f"{path}.spec.volumes", [{"name": name, "emptyDir": {}}])
    assert problems_of(framework, job) == [("ReservedName", f"{path}.spec.volumes[0].name")]


@pytest.mark.parametrize(
    ("field", "meant"), [("metadata.lables", "labels"), ("metadata.owner", ""), ("specs", "spec"), ("status", "")]
)
def test_what_never_reaches_a_pod_is_refused(field: str, meant: str) -> None:
    found = TRAININGJOB.parse(custom(changed(training_job(), f"{WORKER}.{field}", {"a": "b"})))
    assert isinstance(found, tuple)
    assert [(problem.reason, problem.field) for problem in found] == [("UnknownField", f"{WORKER}.{field}")]
    assert found[0].message == (f"write {meant}" if meant else "leave it out: no pod has such a field")


def test_a_port_of_the_kinds_number_is_not_added_again() -> None:
    port = {"name": "own", "containerPort": 2222}
    job = changed(tf_job(), "spec.tfReplicaSpecs.Worker.template.spec.containers[0].ports", [port])
    assert pod_for(custom(job), Slot(0, "worker", 0), TFJOB)["spec"]["containers"][0]["ports"] == [port]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="no wish"),
        pytest.param({"serviceAccountName": ""}, id="an empty name"),
        pytest.param({"automountServiceAccountToken": None, "serviceAccountName": None}, id="nulls"),
    ],
)
def test_a_pod_has_no_token_if_its_template_has(spec: dict[str, Any]):
    assert with_token_if_asked({"spec": spec})["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    "spec",
    [
        {"automountServiceAccountToken": True},
        {"automountServiceAccountToken": False, "serviceAccountName": "trainer"},
        {"serviceAccountName": "trainer"},
        {"serviceAccount": "trainer"},
    ],
    ids=str,
)
def test_a_pod_is_as_its_template_wishes(spec: dict[str, Any]):
    assert with_token_if_asked({"spec": spec})["spec"] == spec


@pytest.mark.parametrize(
    ("framework", "job", "slot"),
    [
        pytest.param(framework, job, Slot(0, role, 0), id=framework.name)
        for framework, job, role in (
            (TRAININGJOB, training_job(), "launcher"),
            (PYTORCHJOB, pytorch_job(Master=1, Worker=1), "master"),
            (TFJOB, tf_job(Worker=2), "worker"),
            (MPIJOB, mpi_job(Launcher=1, Worker=1), "launcher"),
        )
    ],
)
def test_the_training_container_of_any_kind_learns_where_to_report_and_keeps_what_the_user_set(
    framework: Framework, job: dict[str, Any], slot: Slot
):
    spec = spec_of(framework, job)
    pod = pod_for(custom(job), slot, framework)
    container = spec.role(slot.role).container
    (before,) = [each for each in pod["spec"]["containers"] if each["name"] == container]
    mine = {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": "/mine"}
    before["env"] = [*(before.get("env") or []), mine]
    pod["spec"]["containers"].append({"name": "other"})
    key = JobKey("team-a", "resnet", Uid("uid-1"))
    made = with_reporting(pod, key, container, Port("https://watcher:8443/", "PEM"))
    after, other = ({each["name"]: each for each in made["spec"]["containers"]}[name] for name in (container, "other"))
    assert other == {"name": "other"}
    added = {each["name"]: each["value"] for each in after["env"] if each not in before["env"]}
    url = "https://watcher:8443/v1/namespaces/team-a/jobs/resnet/uid-1/progress"
    assert added == {
        "KUBEFLOW_TRAINER_SERVER_URL": url,
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": "/var/run/secrets/muster/progress/ca.crt",
    }
    assert mine in after["env"]
    assert key_at(url.removeprefix("https://watcher:8443")) == key
    assert {**made["metadata"]["annotations"]}.items() >= {(AUTHORITY, "PEM"), (URL, url)}
    (volume,) = [each for each in made["spec"]["volumes"] if each not in (pod["spec"].get("volumes") or [])]
    assert {"name": volume["name"], "mountPath": "/var/run/secrets/muster/progress", "readOnly": True} in after[
        "volumeMounts"
    ]
    token = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert token == {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}
