"""The fields that Muster reads of Kubernetes objects: a small Struct decodes ten times faster than a dictionary.

Unknown fields are ignored.  Field meanings are those of the Kubernetes API reference.
"""

from typing import Any

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """When the object is to be gone: at the end of its grace period."""
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def version(self) -> int:
        """The resourceVersion as a number: versions of one resource compare as integers."""
        return int(self.resource_version or 0)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Any object: its metadata alone."""

    metadata: Metadata = Metadata()


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    exit_code: int = 0
    reason: str | None = None
    started_at: str | None = None
    message: str | None = None
    """What the container wrote to its termination message file, or the end of its log."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    reason: str | None = None
    message: str | None = None


class Running(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class ContainerState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    terminated: Terminated | None = None
    waiting: Waiting | None = None
    running: Running | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    """False until its postStart hook and its startup probe have succeeded; None where the kubelet does not say."""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """How the container ended the last time, if it began again."""


class PodCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class ExitCodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    operator: str = ""
    """`In` or `NotIn`."""
    values: tuple[int, ...] | None = None


class RestartRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    action: str = ""
    """`Restart` or `RestartAllContainers`."""
    exit_codes: ExitCodes | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""
    restart_policy: str | None = None
    """`Always` on an init container makes it a sidecar."""
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class Toleration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class ResourceClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    resource_claims: tuple[ResourceClaim, ...] | None = None
    restart_policy: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    termination_grace_period_seconds: int | None = None


class Pod(Object, frozen=True, kw_only=True, rename="camel"):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    conditions: tuple[NodeCondition, ...] | None = None


class Node(Object, frozen=True, kw_only=True, rename="camel"):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Series(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    last_observed_time: str | None = None


class KubernetesEvent(Object, frozen=True, kw_only=True, rename="camel"):
    """An Event of the core group, which has those of events.k8s.io too; each of its times may be missing."""

    type: str = ""
    """`Normal` or `Warning`."""
    reason: str | None = None
    message: str | None = None
    event_time: str | None = None
    last_timestamp: str | None = None
    series: Series | None = None


class ConfigMap(Object, frozen=True, kw_only=True, rename="camel"):
    data: dict[str, str] | None = None


class Anything(msgspec.Struct, frozen=True):
    """A JSON object, whose content is skipped."""


class Fields(msgspec.Struct, frozen=True):
    """Of the fields that a client set, whether some are of the spec.  A whole tree would be kept with its page."""

    spec: Anything | None = msgspec.field(default=None, name="f:spec")


class ManagedFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of an object that one client set."""

    manager: str = ""
    """The name that the client gave itself."""
    operation: str = ""
    """`Apply` or `Update`."""
    api_version: str = ""
    subresource: str = ""
    time: str | None = None
    """When the client last changed some of them, in whole seconds."""
    fields_v1: Fields = Fields()


class CustomMetadata(Metadata, frozen=True, kw_only=True, rename="camel"):
    managed_fields: tuple[ManagedFields, ...] | None = None


class Custom(Object, frozen=True, kw_only=True, rename="camel"):
    """A custom resource: its spec and status are raw, for a framework to parse."""

    metadata: CustomMetadata = CustomMetadata()
    spec: Any = None
    status: Any = None


def plain(resource: Custom) -> dict[str, Any]:
    """The resource as JSON-like values, raw fields too."""
    found: dict[str, Any] = msgspec.to_builtins(resource, enc_hook=msgspec.json.decode)
    return found


class TokenUser(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class TokenVerdict(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: TokenUser = TokenUser()
    audiences: tuple[str, ...] = ()


class TokenReview(Object, frozen=True, kw_only=True):
    status: TokenVerdict = TokenVerdict()
