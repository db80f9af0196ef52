"""The examples of training-operator 1.9, written from their fields: the name of each file, its kind, types and numbers.

They are in `examples/` of kubeflow/training-operator, which is under the Apache License 2.0; none of its text is here.
Programs, images and arguments matter to no operator and are left out, ports, limits, volumes and policies are not.
"""

from typing import Any, NamedTuple

from tests.frameworks.documents import Document

GPU = {"limits": {"nvidia.com/gpu": 1}}
NOTHING: Document = {}


class Published(NamedTuple):
    """An example; its replicas are type → (number, restart policy, more of the training container)."""

    file: str
    kind: str
    field: str
    container: str
    name: str
    replicas: dict[str, tuple[int, str | None, Document]]
    spec: Document = NOTHING
    namespace: str = ""
    volume: Document = NOTHING
    template: Document = NOTHING

    @property
    def manifest(self) -> Document:
        """As a person applies it."""
        place = {"namespace": self.namespace} if self.namespace else {}
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": self.kind,
            "metadata": {"name": self.name, **place},
            "spec": {**self.spec, self.field: {role: self._replica(*more) for role, more in self.replicas.items()}},
        }

    @property
    def pods(self) -> list[str]:
        """The names of its pods, as training-operator calls them; those of a launcher have no number."""
        return sorted(
            f"{self.name}-{role.lower()}" + ("" if role == "Launcher" else f"-{index}")
            for role, (number, _, _) in self.replicas.items()
            for index in range(number)
        )

    def _replica(self, number: int, policy: str | None, more: Document) -> Document:
        container: dict[str, Any] = {"name": self.container, "image": f"published/{self.name}", **more}
        pod: dict[str, Any] = {"containers": [container]}
        if self.volume:
            container["volumeMounts"] = [{"name": "storage", "mountPath": "/train"}]
            pod["volumes"] = [{"name": "storage", **self.volume}]
        said = {"restartPolicy": policy} if policy else {}
        return {"replicas": number, **said, "template": {**self.template, "spec": pod}}


def _of_xgboost(file: str, name: str, policy: str, **more: Any) -> Published:
    port = {"ports": [{"containerPort": 9991, "name": "xgboostjob-port"}]}
    replicas = {"Master": (1, "Never", port), "Worker": (2, policy, port)}
    return Published(f"xgboost/{file}", "XGBoostJob", "xgbReplicaSpecs", "xgboost", name, replicas, **more)


def _of_paddle(file: str, name: str, **more: Any) -> Published:
    port = {"ports": [{"containerPort": 37777, "name": "master"}], **more.pop("also", NOTHING)}
    workers = {"Worker": (2, "OnFailure", port)}
    place = {"namespace": "kubeflow"}
    return Published(
        f"paddlepaddle/{file}", "PaddleJob", "paddleReplicaSpecs", "paddle", name, workers, **place, **more
    )


def _of_pytorch(file: str, name: str, workers: int = 1, also: Document = NOTHING, **more: Any) -> Published:
    replicas = {"Master": (1, "OnFailure", also), "Worker": (workers, "OnFailure", also)}
    return Published(f"pytorch/{file}", "PyTorchJob", "pytorchReplicaSpecs", "pytorch", name, replicas, **more)


def _elastic(file: str, name: str, policy: str | None, **more: Any) -> Published:
    elastic = {"rdzvBackend": "c10d", "minReplicas": 1, "maxRestarts": 100, **more}
    debug = {"env": [{"name": "LOGLEVEL", "value": "DEBUG"}]}
    example = _of_pytorch(f"elastic/{file}", name, spec={"elasticPolicy": elastic})
    return example._replace(replicas={"Worker": (2, policy, debug)})


def _of_tensorflow(file: str, name: str, policy: str, also: Document = NOTHING, **more: Any) -> Published:
    sizes = more.pop("sizes", {"Worker": 2})
    replicas = {role: (number, policy, also) for role, number in sizes.items()}
    return Published(f"tensorflow/{file}", "TFJob", "tfReplicaSpecs", "tensorflow", name, replicas, **more)


def _of_mpi(file: str, name: str, launcher: str, worker: str, **spec: Any) -> Published:
    shapes = ((launcher, 1, "2Gi"), (worker, 2, "4Gi"))
    limited = [{"name": name, "resources": {"limits": {"cpu": cpu, "memory": memory}}} for name, cpu, memory in shapes]
    replicas = {"Launcher": (1, None, limited[0]), "Worker": (2, None, limited[1])}
    spec = {"slotsPerWorker": 1, **spec}
    return Published(f"mpi/{file}", "MPIJob", "mpiReplicaSpecs", "", name, replicas, spec=spec)


def _of_jax(file: str, name: str) -> Published:
    workers: dict[str, tuple[int, str | None, Document]] = {"Worker": (2, "OnFailure", NOTHING)}
    return Published(f"jax/{file}", "JAXJob", "jaxReplicaSpecs", "jax", name, workers, namespace="kubeflow")


def _claimed(claim: str) -> Document:
    return {"persistentVolumeClaim": {"claimName": claim}}


_NO_PODS_GO = {"runPolicy": {"cleanPodPolicy": "None"}}
_BY_CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}

PUBLISHED = (
    _of_jax("cpu-demo/demo", "jaxjob-simple"),
    _of_jax("jax-dist-spmd-mnist/jaxjob_dist_spmd_mnist_gloo", "jaxjob-mnist"),
    _of_paddle("simple-cpu", "paddle-simple-cpu"),
    _of_paddle(
        "simple-gpu",
        "paddle-simple-gpu",
        also={"resources": {"limits": {"nvidia.com/gpu": 2}}},
        volume={"emptyDir": {"medium": "Memory"}},
    ),
    _of_xgboost("lightgbm-dist/xgboostjob_v1_lightgbm_dist_training", "lightgbm-dist-train-test", "ExitCode"),
    _of_xgboost("smoke-dist/xgboostjob_v1_rabit_test", "xgboost-dist-test", "Never"),
    _of_xgboost(
        "smoke-dist/xgboostjob_v1alpha1_rabit_test",
        "xgboost-dist-test",
        "Never",
        template={"apiVersion": "v1", "kind": "Pod"},
    ),
    _of_xgboost("xgboost-dist/xgboostjob_v1_iris_predict", "xgboost-dist-iris-test-predict", "ExitCode"),
    _of_xgboost(
        "xgboost-dist/xgboostjob_v1_iris_predict_local",
        "xgboost-dist-iris-test-predict-local",
        "ExitCode",
        volume=_claimed("xgboostlocal"),
    ),
    _of_xgboost("xgboost-dist/xgboostjob_v1_iris_train", "xgboost-dist-iris-test-train", "ExitCode"),
    _of_xgboost(
        "xgboost-dist/xgboostjob_v1_iris_train_local",
        "xgboost-dist-iris-test-train-local",
        "ExitCode",
        volume=_claimed("xgboostlocal"),
    ),
    _of_xgboost("xgboostjob", "xgboost-dist-iris-test-train", "ExitCode"),
    _of_pytorch("cpu-demo/demo", "torchrun-cpu", spec={"nprocPerNode": "2"}),
    _of_pytorch("deepspeed-demo/pytorch_deepspeed_demo", "pytorch-deepspeed-demo", also={"resources": GPU}),
    _elastic("echo/echo", "elastic-example-echo", None, maxReplicas=2),
    _elastic(
        "imagenet/imagenet",
        "elastic-example-imagenet",
        "OnFailure",
        maxReplicas=3,
        metrics=[{"type": "Resource", "resource": _BY_CPU}],
    ),
    *(
        _of_pytorch(f"mnist/v1/pytorch_job_mnist_{backend}", f"pytorch-dist-mnist-{backend}", also={"resources": GPU})
        for backend in ("gloo", "mpi", "nccl")
    ),
    _of_pytorch("simple", "pytorch-simple", namespace="kubeflow"),
    _of_pytorch("smoke-dist/pytorch_job_sendrecv", "pytorch-dist-basic-sendrecv", workers=3),
    _of_tensorflow(
        "dist-mnist/tf_job_mnist", "dist-mnist-for-e2e-test", "Never", sizes={"Chief": 1, "PS": 1, "Worker": 2}
    ),
    _of_tensorflow(
        "distribution_strategy/multi_worker_tfjob",
        "multi-worker",
        "Never",
        also={"resources": GPU},
        spec=_NO_PODS_GO,
        volume=_claimed("strategy-volume"),
    ),
    _of_tensorflow(
        "mnist_with_summaries/tf_job_mnist",
        "mnist",
        "Never",
        sizes={"Worker": 1},
        spec=_NO_PODS_GO,
        namespace="kubeflow",
        volume=_claimed("tfevent-volume"),
    ),
    _of_tensorflow("simple", "tfjob-simple", "OnFailure", namespace="kubeflow"),
    _of_mpi(
        "tensorflow-mnist-elastic", "tensorflow-mnist-elastic", "mpi-launcher", "mpi-worker", cleanPodPolicy="Running"
    ),
    _of_mpi("tensorflow-mnist", "tensorflow-mnist", "mpi", "mpi", runPolicy={"cleanPodPolicy": "Running"}),
)
"""All of them, but for notebooks and what makes volumes and etcd."""
