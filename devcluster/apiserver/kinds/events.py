"""Kubernetes Events: one store, served in the shape of the core group and in that of events.k8s.io."""

import re

from devcluster.apiserver.errors import Cause, Json, invalid_value, required
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.shapes import Event

CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""The fields of events.k8s.io/v1 that the core group calls otherwise; all others have one name."""

NEW_NAMES = {core: new for new, core in CORE_NAMES.items()}

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
LIMITS = {"reason": 128, "action": 128, "reportingInstance": 128, "message": 1024}


def to_core(event: Json) -> Json:
    return {CORE_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    return {NEW_NAMES.get(name, name): value for name, value in event.items()}


def fill(event: Json, old: Json | None) -> None:
    reference = event["involvedObject"] = event.get("involvedObject") or {}
    reference.setdefault("namespace", event["metadata"].get("namespace", ""))
    event.setdefault("source", {})
    event.setdefault("reportingComponent", event["source"].get("component", ""))
    event.setdefault("reportingInstance", event["source"].get("host", ""))


def wrong(event: Json, old: Json | None) -> list[Cause]:
    causes = []
    namespace = event["involvedObject"].get("namespace") or "default"
    if namespace != event["metadata"].get("namespace"):
        causes.append(invalid_value("involvedObject.namespace", namespace, "does not match event.namespace"))
    # Without eventTime it is an event of the old kind, which the API has never checked further.
    if not event.get("eventTime"):
        return causes
    if not MICRO_TIME.fullmatch(event["eventTime"]):
        causes.append(invalid_value("eventTime", event["eventTime"], "must be a time with exactly six decimals"))
    causes += [required(field) for field in ("reportingComponent", "reportingInstance") if not event.get(field)]
    causes += [required(field) for field in ("action", "reason") if not event.get(field)]
    if event.get("type") not in ("Normal", "Warning"):
        causes.append(invalid_value("type", event.get("type", ""), "has invalid value"))
    for field, limit in LIMITS.items():
        if len(event.get(field) or "") > limit:
            causes.append(invalid_value(field, "", f"can have at most {limit} characters"))
    return causes


def wrong_in_the_new_group(event: Json) -> list[Cause]:
    """What events.k8s.io/v1 asks for, beyond the core group; `event` is in the shape of the core group."""
    return [] if event.get("eventTime") else [required("eventTime")]


RULES = Rules(shape=Event, fill=fill, wrong=wrong)
