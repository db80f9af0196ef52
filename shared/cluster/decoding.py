"""Reading what an API server sent: from JSON into a resource's Struct.

An object that does not fit its Struct is read by its metadata alone, so that one odd object stops no watch.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
import structlog

from shared.cluster import Resource
from shared.cluster.objects import Object
from shared.errors import Refused

T = TypeVar("T", bound=Object)

UNDECODABLE = "Undecodable"

log = structlog.get_logger()


@cache
def decoder(of: type[T]) -> msgspec.json.Decoder[T]:
    """One decoder per type: making one costs more than using it."""
    return msgspec.json.Decoder(of)


def read_object(resource: Resource[T], raw: bytes | msgspec.Raw) -> T:
    """`raw` as the resource's Struct; every field of that Struct has a default for the case that it does not fit.

    Raises `Refused(reason="Undecodable")` when not even the metadata can be read.
    """
    try:
        found: T = decoder(resource.type).decode(raw)
    except msgspec.MsgspecError as error:
        why = str(error)
    else:
        return must_be_ordered(resource, found)
    try:
        metadata = must_be_ordered(resource, decoder(Object).decode(raw)).metadata
    except msgspec.MsgspecError as error:
        raise Refused(f"read a {resource.kind}: {error}", reason=UNDECODABLE) from error
    log.warning(
        "object is read by its metadata alone",
        kind=resource.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        why=why,
    )
    return resource.type(metadata=metadata)


def must_be_ordered(resource: Resource[Any], found: T) -> T:
    """`found`, if its version is a number, as Kubernetes promises; otherwise nobody can tell old from new."""
    version = found.metadata.resource_version
    if version and not version.isdecimal():
        raise Refused(f"read a {resource.kind}: its resourceVersion is {version!r}", reason=UNDECODABLE)
    return found


def encode(manifest: Any) -> bytes:
    return msgspec.json.encode(manifest)
