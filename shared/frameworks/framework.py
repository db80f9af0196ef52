"""The interface of a framework: it parses one kind of job into the canonical job, and renders pods and status.

A framework has all that is particular to its kind: names, fields, environment, status.  The services decide from the
`JobSpec` alone.  Pure.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.inheriting import Inherited, read_status
from shared.job.naming import ATTEMPT, INDEX, JOB_UID, ROLE, JobKey, Slot, WorkerName, service_name
from shared.job.spec import JobSpec, Problem
from shared.job.state import Job

Document = dict[str, Any]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the rendering of a pod needs besides its resource and its spec."""

    key: JobKey
    slot: Slot
    name: WorkerName
    sizes: Mapping[str, int]
    """The number of pods of each role in this attempt; the resource may have been edited since."""
    cluster_domain: str = "cluster.local"
    scaleout: str = ""
    """The name of the ScaleOut that added the pod; empty if none did."""


class Scale(NamedTuple):
    """The paths in the resource where `kubectl scale` and autoscalers find a job's size."""

    spec: str
    status: str = ".status.replicas"
    selector: str = ".status.selector"


class Version(NamedTuple):
    """Another version of a kind; None means as in the watched version.

    No webhook converts: the API server reads a stored object through every version's schema, and drops fields that
    the schema does not declare.  So the schema of the watched version declares the fields of all others, too.
    """

    name: str
    spec: Document | None = None
    columns: tuple[Document, ...] | None = None
    rules: tuple[Document, ...] | None = None
    status: Document | None = None
    scale: Scale | None = None


class Definition(NamedTuple):
    """The parts of a kind's CustomResourceDefinition besides its names; `schemas.py` has the pieces."""

    description: str
    spec: Document
    """The OpenAPI schema of `spec`; pod templates in it keep unknown fields."""
    short_names: tuple[str, ...] = ()
    singular: str = ""
    columns: tuple[Document, ...] = ()
    """The `additionalPrinterColumns`."""
    rules: tuple[Document, ...] = ()
    """The `x-kubernetes-validations` of the whole resource."""
    status: Document | None = None
    """The OpenAPI schema of `status` without `lastReconcileTime` and `history`; None keeps every field."""
    scale: Scale | None = None
    versions: tuple[Version, ...] = ()
    """The other served versions."""


_WEIGHTIEST_FIRST = ("Failed", "Succeeded", "Suspended", "Suspending", "Restarting", "Scaling", "Running", "Created")


class Framework(ABC):
    """One kind of job.  Implementations have no state and are shared between threads and jobs."""

    resource: Resource[Custom]
    """The watched version of the kind."""
    announcements: Mapping[str, str] = MappingProxyType({})
    """The kind's own reasons of Kubernetes Events, by the type of the condition, `WorkerFailed` or `Refused`.
    Refusals are announced only for kinds that have a reason `Refused` here."""
    inherits: str = ""
    """A label selector of the pods that the replaced operator created, by labels that it never
    changed; empty if its jobs cannot be taken over."""
    expires: bool = True
    """True if its jobs have a time to live after their end, after which the scheduler deletes them."""
    suspend_path: str = ""
    """The path of the field that suspends a job, such as `.spec.runPolicy.suspend`; empty without one."""

    @property
    def name(self) -> str:
        """The kind with its group, because three groups have an MXJob."""
        return f"{self.resource.kind}.{self.resource.group}"

    @property
    def others(self) -> tuple["Framework", ...]:
        """The same kind in other versions, in order of preference, for clusters that do not serve this one."""
        return ()

    @property
    @abstractmethod
    def definition(self) -> Definition:
        """The source of the kind's CustomResourceDefinition."""

    @abstractmethod
    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        """The spec, or all problems of the resource.  It raises nothing for any JSON: older
        definitions let anything through."""

    def ours(self, manifest: Custom) -> bool:
        """False if another controller manages the job: Muster then neither records nor writes anything."""
        return True

    @abstractmethod
    def pod(self, manifest: Custom, spec: JobSpec, place: Place) -> Document:
        """Render the pod of a slot, from a resource that `parse` accepted."""

    @abstractmethod
    def status(self, job: Job) -> Document:
        """Render the status in the kind's own shape, without `history` and `lastReconcileTime`.

        None marks a field to remove.
        """

    def inherited(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """The role and the index of a pod that the replaced operator created; None if its labels do not tell them."""
        return None

    def inherited_status(self, manifest: Custom) -> Inherited | None:
        """The state in a status of the replaced operator; None if it has none."""
        return read_status(manifest.status)

    def inherited_files(self) -> Mapping[str, str]:
        """Hosts files that the replaced operator wrote into the launcher → their path in the mounted ConfigMap.

        The scaler replaces the former by links to the latter.
        """
        return {}

    def phase(self, status: Document) -> str:
        """The phase that a status shows, as a `shared.job.state.Phase`; empty before the first.

        It reads the conditions, which most kinds have, and raises nothing for any JSON.
        """
        conditions = status.get("conditions")
        true = [
            known.get("type")
            for known in (conditions if isinstance(conditions, list) else ())
            if isinstance(known, dict) and known.get("status") == "True"
        ]
        # A job that was never admitted may show that it was rejected.
        return next((phase for phase in _WEIGHTIEST_FIRST if phase in true and "Created" in true), "")

    def labels(self, key: JobKey) -> dict[str, str]:
        """The labels of every object of a job."""
        return {JOB_UID: key.uid}

    def place_labels(self, slot: Slot) -> dict[str, str]:
        """The labels that distinguish the pods of a job."""
        return {ROLE: slot.role, INDEX: str(slot.index)}

    def slot_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        """The labels of the pod in a slot, besides its template's."""
        return self.labels(key) | self.place_labels(slot) | {ATTEMPT: str(slot.attempt)}

    def service(self, manifest: Custom, spec: JobSpec, key: JobKey, place: Place | None) -> Document:
        """Render the headless Service of all pods, or with a `place` that of one pod; pods need not be Ready."""
        selector = {JOB_UID: key.uid} | (self.place_labels(place.slot) if place is not None else {})
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(key, service_name(key.name) if place is None else place.name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector,
                "ports": self.ports(manifest, spec, place),
            },
        }

    def ports(self, manifest: Custom, spec: JobSpec, place: Place | None) -> list[Document]:
        """The ports of the Services; a headless Service needs none."""
        return []

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        """Render the hosts files, by name; empty for a framework without them."""
        return {}

    @property
    def has_hosts_files(self) -> bool:
        """True if the framework has hosts files: the scaler then needs the rights to write them."""
        return type(self).hosts_files is not Framework.hosts_files

    def metadata(self, key: JobKey, name: str) -> Document:
        """The metadata of an object that the job controls."""
        return {
            "name": name,
            "namespace": key.namespace,
            "labels": self.labels(key),
            "ownerReferences": [self.owner_reference(key)],
        }

    def owner_reference(self, key: JobKey) -> Document:
        """The job as controller: the garbage collector deletes its children, and no other controller adopts them."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": key.name,
            "uid": key.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
