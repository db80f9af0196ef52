"""TrainingJob (`kai.alibabacloud.com/v1alpha1`) as a framework: et-operator's elastic training with a launcher."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.attaching import WORKER_COMMAND, mount_hosts, mount_keys
from shared.frameworks.definition import Definition, Document
from shared.frameworks.framework import Framework, Place
from shared.frameworks.pods import pod_of
from shared.frameworks.takeover import Inherited, TakeOver
from shared.frameworks.training import TRAININGJOBS, parse_job
from shared.frameworks.training_schemas import TRAINING_JOB
from shared.frameworks.training_status import job_status
from shared.job.naming import (
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    EDL_FOLDER,
    GROUP_NAME,
    HOSTFILE,
    JOB_FOLDER,
    JOB_NAME,
    JOB_ROLE,
    JOB_UID,
    MPI_FOLDER,
    REPLICA_INDEX,
    SCALEOUT_NAME,
    JobKey,
    Slot,
    WorkerName,
)
from shared.job.spec import LAUNCHER, WORKER, JobSpec, Problem
from shared.job.state import Job

_INDEX = re.compile(r"[0-9]{1,5}")
"""A worker's index in a label or a name."""

# Built-ins of any shell only: an image may lack `cat`.
DISCOVER_SCRIPT = f"""\
#!/bin/sh
while read -r host; do
  echo "$host"
done < {EDL_FOLDER}/{HOSTFILE}
"""

_HOSTS_FOLDERS = {
    "muster-hosts-edl": (EDL_FOLDER, {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS}),
    "muster-hosts-job": (JOB_FOLDER, {HOSTFILE: DEEPSPEED_HOSTFILE}),
    "muster-hosts-mpi": (
        MPI_FOLDER,
        {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS, DEEPSPEED_HOSTFILE: DEEPSPEED_HOSTFILE},
    ),
}
"""Volume → folder in the launcher, and its files with their ConfigMap keys."""


class OfEtOperator(TakeOver):
    """et-operator's traces."""

    selector = f"{GROUP_NAME}={TRAININGJOBS.group}"
    files = MappingProxyType(
        {
            f"{EDL_FOLDER}/{HOSTFILE}": f"{MPI_FOLDER}/{HOSTFILE}",
            f"{JOB_FOLDER}/{HOSTFILE}": f"{MPI_FOLDER}/{DEEPSPEED_HOSTFILE}",
        }
    )
    """The files that it wrote by exec; its /etc/mpi always was the ConfigMap."""

    def place(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Its launcher has no index."""
        role, index = labels.get(JOB_ROLE, ""), labels.get(REPLICA_INDEX, "")
        if role == LAUNCHER:
            return LAUNCHER, 0
        return (WORKER, int(index)) if role == WORKER and _INDEX.fullmatch(index) else None

    def status(self, manifest: Custom) -> Inherited | None:
        """Its status names the wanted workers; it created the launcher last."""
        theirs = super().status(manifest)
        if theirs is None:
            return None
        reached = {known.type for known in theirs.conditions if known.status}
        named = manifest.status.get("targetWorkers")
        stem = f"{manifest.metadata.name}-{WORKER}-"
        indices = [
            int(name.removeprefix(stem))
            for name in (named if isinstance(named, list) else ())
            if isinstance(name, str) and name.startswith(stem) and _INDEX.fullmatch(name.removeprefix(stem))
        ]
        return msgspec.structs.replace(
            theirs,
            begun=theirs.begun or "LauncherCreated" in reached,
            workers=tuple(sorted(set(indices))) if indices else None,
        )


class TrainingJob(Framework):
    """Horovod, DeepSpeed and MPI, elastically: the launcher starts when its workers are Ready."""

    resource = TRAININGJOBS
    take_over = OfEtOperator()

    @property
    def definition(self) -> Definition:
        return TRAINING_JOB

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        return parse_job(manifest)

    def pod(self, manifest: Custom, spec: JobSpec, place: Place) -> Document:
        template = manifest.spec["etReplicaSpecs"][place.slot.role]["template"]
        pod = pod_of(self, template, place, search=True)
        if place.scaleout:
            pod["metadata"]["labels"][SCALEOUT_NAME] = place.scaleout
        if place.slot.role == LAUNCHER:
            mount_hosts(pod["spec"], place.key, _HOSTS_FOLDERS)
        else:
            first, *others = pod["spec"]["containers"]
            if not first.get("command") and not first.get("args"):
                first = first | {"command": [*WORKER_COMMAND]}
            pod["spec"]["containers"] = [first, *others]
        if spec.attach_mode == "ssh":
            mount_keys(pod["spec"], place.key, spec.ssh_secret)
        return pod

    def status(self, job: Job) -> Document:
        return job_status(job)

    def phase(self, status: Document) -> str:
        phase = status.get("phase")
        return phase if isinstance(phase, str) else ""

    def labels(self, key: JobKey) -> dict[str, str]:
        return {GROUP_NAME: self.resource.group, JOB_NAME: key.name, JOB_UID: key.uid}

    def pod_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        """The launcher has an index, too: otherwise a label of that name in its template would count."""
        return {JOB_ROLE: slot.role, REPLICA_INDEX: str(slot.index)}

    def ports(self, manifest: Custom, spec: JobSpec, place: Place | None) -> list[Document]:
        return [{"name": "ssh-port", "port": 22}, {"name": "kubeai-service-port", "port": 9009}]

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        slots = spec.slots_per_worker
        return {
            HOSTFILE: "".join(f"{member}:{slots}\n" for member in members),
            DEEPSPEED_HOSTFILE: "".join(f"{member} slots={slots}\n" for member in members),
            DISCOVER_HOSTS: DISCOVER_SCRIPT,
        }


TRAININGJOB = TrainingJob()
