"""The types of the fields that this server and its node agents read themselves.

A body with another type there is refused (400, as a decoder does it).  A field that is not named is kept as it is.
"""

from datetime import datetime
from typing import Any

import msgspec

from devcluster.apiserver.errors import Json, UndecodableError

Strings = dict[str, str] | None
Amounts = dict[str, str | int | float] | None


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


class VolumeMount(Shape):
    name: str | None = None
    mount_path: str | None = None
    sub_path: str | None = None


class Resources(Shape):
    limits: Amounts = None
    requests: Amounts = None


class Container(Shape):
    name: str | None = None
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: list[EnvironmentVariable] | None = None
    env_from: list[Json] | None = None
    ports: list[Json] | None = None
    resources: Resources | None = None
    volume_mounts: list[VolumeMount] | None = None


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


class ServiceSpec(Shape):
    type: str | None = None
    selector: Strings = None
    ports: list[Json] | None = None
    publish_not_ready_addresses: bool | None = None


class Service(Shape):
    spec: ServiceSpec | None = None


class ConfigMap(Shape):
    data: Strings = None
    binary_data: dict[str, bytes] | None = None


class Secret(Shape):
    data: dict[str, bytes] | None = None
    string_data: Strings = None
    type: str | None = None


class Event(Shape):
    """In the shape of the core group, in which events are stored."""

    involved_object: Json | None = None
    source: Strings = None
    series: Json | None = None


class NodeAddress(Shape):
    type: str
    address: str


class NodeStatus(Shape):
    addresses: list[NodeAddress] | None = None
    allocatable: Amounts = None
    conditions: list[Condition] | None = None
    daemon_endpoints: dict[str, Json] | None = None


class NodeSpec(Shape):
    unschedulable: bool | None = None
    taints: list[Json] | None = None


class Node(Shape):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Specified(Shape):
    """Any object with a spec."""

    spec: Json | None = None
    status: Json | None = None


def check_shape(shape: type[Shape], value: Any, what: str) -> None:
    """`what` is being read, such as `Pod in version "v1"`."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        kind = what.partition(" ")[0]
        message = f"{what} cannot be handled as a {kind}: {error}"
        raise UndecodableError(400, "BadRequest", message) from error
