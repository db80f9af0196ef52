"""What each service may do in Kubernetes, and which of its calls needs it.

The one source of `deploy/rbac/`, and what a service asks about itself before it begins.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from shared.cluster import Resource
from shared.cluster.kinds import CONFIGMAPS, EVENTS, PODS, SERVICES
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

    def needs(self) -> Iterator[Need]:
        tail = f"/{self.subresource}" if self.subresource else ""
        for resource in self.resources:
            for verb in self.verbs:
                yield Need(self.service, verb, resource.group, resource.plural + tail)


PERMISSIONS = (
    Permission("watcher", ("list", "watch"), OURS, "the watches of jobs and requests"),
    Permission("watcher", ("list", "watch"), (PODS,), "the watch of pods that carry a job's uid"),
    Permission("watcher", ("list", "watch"), (SERVICES, CONFIGMAPS), "the watches of a job's other children"),
    Permission("watcher", ("get",), (TRAININGJOBS,), "a job that a list lacks is asked for before it is believed gone"),
    Permission("scheduler", ("get",), (TRAININGJOBS,), "the pod templates, read once per generation"),
    Permission("scheduler", ("create",), (PODS,), "`CreatePod`"),
    Permission("scheduler", ("create",), (SERVICES,), "`CreateService`"),
    Permission("scheduler", ("get",), (PODS, SERVICES), f"`CreatePod`, `CreateService`: {TAKEN}"),
    Permission("scheduler", ("delete",), (PODS,), "`DeletePod`"),
    Permission("scheduler", ("delete",), (SERVICES,), "`DeleteService`"),
    Permission("scheduler", ("update",), (TRAININGJOBS,), FINALIZERS, "finalizers"),
    Permission("scaler", ("get",), (CONFIGMAPS,), "`WriteHosts`: which version is there, and is it ours?"),
    Permission("scaler", ("create", "patch"), (CONFIGMAPS,), "`WriteHosts`"),
    Permission("scaler", ("delete",), (CONFIGMAPS,), "`DeleteHosts`"),
    Permission("scaler", ("patch",), (PODS,), "`NudgeLauncher`: one annotation of the launcher"),
    Permission("scaler", ("get",), (PODS,), "`NudgeLauncher`: another pod has the launcher's name"),
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


def needs(service: Author) -> list[Need]:
    """Every right of a service, one by one."""
    return [need for permission in PERMISSIONS if permission.service == service for need in permission.needs()]
