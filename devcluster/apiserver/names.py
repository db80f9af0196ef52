"""What names, labels and annotations may look like."""

import re
from collections.abc import Callable
from typing import Any

from devcluster.apiserver.errors import Cause, Json, invalid_value, required, too_long

LABEL_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

LABEL_1123_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end"
    " with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
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

STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
ANNOTATIONS_LIMIT = 256 * 1024

NameRule = Callable[[str], str]
"""What is wrong with a name, or nothing."""


def label_1123(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    if LABEL_1123.fullmatch(name):
        return ""
    return "must not contain dots" if SUBDOMAIN_1123.fullmatch(name) else LABEL_1123_RULE


def label_1035(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if LABEL_1035.fullmatch(name) else LABEL_1035_RULE


def subdomain(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if SUBDOMAIN_1123.fullmatch(name) else SUBDOMAIN_1123_RULE


def path_segment(name: str) -> str:
    """RBAC objects: whatever can stand in a URL."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for character in "/%":
        if character in name:
            return f"may not contain '{character}'"
    return "" if name.isprintable() and len(name) <= 253 else "must be no more than 253 printable characters"


def qualified_name_pattern(text: str) -> str:
    """The part of `qualified_name` that is said of an empty name besides."""
    return QUALIFIED_NAME_RULE if not text else qualified_name(text)


def qualified_name(name: str) -> str:
    """Keys of labels and annotations, and finalizers: `name` or `prefix/name`."""
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


def metadata_causes(metadata: Json, rule: NameRule, *, core: bool) -> list[Cause]:
    """What is wrong with the metadata of any object; its types are right already.

    `core` kinds have a stricter rule for finalizers.
    """
    causes = []
    if not metadata.get("name"):
        causes.append(required("metadata.name", "name or generateName is required"))
    elif wrong := rule(metadata["name"]):
        causes.append(invalid_value("metadata.name", metadata["name"], wrong))
    causes += label_causes(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for name in annotations:
        if wrong := qualified_name(name.lower()):
            causes.append(invalid_value("metadata.annotations", name, wrong))
    if sum(len(name) + len(value.encode()) for name, value in annotations.items()) > ANNOTATIONS_LIMIT:
        causes.append(too_long("metadata.annotations", ANNOTATIONS_LIMIT))
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if wrong := qualified_name(finalizer):
            causes.append(invalid_value("metadata.finalizers", finalizer, wrong))
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS and core:
            wrong = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, wrong))
    return causes + _owner_causes(metadata.get("ownerReferences") or [])


def finalizer_warnings(new: Json, old: Json | None) -> list[str]:
    """What the real server says of finalizers that a custom resource gets: their names should have a domain."""
    known = {*((old or {}).get("metadata") or {}).get("finalizers", ()), *STANDARD_FINALIZERS}
    warnings = []
    for name in sorted({*new["metadata"].get("finalizers", ())} - known):
        if "/" not in name:
            path = " including a path (/)" if "." in name else ""
            warnings.append(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} to avoid accidental'
                " conflicts with other finalizer writers"
            )
    return warnings


def _owner_causes(owners: list[Json]) -> list[Cause]:
    causes = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                causes.append(invalid_value(f"metadata.ownerReferences.{field}", "", what))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        kinds = " and ".join(f"{owner['kind']}/{owner['name']}" for owner in controllers[:2])
        causes.append(
            invalid_value(
                "metadata.ownerReferences", kinds, "Only one reference can have Controller set to true. Found both"
            )
        )
    return causes
