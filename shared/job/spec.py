"""What a job asks for, in one canonical shape whatever the framework: the part of a resource that decisions need.

`shared.frameworks` parses resources into it.  Pod templates stay in the resource.
"""

from typing import Literal

import msgspec

LAUNCHER = "launcher"
WORKER = "worker"

RestartPolicy = Literal["Never", "Always", "OnFailure", "ExitCode"]
CleanPodPolicy = Literal["None", "Running", "All"]
ScaleKind = Literal["ScaleIn", "ScaleOut"]

OWNED_BY_ANOTHER = "OwnedByAnother"
"""The problem of a request whose controller is no job: it cannot be owned before it is rejected."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a spec cannot be acted upon."""

    reason: str
    """One CamelCase word, such as `NoContainers`."""
    field: str = ""
    """Its path, such as `spec.etReplicaSpecs.worker.template.spec.containers`."""
    message: str = ""
    """A sentence for the user, without any value that could be a secret."""


class RoleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One role of a job: how many pods, and what happens to them when they end."""

    name: str
    replicas: int
    min_replicas: int = 1
    max_replicas: int | None = None
    """None is no upper bound."""
    restart_policy: RestartPolicy = "Never"
    container: str = ""
    """The training container, the first of the template: its exit judges the pod, not a sidecar's."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a job.  All times are whole seconds; None switches a limit off."""

    framework: str
    """The name of its file in `shared/frameworks/`."""
    roles: tuple[RoleSpec, ...]
    """The launcher, if there is one, before the workers."""
    slots_per_worker: int = 1
    attach_mode: str = "ssh"
    clean_pod_policy: CleanPodPolicy = "Running"
    restart_policy: RestartPolicy = "Never"
    """Of the whole job."""
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    scheduling_timeout_seconds: int | None = None
    suspend: bool = False
    restart: str = ""
    """A word that a person changes to have a job that runs begin again; empty asks for nothing."""
    ssh_secret: str = ""
    """The user's own Secret with ssh keys; empty has a pair made for the job."""

    def role(self, name: str) -> RoleSpec:
        """The role of that name.  Raises `KeyError` when the job has none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)


class ScaleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a scale request asks for."""

    kind: ScaleKind
    job: str
    """The name of the job, in the request's namespace."""
    count: int | None = None
    """How many workers to add or remove; None when `pod_names` says which to remove."""
    pod_names: tuple[str, ...] = ()
    timeout_seconds: int = 60
    backoff_limit: int = 6
    script: bool = False
    """True when the request brings a script; its text stays in the resource."""
