"""What a framework is: one kind of job, read from its resource into the canonical job, and shown in its own shape.

Everything that is particular to a kind is here and in its file: names, fields, environment, status.  What happens to
jobs is decided elsewhere, from the `JobSpec` alone.  Pure.
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
    """Where a pod stands: what rendering it needs besides its resource and its spec."""

    key: JobKey
    slot: Slot
    name: WorkerName
    sizes: Mapping[str, int]
    """How many pods each role has in this attempt, whatever the resource says by now."""
    cluster_domain: str = "cluster.local"
    scaleout: str = ""
    """The ScaleOut that asked for it; empty when none did."""


class Scale(NamedTuple):
    """Where `kubectl scale` and autoscalers find a job's size; paths within the resource."""

    spec: str
    status: str = ".status.replicas"
    selector: str = ".status.selector"


class Version(NamedTuple):
    """Another version of a kind; None is as in the version that is watched.

    Nobody converts: what is stored is read through every version's schema, and what a schema does not declare is
    dropped then.  So the schema of the version that is watched declares the fields of all others too.
    """

    name: str
    spec: Document | None = None
    columns: tuple[Document, ...] | None = None
    rules: tuple[Document, ...] | None = None
    status: Document | None = None
    scale: Scale | None = None


class Definition(NamedTuple):
    """What the CustomResourceDefinition of a kind is made of, beside its names; `schemas.py` has the pieces."""

    description: str
    spec: Document
    """The OpenAPI schema of `spec`; pod templates in it keep unknown fields."""
    short_names: tuple[str, ...] = ()
    singular: str = ""
    columns: tuple[Document, ...] = ()
    """As in `additionalPrinterColumns`."""
    rules: tuple[Document, ...] = ()
    """As in `x-kubernetes-validations` of the whole resource."""
    status: Document | None = None
    """The OpenAPI schema of `status`, but for `lastReconcileTime` and `history`; without one anything is kept."""
    scale: Scale | None = None
    versions: tuple[Version, ...] = ()
    """Others that are served."""


_WEIGHTIEST_FIRST = ("Failed", "Succeeded", "Suspended", "Restarting", "Scaling", "Running", "Created")


class Framework(ABC):
    """One kind of job.  Implementations have no state and are shared between threads and jobs."""

    resource: Resource[Custom]
    """The version of it that is watched and written."""
    announcements: Mapping[str, str] = MappingProxyType({})
    """Reasons of Kubernetes Events where they are not the kind with what happened, by what happened: the type of a
    condition, `WorkerFailed`, or `Refused`, which is announced only where it stands here."""
    inherits: str = ""
    """A label selector of the pods that the operator before us made for jobs of this kind, by labels that it never
    changed; empty where its jobs cannot be taken over."""
    expires: bool = True
    """Whether its jobs can say how long they are kept after their end: then the scheduler deletes them."""
    suspend_path: str = ""
    """Where a resource asks for a pause, such as `.spec.runPolicy.suspend`; empty where it cannot."""

    @property
    def name(self) -> str:
        """Unlike any other framework's: three groups have an MXJob."""
        return f"{self.resource.kind}.{self.resource.group}"

    @property
    def others(self) -> tuple["Framework", ...]:
        """The same kind in other versions, for clusters that do not serve this one; the one to take first, first."""
        return ()

    @property
    @abstractmethod
    def definition(self) -> Definition:
        """What `muster.crds` makes its CustomResourceDefinition of."""

    @abstractmethod
    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        """What the job asks for; or why it cannot be acted upon, all problems at once.  Raises nothing, whatever
        stands in the resource: older definitions let anything through."""

    def ours(self, manifest: Custom) -> bool:
        """Whether it is for us to act on this job; one that is not is neither noted nor written to."""
        return True

    @abstractmethod
    def pod(self, manifest: Custom, spec: JobSpec, place: Place) -> Document:
        """The pod of a slot, from a resource that `parse` accepted."""

    @abstractmethod
    def status(self, job: Job) -> Document:
        """The status of the job's resource in the kind's own shape, without `history` and `lastReconcileTime`.

        None marks a field that shall be absent.
        """

    def inherited(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Role and index of a pod that the operator before us made; None when its labels do not say so."""
        return None

    def inherited_status(self, manifest: Custom) -> Inherited | None:
        """What a status says that has no head of ours; None when it is as good as empty."""
        return read_status(manifest.status)

    def inherited_files(self) -> Mapping[str, str]:
        """Files in the inherited launcher that its old operator kept by hand → where the hosts ConfigMap shows there.

        They become links; none where the launcher reads no such files.
        """
        return {}

    def phase(self, status: Document) -> str:
        """The phase of a job that shows this status, in the words of `shared.job.state.Phase`; empty before the first.

        This one reads the conditions, which most kinds have; it raises nothing, whatever stands there.
        """
        conditions = status.get("conditions")
        true = [
            known.get("type")
            for known in (conditions if isinstance(conditions, list) else ())
            if isinstance(known, dict) and known.get("status") == "True"
        ]
        # A job that was never taken on may show that it was refused.
        return next((phase for phase in _WEIGHTIEST_FIRST if phase in true and "Created" in true), "")

    def labels(self, key: JobKey) -> dict[str, str]:
        """Of every object that is made for a job."""
        return {JOB_UID: key.uid}

    def place_labels(self, slot: Slot) -> dict[str, str]:
        """By which the pods of a job are told apart."""
        return {ROLE: slot.role, INDEX: str(slot.index)}

    def slot_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        """Of the pod in a slot, on top of what its template says."""
        return self.labels(key) | self.place_labels(slot) | {ATTEMPT: str(slot.attempt)}

    def service(self, manifest: Custom, spec: JobSpec, key: JobKey, place: Place | None) -> Document:
        """The headless Service behind all pods' names, Ready or not; with a `place` the one of that pod alone."""
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
        """Of its Services; a headless one needs none."""
        return []

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        """The files by name that tell the launcher who the workers are, where the framework has such files."""
        return {}

    @property
    def has_hosts_files(self) -> bool:
        """Whether it has such files at all: the scaler, which writes them, needs rights for it."""
        return type(self).hosts_files is not Framework.hosts_files

    def metadata(self, key: JobKey, name: str) -> Document:
        """Of an object named `name` that the job controls."""
        return {
            "name": name,
            "namespace": key.namespace,
            "labels": self.labels(key),
            "ownerReferences": [self.owner_reference(key)],
        }

    def owner_reference(self, key: JobKey) -> Document:
        """The job as controller: the garbage collector takes its children with it, nobody else adopts them."""
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "name": key.name,
            "uid": key.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
