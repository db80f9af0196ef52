"""TrainJob (`trainer.kubeflow.org/v1alpha1`, Trainer v2.3): pods of a runtime, for torch, MPI, JAX and XGBoost.  Pure.

A TrainJob comes joined with its runtime, and `runtimes.py` puts both together.  Elastic torch is that of Trainer 2.0
and 2.1, whose `elasticPolicy` 2.2 removed.

Upstream has the conditions Suspended, Complete and Failed, and its clients take a job without any for one that runs.
The other conditions are Muster's: they say what a job waits for, and are absent while it runs and lacks nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks import reading
from shared.frameworks.attaching import (
    OMPI_ARGS,
    OMPI_FLAT,
    OMPI_HOSTS,
    OMPI_KEEP,
    OMPI_RESOLVING,
    OMPI_SLOTS,
    WORKER_COMMAND,
    for_all_versions,
    mount_hosts,
    mount_keys,
)
from shared.frameworks.framework import Framework, PodContext, key_of, slot_labels, true_conditions
from shared.frameworks.pods import pod_of
from shared.frameworks.rendezvous import C10D, UNSHARED, rendezvous_name, rendezvous_pod
from shared.frameworks.runtimes import (
    ANCESTOR,
    LAUNCHER_JOB,
    NODE,
    TRAINER,
    Reference,
    Without,
    pod_template,
    replicated_jobs,
    runtime_of,
    trains,
    why_without,
    with_variables,
)
from shared.frameworks.schemas import Definition, Document
from shared.frameworks.statuses import condition, counts, newest_last, trainer_status, with_losses
from shared.frameworks.takeover import Inherited, TakeOver
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES, GROUP, KINDS_OF_RUNTIMES, RUNTIMES, TRAIN_JOB, VERSION
from shared.frameworks.trainjob_reading import (
    CONTROLLERS,
    HOSTS_VOLUME,
    elastic_bounds,
    gpus_of,
    node_job,
    parsed,
    path_of,
    policy_of,
    processes_of,
    resources_of,
    runtime_spec,
)
from shared.job import waiting
from shared.job.conditions import Condition
from shared.job.naming import HOSTFILE, JOB_UID, MPI_FOLDER, ROLE, SSH_FOLDER, JobKey, Slot, WorkerName
from shared.job.reasons import DEADLINE_EXCEEDED
from shared.job.spec import (
    LAUNCHER,
    PASSING,
    RENDEZVOUS,
    RUNTIME_NOT_FOUND,
    RUNTIMES_NOT_LISTED,
    WORKER,
    JobSpec,
    Problem,
    Wishes,
)
from shared.job.state import Job
from shared.job.views import occupies
from shared.untrusted import at, objects

TYPES = {
    "Created": "Created",
    "Running": "Running",
    "Restarting": "Restarting",
    "Suspending": "Suspending",
    "Suspended": "Suspended",
    "Succeeded": "Complete",
    "Failed": "Failed",
}
"""The conditions of a job that it shows, with their types here."""

OF_UPSTREAM = ("Suspended", "Complete", "Failed")

REASONS = {
    ("Suspended", True): ("Suspended", "TrainJob is suspended"),
    ("Suspended", False): ("Resumed", "TrainJob is resumed"),
    ("Succeeded", True): ("AllJobsCompleted", "TrainJob completed"),
    ("Failed", True): ("FailedJobs", "TrainJob failed"),
}
"""Upstream's reason and message of a condition, by its type in the log and its status."""


def _in_their_words(job: Job, known: Condition) -> Condition:
    theirs = REASONS.get((known.type, known.status))
    changed = msgspec.structs.replace(known, type=TYPES[known.type])
    if theirs is None:
        return changed
    reason, message = theirs
    if known.reason == DEADLINE_EXCEEDED:
        reason = known.reason
    told = [message, *(part for part in (known.reason, known.message) if part and known.type == "Failed")]
    if (
        (wait := waiting.told(job)) is not None
        and (known.type, known.status) == (job.status.phase, True)
        and not told[1:]
    ):
        told.append(wait.sentence)
    return msgspec.structs.replace(changed, reason=reason, message=": ".join(dict.fromkeys(told)))


def _job_status(job: Job, role: str) -> Document:
    """The numbers of child Jobs upstream, of which each replicated job has one: 0 or 1.

    It is active until its last pod has ended, also without its slot: a queue gives its quota back by that.
    """
    wanted = {slot for slot in job.attempt.unreleased if slot.role == role}
    pods = [pod for pod in job.pods.views.values() if pod.slot in wanted]
    done = counts(job, role)
    complete = bool(wanted) and done["succeeded"] >= len(wanted)
    failed = job.status.phase == "Failed" and done["failed"] > 0
    ready = sum(pod.ready or pod.phase == "Succeeded" for pod in pods)
    return {
        "name": LAUNCHER if role == LAUNCHER else "node",
        "ready": int(bool(wanted) and ready >= len(wanted) and not complete),
        "succeeded": int(complete),
        "failed": int(failed),
        "active": int(any(pod.role == role and occupies(pod) for pod in job.pods.views.values())),
        "suspended": int(job.suspended),
    }


TRAINJOBS = Resource(GROUP, VERSION, "trainjobs", "TrainJob", Custom)

PORT = 29500

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Labels of a pod upstream; the last one is also an annotation, which variables refer to."""

_FOLDERS = {HOSTS_VOLUME: (MPI_FOLDER, {HOSTFILE: HOSTFILE})}

_WITHOUT: Mapping[Without, tuple[str, str]] = {
    "missing": (
        RUNTIME_NOT_FOUND,
        "create the {0}, or name one of another kind: the job begins when its runtime is there",
    ),
    "not listed": (
        RUNTIMES_NOT_LISTED,
        "wait, or let the watcher list the runtimes: they cannot be listed now",
    ),
    "not seen": (
        "TrainingRuntimeNotSupported",
        f"name a {RUNTIMES.kind}: an installation for one namespace sees no {CLUSTER_RUNTIMES.kind}",
    ),
}
"""Why a job has no runtime, as reason and message."""


class OfTrainer(TakeOver):
    """Trainer's traces in a status: its jobs cannot be taken over, and one that it began is left alone."""

    def status(self, manifest: Custom) -> Inherited | None:
        theirs = super().status(manifest)
        if theirs is None:
            # While a job runs, Trainer shows the numbers of its Jobs alone.
            return Inherited(phase="Running", begun=True) if at(manifest.status, "jobsStatus") else None
        shown = {(known.type, known.status) for known in theirs.conditions}
        if ("Created", False) in shown:
            # It was refused and shown as failed, and may be corrected.
            return msgspec.structs.replace(theirs, end="")
        return msgspec.structs.replace(theirs, end="Succeeded") if ("Complete", True) in shown else theirs


class TrainJob(Framework):
    """Nodes that start together, or a launcher of MPI with its nodes."""

    resource = TRAINJOBS
    runtimes = KINDS_OF_RUNTIMES
    take_over = OfTrainer()

    @property
    def definition(self) -> Definition:
        return TRAIN_JOB

    def refers_to(self, manifest: Custom) -> Reference | None:
        reference = at(manifest.spec, "runtimeRef")
        name, kind = at(reference, "name"), at(reference, "kind") or CLUSTER_RUNTIMES.kind
        if not isinstance(name, str) or (at(reference, "apiGroup") or GROUP) != GROUP:
            return None
        known = (each for each in self.runtimes if each.resource.kind == kind)
        return next(
            (Reference(each.resource, "" if each.of_cluster else manifest.metadata.namespace, name) for each in known),
            None,
        )

    def wishes(self, manifest: Custom) -> Wishes | None:
        nodes = at(manifest.spec, "trainer", "numNodes")
        deadline = at(manifest.spec, "activeDeadlineSeconds")
        return Wishes(
            suspend=at(manifest.spec, "suspend") is True,
            restart=reading.restart_of(manifest.metadata.annotations),
            deadline=deadline if isinstance(deadline, int) and deadline >= 1 else None,
            workers=nodes if isinstance(nodes, int) and not isinstance(nodes, bool) else None,
            workers_field="spec.trainer.numNodes",
        )

    def ours(self, manifest: Custom) -> bool:
        manager = at(manifest.spec, "managedBy")
        another = isinstance(manager, str) and manager not in CONTROLLERS
        return not another or at(manifest.status, "history") is not None

    def parse(self, manifest: Custom) -> JobSpec | tuple[Problem, ...]:
        problems: list[Problem] = []
        spec = reading.Fields(manifest.spec, "spec", problems)
        named = self.refers_to(manifest)
        if named is None:
            message = f"name a {CLUSTER_RUNTIMES.kind} or a {RUNTIMES.kind} of {GROUP}"
            spec.refuse("TrainingRuntimeNotSupported", message, "runtimeRef")
            return tuple(problems)
        found = runtime_of(manifest)
        if found is None:
            reason, message = _WITHOUT[why_without(manifest)]
            spec.refuse(reason, message.format(f"{named.resource.kind} {named.name}"), "runtimeRef")
            return tuple(problems)
        runtime = reading.Fields(found.spec, "runtime.spec", problems, spec.without_effect)
        read = parsed(manifest, spec, runtime, lambda name: self._first_labels(manifest, name))
        return tuple(dict.fromkeys(problems)) or msgspec.structs.replace(read, framework=self.name, runtime=found.used)

    def pod(self, manifest: Custom, spec: JobSpec, context: PodContext) -> Document:
        runtime = runtime_spec(manifest)
        jobs, role = replicated_jobs(manifest.spec, runtime), context.slot.role
        name = LAUNCHER_JOB if role == LAUNCHER else node_job(jobs)
        templates = {
            each: pod_template(job, manifest.spec.get("trainer"), computes=spec.launcher_works and each == NODE)
            for each, job in jobs.items()
        }
        policy = policy_of(runtime)
        variables = self._environment(manifest, spec, context, policy)
        told = (NODE, *(_injected(runtime, name) if policy == "torch" else ()))
        if role == RENDEZVOUS:
            # It opens the group that the workers are told.
            template = with_variables(templates[name], {"PET_RDZV_ID": context.key.name}, (NODE,))
            return rendezvous_pod(self, template, context, container=NODE, port=PORT, search=True)
        template = with_variables(templates[name], variables, told)
        pod = pod_of(self, template, context, search=True)
        index = str(context.slot.index)
        pod["metadata"]["labels"] |= _labels(context.key, context.slot, name)
        if trains(jobs[name]):
            pod["metadata"]["labels"][ANCESTOR] = TRAINER
        pod["metadata"]["annotations"] = pod["metadata"].get("annotations", {}) | {COMPLETION_INDEX: index}
        pod["spec"]["containers"] = [
            _container(known, role, listens=policy in ("torch", "jax", "xgboost"), mpi=policy == "mpi")
            for known in pod["spec"]["containers"]
        ]
        if policy == "mpi":
            if role == LAUNCHER:
                mount_hosts(pod["spec"], context.key, _FOLDERS, NODE)
            folder = at(runtime, "mlPolicy", "mpi", "sshAuthMountPath") or SSH_FOLDER
            mount_keys(pod["spec"], context, folder=folder, workers=templates[NODE], container=NODE)
        return pod

    def _first_labels(self, manifest: Custom, name: str) -> dict[str, str]:
        key, slot = key_of(manifest), Slot(0, LAUNCHER if name == LAUNCHER_JOB else WORKER, 0)
        return slot_labels(self, key, slot) | _labels(key, slot, name)

    def metrics(self, manifest: Custom) -> list[Document]:
        return objects(at(runtime_spec(manifest), "mlPolicy", "torch", "elasticPolicy", "metrics"))

    def template_path(self, manifest: Custom, role: str) -> str:
        jobs = replicated_jobs(manifest.spec, runtime_spec(manifest))
        return path_of(LAUNCHER_JOB if role == LAUNCHER else node_job(jobs)) + ".template"

    def status(self, job: Job) -> Document:
        shown = [
            _in_their_words(job, with_losses(job, known)) for known in waiting.conditions(job) if known.type in TYPES
        ]
        if not job.status.phase:
            # Such a problem goes without a change of the spec.  A queue gives the quota of a failed job back.
            passes = [each.reason in PASSING or each.field.startswith("runtime.") for each in job.resource.problems]
            word = "Pending" if any(passes) else "Failed"
            refused = [known for known in shown if known.type == "Created" and not known.status]
            shown += [msgspec.structs.replace(known, type=word, status=True) for known in refused]
        shown = newest_last(shown)
        # The rendezvous has no Job upstream.
        roles = [role.name for role in job.spec.roles if role.name != RENDEZVOUS] if job.spec is not None else []
        state = next((known for known in reversed(shown) if known.status), None)
        if state is not None and state.type == "Running" and not state.message:
            shown = [known for known in shown if known.type in OF_UPSTREAM]
        return {
            "phase": state.type if state is not None else "",
            "conditions": [condition(known) for known in shown],
            "jobsStatus": [_job_status(job, role) for role in roles],
            "replicas": len(job.attempt.workers),
            "selector": f"{JOB_UID}={job.key.uid},{ROLE}={WORKER}",
            "observedGeneration": job.resource.generation,
            "trainerStatus": trainer_status(job),
        }

    def phase(self, status: Document) -> str:
        true = true_conditions(status)
        weighty = ("Failed", "Succeeded", "Suspended", "Suspending", "Restarting", "Running", "Created")
        active = any(job.get("active") for job in objects(status.get("jobsStatus")))
        if not true and (active or status.get("phase") == "Running"):
            # It runs and lacks nothing.  The definition of upstream has no field for the phase.
            return "Running"
        return next((phase for phase in weighty if TYPES[phase] in true and "Created" in true), "")

    def hosts_files(self, key: JobKey, spec: JobSpec, members: Sequence[WorkerName]) -> dict[str, str]:
        launcher = [f"{key.name}-{LAUNCHER}"] if spec.launcher_works else []
        hosts = [*members, *launcher]
        return {HOSTFILE: "".join(f"{host}.{key.name} slots={spec.slots_per_worker}\n" for host in hosts)}

    def _environment(self, manifest: Custom, spec: JobSpec, context: PodContext, policy: str) -> dict[str, str]:
        """The variables by which a pod finds its rank and the others, as upstream's plug-ins have them."""
        index, size = str(context.slot.index), str(context.sizes.get(WORKER, 0))
        master = f"{spec.worker.stem}0.{context.key.name}"
        match policy:
            case "torch":
                found = {"PET_NNODES": size, "PET_NPROC_PER_NODE": processes_of(manifest), "PET_NODE_RANK": index}
                elastic = at(runtime_spec(manifest), "mlPolicy", "torch", "elasticPolicy")
                if elastic is None:
                    return found | {"PET_MASTER_ADDR": master, "PET_MASTER_PORT": str(PORT)}
                least, most = elastic_bounds(elastic, spec.worker.replicas)
                restarts = at(elastic, "maxRestarts")
                # An attempt may have begun without a rendezvous pod.
                met = f"{rendezvous_name(context.key)}.{context.key.name}" if context.sizes.get(RENDEZVOUS) else master
                # An agent that knows a master waits for exactly so many nodes: the rendezvous alone is elastic.
                return {
                    "PET_NNODES": f"{least}:{most}",
                    "PET_NPROC_PER_NODE": found["PET_NPROC_PER_NODE"],
                    "PET_RDZV_BACKEND": C10D,
                    "PET_RDZV_ENDPOINT": f"{met}:{PORT}",
                    "PET_RDZV_ID": context.key.name,
                    **UNSHARED,
                } | ({"PET_MAX_RESTARTS": str(restarts)} if restarts is not None else {})
            case "jax":
                return {
                    "JAX_NUM_PROCESSES": size,
                    "JAX_PROCESS_ID": index,
                    "JAX_COORDINATOR_ADDRESS": f"{master}:{PORT}",
                }
            case "xgboost":
                workers = context.sizes.get(WORKER, 0) * max(gpus_of(resources_of(manifest)), 1)
                return {
                    "DMLC_TRACKER_URI": master,
                    "DMLC_TRACKER_PORT": str(PORT),
                    "DMLC_TASK_ID": index,
                    "DMLC_NUM_WORKER": str(workers),
                }
            case "mpi" if context.slot.role == LAUNCHER:
                here = OMPI_RESOLVING if spec.launcher_works else {}
                return here | for_all_versions(
                    {
                        OMPI_HOSTS: f"{MPI_FOLDER}/{HOSTFILE}",
                        OMPI_KEEP: "true",
                        OMPI_SLOTS: str(spec.slots_per_worker),
                        OMPI_ARGS: "-o ConnectionAttempts=10",
                        OMPI_FLAT: "1",
                    }
                )
            case _:
                return {}


def _injected(runtime: Any, job: str) -> tuple[str, ...]:
    """Further containers of a replicated job that get torch's variables."""
    targets = objects(at(runtime, "mlPolicy", "torch", "envInjection", "targets"))
    found = [target.get("containerNames") for target in targets if target.get("jobName") == job]
    return tuple(name for names in found if isinstance(names, list) for name in names if isinstance(name, str))


def _container(container: Document, role: str, *, listens: bool, mpi: bool) -> Document:
    if container.get("name") != NODE:
        return container
    if mpi and role == WORKER and not container.get("command") and not container.get("args"):
        return container | {"command": [*WORKER_COMMAND]}
    ports = container.get("ports") or []
    if listens and not any(port.get("containerPort") == PORT for port in objects(ports)):
        return container | {"ports": [*ports, {"containerPort": PORT}]}
    return container


TRAINJOB = TrainJob()


def _labels(key: JobKey, slot: Slot, name: str) -> dict[str, str]:
    """The labels of upstream's JobSet and Job."""
    return {JOBSET_NAME: key.name, REPLICATED_JOB: name, COMPLETION_INDEX: str(slot.index)}
