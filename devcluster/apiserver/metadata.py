"""The checks of every object's metadata in a write, and the fields that only the server sets."""

import random
import uuid

from devcluster.apiserver.entry import Place
from devcluster.apiserver.errors import Cause, Json, bad_request, invalid, invalid_value
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.shapes import METADATA, check_shape, shape
from devcluster.clock import now

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The real server's alphabet: without vowels, so that no words arise, and without characters that look alike."""

METADATA_SHAPE = shape(METADATA)

GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def read_metadata(resource: Resource, obj: Json) -> list[str]:
    """Check and clean `obj["metadata"]` in place: its types, no nulls, no unknown fields (whose paths are returned).

    `managedFields` are dropped: the server keeps them (`ownership.py`).
    """
    metadata = obj.get("metadata")
    metadata = {} if metadata is None else metadata
    check_shape(METADATA_SHAPE, metadata, f'{resource.kind} in version "{resource.version}"')
    obj["metadata"] = {
        name: value
        for name, value in metadata.items()
        if name in METADATA and value not in (None, "", [], {}) and name not in ("managedFields", "selfLink")
    }
    return [f"metadata.{name}" for name in metadata if name not in METADATA]


def check_type(resource: Resource, obj: object, *, patched: bool = False) -> Json:
    """`obj`, if it is an object of this kind; a missing kind or apiVersion is filled in, except for custom kinds."""
    if not isinstance(obj, dict):
        raise bad_request(f"the body of the request is not a {resource.kind}")
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if resource.custom and not (isinstance(kind, str) and kind and api_version):
        wanted = f"must be of type {resource.kind}"
        raise bad_request(f"the object provided is unrecognized ({wanted}): its kind or apiVersion is missing")
    wrong = [invalid_value("kind", kind, f"must be {resource.kind}")] if kind != resource.kind else []
    # As the real server: a patch that changes the apiVersion is invalid, a whole object with another one a bad request.
    if patched and api_version != resource.api_version:
        wrong.append(invalid_value("apiVersion", api_version, f"must be {resource.api_version}"))
    if resource.custom and wrong:
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        raise invalid(resource.group, str(kind), name if isinstance(name, str) else "", wrong)
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


def settle_name(metadata: Json) -> None:
    if metadata.get("name"):
        return
    prefix = metadata.get("generateName")
    # The suffix guards no secret.  An empty name is rejected later, with the other causes.
    metadata["name"] = "" if not prefix else prefix[:58] + "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311


def give_identity(metadata: Json) -> None:
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()


def keep_identity(metadata: Json, old: Json) -> list[Cause]:
    """Restore the fields that only the server sets.

    The causes name a uid or a deletion that the client tried to set.
    """
    claimed = [
        invalid_value(f"metadata.{name}", metadata[name], "field is immutable")
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds")
        if name in metadata and name not in old
    ]
    uid = metadata.get("uid", old["uid"])
    if uid != old["uid"]:
        claimed.append(invalid_value("metadata.uid", uid, "field is immutable"))
    for name in GIVEN_BY_SERVER:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    return claimed


def place_of(metadata: Json) -> Place:
    return Place(metadata.get("namespace", ""), metadata["name"])
