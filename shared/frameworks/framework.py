"""The interface of a framework: it parses one kind of job into the canonical job, and renders pods and status.

A framework has all that is particular to its kind: names, fields, environment, status.  The services decide from the
`JobSpec` alone.  Pure.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.kinds import AUTOSCALERS
from shared.cluster.objects import Custom
from shared.frameworks.runtimes import Reference, RuntimeKind
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.takeover import TakeOver
from shared.job.naming import ATTEMPT, INDEX, JOB_UID, ROLE, JobKey, Slot, Uid, WorkerName, service_name
from shared.job.spec import JobSpec, Problem, Wishes
from shared.job.state import Job
from shared.untrusted import objects


class PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the rendering of a slot's pod needs besides the resource and its spec."""

    key: JobKey
    slot: Slot
    name: WorkerName
    sizes: Mapping[str, int]
    """The number of pods of each role in this attempt; the resource may have been edited since."""
    cluster_domain: str = "cluster.local"
    scaleout: str = ""
    """The name of the ScaleOut that added the pod; empty if none did."""
    ssh_secret: str = ""
    """The name of the Secret with the ssh keys of this attempt; `mount_keys` mounts them."""
    hosts: int = 0
    """The version of the hosts files that the cluster has; 0 for a pod that reads none."""


class Parser(ABC):
    """The first of a framework's three parts: it reads a resource."""

    @abstractmethod
    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        """The spec, or all problems of the resource.

        It never raises: an older definition may have admitted any JSON.
        """

    def ours(self, manifest: Custom) -> bool:
        """False if another controller manages the job: Muster then neither records nor writes anything."""
        return True

    runtimes: tuple[RuntimeKind, ...] = ()
    """The kinds that have the pod templates of its jobs: TrainJob has them.  A resource comes to every other method
    joined with its runtime (`runtimes.joined`)."""

    def refers_to(self, manifest: Custom) -> Reference | None:
        """The runtime that a resource names; None if it names none that there can be."""
        return None

    def wishes(self, manifest: Custom) -> Wishes | None:
        """The part of a resource that counts after its runtime was changed; None for a kind without runtimes."""
        return None


class PodRenderer(ABC):
    """The second part: it renders the objects of a job from a resource that `parse` accepted."""

    resource: Resource[Custom]
    """The watched version of the kind."""
    role_label: str = ROLE
    index_label: str = INDEX
    """The labels of a pod by which the watcher and the pod's Service know its role and its index."""
    is_queued: bool = False
    """True if Muster itself puts its jobs into queues of Kueue, by the `template` of each role."""

    @abstractmethod
    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        """Render the pod of a slot."""

    def template(self, manifest: Custom, role: str) -> Document:
        """The pod template of a role, for the Workload of a job in a queue of Kueue; only if it `is_queued`."""
        raise NotImplementedError

    def template_path(self, manifest: Custom, role: str) -> str:
        """Where the pod template of a role stands in the resource, for people; empty if the kind does not say."""
        return ""

    def service(self, manifest: Custom, spec: JobSpec, key: JobKey, context: PodContext | None) -> Document:
        """Render the headless Service of all pods, or with a `context` that of one pod; pods need not be Ready."""
        selector: dict[str, str] = {JOB_UID: key.uid}
        if context is not None:
            selector |= {self.role_label: context.slot.role, self.index_label: str(context.slot.index)}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(self, key, service_name(key.name) if context is None else context.name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": self.ports(manifest, spec, context),
            },
        }

    def ports(self, manifest: Custom, spec: JobSpec, context: PodContext | None) -> list[Document]:
        """The ports of the Services; a headless Service needs none."""
        return []

    def metrics(self, manifest: Custom) -> list[Document]:
        """By which the autoscaler of a job that is `autoscaled` changes the number of workers."""
        return []

    def autoscaler(self, manifest: Custom, spec: JobSpec, key: JobKey) -> Document:
        target = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "name": key.name}
        return {
            "apiVersion": AUTOSCALERS.api_version,
            "kind": AUTOSCALERS.kind,
            "metadata": metadata(self, key, key.name),
            "spec": {
                "scaleTargetRef": target,
                "minReplicas": spec.worker.min_replicas,
                "maxReplicas": spec.worker.max_replicas,
                "metrics": self.metrics(manifest),
            },
        }

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        """Render the hosts files, by name; empty for a framework without them."""
        return {}

    @property
    def has_hosts_files(self) -> bool:
        """True if the framework has hosts files: the scaler then needs the rights to write them."""
        return type(self).hosts_files is not PodRenderer.hosts_files

    def labels(self, key: JobKey) -> dict[str, str]:
        """The labels of every object of a job."""
        return {JOB_UID: key.uid}

    def pod_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        """The labels of the pod in a slot, besides those of every object of its job."""
        return {self.role_label: slot.role, self.index_label: str(slot.index)}


class StatusRenderer(ABC):
    """The third part: it renders the status in the kind's own shape, and reads the phase in it."""

    announcements: Mapping[str, str] = MappingProxyType({})
    """The kind's own reason of a Kubernetes Event, by key: the type of a condition, `WorkerFailed`, or `Refused`.
    Refusals are announced only for kinds that have the key `Refused`."""
    reports_result: bool = False
    """True if the status has the termination message of a role's first pod that succeeded: the log then keeps it."""

    @abstractmethod
    def status(self, job: Job) -> Document:
        """Render the status without `history` and `lastReconcileTime`.

        None marks a field to remove.
        """

    def phase(self, status: Document) -> str:
        """The phase that a status shows, as a `shared.job.state.Phase`; empty before the first.

        It reads the conditions, which most kinds have, and raises nothing for any JSON.
        """
        true = true_conditions(status)
        # A job that was never admitted may show that it was rejected.
        return next((phase for phase in _WEIGHTIEST_FIRST if phase in true and "Created" in true), "")


def true_conditions(status: Document) -> list[Any]:
    """The types of the conditions that are true in a status with any JSON."""
    return [known.get("type") for known in objects(status.get("conditions")) if known.get("status") == "True"]


_WEIGHTIEST_FIRST = ("Failed", "Succeeded", "Suspended", "Suspending", "Restarting", "Scaling", "Running", "Created")


class Framework(Parser, PodRenderer, StatusRenderer):
    """One kind of job.  Implementations have no state and are shared between threads and jobs."""

    take_over: TakeOver = TakeOver()

    @property
    def name(self) -> str:
        """The kind with its group, because three groups have an MXJob."""
        return f"{self.resource.kind}.{self.resource.group}"

    @property
    @abstractmethod
    def definition(self) -> Definition:
        """The source of the kind's CustomResourceDefinition."""

    requests: tuple[Resource[Custom], ...] = ()
    """The kinds of scale requests that name its jobs: TrainingJob has them, and no kind of another package."""

    @property
    def others(self) -> tuple["Framework", ...]:
        """The same kind in other versions, in order of preference, for clusters that do not serve this one."""
        return ()


def resources_of(framework: Framework) -> tuple[Resource[Custom], ...]:
    """The kinds that come with a framework: its jobs, their scale requests, and the runtimes that they name."""
    return (framework.resource, *framework.requests, *(runtime.resource for runtime in framework.runtimes))


def slot_labels(framework: PodRenderer, key: JobKey, slot: Slot) -> dict[str, str]:
    """The labels of the pod in a slot, besides its template's."""
    return framework.labels(key) | framework.pod_labels(key, slot) | {ATTEMPT: str(slot.attempt)}


def key_of(manifest: Custom) -> JobKey:
    return JobKey(manifest.metadata.namespace, manifest.metadata.name, Uid(manifest.metadata.uid))


def metadata(framework: PodRenderer, key: JobKey, name: str) -> Document:
    """The metadata of an object that the job controls."""
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": framework.labels(key),
        "ownerReferences": [owner_reference(framework.resource, key)],
    }


def owner_reference(resource: Resource[Custom], key: JobKey) -> Document:
    """The job as controller: the garbage collector deletes its children, and no other controller adopts them."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": key.name,
        "uid": key.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
