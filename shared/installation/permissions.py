"""What each service may do in Kubernetes, and which of its calls needs it.

The one source of `deploy/rbac/`, and what a service asks about itself before it begins.  What is needed of jobs is
needed of each kind of job alike, and said once.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from shared.cluster import Resource
from shared.cluster.examination import Right
from shared.cluster.kinds import CONFIGMAPS, DEFINITIONS, EVENTS, NODES, PODS, SECRETS, SERVICES
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS
from shared.job.events.event import Author

REQUESTS = (SCALEINS, SCALEOUTS)

SERVICES_OF_A_CLUSTER: tuple[Author, ...] = ("watcher", "scheduler", "scaler", "status")

TAKEN = "the name is taken: is what has it ours?"
FINALIZERS = (
    "the owner references that it writes block the owner's deletion; a cluster with the admission plugin "
    "`OwnerReferencesPermissionEnforcement` asks for this right"
)


class Jobs(Enum):
    """In the place of a resource: those of some kinds of job, whichever there are."""

    EVERY = "every kind of job"
    WITH_HOSTS_FILES = "every kind of job with hosts files"
    THAT_EXPIRE = "every kind of job with a time to live"

    def among(self, kinds: Iterable[Framework]) -> list[Resource[Any]]:
        match self:
            case Jobs.EVERY:
                return [kind.resource for kind in kinds]
            case Jobs.WITH_HOSTS_FILES:
                return [kind.resource for kind in kinds if kind.has_hosts_files]
            case Jobs.THAT_EXPIRE:
                return [kind.resource for kind in kinds if kind.expires]


class Need(NamedTuple):
    """One right of one service."""

    service: Author
    verb: str
    group: str
    resource: str
    """The plural, with `/<subresource>` where it is one."""


class Permission(NamedTuple):
    """Rights that go together, and the call that needs them."""

    service: Author
    verbs: tuple[str, ...]
    resources: tuple[Resource[Any] | Jobs, ...]
    call: str
    subresource: str = ""
    everywhere: bool = False
    """Only an installation for the whole cluster has it: what it is about belongs to no namespace."""
    helpful: bool = False
    """A cluster may withhold it: what it serves is done in another way."""
    taking_over: bool = False
    """Only an installation that takes over what another operator left has it."""

    def needs(self, kinds: Iterable[Framework] = BUILT_IN) -> Iterator[Need]:
        """One by one, where there are these `kinds` of job; without TrainingJobs nobody has requests."""
        kinds, tail = [*kinds], f"/{self.subresource}" if self.subresource else ""
        for at in self.resources:
            for resource in at.among(kinds) if isinstance(at, Jobs) else (at,):
                if resource in REQUESTS and not any(kind.resource == TRAININGJOBS for kind in kinds):
                    continue
                for verb in self.verbs:
                    yield Need(self.service, verb, resource.group, resource.plural + tail)


PERMISSIONS = (
    Permission("watcher", ("list", "watch"), (Jobs.EVERY, *REQUESTS), "the watches of jobs and requests"),
    Permission("watcher", ("list", "watch"), (PODS,), "the watch of pods that carry a job's uid"),
    Permission("watcher", ("list", "watch"), (SERVICES, CONFIGMAPS), "the watches of a job's other children"),
    Permission("watcher", ("list", "watch"), (SECRETS,), "the same, of the job's own alone, and only their metadata"),
    Permission("watcher", ("list", "watch"), (NODES,), "which nodes are about to go", everywhere=True),
    Permission("watcher", ("get",), (Jobs.EVERY,), "a job that a list lacks is asked for before it is believed gone"),
    Permission("scheduler", ("get",), (Jobs.EVERY,), "the pod templates, read once per generation"),
    Permission("scheduler", ("create",), (PODS,), "`CreatePod`"),
    Permission("scheduler", ("create",), (SERVICES,), "`CreateService`"),
    Permission("scheduler", ("create",), (SECRETS,), "`CreateSecret`"),
    Permission(
        "scheduler", ("get",), (PODS, SERVICES, SECRETS), f"`CreatePod`, `CreateService`, `CreateSecret`: {TAKEN}"
    ),
    Permission(
        "scheduler",
        ("patch",),
        (PODS, SERVICES, SECRETS),
        "`ClaimPod`, `CreateService`, `CreateSecret`: our labels on what another operator made for the same job",
        taking_over=True,
    ),
    Permission("scheduler", ("delete",), (PODS,), "`DeletePod`"),
    Permission("scheduler", ("delete",), (SERVICES,), "`DeleteService`"),
    Permission("scheduler", ("delete",), (SECRETS,), "`DeleteSecret`"),
    Permission("scheduler", ("delete",), (Jobs.THAT_EXPIRE,), "`DeleteJob`: its time to live after the end is over"),
    Permission("scheduler", ("update",), (Jobs.EVERY,), FINALIZERS, "finalizers"),
    Permission("scaler", ("get",), (CONFIGMAPS,), "`WriteHosts`: which version is there, and is it ours?"),
    Permission("scaler", ("create", "patch"), (CONFIGMAPS,), "`WriteHosts`"),
    Permission("scaler", ("delete",), (CONFIGMAPS,), "`DeleteHosts`"),
    Permission("scaler", ("patch",), (PODS,), "`NudgeLauncher`, `LinkHosts`: annotations of the launcher"),
    Permission("scaler", ("get",), (PODS,), "`NudgeLauncher`, `LinkHosts`: another pod has the launcher's name"),
    Permission(
        "scaler",
        ("get", "create"),
        (PODS,),
        "`RunScript`, `CheckDrain`, `LinkHosts`: commands within the launcher; withheld, scripts fail, drains are timed"
        " and hosts files that another operator wrote stay as they are",
        "exec",
        helpful=True,
    ),
    Permission("scaler", ("get", "patch"), REQUESTS, "`OwnRequest`: the job becomes the request's owner"),
    Permission(
        "scaler",
        ("delete",),
        REQUESTS,
        "`OwnRequest`: the same plugin lets only those set an owner who could delete the object; nothing is deleted",
    ),
    Permission("scaler", ("update",), (Jobs.WITH_HOSTS_FILES,), FINALIZERS, "finalizers"),
    Permission(
        "status", ("get",), (Jobs.EVERY, *REQUESTS), "`PatchStatus`: is it the same object, and does the status differ?"
    ),
    Permission("status", ("patch",), (Jobs.EVERY, *REQUESTS), "`PatchStatus`", "status"),
    Permission("status", ("create",), (EVENTS,), "`Announce`"),
    *(
        Permission(
            service,
            ("get",),
            (DEFINITIONS,),
            "whose the scope is, and which release made the definitions: of their metadata alone; withheld, nobody "
            "notices another installation's claim",
            everywhere=True,
            helpful=True,
        )
        for service in SERVICES_OF_A_CLUSTER
    ),
)


def needs(
    service: Author, namespace: str = "", kinds: Iterable[Framework] = BUILT_IN, *, taking_over: bool = False
) -> list[Need]:
    """Every right of a service, one by one; without a `namespace` those of an installation for the whole cluster."""
    found, kinds = [known for known in _of(service, taking_over) if not (namespace and known.everywhere)], [*kinds]
    return [need for known in found for need in known.needs(kinds)]


def necessary(service: Author, kinds: Iterable[Framework] = BUILT_IN, *, taking_over: bool = False) -> list[Need]:
    """Those without which it cannot begin where these `kinds` of job are served."""
    found, kinds = [known for known in _of(service, taking_over) if not (known.everywhere or known.helpful)], [*kinds]
    return [need for known in found for need in known.needs(kinds)]


def definitions(kind: Framework) -> tuple[Resource[Any], ...]:
    """What has to be served besides a kind of job where it is: requests are about TrainingJobs."""
    return REQUESTS if kind.resource == TRAININGJOBS else ()


def set_up(kinds: Iterable[Framework] = BUILT_IN) -> list[Right]:
    """What `muster setup` needs: to make the definitions of these kinds, and to claim its scope in them.

    What is made has no name yet that a rule could be held to.
    """
    group, plural = DEFINITIONS.group, DEFINITIONS.plural
    every = [resource for kind in kinds for resource in (kind.resource, *definitions(kind))]
    names = [f"{resource.plural}.{resource.group}" for resource in every]
    return [
        *(Right("get", group, plural, name) for name in names),
        Right("create", group, plural),
        *(Right("patch", group, plural, name) for name in names),
    ]


def _of(service: Author, taking_over: bool) -> list[Permission]:
    return [known for known in PERMISSIONS if known.service == service and (taking_over or not known.taking_over)]
