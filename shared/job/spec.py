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
Succeeds = Literal["First", "Any", "All"]

UNLIMITED = 2**31 - 1
"""A backoffLimit that is never reached."""

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
    """The training container: its exit judges the pod, not a sidecar's."""
    stem: str = ""
    """What the names of its pods have before the index; empty for et-operator's names."""


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs of a framework are handled, whatever their users write; the defaults are those of a TrainingJob."""

    judge: str = LAUNCHER
    """The role whose running is the job's, and whose end."""
    succeeds: Succeeds = "First"
    """Which of its pods have to succeed: that of index 0, any one, or all."""
    restarts: Literal["Job", "Pod"] = "Job"
    """What begins again when the judge failed and its policy allows it: all pods in a new attempt, or its own alone."""
    strict: bool = False
    """Every pod is needed: one that ended badly is replaced, or the job fails.

    Otherwise a job goes on without its lost workers while there are enough.
    """
    spares: tuple[str, ...] = ()
    """The roles whose pods the others can do without, where otherwise every pod is needed."""
    in_place: bool = False
    """A replacement gets the index, and the name, of what it replaces; otherwise an index that was never used."""
    elastic: bool = True
    """Workers may come and go while it trains."""
    hosts_files: bool = True
    """The launcher reads who the workers are from files."""
    whole: bool = False
    """The launcher begins with all workers or not at all, however few of them are enough later."""
    services: Literal["Job", "Pods"] = "Job"
    """One headless Service behind all names, or one of its own for every pod, under the pod's name."""
    out_of_memory_is_final: bool = False
    """Whether ExitCode takes a container that was killed for its memory for one that would fail again."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a job.  All times are whole seconds; None switches a limit off."""

    framework: str
    """The name of the framework, for people."""
    roles: tuple[RoleSpec, ...]
    """The launcher, if there is one, before the workers; without one all roles start at the same time."""
    handling: Handling = Handling()
    slots_per_worker: int = 1
    attach_mode: str = "ssh"
    """How the launcher reaches the workers; empty when nobody has to."""
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
    hosts_style: str = ""
    """How the hosts files are written, in a word of the framework's own."""
    launcher_works: bool = False
    """The launcher is one of the hosts, beside the workers."""

    def role(self, name: str) -> RoleSpec:
        """The role of that name.  Raises `KeyError` when the job has none."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Whether there is a role of that name; a person may have taken it out of the resource."""
        return any(role.name == name for role in self.roles)

    def policy(self, name: str) -> RestartPolicy:
        """The restartPolicy of a role; Never of one that the job no longer has."""
        return next((role.restart_policy for role in self.roles if role.name == name), "Never")

    @property
    def has_launcher(self) -> bool:
        """One pod starts when the others are ready, and drives them."""
        return any(role.name == LAUNCHER for role in self.roles)

    @property
    def worker(self) -> RoleSpec:
        """The role that grows and shrinks; one without pods where a job has no workers."""
        return next((role for role in self.roles if role.name == WORKER), _NO_WORKERS)


_NO_WORKERS = RoleSpec(name=WORKER, replicas=0, min_replicas=0)


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
