"""Kubernetes Events: one store, served in the shape of the core group and in that of events.k8s.io."""

from devcluster.apiserver.errors import Cause, Json, invalid_value, required
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import qualified_name_pattern
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

FIXED = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime"),
    *("action", "related", "reportingComponent", "reportingInstance"),
)
"""Of an event of the new group, nothing changes but its series."""
EMPTY = {"eventTime": None, "firstTimestamp": None, "lastTimestamp": None}
UNSET = ("firstTimestamp", "lastTimestamp", "count", "source")
LIMITS = {"reason": 128, "action": 128, "reportingInstance": 128, "message": 1024}


def to_core(event: Json) -> Json:
    return {CORE_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    return {NEW_NAMES.get(name, name): value for name, value in event.items()}


def fill(event: Json, old: Json | None) -> None:
    event.setdefault("involvedObject", {})
    event.setdefault("source", {})
    for field in ("eventTime", "firstTimestamp", "lastTimestamp"):
        event.setdefault(field, None)
    event.setdefault("reportingComponent", event["source"].get("component", ""))
    event.setdefault("reportingInstance", event["source"].get("host", ""))


def wrong(event: Json, old: Json | None) -> list[Cause]:
    namespace, of = event["metadata"].get("namespace"), event["involvedObject"].get("namespace")
    # Without eventTime it is an event of the old kind, which the API has never checked further.
    if not event.get("eventTime"):
        return [] if namespace == (of or "default") else [_elsewhere(of)]
    causes = [_elsewhere(of)] if not of and namespace not in ("default", "kube-system") else []
    controller = event.get("reportingComponent") or ""
    if not controller:
        nothing = invalid_value("reportingController", "", "name part must be non-empty")
        causes += [required("reportingController"), nothing]
    if problem := qualified_name_pattern(controller):
        causes.append(invalid_value("reportingController", controller, problem))
    causes += [required(field) for field in ("reportingInstance", "action", "reason") if not event.get(field)]
    for field, limit in LIMITS.items():
        if len(event.get(field) or "") > limit:
            causes.append(invalid_value(field, "", f"can have at most {limit} characters"))
    return causes


def _elsewhere(namespace: str | None) -> Cause:
    return invalid_value("involvedObject.namespace", namespace or "", "does not match event.namespace")


def wrong_in_the_new_group(event: Json, old: Json | None) -> list[Cause]:
    """What events.k8s.io/v1 asks for, beyond the core group; `event` is in the shape of the core group."""
    series = event.get("series")
    causes = []
    if series is not None and (old is None or series != old.get("series")):
        if (series.get("count") or 0) < 2:
            causes.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            causes.append(required("series.lastObservedTime"))
    if old is not None:
        names = {"reportingComponent": "reportingController"}
        return causes + [
            invalid_value(names.get(field, field), event.get(field) or EMPTY.get(field, ""), "field is immutable")
            for field in FIXED
            if (event.get(field) or None) != (old.get(field) or None)
        ]
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type', '')}"))
    causes += [invalid_value(field, "", "needs to be unset") for field in UNSET if event.get(field)]
    return causes


RULES = Rules(shape=Event, fill=fill, wrong=wrong, created_by_update=True)
