"""Custom resources in the version in which they are stored, and in the one that a client asks for.

As with the conversion strategy None of the real server, versions differ by their apiVersion and by what their schemas
know: an object loses, on its way into the store and out of it, what the version does not know that it is turned into.
Defaults are filled in by the version of the call when it writes, and by the stored version whenever it is read.
"""

from functools import lru_cache

from devcluster.apiserver.entry import Entry
from devcluster.apiserver.errors import Json
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.schema import apply_defaults, prune

REMEMBERED = 4096
"""Entries in the form of a version: a list or a watch of many clients asks for the same ones again and again."""


def stored(resource: Resource, obj: Json) -> Json:
    """`obj` of this kind and version, which is used up, in the form in which it is kept."""
    return _turned(resource, obj, resource.stored_version) if resource.custom else obj


def shown(resource: Resource, entry: Entry) -> Entry:
    """What is kept, in the form of this kind and version."""
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
