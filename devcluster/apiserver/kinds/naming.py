"""Which names of a custom resource definition are accepted: within its group each name means one kind.

A definition that asks for a name of another one is kept, but not served; once served it is served for good, under the
names that it has.
"""

from collections.abc import Iterable

from devcluster.apiserver.clock import now
from devcluster.apiserver.errors import Json, shown

RESOURCE_NAMES = ("plural", "singular", "shortNames")
KIND_NAMES = ("kind", "listKind")


def established(definition: Json, others: Iterable[Json]) -> Json:
    """The status of a definition: this server serves it at once, if all its names are free."""
    spec = definition["spec"]
    before: Json = definition.get("status") or {}
    had = before.get("acceptedNames") or {}
    taken = [(one.get("status") or {}).get("acceptedNames") or {} for one in others if _group(one) == spec["group"]]
    names, reason, message = _accepted(spec["names"], had, [had, *taken])
    conditions = before.get("conditions") or []
    accepted = ("True", "NoConflicts", "no conflicts found")
    conditions = _with(conditions, "NamesAccepted", *(("False", reason, message) if reason else accepted))
    if not any((one.get("type"), one.get("status")) == ("Established", "True") for one in conditions):
        served = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        waits = ("False", "NotAccepted", "not all names are accepted")
        conditions = _with(conditions, "Established", *(waits if reason else served))
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    return {"storedVersions": stored} | before | {"acceptedNames": names, "conditions": conditions}


def _group(definition: Json) -> str:
    return str(definition["spec"]["group"])


def _accepted(wanted: Json, had: Json, taken: Iterable[Json]) -> tuple[Json, str, str]:
    """The names that the definition has from now on, and, if they are not all it wants, a reason and a message."""
    names, reason, message = dict(had), "", ""
    used = {fields: _used(fields, taken) for fields in (RESOURCE_NAMES, KIND_NAMES)}
    for fields, theirs in used.items():
        for field in fields:
            clashes = [name for name in _listed(wanted.get(field)) if name in theirs - {*_listed(had.get(field))}]
            if clashes:
                said = [f"{shown(name)} is already in use" for name in clashes]
                # Of several conflicts the last one is told, as by the real server.
                reason = f"{field[0].upper()}{field[1:]}Conflict"
                message = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
            else:
                names[field] = wanted.get(field)
    names["categories"] = wanted.get("categories")
    return {"plural": "", "kind": ""} | {name: value for name, value in names.items() if value}, reason, message


def _used(fields: tuple[str, ...], taken: Iterable[Json]) -> set[str]:
    return {name for names in taken for field in fields for name in _listed(names.get(field))}


def _listed(value: str | list[str] | None) -> list[str]:
    if isinstance(value, str):
        return [value]
    return value or []


def _with(conditions: list[Json], kind: str, status: str, reason: str, message: str) -> list[Json]:
    """The conditions, with one of them as it is now."""
    before: Json = next((one for one in conditions if one.get("type") == kind), {})
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    now_is = {
        "type": kind,
        "status": status,
        "lastTransitionTime": since or now(),
        "reason": reason,
        "message": message,
    }
    if not before:
        return [*conditions, now_is]
    return [now_is if one is before else one for one in conditions]
