"""The types of the fields that this server reads itself, so that nothing of another type gets further.

Only shapes are checked here (400, as a decoder does); rules are in `kinds/`.  Fields that are not named are
kept as they are: the built-in kinds are not pruned.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from devcluster.apiserver.errors import Json, UndecodableError

MicroTime = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")]
"""With exactly six decimals."""
Strings = dict[str, str] | None


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    """Any of these fields may be absent or null, and others may stand beside them."""


class OwnerReference(Shape):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    self_link: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Strings = None
    annotations: Strings = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None
    managed_fields: list[Json] | None = None


METADATA_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(Metadata))


class EnvironmentVariable(Shape):
    name: str | None = None
    value: str | None = None
    value_from: Json | None = None


class ContainerPort(Shape):
    name: str | None = None
    container_port: int | None = None
    protocol: str | None = None


class VolumeMount(Shape):
    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None
    read_only: bool | None = None


class Resources(Shape):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class Container(Shape):
    name: str | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvironmentVariable] | None = None
    env_from: list[Json] | None = None
    ports: list[ContainerPort] | None = None
    resources: Resources | None = None
    volume_mounts: list[VolumeMount] | None = None
    image_pull_policy: str | None = None
    restart_policy: str | None = None


class Volume(Shape):
    name: str | None = None
    config_map: Json | None = None
    secret: Json | None = None
    empty_dir: Json | None = None
    host_path: Json | None = None
    projected: Json | None = None
    downward_api: Json | None = msgspec.field(default=None, name="downwardAPI")


class PodSpec(Shape):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    node_name: str | None = None
    node_selector: Strings = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    hostname: str | None = None
    subdomain: str | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    scheduling_gates: list[Json] | None = None
    tolerations: list[Json] | None = None
    dns_config: Json | None = None
    security_context: Json | None = None
    affinity: Json | None = None
    overhead: dict[str, str | int | float] | None = None


class Condition(Shape):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class ContainerState(Shape):
    running: Json | None = None
    terminated: Json | None = None
    waiting: Json | None = None


class ContainerStatus(Shape):
    name: str | None = None
    ready: bool | None = None
    restart_count: int | None = None
    state: ContainerState | None = None


class PodStatus(Shape):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Shape):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class ServicePort(Shape):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    target_port: int | str | None = None


class ServiceSpec(Shape):
    type: str | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    selector: Strings = None
    ports: list[ServicePort] | None = None
    publish_not_ready_addresses: bool | None = None


class Service(Shape):
    spec: ServiceSpec | None = None
    status: Json | None = None


class ConfigMap(Shape):
    data: Strings = None
    binary_data: dict[str, bytes] | None = None
    immutable: bool | None = None


class Secret(Shape):
    data: dict[str, bytes] | None = None
    string_data: Strings = None
    type: str | None = None
    immutable: bool | None = None


class ObjectReference(Shape):
    api_version: str | None = None
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    field_path: str | None = None


class Event(Shape):
    """In the shape of the core group, in which events are stored."""

    involved_object: ObjectReference | None = None
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    source: Strings = None
    count: int | None = None
    series: Json | None = None
    action: str | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: MicroTime | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None


class NamespaceSpec(Shape):
    finalizers: list[str] | None = None


class NamespaceStatus(Shape):
    phase: str | None = None


class Namespace(Shape):
    spec: NamespaceSpec | None = None
    status: NamespaceStatus | None = None


class NodeAddress(Shape):
    type: str
    address: str


class Endpoint(Shape):
    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(Shape):
    kubelet_endpoint: Endpoint | None = None


class NodeInfo(Shape):
    kubelet_version: str | None = None
    os_image: str | None = None
    kernel_version: str | None = None
    container_runtime_version: str | None = None


class NodeStatus(Shape):
    addresses: list[NodeAddress] | None = None
    allocatable: dict[str, str | int | float] | None = None
    capacity: dict[str, str | int | float] | None = None
    conditions: list[Condition] | None = None
    daemon_endpoints: DaemonEndpoints | None = None
    node_info: NodeInfo | None = None


class NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[Json] | None = None


class Node(Shape):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class LeaseSpec(Shape):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None


class Lease(Shape):
    spec: LeaseSpec | None = None


def check_shape(shape: type[Shape], value: Any, what: str) -> None:
    """`what` is being read, such as `Pod in version "v1"`."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        kind = what.partition(" ")[0]
        message = f"{what} cannot be handled as a {kind}: {error}"
        raise UndecodableError(400, "BadRequest", message) from error
