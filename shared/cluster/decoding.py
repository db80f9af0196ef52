"""Decodes JSON of the API server into a resource's Struct.

Of an object that does not fit its Struct only the metadata is read, so that one malformed object stops no watch.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec
import structlog

from shared.cluster import Resource
from shared.cluster.objects import Custom, CustomMetadata, Metadata, Object
from shared.errors import Refused, Transient
from shared.untrusted import MALFORMED, parts, whole_number

T = TypeVar("T", bound=Object)
A = TypeVar("A")

UNDECODABLE = "Undecodable"

LONGEST_SHOWN = 50
"""Characters of a wrong value that an error repeats."""

log = structlog.get_logger()


@cache
def decoder(of: type[T]) -> msgspec.json.Decoder[T]:
    """One decoder per type: creating it costs more than using it."""
    return msgspec.json.Decoder(of)


def read_object(resource: Resource[T], raw: bytes | msgspec.Raw) -> T:
    """`raw` as the resource's Struct, or only its metadata with defaults for all else.

    Raises `Refused(reason="Undecodable")` if the metadata cannot be read either.
    """
    try:
        found: T = decoder(resource.type).decode(raw)
    except MALFORMED as error:
        why = str(error)
    else:
        return must_be_ordered(resource, found)
    try:
        found = must_be_ordered(resource, resource.type(metadata=_metadata_alone(resource, raw)))
    except MALFORMED as error:
        raise Refused(f"read a {resource.kind}: {error}", reason=UNDECODABLE) from error
    log.warning(
        "object is read by its metadata alone",
        kind=resource.kind,
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        why=why,
    )
    return found


def _metadata_alone(resource: Resource[Any], raw: bytes | msgspec.Raw) -> Metadata:
    # A decoder of the whole object follows even what it skips, and nothing may be nested too deeply for it.
    found = next((part for name, part in parts(raw) if name == "metadata"), b"")
    kind = CustomMetadata if issubclass(resource.type, Custom) else Metadata
    return msgspec.json.decode(found, type=kind)


def must_be_ordered(resource: Resource[Any], found: T) -> T:
    """`found`, if its version is a number, as Kubernetes promises: the order of versions depends on it."""
    version = found.metadata.resource_version
    if version and whole_number(version) is None:
        raise Refused(f"read a {resource.kind}: its resourceVersion is {version[:LONGEST_SHOWN]!r}", reason=UNDECODABLE)
    return found


def read_answer(of: type[A], answer: bytes, what: str) -> A:
    """An answer that is no object of a resource.  Raises `Transient` if it is malformed."""
    try:
        return msgspec.json.decode(answer, type=of)
    except MALFORMED as error:
        raise Transient(f"{what}: the answer is malformed: {error}") from error


def encode(manifest: Any) -> bytes:
    return msgspec.json.encode(manifest)
