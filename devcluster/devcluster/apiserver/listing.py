"""LIST: consistent and in order, each page at the version of the first page; and the selectors of lists and watches."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from devcluster.apiserver.call import Call
from devcluster.apiserver.errors import ApiError, Cause, Json, bad_request, expired, invalid, invalid_value
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.store import CompactedError, Entry, Place, Store

TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Continue(msgspec.Struct, frozen=True):
    """The next page begins after `namespace`/`name`; version 0 marks a list that is no longer consistent."""

    version: int
    namespace: str
    name: str

    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, token: str) -> "Continue":
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            return msgspec.json.decode(raw, type=cls)
        except (binascii.Error, ValueError, msgspec.MsgspecError, UnicodeError) as error:
            raise bad_request(f"continue key is not valid: {error}") from error


class Page(NamedTuple):
    entries: list[Entry]
    metadata: Json


Selector = Callable[[Entry], bool]

LABEL = re.compile(
    r"""\s*(?:
      (?P<absent>!)?\s*(?P<key>[-\w./]+)\s*
      (?:(?P<operator>==|=|!=|<|>)\s*(?P<value>[-\w.]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
FIELD = re.compile(r"([\w.\[\]/-]+)(==|!=|=)(.*)", re.DOTALL)
WHOLE_NUMBER = re.compile(r"-?\d{1,18}")


def selector(labels: str, fields: str, selectable: Mapping[str, str]) -> Selector | None:
    """Both selectors as one predicate on entries, or None when everything is selected.

    `selectable` maps the field paths that the kind offers to those where the values are stored.
    """
    of_fields = [_field_requirement(part, selectable) for part in fields.split(",") if part]
    requirements = [*_label_requirements(labels.strip()), *of_fields]
    if not requirements:
        return None
    return lambda entry: all(requirement(entry) for requirement in requirements)


def _label_requirements(text: str) -> list[Selector]:
    requirements, at = [], 0
    while at < len(text):
        found = LABEL.match(text, at)
        if found is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        requirements.append(_label_requirement(found))
        at = found.end()
    return requirements


def _label_requirement(found: re.Match[str]) -> Selector:
    key, value, operator = found["key"], found["value"], found["operator"] or found["set"]
    values = {each.strip() for each in (found["values"] or "").split(",")}
    match operator:
        case None:
            return lambda entry: (key in entry.labels) != bool(found["absent"])
        case "in":
            return lambda entry: entry.labels.get(key) in values
        case "notin":
            return lambda entry: entry.labels.get(key) not in values
        case "!=":
            return lambda entry: entry.labels.get(key) != value
        case "<" | ">":
            if not WHOLE_NUMBER.fullmatch(value):
                raise bad_request(f"unable to parse requirement: {value!r} is not a whole number")
            return lambda entry: _compares(entry.labels.get(key, ""), operator, int(value))
        case _:
            return lambda entry: entry.labels.get(key) == value


def _compares(value: str, operator: str, bound: int) -> bool:
    if not WHOLE_NUMBER.fullmatch(value):
        return False
    return int(value) > bound if operator == ">" else int(value) < bound


def _field_requirement(part: str, selectable: Mapping[str, str]) -> Selector:
    match = FIELD.fullmatch(part.strip())
    if not match:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    asked, operator, value = match[1], match[2], match[3]
    if asked not in selectable:
        raise bad_request(f"field label not supported: {asked}")
    path = selectable[asked]
    if operator == "!=":
        return lambda entry: entry.field(path) != value
    return lambda entry: entry.field(path) == value


def call_selector(resource: Resource, call: Call) -> Selector | None:
    """The selector of the call; a name in the path of a watch is a selector, too."""
    fields = call.query.get("fieldSelector", "")
    if call.target.name:
        fields = f"metadata.name={call.target.name}"
    return selector(call.query.get("labelSelector", ""), fields, resource.selectable)


def asked_version(call: Call) -> int | None:
    """The query's resourceVersion; None when there is none."""
    text = call.query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise bad_request(f'resourceVersion: Invalid value: "{text}": invalid version')
    return int(text)


def page(store: Store, resource: Resource, call: Call) -> Page:
    chosen = call_selector(resource, call)
    token = call.query.get("continue", "")
    start = Continue.read(token) if token else None
    version = _list_version(store, call, start)
    entries = _as_of(store, resource, version, start)
    if call.target.namespace:
        entries = [entry for entry in entries if entry.place.namespace == call.target.namespace]
    if chosen:
        entries = [entry for entry in entries if chosen(entry)]
    entries.sort(key=lambda entry: entry.place)
    if start:
        entries = [entry for entry in entries if entry.place > Place(start.namespace, start.name)]
    metadata: Json = {"resourceVersion": str(version)}
    if resource.custom:
        metadata["continue"] = ""
    limit = call.number("limit") or 0
    if 0 < limit < len(entries):
        # As the real server, which does not count the remaining items of a list with a selector.
        if not chosen:
            metadata["remainingItemCount"] = len(entries) - limit
        entries = entries[:limit]
        pinned = 0 if start and start.version == 0 else version
        metadata["continue"] = Continue(pinned, *entries[-1].place).token()
    return Page(entries, metadata)


def _list_version(store: Store, call: Call, start: Continue | None) -> int:
    asked, match = asked_version(call), call.query.get("resourceVersionMatch", "")
    if match not in ("", "Exact", "NotOlderThan") or (match and (asked is None or start)):
        cause = invalid_value("resourceVersionMatch", match, "is forbidden here, or is not Exact or NotOlderThan")
        raise invalid("meta.k8s.io", "ListOptions", "", [cause])
    if start:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        return start.version or store.version
    if asked and asked > store.version:
        message = f"Too large resource version: {asked}, current: {store.version}"
        cause = Cause("", "ResourceVersionTooLarge", "Too large resource version")
        details = {"causes": [cause._asdict()], "retryAfterSeconds": 1}
        raise ApiError(504, "Timeout", message, details)
    # Without `Exact`, a resourceVersion means "not older than this": the present version satisfies it.
    exact = match == "Exact" or (asked and not match and call.query.get("limit", "0") not in ("", "0"))
    return asked if asked and exact else store.version


def _as_of(store: Store, resource: Resource, version: int, start: Continue | None) -> list[Entry]:
    if version == store.version:
        return store.all(resource.key)
    try:
        return store.list_at(resource.key, version)
    except CompactedError:
        if start is None:
            raise expired(f"The resourceVersion for the provided list is too old: {version}") from None
        fresh = Continue(0, start.namespace, start.name)
        raise expired(TOO_OLD_CONTINUE, continue_token=fresh.token()) from None
