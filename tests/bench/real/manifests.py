"""What both make: the same pods, Service and ConfigMap, of Muster's own manifests, for a job or a bare job.

A bare job is a resource of another group with the schema of a TrainingJob, on which no controller acts.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from muster.crds import manifests
from services.scaler.core.membership import hosts_config_map
from shared.cluster.objects import Custom
from shared.frameworks.framework import PodContext
from shared.frameworks.scale_requests import GROUP, VERSION
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS, parse_job
from shared.job.naming import JOB_UID, JobKey, Slot, Uid, config_name, pod_name, secret_name
from shared.job.spec import LAUNCHER, WORKER, JobSpec
from tests.bench.real.client import encode

BARE_GROUP = "bench.muster.dev"
_UID = "00000000-0000-4000-8000-000000000000"
"""Stands in bare manifests, which are rendered before the clock starts, where the uid of their owner comes."""

Manifest = dict[str, Any]


def training_job(name: str, namespace: str, workers: int, *, group: str = GROUP) -> Manifest:
    """A job as people write them; `workers` may fail but for one, and double."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"SETTING_{number}", "value": "some value"} for number in range(5)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    template = {"metadata": {"labels": {"team": "bench"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": f"{group}/{VERSION}",
        "kind": TRAININGJOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "etReplicaSpecs": {
                "launcher": {"template": template},
                "worker": {
                    "replicas": workers,
                    "minReplicas": 1,
                    "maxReplicas": workers * 2 + 10,
                    "template": template,
                },
            }
        },
    }


def scale_out(name: str, namespace: str, job: str, count: int) -> Manifest:
    return _request("ScaleOut", name, namespace, job, {"toAdd": {"count": count}})


def scale_in(name: str, namespace: str, job: str, count: int) -> Manifest:
    return _request("ScaleIn", name, namespace, job, {"toDelete": {"count": count}})


def _request(kind: str, name: str, namespace: str, job: str, rest: Manifest) -> Manifest:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"name": job}, "timeout": 300, **rest},
    }


def definitions() -> Iterator[Manifest]:
    """Muster's own CRDs, and that of bare jobs."""
    for definition in manifests():
        yield definition
        if definition["spec"]["names"]["plural"] == TRAININGJOBS.plural:
            yield msgspec.json.decode(encode(definition).replace(GROUP.encode(), BARE_GROUP.encode()))


def collection(plural: str, namespace: str = "", group: str = "") -> str:
    """The path of all objects of a resource."""
    base = f"/apis/{group}/{VERSION}" if group else "/api/v1"
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"


class BareJob:
    """One bare job: its manifests are ready before anything is timed."""

    def __init__(self, name: str, namespace: str, workers: int) -> None:
        self.name, self.namespace = name, namespace
        self.resource = encode(training_job(name, namespace, workers, group=BARE_GROUP))
        self._job = msgspec.json.decode(encode(training_job(name, namespace, workers)), type=Custom)
        spec = parse_job(self._job)
        assert isinstance(spec, JobSpec), spec
        self._spec = spec
        self._key = JobKey(namespace, name, Uid(_UID))
        self._uid = b""
        self._children = [
            ("services", _bare(TRAININGJOB.service(self._job, spec, self._key, None))),
            ("configmaps", _bare(self.hosts(workers))),
            *(("pods", self._pod(Slot(0, WORKER, index))) for index in range(workers)),
            ("pods", self._pod(Slot(0, LAUNCHER, 0))),
        ]

    def hosts(self, workers: int, version: int = 1) -> Manifest:
        members = [pod_name(self.name, Slot(0, WORKER, index)) for index in range(workers)]
        return hosts_config_map(TRAININGJOB, self._key, self._spec, members=members, version=version)

    @property
    def config(self) -> str:
        return config_name(self.name)

    def made(self, answer: bytes) -> None:
        """The API server's answer to `resource`, with the uid."""
        self._uid = msgspec.json.decode(answer)["metadata"]["uid"].encode()

    def children(self) -> Iterator[tuple[str, bytes]]:
        """Path and body of everything that the job consists of."""
        for plural, body in self._children:
            yield collection(plural, self.namespace), body.replace(_UID.encode(), self._uid)

    def workers(self, first: int, count: int) -> list[tuple[str, bytes]]:
        """Path and body of more workers."""
        path = collection("pods", self.namespace)
        bodies = [self._pod(Slot(0, WORKER, index)) for index in range(first, first + count)]
        return [(path, body.replace(_UID.encode(), self._uid)) for body in bodies]

    def _pod(self, slot: Slot) -> bytes:
        secret = secret_name(self._key, slot.attempt)
        context = PodContext(key=self._key, slot=slot, name=pod_name(self.name, slot), sizes={}, ssh_secret=secret)
        return _bare(TRAININGJOB.pod(self._job, self._spec, context))


def _bare(manifest: Manifest) -> bytes:
    """Muster's manifest, under an owner and a label that Muster does not look at."""
    body = encode(manifest)
    body = body.replace(JOB_UID.encode(), b"bench." + JOB_UID.encode())
    return body.replace(GROUP.encode(), BARE_GROUP.encode())
