"""The runtimes and TrainJobs that Kubeflow Trainer 2.3 publishes, written from their fields.

They are in `manifests/base/runtimes/`, `examples/yaml/` and `examples/flux/` of kubeflow/trainer, which is under the
Apache License 2.0; none of its text is here.  Programs, images and arguments matter to no operator and are left out or
replaced; policies, names, labels, volumes and resources are not.
"""

from typing import Any

from tests.kit.trainer import ANCESTOR, Document, runtime, train_job

NODES: Document = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}}
SMALL_NODES: Document = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}}
UNCHECKED = {"trainer.kubeflow.org/webhook-validation": "disabled"}
PROGRAM = ["python3", "-m", "train"]


def _job(name: str, step: str = "", *, after: dict[str, str] | None = None, pod: Document | None = None, **more: Any):
    """A replicated job; `step` is the part of a TrainJob that it stands for, `after` what it waits for."""
    labels = {"metadata": {"labels": {ANCESTOR: step}}} if step else {}
    container = {"name": name if step.endswith("initializer") else "node", "image": f"published/{name}", **more}
    template = {**labels, "spec": {"template": {"spec": {**(pod or {}), "containers": [container]}}}}
    waits = [{"name": other, "status": status} for other, status in (after or {}).items()]
    return {"name": name, **({"dependsOn": waits} if waits else {}), "template": template}


def _runtime(
    name: str, framework: str, policy: Document, *jobs: Document, labels: Document | None = None, **more: Any
) -> Document:
    made = runtime(name, {"numNodes": 1, **policy}, *jobs)
    made["metadata"]["labels"] = {"trainer.kubeflow.org/framework": framework, **(labels or {})}
    made["spec"]["template"]["spec"] |= more
    return made


def _of_nodes(name: str, framework: str, policy: Document, **more: Any) -> Document:
    return _runtime(name, framework, policy, _job("node", "trainer"), **more)


def _of_mpi(framework: str) -> Document:
    policy = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runLauncherAsNode": True,
    }
    person: Document = {"securityContext": {"runAsUser": 1000}}
    pod: Document = {"securityContext": {"fsGroup": 1000}}
    probe = {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5}
    return _runtime(
        f"{framework}-distributed",
        framework,
        {"mpi": policy},
        _job("node", pod=pod, command=["/usr/sbin/sshd"], args=["-De"], readinessProbe=probe, **person),
        _job("launcher", "trainer", after={"node": "Ready"}, pod=pod, **person),
        network={"publishNotReadyAddresses": True},
        successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
    )


def _initializer(what: str, **more: Any) -> Document:
    return _job(f"{what}-initializer", f"{what}-initializer", **more)


def _with_cache() -> Document:
    name = {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']", "apiVersion": "v1"}
    env = [{"name": "TRAIN_JOB_NAME", "valueFrom": {"fieldRef": name}}]
    cache = {"name": "CACHE_IMAGE", "value": "published/data-cache"}
    account: Document = {"serviceAccountName": "kubeflow-trainer-cache-initializer"}
    first = _initializer("dataset", pod=account, env=[cache, *env]) | {"replicas": 1}
    after = {"dataset-initializer": "Complete"}
    nodes = _job("node", "trainer", after=after, env=env)
    return _runtime("torch-distributed-with-cache", "torch", {"torch": {}}, first, nodes, labels=UNCHECKED)


def _of_torchtune() -> Document:
    mount = {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    initializers = [
        _initializer(what, env=[{"name": "STORAGE_URI", "value": f"hf://a/{what}"}], **mount)
        for what in ("dataset", "model")
    ]
    after = {each["name"]: "Complete" for each in initializers}
    gpus = {"limits": {"nvidia.com/gpu": 2}}
    nodes = _job("node", "trainer", after=after, command=["tune", "run", "a-recipe"], resources=gpus, **mount)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    return _runtime(
        "torchtune-qwen2.5-1.5b",
        "torchtune",
        {"torch": {}},
        *initializers,
        nodes,
        volumeClaimPolicies=[{"templates": [{"metadata": {"name": "initializer"}, "spec": claim}]}],
    )


def _with_a_dataset() -> Document:
    first = _initializer("dataset") | {"replicas": 1}
    nodes = _job("node", "trainer", after={"dataset-initializer": "Complete"})
    return _runtime("torch-with-dataset-init", "torch", {"torch": {}}, first, nodes) | {"kind": "TrainingRuntime"}


def _for_volcano() -> Document:
    made = _of_nodes("torch-distributed-volcano", "torch", {"torch": {}})
    made["spec"]["podGroupPolicy"] = {"volcano": {}}
    return made


def _train(name: str, nodes: int, *, of: str = "torch-distributed", resources: Document | None = None, **more: Any):
    kind = "TrainingRuntime" if of == "torch-with-dataset-init" else "ClusterTrainingRuntime"
    trainer = {"numNodes": nodes, "command": PROGRAM, **({"resourcesPerNode": resources} if resources else {})}
    made = train_job(name, runtime=of, **more)
    made["spec"]["runtimeRef"] |= {"apiGroup": "trainer.kubeflow.org", "kind": kind}
    made["spec"]["trainer"] = trainer
    return made


def _patched() -> Document:
    made = _train("runtime-patches-example", 2, resources=NODES)
    made["spec"]["trainer"]["env"] = [
        {"name": "CUSTOM_VAR", "value": "custom-value"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    taint = {"key": "training-workload", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    pod = {
        "serviceAccountName": "training-sa",
        "nodeSelector": {"node-type": "training"},
        "tolerations": [taint],
    }
    metadata = {
        "labels": {"team": "ml-platform", "cost-center": "research"},
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
    }
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    template = {"metadata": metadata, "spec": {"replicatedJobs": jobs}}
    made["spec"]["runtimePatches"] = [
        {"manager": "example.io/platform-team", "trainingRuntimeSpec": {"template": template}}
    ]
    return made


def _queued() -> Document:
    made = _train("kueue-example", 3, resources=NODES, suspend=True)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training-queue"}
    made["spec"]["trainer"]["image"] = "published/kueue-example"
    return made


def _of_steps() -> Document:
    dataset = {"dataset": {"storageUri": "hf://a/dataset"}}
    return _train("multi-step-example", 2, of="torch-with-dataset-init", resources=NODES, initializer=dataset)


RUNTIMES = (
    _of_nodes("torch-distributed", "torch", {"torch": {}}),
    _for_volcano(),
    _of_nodes("jax-distributed", "jax", {"jax": {}}),
    _of_nodes("xgboost-distributed", "xgboost", {"xgboost": {}}),
    _of_mpi("deepspeed"),
    _of_mpi("mlx"),
    _of_torchtune(),
    _with_cache(),
    _with_a_dataset(),
    _of_nodes("flux-distributed", "flux", {"flux": {}}, labels=UNCHECKED),
)
JOBS = (
    _train("multi-node-example", 3),
    _patched(),
    _queued(),
    _train("volcano-example", 4, of="torch-distributed-volcano", resources=SMALL_NODES),
    _of_steps(),
)
