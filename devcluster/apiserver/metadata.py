"""What every object's metadata goes through on its way in, and its identity."""

import random
import uuid

from devcluster.apiserver.clock import now
from devcluster.apiserver.entry import Place
from devcluster.apiserver.errors import Json, bad_request, invalid, required
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.shapes import METADATA_FIELDS, Metadata, check_shape

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""As the real server: no vowels, so that no words come out, and nothing that looks like something else."""

GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def read_metadata(resource: Resource, obj: Json) -> list[str]:
    """Check and clean `obj["metadata"]` in place: its types, no nulls, no unknown fields (whose paths are returned).

    `managedFields` are dropped: this server keeps no field ownership.
    """
    metadata = obj.get("metadata")
    metadata = {} if metadata is None else metadata
    check_shape(Metadata, metadata, f'{resource.kind} in version "{resource.version}"')
    obj["metadata"] = {
        name: value
        for name, value in metadata.items()
        if name in METADATA_FIELDS and value is not None and name not in ("managedFields", "selfLink")
    }
    return [f"metadata.{name}" for name in metadata if name not in METADATA_FIELDS]


def check_type(resource: Resource, obj: object) -> Json:
    """`obj`, if it is an object of this kind; kind and apiVersion are filled in."""
    if not isinstance(obj, dict):
        raise bad_request(f"the body of the request is not a {resource.kind}")
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if kind not in (None, "", resource.kind):
        raise bad_request(f"{kind!s} in version {api_version!s} cannot be handled as a {resource.kind}")
    if api_version not in (None, "", resource.api_version):
        raise bad_request(
            f"the API version in the data ({api_version!s}) does not match the expected API version"
            f" ({resource.api_version})"
        )
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    return obj


def settle_namespace(resource: Resource, metadata: Json, namespace: str) -> None:
    if not resource.namespaced:
        if metadata.pop("namespace", ""):
            raise bad_request("namespace may not be set on an object that has none")
    elif (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata["namespace"] = namespace


def settle_name(resource: Resource, metadata: Json) -> None:
    if metadata.get("name"):
        return
    prefix = metadata.get("generateName")
    if not prefix:
        cause = required("metadata.name", "name or generateName is required")
        raise invalid(resource.group, resource.kind, "", [cause])
    # Names only have to differ.
    metadata["name"] = prefix[:58] + "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311


def give_identity(metadata: Json) -> None:
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()


def keep_identity(metadata: Json, old: Json) -> None:
    """What clients say of these fields does not count."""
    for name in GIVEN_BY_SERVER:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)


def place_of(metadata: Json) -> Place:
    return Place(metadata.get("namespace", ""), metadata["name"])
