"""The protobuf bodies that kubectl's typed commands send: `create namespace`, `create configmap`, `create secret`.

Only requests are decoded, and only the kinds below; every answer is JSON, which these clients accept too.
A kind that is missing here is refused with 415.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from devcluster.apiserver.errors import Json, bad_request, unsupported_media_type
from devcluster.clock import stamp

MAGIC = b"k8s\0"

TEXT, NUMBER, FLAG, BYTES, TIME = "text", "number", "flag", "bytes", "time"


class Map(NamedTuple):
    value: str


class Many(NamedTuple):
    item: Any


Fields = dict[int, tuple[str, Any]]
"""The fields of a message by their numbers: name, and a scalar type, `Map`, `Many` or the fields of a message."""

OWNER: Fields = {
    1: ("kind", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("controller", FLAG),
    7: ("blockOwnerDeletion", FLAG),
}
METADATA: Fields = {
    1: ("name", TEXT),
    2: ("generateName", TEXT),
    3: ("namespace", TEXT),
    5: ("uid", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("generation", NUMBER),
    8: ("creationTimestamp", TIME),
    11: ("labels", Map(TEXT)),
    12: ("annotations", Map(TEXT)),
    13: ("ownerReferences", Many(OWNER)),
    14: ("finalizers", Many(TEXT)),
}

KINDS: dict[str, Fields] = {
    "Namespace": {1: ("metadata", METADATA)},
    "ConfigMap": {
        1: ("metadata", METADATA),
        2: ("data", Map(TEXT)),
        3: ("binaryData", Map(BYTES)),
        4: ("immutable", FLAG),
    },
    "Secret": {
        1: ("metadata", METADATA),
        2: ("data", Map(BYTES)),
        3: ("type", TEXT),
        4: ("stringData", Map(TEXT)),
        5: ("immutable", FLAG),
    },
    "DeleteOptions": {
        1: ("gracePeriodSeconds", NUMBER),
        2: ("preconditions", {1: ("uid", TEXT), 2: ("resourceVersion", TEXT)}),
        3: ("orphanDependents", FLAG),
        4: ("propagationPolicy", TEXT),
        5: ("dryRun", Many(TEXT)),
    },
}


def decode(raw: bytes) -> Json:
    """The object in an envelope of `runtime.Unknown`, as JSON would have it."""
    try:
        return _decode(raw)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise bad_request(f"couldn't read the body as protobuf: {error}") from error


def _decode(raw: bytes) -> Json:
    if not raw.startswith(MAGIC):
        raise ValueError("it does not begin with k8s\\0")
    envelope = dict(_fields(raw[len(MAGIC) :]))
    type_meta = dict(_fields(envelope.get(1, b"")))
    kind = type_meta.get(2, b"").decode()
    if kind not in KINDS:
        raise unsupported_media_type(["application/json", "application/yaml"])
    return {"apiVersion": type_meta.get(1, b"").decode(), "kind": kind, **_message(KINDS[kind], envelope.get(2, b""))}


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        match key & 7:
            case 0:
                value, at = _varint(raw, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(raw, at)
            case 5:
                size = 4
            case other:
                raise ValueError(f"unknown wire type {other}")
        if at + size > len(raw):
            raise ValueError("it ends in the middle of a field")
        yield key >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Negative numbers come as their two's complement in 64 bits.
            return (value if value < 1 << 63 else value - (1 << 64)), at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _message(fields: Fields, raw: bytes) -> Json:
    message: Json = {}
    for number, value in _fields(raw):
        if number not in fields:
            continue
        name, kind = fields[number]
        match kind:
            case Map(value=value_kind):
                pair = dict(_fields(value))
                message.setdefault(name, {})[pair.get(1, b"").decode()] = _value(value_kind, pair.get(2, b""))
            case Many(item=item_kind):
                message.setdefault(name, []).append(_value(item_kind, value))
            case _:
                decoded = _value(kind, value)
                # Protobuf writes what is unset as empty; JSON leaves it out.
                if decoded not in ("", None):
                    message[name] = decoded
    return message


def _value(kind: Any, value: Any) -> Any:
    if isinstance(kind, dict):
        return _message(kind, value)
    match kind:
        case "text":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "flag":
            return bool(value)
        case "time":
            seconds = dict(_fields(value)).get(1)
            return stamp(datetime.fromtimestamp(seconds, UTC)) if seconds else None
        case _:
            return int(value)
