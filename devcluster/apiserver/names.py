"""The rules for names, labels and annotations."""

import re
from collections.abc import Callable
from typing import Any

from devcluster.apiserver.errors import Cause, Json, invalid_value, required

LABEL_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

LABEL_1123_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end"
    " with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_1123_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    r" '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
QUALIFIED_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)

NameRule = Callable[[str], str]
"""Returns why a name is invalid; empty if it is valid."""


def label_1123(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL_1123.fullmatch(name):
        return ""
    return "must not contain dots" if SUBDOMAIN_1123.fullmatch(name) else LABEL_1123_RULE


def subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if SUBDOMAIN_1123.fullmatch(name) else SUBDOMAIN_1123_RULE


def qualified_name(name: str) -> str:
    """Keys of labels and annotations: `name` or `prefix/name`."""
    prefix, slash, rest = name.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and subdomain(prefix):
        return f"prefix part {subdomain(prefix)}"
    if not rest:
        return "name part must be non-empty"
    if len(rest) > 63:
        return "name part must be no more than 63 characters"
    return "" if QUALIFIED_NAME.fullmatch(rest) else QUALIFIED_NAME_RULE


def label_causes(labels: dict[str, Any], field: str) -> list[Cause]:
    causes = []
    for name, value in labels.items():
        if wrong := qualified_name(name):
            causes.append(invalid_value(field, name, wrong))
        if len(value) > 63:
            causes.append(invalid_value(field, value, "must be no more than 63 bytes"))
        elif value and not QUALIFIED_NAME.fullmatch(value):
            causes.append(invalid_value(field, value, LABEL_VALUE_RULE))
    return causes


def metadata_causes(metadata: Json, rule: NameRule) -> list[Cause]:
    """The causes for which the metadata of any object is invalid; the types of its fields were checked before."""
    causes = []
    if not metadata.get("name"):
        causes.append(required("metadata.name", "name or generateName is required"))
    elif wrong := rule(metadata["name"]):
        causes.append(invalid_value("metadata.name", metadata["name"], wrong))
    causes += label_causes(metadata.get("labels") or {}, "metadata.labels")
    for name in metadata.get("annotations") or {}:
        if wrong := qualified_name(name.lower()):
            causes.append(invalid_value("metadata.annotations", name, wrong))
    return causes + _owner_causes(metadata.get("ownerReferences") or [])


def _owner_causes(owners: list[Json]) -> list[Cause]:
    causes = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                causes.append(invalid_value(f"metadata.ownerReferences.{field}", "", what))
    return causes
