"""The documents of the API: discovery, errors, histories and tables, in the words of the command line."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from services.history.core.selection import labels_of
from shared.history_api import API_VERSION, GROUP, KIND, PARTS, PLURAL, VERSION
from shared.job.naming import JobKey, Uid
from shared.telling.shown import Shown, cells

Json = dict[str, Any]

AGGREGATED = ("v2", "v2beta1")
"""The versions of aggregated discovery, with which kubectl and kube-apiserver read all groups at once."""

WIDE = ("ATTEMPT", "REQUESTS", "EVENTS AT", "UID")
"""The columns that are shown with `-o wide` alone."""


class Kept(msgspec.Struct, frozen=True):
    """One job as the API shows it."""

    shown: Shown
    time: str
    """When its last event was recorded."""
    began: str
    """When its first event was recorded."""

    @property
    def name(self) -> str:
        return f"{self.shown.called}.{self.shown.name}"

    @property
    def key(self) -> JobKey:
        return JobKey(self.shown.namespace, self.shown.name, Uid(self.shown.uid))

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.shown.name, self.shown.kind, self.shown.phase, gone=self.shown.gone)

    @property
    def metadata(self) -> Json:
        named = {"name": self.name, "namespace": self.shown.namespace, "uid": self.shown.uid}
        version = {"resourceVersion": str(self.shown.sequence), "creationTimestamp": _whole_seconds(self.began)}
        return {**named, **version, "labels": self.labels}

    @property
    def document(self) -> Json:
        """The object; `job` is what `muster get -o json` prints."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": self.metadata,
            "lastEventTime": self.time,
            "job": msgspec.to_builtins(self.shown),
        }


def listed(found: Sequence[Kept], version: int) -> Json:
    """The list; `version` is the sequence of the last event that was folded, from which a watch goes on."""
    return {
        "apiVersion": API_VERSION,
        "kind": f"{KIND}List",
        "metadata": {"resourceVersion": str(version)},
        "items": [each.document for each in found],
    }


def table(found: Sequence[Kept], version: int, include: str = "") -> Json:
    """The rows that `kubectl get` prints; a namespace is printed by kubectl.  `include` is one of `INCLUDED`."""
    named = [("NAME", 0), ("PHASE", 0), ("READY", 0), ("RESTARTS", 0), ("LAST EVENT", 0), *((each, 1) for each in WIDE)]
    columns = [*named, ("NOTE", 0)]
    rows = []
    for each in found:
        known = {**cells(each.shown), "NAME": each.name, "LAST EVENT": each.time[:19] + "Z", "NOTE": each.shown.note}
        rows.append({"cells": [known[name] for name, _ in columns], "object": _included(each, include)})
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": [
            {"name": name.title(), "type": "string", "format": "name" if name == "NAME" else "", "priority": priority}
            | {"description": ""}
            for name, priority in columns
        ],
        "rows": rows,
    }


def _whole_seconds(time: str) -> str | None:
    """The time as Kubernetes has it; None for an event without one, which an administrator planted."""
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    except ValueError:
        return None


def _included(kept: Kept, include: str) -> Json | None:
    match include:
        case "None":
            return None
        case "Object":
            return kept.document
        case _:
            return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": kept.metadata}


def framed(what: str, kept: Kept, *, as_table: bool, include: str = "") -> bytes:
    """A change as a watch tells it."""
    return _frame(what, table([kept], kept.shown.sequence, include) if as_table else kept.document)


def bookmark(version: int, *, as_table: bool) -> bytes:
    """What tells a watch that it has seen everything up to a sequence."""
    metadata = {"resourceVersion": str(version)}
    reached = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    return _frame("BOOKMARK", table([], version) if as_table else reached)


def failure(document: Json) -> bytes:
    """The Status with which a watch ends."""
    return _frame("ERROR", document)


def _frame(what: str, document: Json) -> bytes:
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


def discovery(path: str, aggregated: str = "") -> Json | None:
    """The document of a discovery path, in a version of `AGGREGATED` for that form; None for any other path."""
    match [step for step in path.split("/") if step]:
        case ["apis"]:
            return _all_at_once(aggregated) if aggregated else {**_type("APIGroupList"), "groups": [_group()]}
        case ["apis", group] if group == GROUP:
            return {**_type("APIGroup"), **_group()}
        case ["apis", group, version] if (group, version) == (GROUP, VERSION):
            return {**_type("APIResourceList"), "groupVersion": API_VERSION, "resources": _resources()}
    return None


def _type(kind: str) -> Json:
    return {"apiVersion": "v1", "kind": kind}


def _group() -> Json:
    version = {"groupVersion": API_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def _resources() -> list[Json]:
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
    return [history, *parts]


def _all_at_once(version: str) -> Json:
    kind = {"group": GROUP, "version": VERSION, "kind": KIND}
    history = {
        "resource": PLURAL,
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "jobhistory",
        "verbs": ["get", "list", "watch"],
        "shortNames": ["jh"],
        "subresources": [{"subresource": part, "responseKind": kind, "verbs": ["get"]} for part in PARTS],
    }
    served = {"version": VERSION, "resources": [history], "freshness": "Current"}
    return {
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "kind": "APIGroupDiscoveryList",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": [served]}],
    }
