"""PodGroups of Kubernetes, by which the kube-scheduler places pods together, and who asks for one.  Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.cluster import Resource
from shared.cluster.objects import Custom, Object
from shared.frameworks.framework import Framework, PodRenderer, metadata
from shared.frameworks.schemas import Document
from shared.job.naming import GANG, JobKey
from shared.job.policies.gangs import OUTSIDE
from shared.job.spec import Ignored, JobSpec
from shared.untrusted import whole_number

POD_GROUPS = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup", Object) for version in ("v1beta1", "v1alpha2")
)
"""Of Kubernetes 1.37, and of 1.36; the newest that is served counts."""

OFF = "gangs are switched off in this installation (MUSTER_GANGS), and each pod finds a place alone"
NOT_SERVED = (
    "this cluster serves no PodGroups of scheduling.k8s.io, and each pod finds a place alone; from Kubernetes 1.36 on "
    "the feature gate GenericWorkload (in 1.36 with GangScheduling) brings them"
)
ONE_CLASS = "give all roles the same, and their pods find places together"

_DIGITS = 5
_MIN_AVAILABLE = "spec.runPolicy.schedulingPolicy.minAvailable"
"""Where Kubeflow's kinds say what the annotation says."""


def priority_class(pod: Document) -> str:
    return str(pod["spec"].get("priorityClassName") or "")


def of_another_class(framework: Framework, manifest: Custom, spec: JobSpec, pods: Mapping[str, Document]) -> str:
    """Where a role has another PriorityClass than those before it, by the first pod of each; empty if none has.

    Kubernetes places no pod whose priority is not its PodGroup's.
    """
    roles = [role.name for role in spec.roles if role.replicas and role.name in pods and role.name not in OUTSIDE]
    others = [role for role in roles if priority_class(pods[role]) != priority_class(pods[roles[0]])]
    return f"{framework.template_path(manifest, others[0])}.spec.priorityClassName" if others else ""


def with_gang(manifest: Custom, spec: JobSpec, why_not: str, another: str = "") -> JobSpec:
    """The spec with what the job's annotation and the installation say about its gang.

    `why_not` says why there can be none, for those who asked for one; empty if there can.  `another` is where a role
    has a PriorityClass of its own; empty if none has.
    """
    said = (manifest.metadata.annotations or {}).get(GANG)
    wanted = whole_number(said, _DIGITS) if said is not None else None
    ignored = spec.ignored
    if said not in (None, "true", "false") and not wanted:
        ignored += (Ignored.annotation(GANG, "set a number of pods, true or false"),)
    if said == "false":
        return msgspec.structs.replace(spec, gang=None)
    asks = said == "true" or wanted or spec.gang
    if why_not:
        of_spec = Ignored(field=_MIN_AVAILABLE, message=why_not)
        ignored += (of_spec if said is None else Ignored.annotation(GANG, why_not),) if asks else ()
        return msgspec.structs.replace(spec, gang=None, ignored=ignored)
    if another:
        told = Ignored(field=another, message=ONE_CLASS, effect="lets each pod find a place alone")
        return msgspec.structs.replace(spec, gang=None, ignored=(*ignored, told))
    return msgspec.structs.replace(spec, gang=wanted or spec.gang or 0, ignored=ignored)


def manifest(
    framework: PodRenderer, resource: Resource[Object], key: JobKey, name: str, least: int, priority: str
) -> Document:
    """The PodGroup of which so many pods find places together, with the PriorityClass of that name if there is one."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata(framework, key, name),
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}}
        | ({"priorityClassName": priority} if priority else {}),
    }


def in_group(pod: Document, name: str) -> Document:
    """The pod in the PodGroup of this name, unless its template names one."""
    spec: dict[str, Any] = pod["spec"]
    return pod if spec.get("schedulingGroup") else pod | {"spec": spec | {"schedulingGroup": {"podGroupName": name}}}
