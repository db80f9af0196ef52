"""MPIJob (`kubeflow.org`, v1 and v2beta1): a launcher that starts processes on its workers by ssh.  Pure.

Both versions are one kind, of which one version is watched.  A job written as v2beta1 has fields that v1 lacks:
its definition sets the first of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks.attaching import (
    OMPI_AGENTS,
    OMPI_ARGS,
    OMPI_FLAT,
    OMPI_HOSTS,
    OMPI_KEEP,
    OMPI_RESOLVING,
    OMPI_SLOTS,
    SSH_VOLUME,
    check_ssh_folder,
    for_all_versions,
    mount_hosts,
    mount_keys,
)
from shared.frameworks.framework import Framework, PodContext
from shared.frameworks.kubeflow import (
    JOB_ROLE,
    REPLICA_INDEX,
    KubeflowJob,
    OfTrainingOperator,
    is_type,
    scale_of_workers,
)
from shared.frameworks.model import Written, choice, flag, number, text
from shared.frameworks.pods import pod_of
from shared.frameworks.reading import DEFAULT_BACKOFF_LIMIT, MOST_SLOTS, Fields
from shared.frameworks.replicated import Replica, ReplicaType
from shared.frameworks.schemas import Definition, Document, Version, rule
from shared.frameworks.statuses import OPERATOR_NAME, REPLICA_TYPE
from shared.frameworks.takeover import Inherited
from shared.frameworks.templates import Promises, absolute
from shared.job.naming import DISCOVER_HOSTS, HOSTFILE, MIN_WORKERS, MPI_FOLDER, SSH_FOLDER, JobKey, Slot, WorkerName
from shared.job.spec import (
    LAUNCHED_TOGETHER,
    LAUNCHER,
    WORKER,
    Elasticity,
    JobSpec,
    Problem,
    RestartPolicy,
    RoleSpec,
)
from shared.untrusted import at, objects, whole_number

Implementation = Literal["OpenMPI", "Intel", "MPICH"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("OpenMPI", "Intel", "MPICH")
CREATION_POLICIES = ("AtStartup", "WaitForWorkersReady")

OF_V2BETA1 = ("sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy", "runLauncherAsWorker")
"""Fields of v2beta1; a job of v1 has none of them but an empty first one, one of v2beta1 at least the first.

Each definition's default of the first one says so in the stored job, and the other version keeps it: a program that
reads and writes jobs of v1 as v2beta1, such as Kueue, makes none of v2beta1 of them.
"""

OPERATOR = "mpi-operator"
OLD_GROUP_NAME = "group-name"
OLD_JOB_NAME = "mpi-job-name"
OLD_JOB_ROLE = "mpi-job-role"
"""Labels of older operators, by which people still select."""

MOST_WORKERS = 5_000
"""The most workers: the hosts file of the longest names then fits into one ConfigMap (1 MiB)."""

NO_WORKER = "ask for at least one Worker, or leave Worker out to have the launcher alone"

WORKER_COMMAND = ("/usr/sbin/sshd", "-De")
"""The command of a worker whose template has neither command nor args."""

NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
"""Hides GPUs: a container runtime shows all GPUs of the node to an image that asks for them."""

KUBEXEC = f"{MPI_FOLDER}/kubexec.sh"
"""A file that upstream's v1 mounts and Muster does not."""

OF_A_BATCH_JOB = "its launcher is the pod of a Batch Job: let mpi-operator run until the job ends, or suspend it there"
"""Why a job of mpi-operator that runs is left alone: that pod has a name of chance, and Kubernetes makes it again."""

_TRIES = "-o ConnectionAttempts=10"
_HOSTS = f"{MPI_FOLDER}/{HOSTFILE}"

_FOLDERS = {"muster-hosts-mpi": (MPI_FOLDER, {HOSTFILE: HOSTFILE, DISCOVER_HOSTS: DISCOVER_HOSTS})}

# Only built-ins of a shell: an image may lack `cat`.
_DISCOVER_SLOTS = f"""\
#!/bin/sh
while read -r host slots; do
  echo "$host:${{slots#slots=}}"
done < {_HOSTS}
"""
_DISCOVER_LINES = f"""\
#!/bin/sh
while read -r host; do
  echo "$host"
done < {_HOSTS}
"""


class _OfMpi(Written):
    """The fields of `spec` that only this kind has."""

    slots_per_worker = number("How many processes a worker takes; 1 when absent.", 0, MOST_SLOTS)
    main_container = text()
    ssh_auth_mount_path = text(pattern="^(/[^:]*)?$")
    launcher_creation_policy = choice(
        CREATION_POLICIES, "AtStartup", "UnknownCreationPolicy", "The launcher waits for them anyway.", empty=True
    )
    run_launcher_as_worker = flag()
    mpi_distribution = text("Of v1alpha2, and refused: write mpiImplementation.")
    mpi_implementation = choice(IMPLEMENTATIONS, "OpenMPI", "UnknownImplementation", "OpenMPI when absent.", empty=True)


class OfMpiOperator(OfTrainingOperator):
    """The traces of training-operator in jobs of v1, and of mpi-operator in those of v2beta1."""

    def role_and_index(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        role = labels.get(REPLICA_TYPE) or labels.get(JOB_ROLE, "")
        # A launcher has no label with an index.
        return (LAUNCHER, 0) if role == LAUNCHER else super().role_and_index({**labels, REPLICA_TYPE: role})

    def status(self, manifest: Custom) -> Inherited | None:
        theirs = super().status(manifest)
        if theirs is None or theirs.end:
            return theirs
        if any(known.type == "Suspended" and known.status for known in theirs.conditions):
            return theirs
        if _is_v2beta1(Fields(manifest.spec, "spec", [])):
            return msgspec.structs.replace(theirs, obstacle=OF_A_BATCH_JOB)
        # mpi-operator 0.3 fills no field in, and the pods of 0.2 have other labels.
        return msgspec.structs.replace(theirs, without_launcher=OF_A_BATCH_JOB if theirs.begun else "")


class MPIJob(KubeflowJob):
    """Open MPI, Intel MPI, MPICH, and programs that start with them, such as Horovod."""

    job_type = "MPIJob"
    short_names = ("mpij",)
    description = "An MPI job: a launcher starts processes on its workers by ssh; the workers may come and go."
    replica_specs = "mpiReplicaSpecs"
    replica_types = (ReplicaType("Launcher", least=1, most=1), ReplicaType("Worker", most=MOST_WORKERS, replicas=0))
    take_over = OfMpiOperator(replica_types)
    controllers = ("", "kubeflow.org/training-operator", "kubeflow.org/mpi-operator")
    handling = LAUNCHED_TOGETHER
    model = _OfMpi
    told = ("slotsPerWorker", "mainContainer", *OF_V2BETA1)
    scale = scale_of_workers(replica_specs)

    @property
    def others(self) -> tuple[Framework, ...]:
        return (MPIJOB_V2BETA1,)

    @property
    def definition(self) -> Definition:
        described = super().definition
        fields = described.spec["properties"]
        newer = Version("v2beta1", spec=described.spec | {"properties": fields | _marked(SSH_FOLDER)})
        return described._replace(spec=described.spec | {"properties": fields | _marked("")}, versions=(newer,))

    def rules_of_replicas(self) -> Iterator[Document]:
        yield from super().rules_of_replicas()
        some = "(has(self[name].replicas) && self[name].replicas > 0)"
        yield rule(f"self.all(name, !{is_type(WORKER)} || {some})", NO_WORKER)

    def replicas(self, spec: Fields) -> Iterator[tuple[ReplicaType, Fields]]:
        for kind, fields in super().replicas(spec):
            if kind.role == WORKER and fields.raw("replicas") in (None, 0):
                fields.refuse("NoReplicas", NO_WORKER, "replicas")
            if kind.role == LAUNCHER:
                _check_agent(fields)
            again = kind.role == LAUNCHER and _is_v2beta1(spec)
            yield (kind._replace(restart_policy="OnFailure") if again else kind), fields

    def restart_policy(self, kind: ReplicaType, fields: Fields) -> RestartPolicy:
        # A launcher of v2beta1 is the pod of a Batch Job, which follows a failed one with another under Never, too.
        policy = super().restart_policy(kind, fields)
        return kind.restart_policy if policy == "Never" else policy

    def container(self, spec: Fields, kind: ReplicaType) -> str:
        """`mainContainer` names the worker's container with the processes; the launcher's is the first."""
        return spec.text("mainContainer") if kind.role == WORKER else ""

    def stem(self, manifest: Custom, kind: ReplicaType) -> str:
        # A job has one launcher, without an index.
        return "" if kind.role == LAUNCHER else super().stem(manifest, kind)

    def promises(self, manifest: Custom, kind: ReplicaType, fields: Fields) -> Promises:
        of_launcher, path = kind.role == LAUNCHER, manifest.spec.get("sshAuthMountPath")
        return (
            super()
            .promises(manifest, kind, fields)
            ._replace(
                subdomain=True,
                folders=(MPI_FOLDER,) if of_launcher else (),
                ssh=absolute(path) or SSH_FOLDER,
                volumes=(SSH_VOLUME, *(_FOLDERS if of_launcher else ())),
            )
        )

    def spec_of(self, manifest: Custom, spec: Fields, roles: tuple[RoleSpec, ...]) -> JobSpec:
        newer = _is_v2beta1(spec)
        own = _OfMpi(spec)
        if spec.raw("mpiDistribution"):
            # The API server would drop it, and the job would run with Open MPI.
            spec.refuse("FieldNotSupported", "write mpiImplementation: OpenMPI, Intel or MPICH", "mpiDistribution")
        check_ssh_folder(spec)
        parsed = super().spec_of(manifest, spec, roles)
        limited = spec.has("backoffLimit") or spec.part("runPolicy").has("backoffLimit") or not newer
        least = _min_workers(manifest, spec, parsed.worker)
        return msgspec.structs.replace(
            parsed,
            roles=tuple(_with_minimum(role, least or 1) for role in roles),
            handling=msgspec.structs.replace(parsed.handling, whole=not least),
            elasticity=Elasticity() if least else None,
            attach_mode="ssh",
            slots_per_worker=1 if own.slots_per_worker is None else own.slots_per_worker,
            backoff_limit=parsed.backoff_limit if limited else DEFAULT_BACKOFF_LIMIT,
            hosts_style=own.mpi_implementation if newer else "",
            # A v1 launcher with GPUs computes, too.
            launcher_works=own.run_launcher_as_worker or (not newer and _takes_gpus(manifest, self)),
        )

    def leads(self, spec: JobSpec, slot: Slot) -> bool:
        # Every pod has its role in that label.
        return False

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        role = context.slot.role
        pod = pod_of(self, self.template(manifest, role), context, search=True)
        name = spec.role(role).container
        wanted = self.environment(Replica(job=manifest, spec=spec, context=context, ports={}))
        pod["spec"]["containers"] = [
            self._with_environment(_listening(known, role), wanted, 0) if known["name"] == name else known
            for known in pod["spec"]["containers"]
        ]
        if role == LAUNCHER:
            mount_hosts(pod["spec"], context.key, _FOLDERS, name)
        folder = manifest.spec.get("sshAuthMountPath") or SSH_FOLDER
        workers = self.template(manifest, WORKER) if spec.has(WORKER) else {}
        mount_keys(pod["spec"], context, folder=folder, workers=workers, container=name)
        if role == WORKER and manifest.spec.get("runLauncherAsWorker"):
            # Kueue takes the numbers as ranks, of which the launcher has the first.
            pod["metadata"]["labels"][REPLICA_INDEX] = str(context.slot.index + 1)
        return pod

    def environment(self, replica: Replica) -> Mapping[str, str]:
        role, spec = {"K_MPI_JOB_ROLE": replica.role}, replica.spec
        if replica.role != LAUNCHER:
            return role
        gpus = spec.launcher_works or _takes_gpus(replica.job, self)
        return role | _reaching(spec) | ({} if gpus else NO_GPU)

    def ports(self, manifest: Custom, spec: JobSpec, context: PodContext | None) -> list[Document]:
        return []

    def labels(self, key: JobKey) -> dict[str, str]:
        return super().labels(key) | {OPERATOR_NAME: OPERATOR}

    def pod_labels(self, key: JobKey, slot: Slot) -> dict[str, str]:
        old = {OLD_GROUP_NAME: self.group, OLD_JOB_NAME: key.name, OLD_JOB_ROLE: slot.role}
        return super().pod_labels(key, slot) | {JOB_ROLE: slot.role} | old

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        domain = f".{key.name}.{key.namespace}.svc" if spec.hosts_style else ""
        # Intel MPI knows the host that it runs on by its own name alone, and reaches any other by ssh.
        own = "" if spec.hosts_style == "Intel" else domain
        launcher = [f"{key.name}-{LAUNCHER}{own}"] if spec.launcher_works else []
        hosts = [*launcher, *(f"{member}{domain}" for member in members)]
        hydra = spec.hosts_style in ("Intel", "MPICH")
        between = ":" if hydra else " slots="
        return {
            HOSTFILE: "".join(f"{host}{between}{spec.slots_per_worker}\n" for host in hosts),
            DISCOVER_HOSTS: _DISCOVER_LINES if hydra else _DISCOVER_SLOTS,
        }


class MPIJobV2Beta1(MPIJob):
    """The v2beta1 version, for clusters that do not serve v1."""

    version = "v2beta1"

    @property
    def others(self) -> tuple[Framework, ...]:
        return ()


def _marked(default: str) -> Document:
    return {"sshAuthMountPath": _OfMpi.ssh_auth_mount_path.schema | {"default": default}}


def _is_v2beta1(spec: Fields) -> bool:
    return any(spec.has(name) and spec.raw(name) != "" for name in OF_V2BETA1)


def _check_agent(launcher: Fields) -> None:
    for container in launcher.part("template").part("spec").parts("containers")[:1]:
        for variable in container.parts("env"):
            if variable.raw("name") in OMPI_AGENTS and variable.raw("value") == KUBEXEC:
                variable.refuse("KubexecNotSupported", "leave it out: workers are reached by ssh")


def _min_workers(manifest: Custom, spec: Fields, worker: RoleSpec) -> int:
    """With how many workers the job starts while there is no room for all; 0 for one that waits for all.

    Its users say it to the program alone, as `horovodrun --min-np`: the kind has no field for it.
    """
    said = (manifest.metadata.annotations or {}).get(MIN_WORKERS)
    if said is None:
        return 0
    least = whole_number(said, len(str(MOST_WORKERS))) or 0
    field = f"metadata.annotations[{MIN_WORKERS}]"
    if not 1 <= least <= max(worker.replicas, 1):
        spec.note(Problem(reason="BelowMinimum", field=field, message="set a number from 1 to the Worker's replicas"))
    return least


def _with_minimum(role: RoleSpec, least: int) -> RoleSpec:
    """The role; of the workers, with the number of them, `least`, without which the job does not go on."""
    return msgspec.structs.replace(role, min_replicas=min(role.replicas, least)) if role.name == WORKER else role


def _listening(container: Document, role: str) -> Document:
    if role == LAUNCHER or container.get("command") or container.get("args"):
        return container
    return container | {"command": [*WORKER_COMMAND]}


def _reaching(spec: JobSpec) -> dict[str, str]:
    """The variables by which the MPI implementation finds the hosts, and retries to reach them."""
    slots = str(spec.slots_per_worker)
    match spec.hosts_style:
        case "Intel":
            return {
                "I_MPI_HYDRA_HOST_FILE": _HOSTS,
                "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _TRIES,
                # Flat: of more than 127 hosts some would be reached from others, which have no key.
                "I_MPI_HYDRA_BRANCH_COUNT": "-1",
                "I_MPI_PERHOST": slots,
            }
        case "MPICH":
            return {"HYDRA_HOST_FILE": _HOSTS, "HYDRA_LAUNCH_EXTRA_ARGS": _TRIES}
        case "OpenMPI":
            more = {OMPI_KEEP: "true", OMPI_SLOTS: slots}
        case _:
            more = {}
    found = for_all_versions({OMPI_HOSTS: _HOSTS, OMPI_ARGS: _TRIES, OMPI_FLAT: "1"} | more)
    # The hosts of v1 have the plain names, by which mpirun knows the launcher anyway.
    return found | (OMPI_RESOLVING if more and spec.launcher_works else {})


def _takes_gpus(manifest: Custom, framework: KubeflowJob) -> bool:
    """True if a container of the launcher has a limit of GPUs of any vendor; for any JSON."""
    spec: Any = manifest.spec
    for step in (framework.replica_specs, LAUNCHER, "template", "spec"):
        members = spec if isinstance(spec, dict) else {}
        spec = next((value for name, value in members.items() if str(name).lower() == step.lower() and value), None)
    limits = (at(container, "resources", "limits") for container in objects(at(spec, "containers")))
    return any("gpu" in str(name) for names in limits if isinstance(names, dict) for name in names)


MPIJOB = MPIJob()
MPIJOB_V2BETA1 = MPIJobV2Beta1()
