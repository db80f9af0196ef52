"""Answers in the form that the client accepts: whole objects, metadata only, or a table."""

from collections.abc import Sequence
from enum import Enum

import msgspec
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.custom import shown
from devcluster.apiserver.errors import ApiError, Json
from devcluster.apiserver.kinds import from_core_event
from devcluster.apiserver.resources import EVENTS, Resource
from devcluster.apiserver.store import Entry
from devcluster.apiserver.table import table

META = "meta.k8s.io/v1"


class Form(Enum):
    WHOLE = "whole"
    METADATA = "metadata"
    TABLE = "table"


def accepted_form(call: Call) -> Form:
    """The first form in the Accept header that this server supports; it has no protobuf."""
    accept = call.request.headers.get("Accept", "")
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        media, *parameters = [piece.strip() for piece in part.split(";")]
        if media not in ("application/json", "application/*", "*/*", "application/yaml"):
            continue
        chosen = {name: value for name, _, value in (piece.partition("=") for piece in parameters)}.get("as", "")
        if chosen == "Table":
            return Form.TABLE
        return Form.METADATA if chosen.startswith("PartialObjectMetadata") else Form.WHOLE
    raise ApiError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )


class Renderer:
    """Entries of one kind in one form, as bytes."""

    def __init__(self, resource: Resource, form: Form, include: str = "Metadata") -> None:
        """`include` says which object each row of a table has: None, Metadata or Object."""
        self._resource = resource
        self._form = form
        self._include = include

    @classmethod
    def of(cls, resource: Resource, call: Call) -> "Renderer":
        return cls(resource, accepted_form(call), call.query.get("includeObject", "Metadata"))

    def one(self, entry: Entry) -> bytes:
        if self._form is Form.WHOLE:
            return whole(self._resource, entry)
        if self._form is Form.METADATA:
            return msgspec.json.encode(_metadata_alone(entry.object()))
        return self._table([entry], {"resourceVersion": str(entry.version)})

    def many(self, entries: Sequence[Entry], metadata: Json) -> bytes:
        if self._form is Form.TABLE:
            return self._table(entries, metadata)
        if self._form is Form.METADATA:
            kind, api_version = "PartialObjectMetadataList", META
        else:
            kind, api_version = f"{self._resource.kind}List", self._resource.api_version
        head = msgspec.json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(self._item(entry) for entry in entries) + b"]}"

    def _item(self, entry: Entry) -> bytes:
        """An item of a list; items of built-in kinds have no kind and apiVersion, which the list has."""
        if self._form is not Form.WHOLE or self._resource.custom:
            return self.one(entry)
        obj = _served(self._resource, entry.object())
        return msgspec.json.encode({name: value for name, value in obj.items() if name not in ("kind", "apiVersion")})

    def watch_event(self, kind: str, entry: Entry) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), self.one(entry))

    def bookmark(self, version: int) -> bytes:
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        obj: Json = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        if self._form is Form.METADATA:
            obj |= {"kind": "PartialObjectMetadata", "apiVersion": META}
        elif self._form is Form.TABLE:
            obj = table(self._resource, [], lambda _: None, {"resourceVersion": str(version)})
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _table(self, entries: Sequence[Entry], metadata: Json) -> bytes:
        objects = (shown(self._resource, entry).object() for entry in entries)
        return msgspec.json.encode(table(self._resource, objects, self._row_object, metadata))

    def _row_object(self, stored: Json) -> Json | None:
        match self._include:
            case "None":
                return None
            case "Object":
                return _served(self._resource, stored)
            case _:
                return _metadata_alone(stored)


def whole(resource: Resource, entry: Entry) -> bytes:
    """The object in this kind and version: usually the stored bytes."""
    if resource.key == EVENTS.key and resource is not EVENTS:
        return msgspec.json.encode(_served(resource, entry.object()))
    return shown(resource, entry).raw


def _served(resource: Resource, stored: Json) -> Json:
    if resource.key == EVENTS.key and resource is not EVENTS:
        stored = from_core_event(stored)
    return stored | {"apiVersion": resource.api_version}


def _metadata_alone(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": obj["metadata"]}


def answer(body: bytes | Json, code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = web.Response(body=raw, status=code)
    response.headers["Content-Type"] = "application/json"
    response.headers["Cache-Control"] = "no-cache, private"
    for warning in warnings:
        text = warning.replace("\\", "\\\\").replace('"', '\\"')
        # A header value is one line of printable text, but the name of an unknown field may have any characters.
        safe = "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text)
        response.headers.add("Warning", f'299 - "{safe}"')
    return response


def success(details: Json | None = None, code: int = 200) -> Json:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return status | ({"details": details} if details else {"code": code})
