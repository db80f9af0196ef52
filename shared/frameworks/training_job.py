"""TrainingJob (`kai.alibabacloud.com/v1alpha1`) as a framework: et-operator's elastic training with a launcher.  Pure.

Older definitions let anything through, so any JSON gives a spec or all its problems.  A field of the spec stands
in `_Spec`, from which the definition (`make crds`) and the reader follow, and in `shared/job/spec.py`.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks import reading, schemas
from shared.frameworks.attaching import OMPI_FLAT, SSH_VOLUME, WORKER_COMMAND, for_all_versions, mount_hosts, mount_keys
from shared.frameworks.framework import Framework, PodContext, key_of, slot_labels
from shared.frameworks.model import Field, Written, anything, choice, flag, number, part
from shared.frameworks.pods import pod_of
from shared.frameworks.reading import MOST_SLOTS
from shared.frameworks.scale_requests import GROUP, SCALEINS, SCALEOUTS, VERSION
from shared.frameworks.schemas import Definition, Document, Scale
from shared.frameworks.statuses import before_admission, condition, counts, trainer_status, whole_seconds, with_losses
from shared.frameworks.takeover import DIGITS, Inherited, TakeOver
from shared.frameworks.templates import Promises, check_variables, gpus, training_container
from shared.job import waiting
from shared.job.naming import (
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    EDL_FOLDER,
    HOSTFILE,
    JOB_UID,
    LONGEST_JOB_NAME,
    MPI_FOLDER,
    SSH_FOLDER,
    JobKey,
    Slot,
    WorkerName,
    worker_index,
)
from shared.job.policies.retries import LEAST_RETRYABLE_CODE
from shared.job.sorted_set import SortedSet
from shared.job.spec import (
    GROW_SECONDS,
    LAUNCHER,
    SETTLE_SECONDS,
    WORKER,
    Elasticity,
    JobSpec,
    Problem,
    RestartPolicy,
    RoleSpec,
)
from shared.job.state import Job
from shared.job.views import ended
from shared.untrusted import whole_number

SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"
"""The annotation of et-operator that suspends a job."""

JOB_RESTART_POLICIES: tuple[RestartPolicy, ...] = ("Never", "OnFailure")
ONE_LAUNCHER = "set 1 or leave it out: a job has one launcher"
NO_KUBEXEC = "set ssh or leave it out: attaching through the API server is not supported"


class _Launcher(Written):
    """The one pod that starts the training; the hosts files are in its first container."""

    replicas = number("A job has one.", 1, 1, reason="NotOneLauncher", instead=ONE_LAUNCHER)
    restart_policy = choice(reading.RESTART_POLICIES, "Never", "UnknownRestartPolicy", "Never when absent.")
    template = anything(schemas.TEMPLATE, required=True)


class _Worker(Written):
    """The pods that train."""

    rules = (
        schemas.rule(
            "!has(self.minReplicas) || self.minReplicas <= (has(self.replicas) ? self.replicas : 1)",
            "set replicas to at least minReplicas",
            field=".replicas",
        ),
        schemas.rule(
            "!has(self.maxReplicas) || !has(self.replicas) || self.replicas <= self.maxReplicas",
            "set replicas to at most maxReplicas",
            field=".replicas",
        ),
    )
    replicas = number(
        "How many the job starts with; while it runs an edit scales it.  1 when absent.", 1, reading.MOST_WORKERS
    )
    min_replicas = number("No scaling goes below; replicas when absent.", 1)
    max_replicas = number("No scaling goes beyond; no bound when absent.", 1)
    restart_policy = choice(
        reading.RESTART_POLICIES,
        "Never",
        "UnknownRestartPolicy",
        f"When a worker that ended is replaced: Never when absent; ExitCode after {LEAST_RETRYABLE_CODE} to 255.",
    )
    template = anything(schemas.TEMPLATE, required=True)


class _Roles(Written):
    """The roles of the job."""

    launcher = part(_Launcher)
    worker = part(_Worker)


class _Elasticity(Written):
    """With whom the job trains while there is no room for all of its workers."""

    size = choice(
        ("Requests", "Capacity"),
        "Requests",
        "UnknownElasticity",
        "Requests (when absent): all workers start together.  Capacity: the training starts once minReplicas are "
        "Ready, others join as they find nodes, and workers that are lost are asked for again.",
    )
    settle_seconds = number("Capacity: how long a start with fewer than all workers waits for more: 10 when absent.")
    grow_seconds = number(
        "Capacity: the shortest time, in seconds, from workers that join until more join: 30 when absent."
    )
    max_pending = number(
        "Capacity: how many workers beyond minReplicas may wait for a node at a time, so that an autoscaler of the "
        "cluster buys no more nodes for the job; no bound when absent.",
        1,
    )


class _Spec(Written):
    """What the job asks for."""

    clean_pod_policy = choice(
        reading.CLEAN_POD_POLICIES,
        "Running",
        "UnknownCleanPodPolicy",
        "Deleted after the end: Running (when absent) the pods that still run, All every pod, None what has no node.",
    )
    et_replica_specs = part(_Roles)
    elasticity = Field(_Elasticity.schema(), lambda fields, name: _Elasticity(fields.part(name)))
    launcher_attach_mode = choice(
        ("ssh", "kubexec"),
        "ssh",
        "UnknownAttachMode",
        "How the launcher reaches the workers: ssh.",
        rules=(schemas.rule("self != 'kubexec'", NO_KUBEXEC),),
    )
    slots_per_worker = number(
        "Processes of each worker in the hosts files; when absent its first container's limit of nvidia.com/gpu, or 1.",
        1,
        MOST_SLOTS,
    )
    restart_policy = choice(
        JOB_RESTART_POLICIES, "Never", "UnknownRestartPolicy", "Of the whole job: Never when absent."
    )
    backoff_limit = number("How many restarts and replacements before the job fails: 6 when absent.")
    suspend = flag("While true the job has no pods.")
    active_deadline_seconds = number("How long the job may take in all; no bound when absent.", 1)
    ttl_seconds_after_finished = number("How long after its end the resource is deleted; it stays when absent.")
    scheduling_timeout_seconds = number("How long pods may wait for a node; no bound when absent.", 1)


_JOB_STATUS = schemas.members(
    schemas.STATUS
    | {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation of the spec that this status is about.",
        },
        "replicaStatuses": schemas.REPLICA_STATUSES | {"description": "For Launcher and Worker."},
        "startTime": schemas.TIME | {"description": "When Muster took the job on."},
        "completionTime": schemas.TIME | {"description": "When it Succeeded or Failed."},
        "currentScaler": schemas.TEXT
        | {"description": "The request that is being carried out, such as ScaleIn:namespace/name."},
        "restartCount": schemas.COUNT | {"description": "How often the whole job began anew."},
        "targetWorkers": schemas.NAMES | {"description": "The workers that the job asks for."},
        "currentWorkers": schemas.NAMES | {"description": "The workers in the hosts files."},
        "replicas": schemas.COUNT | {"description": "How many workers there are, for kubectl scale and autoscalers."},
        "selector": schemas.TEXT | {"description": "The label selector of the workers, for autoscalers."},
        "workers": schemas.TEXT | {"description": "Current and target workers, such as 3/4."},
        "trainerStatus": schemas.OPEN
        | {"type": "object", "description": "What the training reported last (docs/progress.md)."},
    },
    description=schemas.READ_ONLY,
)
BEFORE_ADMISSION = ("", "Pending", "Refused")
"""In the phase of a job that is not admitted, or whose spec was refused; another operator may leave it empty."""
_SUSPEND = ".spec.suspend"
_FREE = f"{schemas.by_phase(*BEFORE_ADMISSION, 'Suspending', 'Suspended')} || {schemas.pausing(_SUSPEND)}"
_JOB_RULES = (
    schemas.job_name_rule(LONGEST_JOB_NAME),
    *(
        schemas.fixed(
            f"spec.etReplicaSpecs.{role}.template",
            "a pod template cannot be changed unless the job is Suspended: its pods would differ; set spec.suspend "
            "to true first, or create the job again",
            within=f"spec.etReplicaSpecs.{role}",
            free=_FREE,
        )
        for role in ("launcher", "worker")
    ),
    schemas.fixed(
        "spec.slotsPerWorker",
        "slotsPerWorker cannot be changed unless the job is Suspended: the launcher counts on it; set spec.suspend "
        "to true first, or create the job again",
        within="spec",
        free=_FREE,
    ),
)
TRAINING_JOB = Definition(
    "An elastic training job: a launcher, and workers that come and go while it trains.",
    _Spec.schema(),
    short_names=("tj",),
    columns=(
        schemas.PHASE,
        schemas.AGE,
        schemas.column("Workers", ".status.workers"),
        schemas.column("Min", ".spec.etReplicaSpecs.worker.minReplicas", kind="integer", wide=True),
        schemas.column("Max", ".spec.etReplicaSpecs.worker.maxReplicas", kind="integer", wide=True),
        schemas.column("Restarts", ".status.restartCount", kind="integer"),
        schemas.column("Scaler", ".status.currentScaler", wide=True),
        *schemas.WHY,
    ),
    rules=_JOB_RULES,
    status=_JOB_STATUS,
    scale=Scale(".spec.etReplicaSpecs.worker.replicas"),
    suspend=_SUSPEND,
    suspend_annotation=SUSPENDED,
)


TRAININGJOBS = Resource(GROUP, VERSION, "trainingjobs", "TrainingJob", Custom)
GROUP_NAME = "group-name"
JOB_NAME = "training-job-name"
JOB_ROLE = "training-job-role"
REPLICA_INDEX = "replica-index"
SCALEOUT_NAME = "scaleout-name"
"""Labels of its pods."""
SSH_KEYS = "arena.kubeflow.org/ssh-secret"
"""An annotation of a job: the user's own Secret with ssh keys."""
JOB_FOLDER = "/job"
"""Where the launcher finds the hosts file of DeepSpeed."""
LONGEST_SECRET_NAME = 253
_DNS_SUBDOMAIN = re.compile(rf"{reading.DNS_LABEL}(\.{reading.DNS_LABEL})*")

# Built-ins of any shell only: an image may lack `cat`.
DISCOVER_SCRIPT = f"""\
#!/bin/sh
while read -r host; do
  echo "$host"
done < {EDL_FOLDER}/{HOSTFILE}
"""

_FLAT = for_all_versions({OMPI_FLAT: "1"})

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

    def role_and_index(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Its launcher has no index."""
        role, index = labels.get(JOB_ROLE, ""), whole_number(labels.get(REPLICA_INDEX, ""), DIGITS)
        if role == LAUNCHER:
            return LAUNCHER, 0
        return (WORKER, index) if role == WORKER and index is not None else None

    def status(self, manifest: Custom) -> Inherited | None:
        """Its status names the wanted workers; it created the launcher last."""
        theirs = super().status(manifest)
        if theirs is None:
            return None
        reached = {known.type for known in theirs.conditions if known.status}
        named, job = manifest.status.get("targetWorkers"), manifest.metadata.name
        names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        indices = {index for name in names if (index := worker_index(job, name)) is not None}
        return msgspec.structs.replace(
            theirs,
            begun=theirs.begun or "LauncherCreated" in reached,
            workers=tuple(sorted(indices)) if indices else None,
        )


class TrainingJob(Framework):
    """Horovod, DeepSpeed and MPI, elastically: the launcher starts when its workers are Ready."""

    resource = TRAININGJOBS
    role_label = JOB_ROLE
    index_label = REPLICA_INDEX
    is_queued = True
    take_over = OfEtOperator()
    requests = (SCALEINS, SCALEOUTS)

    @property
    def definition(self) -> Definition:
        return TRAINING_JOB

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        return parse_job(manifest)

    def template(self, manifest: Custom, role: str) -> Document:
        found: Document = manifest.spec["etReplicaSpecs"][role]["template"]
        return found

    def template_path(self, manifest: Custom, role: str) -> str:
        return f"spec.etReplicaSpecs.{role}.template"

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        template = self.template(manifest, context.slot.role)
        pod = pod_of(self, template, context, search=True)
        if context.scaleout:
            pod["metadata"]["labels"][SCALEOUT_NAME] = context.scaleout
        if context.slot.role == LAUNCHER:
            mount_hosts(pod["spec"], context.key, _HOSTS_FOLDERS)
        first, *others = pod["spec"]["containers"]
        if context.slot.role == LAUNCHER:
            theirs = first.get("env") or []
            if _FLAT.keys().isdisjoint(known.get("name") for known in theirs):
                first = first | {"env": [*({"name": name, "value": value} for name, value in _FLAT.items()), *theirs]}
        elif not first.get("command") and not first.get("args"):
            first = first | {"command": [*WORKER_COMMAND]}
        pod["spec"]["containers"] = [first, *others]
        if spec.attach_mode == "ssh":
            workers = manifest.spec["etReplicaSpecs"][WORKER]["template"]
            mount_keys(pod["spec"], context, spec.ssh_secret, workers=workers)
        return pod

    def status(self, job: Job) -> Document:
        return job_status(job)

    def phase(self, status: Document) -> str:
        phase = status.get("phase")
        return phase if isinstance(phase, str) and phase not in BEFORE_ADMISSION else ""

    def labels(self, key: JobKey) -> dict[str, str]:
        return {GROUP_NAME: self.resource.group, JOB_NAME: key.name, JOB_UID: key.uid}

    def ports(self, manifest: Custom, spec: JobSpec, context: PodContext | None) -> list[Document]:
        return [{"name": "ssh-port", "port": 22}, {"name": "kubeai-service-port", "port": 9009}]

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        slots = spec.slots_per_worker
        return {
            HOSTFILE: "".join(f"{member}:{slots}\n" for member in members),
            DEEPSPEED_HOSTFILE: "".join(f"{member} slots={slots}\n" for member in members),
            DISCOVER_HOSTS: DISCOVER_SCRIPT,
        }


def parse_job(manifest: Custom) -> JobSpec | tuple[Problem, ...]:
    problems: list[Problem] = []
    reading.check_job_name(manifest.metadata.name, problems.append, most=LONGEST_JOB_NAME)
    spec = _Spec(reading.Fields(manifest.spec, "spec", problems))
    launcher = _launcher(spec.et_replica_specs, _promises(manifest, LAUNCHER))
    worker, container = _worker(spec.et_replica_specs, _promises(manifest, WORKER))
    slots = spec.slots_per_worker
    if container is not None and not spec.fields.has("slotsPerWorker"):
        slots = gpus(container, most=MOST_SLOTS)
    if spec.launcher_attach_mode == "kubexec":
        spec.fields.refuse("KubexecNotSupported", NO_KUBEXEC, "launcherAttachMode")
    annotations = manifest.metadata.annotations or {}
    parsed = JobSpec(
        framework="training",
        roles=(launcher, worker),
        slots_per_worker=slots or 1,
        attach_mode=spec.launcher_attach_mode,
        clean_pod_policy=spec.clean_pod_policy,
        restart_policy=spec.restart_policy,
        backoff_limit=reading.DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
        active_deadline_seconds=spec.active_deadline_seconds,
        ttl_seconds_after_finished=spec.ttl_seconds_after_finished,
        scheduling_timeout_seconds=spec.scheduling_timeout_seconds,
        elasticity=_elasticity(spec.elasticity),
        suspend=spec.suspend or annotations.get(SUSPENDED) == "true",
        restart=reading.restart_of(annotations),
        ssh_secret=_ssh_secret(annotations.get(SSH_KEYS, ""), problems),
        ignored=tuple(spec.fields.without_effect),
    )
    return tuple(dict.fromkeys(problems)) or parsed


def _elasticity(asked: _Elasticity) -> Elasticity | None:
    if asked.size != "Capacity":
        return None
    settle, grow = asked.settle_seconds, asked.grow_seconds
    return Elasticity(
        settle_seconds=SETTLE_SECONDS if settle is None else settle,
        grow_seconds=GROW_SECONDS if grow is None else grow,
        most_pending=asked.max_pending,
    )


def _ssh_secret(name: str, problems: list[Problem]) -> str:
    if name and (len(name) > LONGEST_SECRET_NAME or not _DNS_SUBDOMAIN.fullmatch(name)):
        message = f"name a Secret here: at most {LONGEST_SECRET_NAME} lower-case letters, digits, hyphens and dots"
        problems.append(Problem(reason="InvalidName", field=f"metadata.annotations[{SSH_KEYS}]", message=message))
    return name


def _promises(manifest: Custom, role: str) -> Promises:
    of_launcher = role == LAUNCHER
    return Promises(
        subdomain=True,
        folders=(EDL_FOLDER, MPI_FOLDER) if of_launcher else (),
        spare=(JOB_FOLDER,) if of_launcher else (),
        ssh=SSH_FOLDER,
        volumes=(SSH_VOLUME, *(_HOSTS_FOLDERS if of_launcher else ())),
        labels=slot_labels(TRAININGJOB, key_of(manifest), Slot(0, role, 0)),
    )


def _launcher(roles: _Roles, promises: Promises) -> RoleSpec:
    launcher = roles.launcher
    if not roles.fields.has(LAUNCHER):
        roles.fields.refuse("NoLauncher", "add a launcher with a pod template", LAUNCHER)
        return RoleSpec(name=LAUNCHER, replicas=1)
    name, container = _container(launcher, promises)
    if container is not None:
        check_variables(container.parts("env"))
    return RoleSpec(name=LAUNCHER, replicas=1, restart_policy=launcher.restart_policy, container=name)


def _worker(roles: _Roles, promises: Promises) -> tuple[RoleSpec, reading.Fields | None]:
    """The workers' role, and their training container."""
    worker, fields = roles.worker, roles.worker.fields
    if not roles.fields.has(WORKER):
        roles.fields.refuse("NoWorker", "add workers with replicas and a pod template", WORKER)
        return RoleSpec(name=WORKER, replicas=1), None
    # As in et-operator's types: an absent replicas is 1, an absent minReplicas is replicas.
    replicas, least, most = worker.replicas, worker.min_replicas, worker.max_replicas
    replicas = replicas if fields.has("replicas") else 1
    if replicas is not None and least is not None and replicas < least:
        fields.refuse("BelowMinimum", "set at least minReplicas, or lower minReplicas", "replicas")
    if replicas is not None and most is not None and replicas > most:
        fields.refuse("AboveMaximum", "set at most maxReplicas, or raise maxReplicas", "replicas")
    if least is not None and most is not None and least > most:
        fields.refuse("MinimumAboveMaximum", "set at most maxReplicas, or raise maxReplicas", "minReplicas")
    name, container = _container(worker, promises)
    parsed = RoleSpec(
        name=WORKER,
        replicas=replicas or 1,
        min_replicas=least or replicas or 1,
        max_replicas=most,
        follows=not fields.has("minReplicas"),
        written=fields.has("replicas"),
        restart_policy=worker.restart_policy,
        container=name,
    )
    return parsed, container


def _container(role: _Launcher | _Worker, promises: Promises) -> tuple[str, reading.Fields | None]:
    container = training_container(role.fields, promises=promises._replace(restarts=role.restart_policy))
    name = container.raw("name") if container is not None else None
    return name if isinstance(name, str) else "", container


def job_status(job: Job) -> Document:
    workers = SortedSet(slot.index for slot in job.attempt.workers)
    target, current = workers - _leaving(job), _current(job)
    request = job.scaling.open_request
    return {
        "phase": job.status.phase or before_admission(job),
        "conditions": [condition(with_losses(job, known)) for known in waiting.conditions(job, milestones=True)],
        "replicaStatuses": {"Launcher": counts(job, LAUNCHER), "Worker": counts(job, WORKER)},
        "startTime": whole_seconds(job.status.start_time),
        "completionTime": whole_seconds(job.status.completion_time),
        # An edit of the job has no object.
        "currentScaler": f"{request.kind}:{job.key.namespace}/{request.name}"
        if request is not None and request.resize is None
        else None,
        "restartCount": job.retries.restarts,
        "targetWorkers": job.worker_names(target),
        "currentWorkers": job.worker_names(current),
        "observedGeneration": job.resource.generation,
        "replicas": len(workers),
        # Only the workers: an autoscaler takes the mean over all selected pods.
        "selector": f"{JOB_UID}={job.key.uid},{JOB_ROLE}={WORKER}",
        "workers": f"{len(current)}/{len(target)}",
        "trainerStatus": trainer_status(job),
    }


def _current(job: Job) -> SortedSet[int]:
    """The workers in the hosts files; between attempts only those whose pods are there, and none after the end."""
    if job.over:
        return SortedSet()
    if not job.between_attempts:
        return job.listed_workers
    pods = job.worker_pods()
    return SortedSet(index for index in job.listed_workers if index in pods and not ended(pods[index]))


def _leaving(job: Job) -> SortedSet[int]:
    request = job.scaling.open_request
    asked = [member.index for member in request.leaving] if request is not None else []
    return job.leaving | asked | [slot.index for slot in job.attempt.replaced_ahead]


TRAININGJOB = TrainingJob()
