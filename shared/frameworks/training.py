"""Parses TrainingJob, ScaleIn and ScaleOut (`kai.alibabacloud.com/v1alpha1`).  Pure.

Older definitions let anything through, so any JSON gives a spec or all its problems.
`training_status.py` renders the status, `training_job.py` pods and hosts files.
"""

import re
from typing import get_args

from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.reading import Fields
from shared.frameworks.templates import DNS_LABEL, gpus, training_container
from shared.job.naming import LONGEST_JOB_NAME, RESTART, SSH_KEYS, SUSPENDED
from shared.job.spec import (
    LAUNCHER,
    WORKER,
    CleanPodPolicy,
    JobSpec,
    Problem,
    RestartPolicy,
    RoleSpec,
    ScaleKind,
    ScaleSpec,
)

GROUP = "kai.alibabacloud.com"
VERSION = "v1alpha1"
FRAMEWORK = "training"

TRAININGJOBS = Resource(GROUP, VERSION, "trainingjobs", "TrainingJob", Custom)
SCALEINS = Resource(GROUP, VERSION, "scaleins", "ScaleIn", Custom)
SCALEOUTS = Resource(GROUP, VERSION, "scaleouts", "ScaleOut", Custom)

REQUESTS = {known.kind: known for known in (SCALEINS, SCALEOUTS)}
"""By kind."""

MOST_WORKERS = 7_000
"""The most workers: the hosts files of the longest names then fit into one ConfigMap (1 MiB)."""
MOST_NAMED = 1_000
"""The most pod names of a request: they fit into one event."""
LONGEST_POD_NAME = 63
"""Characters of a job's name, which is also a host name."""
MOST_SLOTS = 9_999
LONGEST_REQUEST_NAME = 63
"""Characters of a request's name, which is also the value of a label."""
LONGEST_SELECTED_NAME = 253

CLEAN_POD_POLICIES: tuple[CleanPodPolicy, ...] = get_args(CleanPodPolicy)
RESTART_POLICIES: tuple[RestartPolicy, ...] = get_args(RestartPolicy)
JOB_RESTART_POLICIES: tuple[RestartPolicy, ...] = ("Never", "OnFailure")
ATTACH_MODES = ("ssh", "kubexec")

DEFAULT_BACKOFF_LIMIT = 6
DEFAULT_TIMEOUT_SECONDS = 60

JOB_NAME_PATTERN = r"[a-z]([-a-z0-9]*[a-z0-9])?"

LONGEST_SECRET_NAME = 253
NAME_OF_VARIABLE = "give the variable a name without an equals sign, and no hyphen before it"
LONGEST_RESTART = 64
"""The characters of the restart annotation that count."""

_JOB_NAME = re.compile(JOB_NAME_PATTERN)
_DNS_SUBDOMAIN = re.compile(rf"{DNS_LABEL}(\.{DNS_LABEL})*")


def parse_job(manifest: Custom) -> JobSpec | tuple[Problem, ...]:
    """The spec of a TrainingJob, or all its problems."""
    problems: list[Problem] = []
    _check_job_name(manifest.metadata.name, problems)
    spec = Fields(manifest.spec, "spec", problems)
    roles = spec.part("etReplicaSpecs")
    launcher = _launcher(roles)
    worker, gpu_limit = _worker(roles, slots_given=spec.has("slotsPerWorker"))
    slots = spec.integer("slotsPerWorker", least=1, most=MOST_SLOTS) or gpu_limit or 1
    attach_mode = spec.choice("launcherAttachMode", ATTACH_MODES, "ssh", reason="UnknownAttachMode")
    if attach_mode == "kubexec":
        message = "set ssh or leave it out: attaching through the API server is not supported"
        spec.refuse("KubexecNotSupported", message, "launcherAttachMode")
    backoff_limit = spec.integer("backoffLimit", least=0)
    annotations = manifest.metadata.annotations or {}
    parsed = JobSpec(
        framework=FRAMEWORK,
        roles=(launcher, worker),
        slots_per_worker=slots,
        attach_mode=attach_mode,
        clean_pod_policy=spec.choice("cleanPodPolicy", CLEAN_POD_POLICIES, "Running", reason="UnknownCleanPodPolicy"),
        restart_policy=spec.choice("restartPolicy", JOB_RESTART_POLICIES, "Never", reason="UnknownRestartPolicy"),
        backoff_limit=DEFAULT_BACKOFF_LIMIT if backoff_limit is None else backoff_limit,
        active_deadline_seconds=spec.integer("activeDeadlineSeconds", least=1),
        ttl_seconds_after_finished=spec.integer("ttlSecondsAfterFinished", least=0),
        scheduling_timeout_seconds=spec.integer("schedulingTimeoutSeconds", least=1),
        suspend=spec.boolean("suspend") or annotations.get(SUSPENDED) == "true",
        restart=annotations.get(RESTART, "")[:LONGEST_RESTART],
        ssh_secret=_ssh_secret(annotations.get(SSH_KEYS, ""), problems),
    )
    return tuple(problems) or parsed


def parse_scale(kind: ScaleKind, manifest: Custom) -> ScaleSpec | tuple[Problem, ...]:
    """The spec of a request, or all its problems."""
    problems: list[Problem] = []
    if len(manifest.metadata.name) > LONGEST_REQUEST_NAME:
        message = f"create the request again under a name of at most {LONGEST_REQUEST_NAME} characters"
        problems.append(Problem(reason="InvalidName", field="metadata.name", message=message))
    spec = Fields(manifest.spec, "spec", problems)
    selector = spec.part("selector")
    job = selector.text("name")
    if not job or len(job) > LONGEST_SELECTED_NAME:
        selector.refuse("NoJobName", "name the TrainingJob to scale, of the same namespace", "name")
    count, pod_names = _to_delete(spec) if kind == "ScaleIn" else (_to_add(spec), ())
    timeout = spec.integer("timeout", least=1)
    backoff_limit = spec.integer("backoffLimit", least=0)
    _check_environment(spec)
    parsed = ScaleSpec(
        kind=kind,
        job=job,
        count=count,
        pod_names=pod_names,
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout,
        backoff_limit=DEFAULT_BACKOFF_LIMIT if backoff_limit is None else backoff_limit,
        script=_script(spec),
    )
    return tuple(problems) or parsed


def _check_job_name(name: str, problems: list[Problem]) -> None:
    if len(name) > LONGEST_JOB_NAME or not _JOB_NAME.fullmatch(name):
        message = (
            f"create the job again under a name of at most {LONGEST_JOB_NAME} lower-case letters, digits and hyphens "
            "that begins with a letter and does not end with a hyphen: its pods are named after it"
        )
        problems.append(Problem(reason="InvalidName", field="metadata.name", message=message))


def _ssh_secret(name: str, problems: list[Problem]) -> str:
    if name and (len(name) > LONGEST_SECRET_NAME or not _DNS_SUBDOMAIN.fullmatch(name)):
        message = f"name a Secret here: at most {LONGEST_SECRET_NAME} lower-case letters, digits, hyphens and dots"
        problems.append(Problem(reason="InvalidName", field=f"metadata.annotations[{SSH_KEYS}]", message=message))
    return name


def _launcher(roles: Fields) -> RoleSpec:
    role = roles.part(LAUNCHER)
    if not roles.has(LAUNCHER):
        roles.refuse("NoLauncher", "add a launcher with a pod template", LAUNCHER)
        return RoleSpec(name=LAUNCHER, replicas=1)
    if role.has("replicas") and role.raw("replicas") != 1:
        role.refuse("NotOneLauncher", "set 1 or leave it out: a job has one launcher", "replicas")
    return RoleSpec(name=LAUNCHER, replicas=1, restart_policy=_restart_policy(role), container=_container(role)[0])


def _worker(roles: Fields, *, slots_given: bool) -> tuple[RoleSpec, int | None]:
    """The workers' role, and the GPUs of each if they determine its number of slots."""
    role = roles.part(WORKER)
    if not roles.has(WORKER):
        roles.refuse("NoWorker", "add workers with replicas and a pod template", WORKER)
        return RoleSpec(name=WORKER, replicas=1), None
    # As in et-operator's types: an absent replicas is 1, an absent minReplicas is replicas.
    replicas = role.integer("replicas", least=1, most=MOST_WORKERS) if role.has("replicas") else 1
    least = role.integer("minReplicas", least=1)
    most = role.integer("maxReplicas", least=1)
    if replicas is not None and least is not None and replicas < least:
        role.refuse("BelowMinimum", "set at least minReplicas, or lower minReplicas", "replicas")
    if replicas is not None and most is not None and replicas > most:
        role.refuse("AboveMaximum", "set at most maxReplicas, or raise maxReplicas", "replicas")
    if least is not None and most is not None and least > most:
        role.refuse("MinimumAboveMaximum", "set at most maxReplicas, or raise maxReplicas", "minReplicas")
    name, container = _container(role)
    parsed = RoleSpec(
        name=WORKER,
        replicas=replicas or 1,
        min_replicas=least or replicas or 1,
        max_replicas=most,
        restart_policy=_restart_policy(role),
        container=name,
    )
    return parsed, gpus(container, most=MOST_SLOTS) if container is not None and not slots_given else None


def _container(role: Fields) -> tuple[str, Fields | None]:
    container = training_container(role)
    name = container.raw("name") if container is not None else None
    return name if isinstance(name, str) else "", container


def _restart_policy(role: Fields) -> RestartPolicy:
    return role.choice("restartPolicy", RESTART_POLICIES, "Never", reason="UnknownRestartPolicy")


def _to_delete(spec: Fields) -> tuple[int | None, tuple[str, ...]]:
    wish = spec.part("toDelete")
    if wish.has("count") and wish.has("podNames"):
        spec.refuse("ContradictoryRequest", "set either count or podNames", "toDelete")
        return None, ()
    if wish.has("count"):
        return wish.integer("count", least=1, most=MOST_WORKERS), ()
    names = wish.texts("podNames")
    if not names:
        message = "say how many workers leave (count) or which (podNames)"
        spec.refuse("NothingToDelete", message, "toDelete")
    elif len(set(names)) < len(names):
        wish.refuse("ContradictoryRequest", "name each worker once", "podNames")
    elif len(names) > MOST_NAMED:
        wish.refuse("TooManyNames", f"name at most {MOST_NAMED} workers, or say how many leave (count)", "podNames")
    elif max(map(len, names)) > LONGEST_POD_NAME:
        wish.refuse("NoSuchWorker", f"no worker has a name of more than {LONGEST_POD_NAME} characters", "podNames")
    return None, tuple(names)


def _to_add(spec: Fields) -> int | None:
    wish = spec.part("toAdd")
    if not wish.has("count"):
        spec.refuse("NothingToAdd", "say how many workers come (count)", "toAdd")
    return wish.integer("count", least=1, most=MOST_WORKERS)


def _script(spec: Fields) -> bool:
    script = spec.text("script")
    if script.startswith("-"):
        spec.refuse("InvalidScript", "give the path of a script: the shell would take this for an option", "script")
    return bool(script)


def _check_environment(spec: Fields) -> None:
    for variable in spec.parts("env"):
        name = variable.text("name")
        if not name or "=" in name or "\0" in name or name.startswith("-"):
            variable.refuse("InvalidEnvironment", NAME_OF_VARIABLE, "name")
        if "\0" in variable.text("value"):
            variable.refuse("InvalidEnvironment", "leave out null characters", "value")
