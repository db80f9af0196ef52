"""Kubernetes objects as the watcher is shown them: JSON-like documents read into what the port gives."""

from typing import Any, TypeVar

import msgspec

from shared.cluster.objects import Custom, Object, Pod
from shared.frameworks.training_job import JOB_NAME, JOB_ROLE, REPLICA_INDEX, TRAININGJOBS
from shared.job.naming import ATTEMPT, CONTAINER, HOSTS_VERSION, JOB_UID
from tests.kit.histories import KEY

T = TypeVar("T", bound=Object)
Document = dict[str, Any]


def read(document: Document, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


def owned_by(uid: str, *, controller: bool = True) -> list[Document]:
    job = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "uid": uid}
    return [job | {"controller": controller}]


def metadata(name: str, **more: Any) -> Document:
    labels = {JOB_NAME: KEY.name, JOB_UID: KEY.uid}
    common = {"name": name, "namespace": KEY.namespace, "uid": f"uid-of-{name}", "resourceVersion": "7"}
    return {**common, "labels": labels, "ownerReferences": owned_by(KEY.uid), **more}


def a_pod(
    *, labels: Document | None = None, meta: Document | None = None, spec: Document | None = None, **status: Any
) -> Pod:
    """Worker 3 of attempt 1, with the training container `main`.

    `labels` replace those of the same name, None takes one away.
    """
    known = metadata("resnet-worker-3", annotations={CONTAINER: "main"})
    wanted = known["labels"] | {ATTEMPT: "1", REPLICA_INDEX: "3", JOB_ROLE: "worker"} | (labels or {})
    known["labels"] = {name: value for name, value in wanted.items() if value is not None}
    meta = known | (meta or {})
    meta["annotations"] = known["annotations"] | (meta["annotations"] or {})
    return read({"metadata": meta, "spec": {"nodeName": "node-1"} | (spec or {}), "status": status}, Pod)


def a_child(name: str, hosts: str | None = None, **more: Any) -> Object:
    annotations = {HOSTS_VERSION: hosts} if hosts is not None else None
    return read({"metadata": metadata(name, annotations=annotations, **more)}, Object)


def a_request(name: str = "out", *, spec: Any = None, **more: Any) -> Custom:
    meta = {"name": name, "namespace": KEY.namespace, "uid": "request-1", "resourceVersion": "9"}
    meta["creationTimestamp"] = "2030-01-01T00:00:00Z"
    asked = {"selector": {"name": "resnet"}, "toAdd": {"count": 2}} if spec is None else spec
    return read({"metadata": meta | more, "spec": asked}, Custom)
