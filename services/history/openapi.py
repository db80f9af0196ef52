"""What `kubectl explain jobhistories` reads: the OpenAPI documents of the API, version 3 and the older version 2.

The schema of a job is that of `muster get -o json`.  kube-apiserver asks for these documents as the user
`system:aggregator` and serves them with those of its own APIs.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from services.history.core.selection import LABELS
from shared.history_api import API_VERSION, GROUP, KIND, PLURAL, ROOT, VERSION
from shared.release import this_release
from shared.telling.shown import Shown

Json = dict[str, Any]

GVK = "x-kubernetes-group-version-kind"
_OBJECT, _LIST, _JOB = (f"dev.muster.history.{VERSION}.{name}" for name in (KIND, f"{KIND}List", "Job"))
_META = "dev.muster.history.v1.Metadata"

FIELDS = {
    "namespace": "The namespace of the job.",
    "name": "The name of the job.",
    "uid": "The uid of the job's resource; another job of the same name has another one.",
    "kind": "The kind of the job, such as TrainingJob.",
    "apiVersion": "The version of its kind.",
    "called": "The command line's word for its kind.",
    "phase": "The phase in its status; empty before the first.",
    "ready": "How many of its pods are Ready.",
    "wanted": "How many pods it wants.",
    "restarts": "How many restarts its status counts.",
    "attempt": "The number of the attempt, from one.",
    "requests": "How many scale requests it had.",
    "requestsOver": "How many of them are over.",
    "sequence": "The sequence of its last event in the log.",
    "over": "True once it succeeded or failed.",
    "gone": "True once its resource was deleted.",
    "began": "When the first event of the job was recorded.",
    "note": "What hinders it, or how it ended, in a sentence; empty without anything to say.",
    "status": "The status as Muster computes it from the log, in the fields of its kind.",
}
"""The fields of `job` in words."""


def document(path: str) -> Json | None:
    """The document of a path; None if there is none."""
    match [step for step in path.split("/") if step]:
        case ["openapi", "v3"]:
            return {"paths": {ROOT.strip("/"): {"serverRelativeURL": f"/openapi/v3{ROOT}"}}}
        case ["openapi", "v3", *rest] if "/".join(rest) == ROOT.strip("/"):
            schemas = _schemas(lambda name: f"#/components/schemas/{name}")
            return {"openapi": "3.0.0", "info": _INFO, "paths": _paths(_answer_3), "components": {"schemas": schemas}}
        case ["openapi", "v2"]:
            schemas = _schemas(lambda name: f"#/definitions/{name}")
            return {"swagger": "2.0", "info": _INFO, "paths": _paths(_answer_2), "definitions": schemas}
    return None


_INFO = {"title": "Muster's history of jobs", "version": this_release()}
_Ref = Callable[[str], str]


def _answer_3(name: str) -> Json:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}


def _answer_2(name: str) -> Json:
    return {"schema": {"$ref": f"#/definitions/{name}"}}


def _paths(answer: Callable[[str], Json]) -> Json:
    """A list, and one of them: kubectl looks for a kind by the paths of its resource."""

    def get(name: str, operation: str) -> Json:
        said = {"description": "OK", **answer(name)}
        return {
            "operationId": f"{operation}HistoryMusterDev{VERSION.title()}{KIND}",
            "responses": {"200": said},
            "x-kubernetes-action": operation,
            GVK: {"group": GROUP, "version": VERSION, "kind": KIND},
        }

    where = f"{ROOT}/namespaces/{{namespace}}/{PLURAL}"
    return {where: {"get": get(_LIST, "list")}, f"{where}/{{name}}": {"get": get(_OBJECT, "get")}}


def _schemas(ref: _Ref) -> Json:
    kind = {"type": "string", "description": "The kind of the document."}
    version = {"type": "string", "description": f"The version of the API, {API_VERSION}."}
    text = {"type": "string"}
    metadata = {
        "name": {**text, "description": "KIND.NAME, as `muster` calls the job: trainingjob.resnet."},
        "namespace": {**text, "description": "The namespace of the job."},
        "uid": {**text, "description": "The uid of the job's resource."},
        "resourceVersion": {**text, "description": "The sequence of the job's last event in the log."},
        "creationTimestamp": {**text, "format": "date-time", "description": "When its first event was recorded."},
        "labels": {
            "type": "object",
            "additionalProperties": text,
            "description": f"{', '.join(LABELS)}; the labels of the job itself are not in the log.",
        },
    }
    history = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"$ref": ref(_META)},
        "lastEventTime": {**text, "format": "date-time", "description": "When the job's last event was recorded."},
        "job": {"$ref": ref(_JOB)},
    }
    items = {"type": "array", "items": {"$ref": ref(_OBJECT)}, "description": "One for each name."}
    found = {"apiVersion": version, "kind": kind, "metadata": {"type": "object"}, "items": items}
    described = f"What Muster's log knows of a job, also of one that is gone.  Read-only; {KIND} has no spec."
    return {
        _OBJECT: _named(KIND) | {"type": "object", "description": described, "properties": history},
        _LIST: _named(f"{KIND}List") | {"type": "object", "description": "Histories.", "properties": found},
        _META: {"type": "object", "description": "The name of the history.", "properties": metadata},
        _JOB: {"type": "object", "description": "What `muster get -o json` prints.", "properties": _job()},
    }


def _named(kind: str) -> Json:
    return {GVK: [{"group": GROUP, "version": VERSION, "kind": kind}]}


def _job() -> Json:
    """The fields of a job, as `Shown` has them."""
    _, parts = msgspec.json.schema_components([Shown])
    properties: Json = parts["Shown"]["properties"]
    return {name: {**schema, "description": FIELDS[name]} for name, schema in properties.items()}
