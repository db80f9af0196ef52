"""Kubernetes Events: one store, served in the shape of the core group and in that of events.k8s.io."""

from devcluster.apiserver.errors import Json
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.shapes import EVENT

CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""The fields of events.k8s.io/v1 that have another name in the core group."""

NEW_NAMES = {core: new for new, core in CORE_NAMES.items()}


def to_core(event: Json) -> Json:
    return {CORE_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    return {NEW_NAMES.get(name, name): value for name, value in event.items()}


def fill(event: Json, old: Json | None) -> None:
    for field in ("involvedObject", "source"):
        event[field] = event.get(field) or {}
    for field in ("eventTime", "firstTimestamp", "lastTimestamp"):
        event.setdefault(field, None)
    event.setdefault("reportingComponent", event["source"].get("component", ""))
    event.setdefault("reportingInstance", event["source"].get("host", ""))


RULES = Rules(shape=EVENT, fill=fill, created_by_update=True)
