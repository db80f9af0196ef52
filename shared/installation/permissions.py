"""The rights of each service in Kubernetes, and the calls that need them.

`deploy/rbac/` is made from this table, and a service checks its own rights before it begins.  A right on jobs stands
once, for every kind of job.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self

from shared.cluster import Resource
from shared.cluster.examination import Right
from shared.cluster.kinds import (
    AUTOSCALERS,
    CONFIGMAPS,
    DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    TOKENREVIEWS,
)
from shared.cluster.scope import SELECTOR, labels_of
from shared.frameworks.framework import Framework, resources_of
from shared.frameworks.gangs import POD_GROUPS
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.queueing import FLAVORS, PRIORITIES, WORKLOADS
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.job.events.event import Author

REQUESTS = (SCALEINS, SCALEOUTS)
PODGROUPS = POD_GROUPS[0]
"""Rights are the same in every version."""

SERVICES_OF_A_CLUSTER: tuple[Author, ...] = ("watcher", "scheduler", "scaler", "status")

TAKEN = "the owner of an object whose name is taken"
WHOSE = "whose the object is"
RUNTIMES = "the watches of runtimes"
COPIES = "a job's copy of its runtime"
FINALIZERS = "owner references (the plugin)"
LABELS = "the labels of namespaces; without it no job begins"
TOKENS = "whose token a report came with; without it none is taken"
WRITES = "`WriteWorkload`, `ShrinkWorkload`; its finalizer with `FinishWorkload` and `DeleteWorkload`"
BEFORE = "pods that go with their namespace fail no job; without it they do"
WORDS = "why no container of a pod begins; without it only the usual reason is told"
CLAIMS = "the claims of scopes; without it another installation's goes unnoticed"


class Jobs(Enum):
    """Stands for the resources of several kinds of job, or of what they name."""

    EVERY = "every kind of job"
    WITH_HOSTS_FILES = "every kind of job with hosts files"
    THAT_EXPIRE = "every kind of job with a time to live"
    WITH_REQUESTS = "every kind of job with scale requests"
    RUNTIMES = "every kind of runtime"
    RUNTIMES_OF_CLUSTER = "every cluster-scoped kind of runtime"
    COPIES = "the kind of the copies of runtimes"

    def among(self, kinds: Iterable[Framework]) -> list[Resource[Any]]:
        match self:
            case Jobs.EVERY:
                return [kind.resource for kind in kinds]
            case Jobs.WITH_HOSTS_FILES:
                return [kind.resource for kind in kinds if kind.has_hosts_files]
            case Jobs.THAT_EXPIRE:
                return [kind.resource for kind in kinds if kind.definition.expires]
            case Jobs.WITH_REQUESTS:
                return [kind.resource for kind in kinds if kind.requests]
            case Jobs.RUNTIMES | Jobs.RUNTIMES_OF_CLUSTER:
                of_cluster = self is Jobs.RUNTIMES_OF_CLUSTER
                found = [runtime for kind in kinds for runtime in kind.runtimes]
                return [runtime.resource for runtime in found if runtime.of_cluster is of_cluster]
            case Jobs.COPIES:
                return [CONFIGMAPS] if any(kind.runtimes for kind in kinds) else []


class Powers(NamedTuple):
    """What the settings of an installation add to its services' rights, or take away."""

    taking_over: bool = False
    """It takes over another operator's jobs (`MUSTER_TAKE_OVER`)."""
    commands: bool = True
    """It runs commands in launchers (`MUSTER_EXEC`)."""
    keys: bool = True
    """It makes Secrets with ssh keys (`MUSTER_SSH`)."""
    kueue: bool = False
    """Its jobs may wait in queues of Kueue, for which it writes Workloads (`MUSTER_KUEUE`)."""
    gangs: bool = False
    """Pods of its jobs find places together, by PodGroups (`MUSTER_GANGS`)."""
    namespaces: tuple[str, ...] = ()
    """The labels of the namespaces in which it works (`MUSTER_NAMESPACE_SELECTOR`); empty for every namespace."""
    reports: bool = False
    """Programs report their progress (`MUSTER_PROGRESS_URL`)."""

    @classmethod
    def of(cls, environment: Mapping[str, str], *, taking_over: bool = False) -> Self:
        """Those of a service with this environment; `taking_over` if that says nothing about it."""

        def says(name: str, default: bool) -> bool:
            return environment.get(name, str(default)).lower() in ("true", "1", "yes", "on", "t", "y")

        return cls(
            says("MUSTER_TAKE_OVER", taking_over),
            commands=says("MUSTER_EXEC", True),
            keys=says("MUSTER_SSH", True),
            kueue=says("MUSTER_KUEUE", False),
            gangs=says("MUSTER_GANGS", False),
            reports=bool(environment.get("MUSTER_PROGRESS_URL")),
            namespaces=labels_of(environment.get(SELECTOR, "")),
        )


USUAL = Powers()


class Need(NamedTuple):
    """One right of one service."""

    service: Author
    verb: str
    group: str
    resource: str
    """The plural, with `/<subresource>` for a subresource."""


class Permission(NamedTuple):
    """Rights that one call needs together."""

    service: Author
    verbs: tuple[str, ...]
    resources: tuple[Resource[Any] | Jobs, ...]
    call: str
    subresource: str = ""
    everywhere: bool = False
    """Only an installation for the whole cluster has it: the resource is cluster-scoped."""
    helpful: bool = False
    """A service works without it, in another way."""
    only: str = ""
    """The field of `Powers` of the installations that have it; empty for every one."""

    def needs(self, kinds: Iterable[Framework] = BUILT_IN) -> Iterator[Need]:
        """The single rights for these `kinds` of job; requests exist only with the kind that has them."""
        kinds, tail = [*kinds], f"/{self.subresource}" if self.subresource else ""
        for at in self.resources:
            for resource in at.among(kinds) if isinstance(at, Jobs) else (at,):
                if resource in REQUESTS and not any(kind.requests for kind in kinds):
                    continue
                for verb in self.verbs:
                    yield Need(self.service, verb, resource.group, resource.plural + tail)


def _with(power: str, *those: Permission) -> Iterator[Permission]:
    return (each._replace(only=power) for each in those)


PERMISSIONS = (
    Permission("watcher", ("list", "watch"), (Jobs.EVERY, *REQUESTS), "the watches of jobs and requests"),
    Permission("watcher", ("list", "watch"), (PODS,), "the watch of pods that carry a job's uid"),
    Permission("watcher", ("list", "watch"), (SERVICES, CONFIGMAPS), "the watches of a job's other children"),
    Permission("watcher", ("list", "watch"), (NODES,), "nodes that are about to be removed", everywhere=True),
    Permission("watcher", ("list", "watch"), (Jobs.RUNTIMES,), RUNTIMES),
    Permission("watcher", ("list", "watch"), (Jobs.RUNTIMES_OF_CLUSTER,), RUNTIMES, everywhere=True),
    Permission("watcher", ("get",), (Jobs.EVERY,), "whether a job that a list lacks is gone"),
    Permission("watcher", ("get",), (NAMESPACES,), BEFORE, helpful=True),
    Permission("watcher", ("list",), (EVENTS,), WORDS, helpful=True),
    Permission("scheduler", ("get",), (Jobs.EVERY,), "the pod templates, read once per generation"),
    Permission("scheduler", ("get",), (Jobs.RUNTIMES,), COPIES),
    Permission("scheduler", ("get",), (Jobs.RUNTIMES_OF_CLUSTER,), COPIES, everywhere=True),
    Permission("scheduler", ("get", "create"), (Jobs.COPIES,), COPIES),
    Permission("scheduler", ("create",), (PODS,), "`CreatePod`"),
    Permission("scheduler", ("create",), (SERVICES,), "`CreateService`"),
    Permission("scheduler", ("get",), (PODS, SERVICES), f"every `Create`: {TAKEN}; every `Delete`: {WHOSE}"),
    Permission(
        "scheduler", ("patch",), (PODS, SERVICES), "`ClaimPod`, `CreateService`: Muster's labels", only="taking_over"
    ),
    Permission("scheduler", ("delete",), (PODS,), "`DeletePod`"),
    Permission("scheduler", ("delete",), (SERVICES,), "`DeleteService`"),
    Permission("scheduler", ("create", "get", "delete"), (AUTOSCALERS,), "`CreateAutoscaler`, `DeleteAutoscaler`"),
    Permission("scheduler", ("delete",), (Jobs.THAT_EXPIRE,), "`DeleteJob`: its time to live is over"),
    Permission("scheduler", ("update",), (Jobs.EVERY,), FINALIZERS, "finalizers"),
    Permission("scaler", ("get",), (CONFIGMAPS,), f"`WriteHosts`: its version; `WriteHosts`, `DeleteHosts`: {WHOSE}"),
    Permission("scaler", ("create", "patch"), (CONFIGMAPS,), "`WriteHosts`"),
    Permission("scaler", ("delete",), (CONFIGMAPS,), "`DeleteHosts`"),
    Permission("scaler", ("patch",), (PODS,), "`NudgeLauncher`, `LinkHosts`: annotations of the launcher"),
    Permission("scaler", ("get",), (PODS,), f"every patch of a launcher, every command in it: {WHOSE}"),
    Permission("scaler", ("get", "patch"), REQUESTS, "`OwnRequest`: the job becomes the request's owner"),
    Permission("scaler", ("get",), (Jobs.WITH_REQUESTS,), "`OwnRequest`, `WriteSize`: the job; only its metadata"),
    Permission("scaler", ("patch",), (Jobs.WITH_REQUESTS,), "`WriteSize`: the size that requests led to", "scale"),
    Permission("scaler", ("delete",), REQUESTS, "`OwnRequest` (the plugin); nothing is deleted"),
    Permission("scaler", ("update",), (Jobs.WITH_HOSTS_FILES,), FINALIZERS, "finalizers"),
    Permission("status", ("get",), (Jobs.EVERY, *REQUESTS), "`PatchStatus`: the object's uid and its present status"),
    Permission("status", ("patch",), (Jobs.EVERY, *REQUESTS), "`PatchStatus`", "status"),
    Permission("status", ("create",), (EVENTS,), "`Announce`"),
    *(
        Permission(service, ("get",), (DEFINITIONS,), CLAIMS, everywhere=True, helpful=True)
        for service in SERVICES_OF_A_CLUSTER
    ),
    # Last, as the chart adds them to the others.
    *_with(
        "kueue",
        Permission("watcher", ("list", "watch"), (WORKLOADS,), "the watch of jobs' Workloads"),
        Permission(
            "watcher", ("list", "watch"), (FLAVORS,), "what an admitted job's pods get: node labels and tolerations"
        ),
    ),
    *_with("namespaces", Permission("watcher", ("list", "watch"), (NAMESPACES,), LABELS, everywhere=True)),
    *_with(
        "gangs",
        Permission("watcher", ("list", "watch"), (PODGROUPS,), "the watch of jobs' PodGroups"),
        Permission("scheduler", ("create",), (PODGROUPS,), "`CreatePodGroup`"),
        Permission("scheduler", ("get",), (PODGROUPS,), f"`CreatePodGroup`: {TAKEN}; `DeletePodGroup`: {WHOSE}"),
        Permission("scheduler", ("delete",), (PODGROUPS,), "`DeletePodGroup`"),
    ),
    *_with("reports", Permission("watcher", ("create",), (TOKENREVIEWS,), TOKENS, everywhere=True)),
    *_with(
        "kueue",
        Permission("scheduler", ("create",), (WORKLOADS,), "`WriteWorkload`"),
        Permission("scheduler", ("get",), (WORKLOADS,), f"every effect on a Workload: {WHOSE}"),
        Permission("scheduler", ("patch",), (WORKLOADS,), WRITES),
        Permission("scheduler", ("patch",), (WORKLOADS,), "`ReturnQuota`, `ReadyWorkload`, `FinishWorkload`", "status"),
        Permission("scheduler", ("delete",), (WORKLOADS,), "`DeleteWorkload`"),
        Permission("scheduler", ("get",), (PRIORITIES,), "`WriteWorkload`: the value of a priority class"),
    ),
    Permission("scheduler", ("create",), (SECRETS,), "`CreateSecret`: the ssh keys of an attempt"),
    Permission("scheduler", ("delete",), (SECRETS,), "`DeleteSecret`"),
    Permission(
        "scaler",
        ("get", "create"),
        (PODS,),
        "`RunScript`, `CheckDrain`, `LinkHosts`; without it scripts fail, every drain takes its full time and another"
        " operator's hosts files stay",
        "exec",
        helpful=True,
    ),
)


def needs(
    service: Author,
    namespace: str = "",
    kinds: Iterable[Framework] = BUILT_IN,
    powers: Powers = USUAL,
) -> list[Need]:
    """Every right of a service; without a `namespace` those of an installation for the whole cluster."""
    found = [known for known in _of(service, powers) if not (namespace and known.everywhere)]
    found, kinds = [known for known in found if powers.commands or known.subresource != "exec"], [*kinds]
    return [need for known in found for need in known.needs(kinds)]


def necessary(service: Author, kinds: Iterable[Framework] = BUILT_IN, powers: Powers = USUAL) -> list[Need]:
    """The rights without which a service cannot begin if these `kinds` of job are served."""
    known, kinds = _of(service, powers), [*kinds]
    vital = [each for each in known if each.only == "namespaces" or not (each.everywhere or each.helpful)]
    return [need for each in vital for need in each.needs(kinds)]


def set_up(kinds: Iterable[Framework] = BUILT_IN) -> list[Right]:
    """The rights of `muster setup`: to make the definitions of these kinds, and to claim its scope in them.

    RBAC cannot restrict `create` by name.
    """
    group, plural = DEFINITIONS.group, DEFINITIONS.plural
    every = [resource for kind in kinds for resource in resources_of(kind)]
    names = [f"{resource.plural}.{resource.group}" for resource in every]
    return [
        *(Right("get", group, plural, name) for name in names),
        Right("create", group, plural),
        *(Right("patch", group, plural, name) for name in names),
    ]


def _of(service: Author, powers: Powers) -> list[Permission]:
    return [
        known
        for known in PERMISSIONS
        if known.service == service
        if not known.only or getattr(powers, known.only)
        if powers.keys or SECRETS not in known.resources
    ]
