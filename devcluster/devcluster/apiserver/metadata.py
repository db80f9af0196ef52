"""The metadata of every object: names, labels and annotations are checked, and the server sets its own fields."""

import random
import re
import uuid
from collections.abc import Callable
from typing import Any

from devcluster.apiserver.errors import Cause, Json, bad_request, invalid, invalid_value, required
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.shapes import METADATA, check_shape, shape
from devcluster.apiserver.store import Place
from devcluster.clock import now

LABEL_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

LABEL_1123_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end"
    " with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_1123_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)

NameRule = Callable[[str], str]
"""Returns why a name is invalid; empty if it is valid."""


def label_1123(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL_1123.fullmatch(name):
        return ""
    return "must not contain dots" if SUBDOMAIN_1123.fullmatch(name) else LABEL_1123_RULE


def subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if SUBDOMAIN_1123.fullmatch(name) else SUBDOMAIN_1123_RULE


def qualified_name(name: str) -> str:
    """Keys of labels and annotations: `name` or `prefix/name`."""
    prefix, slash, rest = name.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and subdomain(prefix):
        return f"prefix part {subdomain(prefix)}"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > 63:
        return "name part must be no more than 63 characters"
    return "" if QUALIFIED_NAME.fullmatch(rest) else QUALIFIED_NAME_RULE


def label_causes(labels: dict[str, Any], field: str) -> list[Cause]:
    causes = []
    for name, value in labels.items():
        if wrong := qualified_name(name):
            causes.append(invalid_value(field, name, wrong))
        if len(value) > 63:
            causes.append(invalid_value(field, value, "must be no more than 63 bytes"))
        elif value and not QUALIFIED_NAME.fullmatch(value):
            causes.append(invalid_value(field, value, LABEL_VALUE_RULE))
    return causes


def metadata_causes(metadata: Json, rule: NameRule) -> list[Cause]:
    """The causes for which the metadata of any object is invalid; the types of its fields were checked before."""
    causes = []
    if not metadata.get("name"):
        causes.append(required("metadata.name", "name or generateName is required"))
    elif wrong := rule(metadata["name"]):
        causes.append(invalid_value("metadata.name", metadata["name"], wrong))
    causes += label_causes(metadata.get("labels") or {}, "metadata.labels")
    for name in metadata.get("annotations") or {}:
        if wrong := qualified_name(name.lower()):
            causes.append(invalid_value("metadata.annotations", name, wrong))
    return causes + _owner_causes(metadata.get("ownerReferences") or [])


def _owner_causes(owners: list[Json]) -> list[Cause]:
    causes = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                causes.append(invalid_value(f"metadata.ownerReferences.{field}", "", what))
    return causes


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
