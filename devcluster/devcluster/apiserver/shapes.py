"""The types of the fields that this server and its node agents read.

A body with another type in such a field is refused with 400.  A field that is not named here may have any type.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Optional, Required, TypedDict

import msgspec

from devcluster.apiserver.errors import Json, UndecodableError

Strings = dict[str, str]
Amounts = dict[str, str | int | float]


def of(kind: Any, names: str) -> dict[str, Any]:
    """Fields of one type, by name."""
    return dict.fromkeys(names.split(), kind)


def shape(*fields: Mapping[str, Any], required: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """The type of an object: fields that are not required may be absent or null, and other fields are allowed."""
    parts = (*fields, more)
    # `kind | None` fails for a forward reference, which is a string.
    known: dict[str, Any] = {name: Optional[kind] for part in parts for name, kind in part.items()}  # noqa: UP045
    known |= {name: Required[kind] for name, kind in (required or {}).items()}
    return TypedDict("Shape", known, total=False)  # type: ignore[operator]


def many(*fields: Mapping[str, Any], **more: Any) -> Any:
    """The type of a list of objects with these fields."""
    return list[shape(*fields, **more)]  # type: ignore[misc]


METADATA = {
    **of(str, "name generateName namespace selfLink uid resourceVersion"),
    **of(int, "generation deletionGracePeriodSeconds"),
    **of(datetime, "creationTimestamp deletionTimestamp"),
    **of(Strings, "labels annotations"),
    "ownerReferences": many(of(str, "apiVersion kind name uid"), of(bool, "controller blockOwnerDeletion")),
    "finalizers": list[str],
    "managedFields": list[Json],
}
CONDITIONS = many(of(str, "type status reason message"))
CONTAINERS = many(
    of(str, "name image workingDir"),
    of(list[str], "command args"),
    of(list[Json], "envFrom ports"),
    env=many(of(str, "name value"), valueFrom=Json),
    resources=shape(of(Amounts, "limits requests")),
    volumeMounts=many(of(str, "name mountPath subPath")),
)
CONTAINER_STATUSES = many(name=str, ready=bool, restartCount=int, state=shape(of(Json, "running terminated waiting")))
POD = shape(
    spec=shape(
        of(str, "nodeName restartPolicy hostname subdomain schedulerName serviceAccountName"),
        of(int, "terminationGracePeriodSeconds activeDeadlineSeconds"),
        of(Json, "dnsConfig securityContext"),
        of(list[Json], "schedulingGates tolerations"),
        of(CONTAINERS, "containers initContainers"),
        nodeSelector=Strings,
        volumes=many(of(Json, "configMap secret emptyDir hostPath projected downwardAPI"), name=str),
    ),
    status=shape(
        of(str, "phase reason message podIP"),
        of(CONTAINER_STATUSES, "containerStatuses initContainerStatuses"),
        conditions=CONDITIONS,
    ),
)
SERVICE = shape(spec=shape(type=str, selector=Strings, ports=list[Json], publishNotReadyAddresses=bool))
CONFIG_MAP = shape(data=Strings, binaryData=dict[str, bytes])
SECRET = shape(data=dict[str, bytes], stringData=Strings, type=str)
EVENT = shape(of(Json, "involvedObject series"), source=Strings)
"""The shape of the core group, in which Kubernetes Events are stored."""

NODE = shape(
    spec=shape(unschedulable=bool, taints=list[Json]),
    status=shape(
        addresses=many(required=of(str, "type address")),
        allocatable=Amounts,
        conditions=CONDITIONS,
        daemonEndpoints=dict[str, Json],
    ),
)
SPECIFIED = shape(of(Json, "spec status"))
"""Any object with a spec."""

_SCHEMA: Any = Optional["Schema"]
_SCHEMAS: Any = dict[str, "Schema"]  # type: ignore[valid-type]
Schema = shape(
    of(str, "type format pattern x-kubernetes-list-type"),
    of(list[str], "required x-kubernetes-list-map-keys"),
    of(int, "minLength maxLength minItems maxItems minProperties maxProperties"),
    of(float, "minimum maximum"),
    of(_SCHEMAS, "properties"),
    of(list[Any], "enum"),
    {"x-kubernetes-validations": many(of(str, "message reason fieldPath"), required=of(str, "rule"))},
    nullable=bool,
    items=_SCHEMA,
    additionalProperties=_SCHEMA | bool,
)
"""The keywords of a structural schema."""

DEFINITION = shape(
    required={
        "spec": shape(
            conversion=Json,
            required={
                **of(str, "group scope"),
                "names": shape(
                    of(str, "singular listKind"),
                    of(list[str], "shortNames categories"),
                    required=of(str, "plural kind"),
                ),
                "versions": many(
                    of(bool, "served storage"),
                    subresources=shape(
                        status=Json,
                        scale=shape(labelSelectorPath=str, required=of(str, "specReplicasPath statusReplicasPath")),
                    ),
                    additionalPrinterColumns=many(
                        of(str, "format description"), priority=int, required=of(str, "name type jsonPath")
                    ),
                    required={"name": str, "schema": shape(required={"openAPIV3Schema": Schema})},
                ),
            },
        )
    },
    status=shape(acceptedNames=Json, conditions=CONDITIONS, storedVersions=list[str]),
)
ANYTHING = shape()


def check_shape(wanted: Any, value: Any, what: str) -> None:
    """Raise if `value` has other types; `what` names it in the message, such as `Pod in version "v1"`."""
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        kind = what.partition(" ")[0]
        message = f"{what} cannot be handled as a {kind}: {error}"
        raise UndecodableError(400, "BadRequest", message) from error
