"""Reads a TrainJob and its runtime: the job that both ask for, and what is wrong with them.  Pure."""

import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import msgspec

from shared.cluster.objects import Custom
from shared.frameworks import reading
from shared.frameworks.attaching import OMPI_ARGS, OMPI_HOSTS, OMPI_KEEP, OMPI_SLOTS, SSH_VOLUME, check_ssh_folder
from shared.frameworks.pods import amount
from shared.frameworks.rendezvous import STEM, brings_its_own, rendezvous_role
from shared.frameworks.runtimes import (
    ANCESTOR,
    LAUNCHER_JOB,
    MOST_LEVELS,
    NODE,
    TRAINER,
    pod_template,
    replicated_jobs,
    runtime_of,
    too_deep,
    trains,
)
from shared.frameworks.schemas import Document
from shared.frameworks.templates import (
    LONGEST_CONTAINER_NAME,
    Promises,
    absolute,
    check_variables,
    training_container,
)
from shared.frameworks.trainer_schemas import OF_JOB_SET, OVERRIDES, ElasticPolicy, Trainer
from shared.job.naming import MPI_FOLDER, SSH_FOLDER
from shared.job.spec import (
    LAUNCHED_TOGETHER,
    LAUNCHER,
    REPLICATED,
    WORKER,
    Elasticity,
    JobSpec,
    Problem,
    RoleSpec,
)
from shared.untrusted import at, objects

CONTROLLERS = ("", "trainer.kubeflow.org/trainjob-controller")
"""The values of `managedBy` that name Trainer itself."""

HOSTS_VOLUME = "mpi-hostfile"
"""The name that upstream gives it, too."""

POLICIES = ("torch", "mpi", "jax", "xgboost")

TORCH = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
_XGBOOST = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")
_OPEN_MPI = (OMPI_HOSTS, OMPI_ARGS, OMPI_KEEP, OMPI_SLOTS)
_JAX = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
RESERVED: Mapping[str, tuple[str, ...]] = {"torch": TORCH, "mpi": _OPEN_MPI, "jax": _JAX, "xgboost": _XGBOOST}
"""The variables that `spec.trainer.env` must not set, by policy."""
ELASTIC = ("PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID", "PET_MAX_RESTARTS")
"""Those of torch with an elasticPolicy besides."""

TORCHTUNE = ["tune", "run"]
OF_TRAINER_2_1 = "numProcPerNode"
"""The field of torch's policy with the number of processes, of Trainer 2.0 and 2.1."""

_PROCESSES = re.compile("auto|cpu|gpu|0*[1-9][0-9]{0,5}")
_LABEL = re.compile(reading.DNS_LABEL)

IGNORED: Mapping[str, str] = {
    "podGroupPolicy": "no PodGroup is made; what a gang scheduler reads belongs in the pod templates",
    "template.metadata": "no JobSet is made; labels and annotations belong in the pod templates",
    "template.spec.failurePolicy": "a pod that fails is replaced up to backoffLimit, and then the job fails",
    "template.spec.startupPolicy": "all nodes start at once, and a launcher when they are Ready",
    "template.spec.coordinator": "no pod is labelled with it",
    "template.spec.ttlSecondsAfterFinished": "delete the job when nobody needs it any more",
    "template.spec.network.subdomain": "the pods' subdomain is the name of the job",
}
"""Fields of the runtime without effect, each with what to do instead."""


def parsed(
    manifest: Custom, spec: reading.Fields, runtime: reading.Fields, labels: Callable[[str], Mapping[str, str]]
) -> JobSpec:
    """The canonical job; problems are noted in `spec` and in `runtime`.

    `labels` are Muster's of the first pod of a replicated job.
    """
    name = manifest.metadata.name
    jobs = replicated_jobs(manifest.spec, runtime.members)
    policies, policy = runtime.part("mlPolicy"), policy_of(runtime.members)
    if policies.has("flux"):
        policies.refuse("PolicyNotSupported", f"use one of {', '.join(POLICIES)}", "flux")
    spec.parts("runtimePatches")
    if too_deep(spec.raw("runtimePatches")):
        spec.refuse("InvalidValue", f"nest at most {MOST_LEVELS} levels in the patches", "runtimePatches")
    for field in OVERRIDES:
        if spec.raw(field):
            message = "write runtimePatches, which took its place in Trainer 2.2: no pod runs without what it asks for"
            spec.refuse("FieldNotSupported", message, field)
    for field in OF_JOB_SET:
        if spec.raw(field):
            spec.ignore(field, "no JobSet is made; those of pods belong in runtimePatches")
    trainer = Trainer(spec.part("trainer"))
    torch, mpi, is_mpi = policies.part("torch"), policies.part("mpi"), policy == "mpi"
    group = torch.has("elasticPolicy")
    check_variables(trainer.env, (*RESERVED.get(policy, ()), *(ELASTIC if policy == "torch" and group else ())))
    if trainer.command == TORCHTUNE:
        message = "write the whole command of tune: its recipe and its configuration are not chosen here"
        trainer.fields.refuse("TorchTuneNotSupported", message, "command")
    if spec.text("managedBy") not in CONTROLLERS:
        message = "leave it out to have the job run here: it is said to be another controller's"
        spec.refuse("ManagedByAnother", message, "managedBy")
    if spec.has("initializer"):
        message = "leave it out, and have the pods of the trainer fetch the data: no initializer runs here"
        spec.refuse("InitializerNotSupported", message, "initializer")
    runtime.ignore_all(IGNORED)
    template = runtime.part("template").part("spec")
    _check_success(template, policy)
    if template.has("volumeClaimPolicies"):
        message = "create the claim, and name it in the pod template: no claim is made here"
        template.refuse("VolumeClaimNotSupported", message, "volumeClaimPolicies")
    computes = mpi.raw("runLauncherAsNode") is True
    keys = absolute(mpi.raw("sshAuthMountPath")) or SSH_FOLDER
    node = _check_jobs(manifest, jobs, template, spec, labels, mpi=is_mpi, computes=computes, keys=keys)
    nodes, least, most = _sizes(trainer, policies, policy)
    longest = max(len(f"-{node}-0-{(most or nodes) - 1}"), len(f"{STEM}0"), len(f"-{LAUNCHER}") if is_mpi else 0)
    reading.check_job_name(name, runtime.note, most=reading.LONGEST_POD_NAME - longest)
    limit = reading.Fields(at(jobs.get(node), "template", "spec"), "runtime.spec.template", []).integer(
        "backoffLimit", least=0
    )
    elastic = most is not None and least < most
    worker = RoleSpec(
        name=WORKER,
        replicas=nodes,
        min_replicas=least,
        max_replicas=most,
        restart_policy="OnFailure",
        container=NODE,
        stem=f"{name}-{node}-0-",
    )
    roles: tuple[RoleSpec, ...] = (worker,)
    succeeds = "Any" if group else "All"
    handling = msgspec.structs.replace(REPLICATED, succeeds=succeeds, elastic=elastic, services="Job")
    if is_mpi:
        launcher = RoleSpec(name=LAUNCHER, replicas=1, restart_policy="OnFailure", container=NODE)
        roles, handling = (launcher, worker), msgspec.structs.replace(LAUNCHED_TOGETHER, elastic=False)
    elif group and policy == "torch" and not _tells_of_another(jobs, trainer.fields.members):
        roles = (worker, rendezvous_role(name, NODE))
    return JobSpec(
        framework="",
        roles=roles,
        handling=handling,
        elasticity=Elasticity() if elastic else None,
        autoscaled=elastic and bool(torch.part("elasticPolicy").parts("metrics")),
        slots_per_worker=_slots(manifest, trainer, mpi) if is_mpi else 1,
        attach_mode="ssh" if is_mpi else "",
        clean_pod_policy="Running",
        backoff_limit=reading.DEFAULT_BACKOFF_LIMIT if limit is None else limit,
        active_deadline_seconds=spec.integer("activeDeadlineSeconds", least=1),
        suspend=spec.boolean("suspend"),
        restart=reading.restart_of(manifest.metadata.annotations),
        hosts_style="OpenMPI" if is_mpi else "",
        launcher_works=mpi.boolean("runLauncherAsNode"),
        ignored=tuple(spec.without_effect),
    )


def _check_jobs(
    manifest: Custom,
    jobs: Mapping[str, Document],
    template: reading.Fields,
    spec: reading.Fields,
    labels: Callable[[str], Mapping[str, str]],
    *,
    mpi: bool,
    computes: bool,
    keys: str,
) -> str:
    """Check the replicated jobs and their containers; return the name of that of the nodes."""
    invalid = {name for name in jobs if len(name) > LONGEST_CONTAINER_NAME or not _LABEL.fullmatch(name)}
    if invalid:
        # No path and no message repeats such a name.
        letters = "lower-case letters, digits and inner hyphens"
        message = f"name the replicated job with at most {LONGEST_CONTAINER_NAME} {letters}"
        template.refuse("InvalidName", message, "replicatedJobs")
    trainers = [name for name, job in jobs.items() if trains(job) and name not in invalid]
    node = NODE if mpi or not trainers else trainers[0]
    wanted = {LAUNCHER_JOB, NODE} if mpi else {node}
    listed = {job.raw("name") for job in template.parts("replicatedJobs") if isinstance(job.raw("name"), str)}
    if missing := sorted(wanted - jobs.keys()):
        template.refuse("NoReplicatedJob", f"add the replicated job {missing[0]}", "replicatedJobs")
    for name in (each for each in jobs if each not in invalid):
        if name not in listed:
            message = "patch a replicated job that the runtime has"
            spec.refuse("ReplicatedJobNotFound", message, "runtimePatches")
        elif name not in wanted:
            kept = " and ".join(sorted(wanted))
            message = f"leave out all replicated jobs but {kept}: an init container of {node} may fetch data and models"
            template.refuse("ReplicatedJobNotSupported", message, "replicatedJobs")
    if len(jobs) < len(listed) or len(template.parts("replicatedJobs")) != len(listed):
        template.refuse("InvalidValue", "give each replicated job a name of its own", "replicatedJobs")
    trainer = at(manifest.spec, "trainer")
    for name in sorted(wanted & jobs.keys()):
        path = path_of(name)
        job, problems = jobs[name], list[Problem]()
        if at(job, "replicas") not in (None, 1):
            message = "set 1 or leave it out: numNodes says how many pods there are"
            template.refuse("NotOneReplica", message, "replicatedJobs")
        merged = pod_template(job, trainer, computes=mpi and computes and name == NODE)
        of_launcher = mpi and name == LAUNCHER_JOB
        promises = Promises(
            subdomain=True,
            folders=(MPI_FOLDER,) if of_launcher else (),
            ssh=keys if mpi else "",
            volumes=(SSH_VOLUME, *((HOSTS_VOLUME,) if of_launcher else ())) if mpi else (),
            labels={**labels(name), **({ANCESTOR: TRAINER} if trains(job) else {})},
        )
        role = reading.Fields({"template": merged}, path, problems, spec.without_effect)
        container = training_container(role, NODE, promises=promises)
        if container is not None:
            check_variables(container.parts("env"))
        for part in ("initContainers", "containers"):
            for known in reading.Fields(at(merged, "spec"), f"{path}.template.spec", problems).parts(part):
                known.parts("env")
                known.parts("ports")
        for problem in problems:
            template.note(problem)
    return node


def _sizes(trainer: Trainer, policies: reading.Fields, policy: str) -> tuple[int, int, int | None]:
    """The number of nodes, and its bounds; no upper one where it cannot change."""
    asked = trainer.num_nodes
    most = policies.integer("numNodes", least=1, most=reading.MOST_WORKERS)
    nodes, torch, mpi = asked or most or 1, policies.part("torch"), policies.part("mpi")
    told, elastic = torch.raw(OF_TRAINER_2_1), torch.part("elasticPolicy")
    if told is not None and (isinstance(told, bool) or not _PROCESSES.fullmatch(str(told))):
        torch.refuse("InvalidValue", "write auto, cpu, gpu or a number of processes", OF_TRAINER_2_1)
    if torch.has("elasticPolicy"):
        ElasticPolicy(elastic)
        low, high = elastic_bounds(elastic.members, asked or most or 0)
        nodes = asked or most or low
        if low > high:
            elastic.refuse("MinimumAboveMaximum", "set at most maxNodes, or raise maxNodes", "minNodes")
        elif nodes < low:
            trainer.fields.refuse("BelowMinimum", "set at least minNodes of the runtime", "numNodes")
        elif nodes > high:
            trainer.fields.refuse("AboveMaximum", "set at most maxNodes of the runtime", "numNodes")
        return nodes, low, high
    if policy == "mpi":
        # One node is the launcher, if it computes.
        nodes = max(nodes - mpi.boolean("runLauncherAsNode"), 1)
        if mpi.text("mpiImplementation") not in ("", "OpenMPI"):
            mpi.refuse("UnknownImplementation", "write OpenMPI, or leave it out", "mpiImplementation")
        check_ssh_folder(mpi)
        # The job starts with all nodes and goes on with any: the program decides how many it needs.
        return nodes, 1, None
    return nodes, 0, None


def elastic_bounds(policy: Any, nodes: int) -> tuple[int, int]:
    least, most = (
        value if isinstance(value, int) and not isinstance(value, bool) else None
        for value in (at(policy, "minNodes"), at(policy, "maxNodes"))
    )
    return least or most or nodes or 1, most or least or nodes or 1


def _slots(manifest: Custom, trainer: Trainer, mpi: reading.Fields) -> int:
    """The processes of a node: the trainer's number, the runtime's, or of one that has 1 the number of its GPUs."""
    if trainer.num_proc_per_node is not None:
        return trainer.num_proc_per_node
    slots = mpi.integer("numProcPerNode", least=1, most=reading.MOST_SLOTS) or 1
    return slots if slots > 1 else max(gpus_of(resources_of(manifest)), 1)


def processes_of(manifest: Custom) -> str:
    """The processes of a node of torch: as it says, or without GPUs as many as it has processors."""
    of_runtime = at(runtime_spec(manifest), "mlPolicy", "torch", OF_TRAINER_2_1)
    told = (at(manifest.spec, "trainer", "numProcPerNode"), of_runtime)
    text = next((str(value) for value in told if value is not None), "auto")
    if text != "auto":
        return text
    resources = resources_of(manifest)
    if gpus_of(resources):
        return text
    cpus = at(resources, "requests", "cpu") or at(resources, "limits", "cpu")
    return str(max(ceil(amount(cpus)), 1))


def resources_of(manifest: Custom) -> Any:
    """The resources of a node: the trainer's, else those of the container that trains."""
    trainer = at(manifest.spec, "trainer")
    for job in replicated_jobs(manifest.spec, runtime_spec(manifest)).values():
        template = pod_template(job, trainer, computes=False)
        for container in objects(at(template, "spec", "containers")) if trains(job) else ():
            if container.get("name") == NODE:
                return container.get("resources")
    return None


def gpus_of(resources: Any) -> int:
    """The GPUs of any vendor: of the requests, else of the limits."""
    for kind in ("requests", "limits"):
        named = at(resources, kind)
        for name, value in named.items() if isinstance(named, dict) else ():
            if "gpu" in str(name).lower() and (count := ceil(amount(value))):
                return count
    return 0


def runtime_spec(manifest: Custom) -> Any:
    found = runtime_of(manifest)
    return found.spec if found is not None else {}


def policy_of(runtime: Any) -> str:
    policy = at(runtime, "mlPolicy")
    return next((word for word in POLICIES if at(policy, word) is not None), "")


def _tells_of_another(jobs: Mapping[str, Document], trainer: Any) -> bool:
    """True if the nodes' container itself tells torchrun of a rendezvous."""
    return any(brings_its_own(pod_template(job, trainer, computes=False), NODE) for job in jobs.values() if trains(job))


def node_job(jobs: Mapping[str, Document]) -> str:
    return next((name for name, job in jobs.items() if trains(job) and name != LAUNCHER_JOB), NODE)


def path_of(job: str) -> str:
    """Where the spec of a replicated job stands, for people."""
    return f"runtime.spec.template.spec.replicatedJobs[{job}].template.spec"


def _check_success(template: reading.Fields, policy: str) -> None:
    """Note the successPolicy, if it is not what holds anyway."""
    success = template.part("successPolicy")
    targets = success.texts("targetReplicatedJobs")
    whole = success.raw("operator") in (None, "All") and (targets == [LAUNCHER_JOB] if policy == "mpi" else True)
    if template.has("successPolicy") and not whole:
        template.ignore("successPolicy", "the job succeeds with its launcher, or when all its nodes do")
