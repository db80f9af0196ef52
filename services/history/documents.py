"""The documents of the API: discovery, errors, histories and tables, and the OpenAPI that `kubectl explain` reads.

The schema of a job is that of `muster get -o json`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shared.history_api import API_VERSION, GROUP, KIND, PARTS, PLURAL, ROOT, VERSION
from shared.job.naming import JobKey
from shared.release import this_release
from shared.telling.histories import JobHistory, Metadata
from shared.telling.selection import Selection, from_text, labels_of
from shared.telling.shown import Shown, cells

Json = dict[str, Any]

WIDE = ("ATTEMPT", "REQUESTS", "EVENTS AT", "UID")
"""The columns that are shown with `-o wide` alone."""
GVK = "x-kubernetes-group-version-kind"
_OBJECT, _LIST, _JOB = (f"dev.muster.history.{VERSION}.{name}" for name in (KIND, f"{KIND}List", "Job"))
_META = "dev.muster.history.v1.Metadata"
_INFO = {"title": "Muster's history of jobs", "version": this_release()}


class Row(msgspec.Struct, frozen=True):
    """One job: by what it is found and selected, and its document as JSON."""

    key: JobKey
    place: tuple[str, str]
    """Its namespace and `KIND.NAME`, which an earlier job of the name has, too."""
    of: tuple[str, str]
    """The group and the kind of its resource."""
    first: int
    """The sequence of its first event."""
    sequence: int
    """The sequence of its last one."""
    time: str
    """When that was recorded."""
    phase: str
    own: str
    """The labels of its resource, as text."""
    gone: bool
    document: bytes = b""
    archived: int = 0
    """The sequence of its document in the archive; 0 if it is here."""

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.key.name, self.of[1], self.phase, from_text(self.own), gone=self.gone)

    def is_of(self, selection: Selection) -> bool:
        # A list may have two hundred thousand, whose labels are text.
        labels = self.labels if selection.by_labels else {}
        return selection.has(self.place[1], self.place[0], labels)


def listed(found: Sequence[bytes], metadata: Json) -> bytes:
    """The list of these documents, as JSON."""
    return msgspec.json.encode(
        {
            "apiVersion": API_VERSION,
            "kind": f"{KIND}List",
            "metadata": metadata,
            "items": [msgspec.Raw(each) for each in found],
        }
    )


def metadata_of(version: int, go_on: str = "", remaining: int = 0) -> Json:
    """That of a list: `version` is the sequence of the last event that was folded, from which a watch goes on."""
    more = {"continue": go_on, "remainingItemCount": remaining} if go_on else {}
    return {"resourceVersion": str(version), **more}


def table(found: Sequence[JobHistory], metadata: Json, include: str = "") -> Json:
    """The rows that `kubectl get` prints; a namespace is printed by kubectl.  `include` is one of `INCLUDED`."""
    named = [("NAME", 0), ("PHASE", 0), ("READY", 0), ("RESTARTS", 0), ("LAST EVENT", 0), *((each, 1) for each in WIDE)]
    columns = [*named, ("NOTE", 0)]
    rows = []
    for each in found:
        known = {**cells(each.job), "NAME": each.metadata.name, "NOTE": each.job.note}
        known["LAST EVENT"] = each.last_event_time[:19] + "Z"
        rows.append({"cells": [known[name] for name, _ in columns], "object": _included(each, include)})
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": metadata,
        "columnDefinitions": [
            {"name": name.title(), "type": "string", "format": "name" if name == "NAME" else "", "priority": priority}
            | {"description": ""}
            for name, priority in columns
        ],
        "rows": rows,
    }


def _included(history: JobHistory, include: str) -> JobHistory | Json | None:
    match include:
        case "None":
            return None
        case "Object":
            return history
        case _:
            return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": history.metadata}


def framed(what: str, document: bytes, *, as_table: bool, include: str = "") -> bytes:
    """A change of a history as a watch tells it."""
    if not as_table:
        return _frame(what, msgspec.Raw(document))
    history = msgspec.json.decode(document, type=JobHistory)
    return _frame(what, table([history], metadata_of(history.job.sequence), include))


def bookmark(version: int, *, as_table: bool) -> bytes:
    """What tells a watch that it has seen everything up to a sequence."""
    metadata = metadata_of(version)
    reached = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    return _frame("BOOKMARK", table([], metadata) if as_table else reached)


def failure(document: Json) -> bytes:
    """The Status with which a watch ends."""
    return _frame("ERROR", document)


def _frame(what: str, document: Json | msgspec.Raw) -> bytes:
    return msgspec.json.encode({"type": what, "object": document}) + b"\n"


def status(code: int, reason: str, message: str, *, name: str = "", retry_after: int = 0) -> Json:
    """The answer to a request that failed."""
    details: Json = {"group": GROUP, "kind": PLURAL} | ({"name": name} if name else {})
    details |= {"retryAfterSeconds": retry_after} if retry_after else {}
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def described(path: str) -> Json | None:
    """The document of a path; None if there is none."""
    match [step for step in path.split("/") if step]:
        case ["apis", *rest] if "/".join(rest) == API_VERSION:
            return _resources()
        case ["openapi", "v3"]:
            return {"paths": {ROOT.strip("/"): {"serverRelativeURL": f"/openapi/v3{ROOT}"}}}
        case ["openapi", "v3", *rest] if "/".join(rest) == ROOT.strip("/"):
            schemas = _schemas("#/components/schemas/")
            paths = _paths(lambda schema: {"content": {"application/json": schema}}, "#/components/schemas/")
            return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
        case ["openapi", "v2"]:
            paths, schemas = _paths(lambda schema: schema, "#/definitions/"), _schemas("#/definitions/")
            return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": schemas}
    return None


def _resources() -> Json:
    """What kube-apiserver tells of this group in every form of discovery."""
    history = {
        "name": PLURAL,
        "singularName": "jobhistory",
        "namespaced": True,
        "kind": KIND,
        "verbs": ["get", "list", "watch"],
        "shortNames": ["jh"],
    }
    parts = [
        {"name": f"{PLURAL}/{part}", "singularName": "", "namespaced": True, "kind": KIND, "verbs": ["get"]}
        for part in PARTS
    ]
    listed = {"groupVersion": API_VERSION, "resources": [history, *parts]}
    return {"apiVersion": "v1", "kind": "APIResourceList", **listed}


def _paths(content: Callable[[Json], Json], place: str) -> Json:
    """A list, and one of them: kubectl looks for a kind by the paths of its resource."""

    def get(name: str, operation: str) -> Json:
        said = {"description": "OK", **content({"schema": {"$ref": f"{place}{name}"}})}
        return {
            "operationId": f"{operation}HistoryMusterDev{VERSION.title()}{KIND}",
            "responses": {"200": said},
            "x-kubernetes-action": operation,
            GVK: {"group": GROUP, "version": VERSION, "kind": KIND},
        }

    where = f"{ROOT}/namespaces/{{namespace}}/{PLURAL}"
    return {where: {"get": get(_LIST, "list")}, f"{where}/{{name}}": {"get": get(_OBJECT, "get")}}


def _schemas(place: str) -> Json:
    kind = {"type": "string", "description": "The kind of the document."}
    version = {"type": "string", "description": f"The version of the API, {API_VERSION}."}
    text = {"type": "string"}
    history = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"$ref": f"{place}{_META}"},
        "lastEventTime": {**text, "format": "date-time", "description": "When the job's last event was recorded."},
        "job": {"$ref": f"{place}{_JOB}"},
    }
    items = {"type": "array", "items": {"$ref": f"{place}{_OBJECT}"}, "description": "One for each name."}
    found = {"apiVersion": version, "kind": kind, "metadata": {"type": "object"}, "items": items}
    described = f"What Muster's log knows of a job, also of one that is gone.  Read-only; {KIND} has no spec."
    return {
        _OBJECT: _named(KIND) | {"type": "object", "description": described, "properties": history},
        _LIST: _named(f"{KIND}List") | {"type": "object", "description": "Histories.", "properties": found},
        _META: {"type": "object", "description": "The name of the history.", "properties": _properties(Metadata)},
        _JOB: {"type": "object", "description": "What `muster get -o json` prints.", "properties": _properties(Shown)},
    }


def _named(kind: str) -> Json:
    return {GVK: [{"group": GROUP, "version": VERSION, "kind": kind}]}


def _properties(shape: type[msgspec.Struct]) -> Json:
    """The fields of an object."""
    _, parts = msgspec.json.schema_components([shape])
    properties: Json = parts[shape.__name__]["properties"]
    # OpenAPI 2 has no type for what may be null.
    return {name: {key: each for key, each in schema.items() if key != "anyOf"} for name, schema in properties.items()}
