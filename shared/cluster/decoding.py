"""Decodes JSON of the API server into a resource's Struct.

Of an object that does not fit its Struct only the metadata is read, so that one malformed object stops no watch.
"""

from functools import cache
from typing import Any, Generic, TypeVar

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


BOOKMARK = "BOOKMARK"
DELETED = "DELETED"
ERROR = "ERROR"


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continuation: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, frozen=True):
    metadata: ListMetadata
    items: tuple[msgspec.Raw, ...] | None = None


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    type: str
    object: T


class RawEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


_read_page = msgspec.json.Decoder(Page).decode
_read_raw_event = msgspec.json.Decoder(RawEvent).decode


@cache
def _event_decoder(of: type[T]) -> msgspec.json.Decoder[WatchEvent[T]]:
    kind: Any = WatchEvent
    return msgspec.json.Decoder(kind[of])


def read_page(body: bytes, what: str) -> Page:
    """One page of a list.  Raises `Transient` if the body is none, because a proxy answered."""
    try:
        page = _page(body)
    except MALFORMED as error:
        raise Transient(f"{what}: the answer is no list: {error}") from error
    if whole_number(page.metadata.resource_version) is None:
        raise Transient(f"{what}: the list has no resourceVersion that is a number")
    return page


def read_event(resource: Resource[T], line: bytes, what: str) -> tuple[str, T | msgspec.Raw]:
    """The type of a watch event and its object; that of an `ERROR` is raw, because it is a Status.

    Raises `Transient` when the line is no watch event, `Refused(reason="Undecodable")` when its object cannot be read.
    """
    try:
        # One pass over the text; an object that does not fit is decoded again below.
        event = _event_decoder(resource.type).decode(line)
    except MALFORMED:
        pass
    else:
        if event.type != ERROR:
            return event.type, must_be_ordered(resource, event.object)
    try:
        raw = _raw_event(line)
    except MALFORMED as error:
        raise Transient(f"{what}: a line is no watch event: {error}") from error
    return raw.type, raw.object if raw.type == ERROR else read_object(resource, raw.object)


def _page(body: bytes) -> Page:
    try:
        return _read_page(body)
    except RecursionError:
        # One object that is nested too deeply hides none of the others.
        whole = dict(parts(body))
        metadata = msgspec.json.decode(whole.get("metadata", b"null"), type=ListMetadata)
        return Page(metadata, tuple(item for _, item in parts(whole.get("items", b"[]"))))


def _raw_event(line: bytes) -> RawEvent:
    try:
        return _read_raw_event(line)
    except RecursionError:
        whole = dict(parts(line))
        kind = msgspec.json.decode(whole.get("type", b"null"), type=str)
        return RawEvent(kind, whole.get("object", msgspec.Raw(b"null")))


class Lines:
    """Splits chunks of any length into lines of any length."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    @property
    def cut(self) -> bool:
        """True if a line has begun and not ended."""
        return bool(self._rest)

    def split(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._rest:
            # Joined once per line, however many chunks it came in.
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest = []
        if rest:
            self._rest.append(rest)
        return [line for line in lines if line]
