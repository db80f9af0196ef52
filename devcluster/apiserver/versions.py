"""Conversion of custom resources between the stored version and the one that a client asks for.

As with the real server's conversion strategy None, a conversion changes the apiVersion and drops the fields that the
target's schema does not declare.  A write fills in the defaults of the client's version, a read those of the stored.
"""

from functools import lru_cache

from devcluster.apiserver.entry import Entry
from devcluster.apiserver.errors import Json
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.schema import apply_defaults, prune

REMEMBERED = 4096
"""The number of cached conversions: lists and watches of many clients need the same ones again."""


def stored(resource: Resource, obj: Json) -> Json:
    """`obj` of this kind and version, changed in place, in its stored version."""
    return _turned(resource, obj, resource.stored_version) if resource.custom else obj


def shown(resource: Resource, entry: Entry) -> Entry:
    """The stored entry in this kind and version."""
    return _shown(resource, entry) if resource.custom else entry


@lru_cache(maxsize=REMEMBERED)
def _shown(resource: Resource, entry: Entry) -> Entry:
    obj = entry.object()
    # A definition may have changed since the object was written.
    schema = resource.schemas.get(obj["apiVersion"])
    if schema is not None:
        prune(schema, obj)
        apply_defaults(schema, obj)
    found = Entry(_turned(resource, obj, resource.api_version), entry.version)
    return entry if found.raw == entry.raw else found


def _turned(resource: Resource, obj: Json, api_version: str) -> Json:
    """`obj`, changed in place, in another version of its kind."""
    schema = resource.schemas.get(api_version)
    if obj["apiVersion"] != api_version and schema is not None:
        prune(schema, obj)
    obj["apiVersion"] = api_version
    return obj
