"""What each service may do in Kubernetes, and which of its calls needs it.

The one source of `deploy/rbac/`, and what a service asks about itself before it begins.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, EVENTS, NODES, PODS, SECRETS, SERVICES
from shared.frameworks.training import SCALEINS, SCALEOUTS, TRAININGJOBS
from shared.job.events import Author

REQUESTS = (SCALEINS, SCALEOUTS)
OURS = (TRAININGJOBS, *REQUESTS)

TAKEN = "the name is taken: is what has it ours?"
FINALIZERS = (
    "the owner references that it writes block the owner's deletion; a cluster with the admission plugin "
    "`OwnerReferencesPermissionEnforcement` asks for this right"
)


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
    resources: tuple[Resource[Any], ...]
    call: str
    subresource: str = ""
    everywhere: bool = False
    """Only an installation for the whole cluster has it: what it is about belongs to no namespace."""
    helpful: bool = False
    """A cluster may withhold it: what it serves is done in another way."""

    def needs(self) -> Iterator[Need]:
        tail = f"/{self.subresource}" if self.subresource else ""
        for resource in self.resources:
            for verb in self.verbs:
                yield Need(self.service, verb, resource.group, resource.plural + tail)


PERMISSIONS = (
    Permission("watcher", ("list", "watch"), OURS, "the watches of jobs and requests"),
    Permission("watcher", ("list", "watch"), (PODS,), "the watch of pods that carry a job's uid"),
    Permission("watcher", ("list", "watch"), (SERVICES, CONFIGMAPS), "the watches of a job's other children"),
    Permission("watcher", ("list", "watch"), (SECRETS,), "the same, of the job's own alone, and only their metadata"),
    Permission("watcher", ("list", "watch"), (NODES,), "which nodes are about to go", everywhere=True),
    Permission("watcher", ("get",), (TRAININGJOBS,), "a job that a list lacks is asked for before it is believed gone"),
    Permission("scheduler", ("get",), (TRAININGJOBS,), "the pod templates, read once per generation"),
    Permission("scheduler", ("create",), (PODS,), "`CreatePod`"),
    Permission("scheduler", ("create",), (SERVICES,), "`CreateService`"),
    Permission("scheduler", ("create",), (SECRETS,), "`CreateSecret`"),
    Permission(
        "scheduler", ("get",), (PODS, SERVICES, SECRETS), f"`CreatePod`, `CreateService`, `CreateSecret`: {TAKEN}"
    ),
    Permission("scheduler", ("delete",), (PODS,), "`DeletePod`"),
    Permission("scheduler", ("delete",), (SERVICES,), "`DeleteService`"),
    Permission("scheduler", ("delete",), (SECRETS,), "`DeleteSecret`"),
    Permission("scheduler", ("delete",), (TRAININGJOBS,), "`DeleteJob`: its time to live after the end is over"),
    Permission("scheduler", ("update",), (TRAININGJOBS,), FINALIZERS, "finalizers"),
    Permission("scaler", ("get",), (CONFIGMAPS,), "`WriteHosts`: which version is there, and is it ours?"),
    Permission("scaler", ("create", "patch"), (CONFIGMAPS,), "`WriteHosts`"),
    Permission("scaler", ("delete",), (CONFIGMAPS,), "`DeleteHosts`"),
    Permission("scaler", ("patch",), (PODS,), "`NudgeLauncher`: one annotation of the launcher"),
    Permission("scaler", ("get",), (PODS,), "`NudgeLauncher`: another pod has the launcher's name"),
    Permission(
        "scaler",
        ("get", "create"),
        (PODS,),
        "`RunScript`, `CheckDrain`: commands within the launcher; withheld, scripts fail and drains are timed",
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
    Permission("scaler", ("update",), (TRAININGJOBS,), FINALIZERS, "finalizers"),
    Permission("status", ("get",), OURS, "`PatchStatus`: is it the same object, and does the status differ?"),
    Permission("status", ("patch",), OURS, "`PatchStatus`", "status"),
    Permission("status", ("create",), (EVENTS,), "`Announce`"),
)


def needs(service: Author, namespace: str = "") -> list[Need]:
    """Every right of a service, one by one; without a `namespace` those of an installation for the whole cluster."""
    found = [known for known in _of(service) if not (namespace and known.everywhere)]
    return [need for known in found for need in known.needs()]


def necessary(service: Author) -> list[Need]:
    """Those without which it cannot begin."""
    return [need for known in _of(service) if not (known.everywhere or known.helpful) for need in known.needs()]


def _of(service: Author) -> list[Permission]:
    return [permission for permission in PERMISSIONS if permission.service == service]
