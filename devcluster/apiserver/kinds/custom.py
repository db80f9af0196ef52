"""Custom resources: validated by their schema, then by its CEL rules."""

from collections.abc import Sequence

from devcluster.apiserver import cel
from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.schema import ABSENT, child
from devcluster.apiserver.validation import validate

BLOCKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
    }
)
RULES_SKIPPED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)


def _wrong_status(schema: Json, obj: Json, old: Json) -> list[Cause]:
    """The causes of a write to the status subresource; their messages have paths relative to `status`."""
    part = child(schema, "status")
    if "status" not in obj or not isinstance(part, dict):
        return []
    causes = validate(part, obj["status"], old.get("status", ABSENT), root=False)
    return [cause._replace(field=_under_status(cause.field)) for cause in causes]


def _under_status(field: str) -> str:
    return "status" if field == "<nil>" else f"status.{field}"


def wrong(
    resource: Resource, obj: Json, old: Json | None, known: Sequence[Cause] = (), subresource: str = ""
) -> list[Cause]:
    """The causes of an invalid custom resource; `known` are those of its metadata."""
    if resource.schema is None:
        return []
    former = ABSENT if old is None else old
    causes = _wrong_status(resource.schema, obj, old or {}) if subresource else validate(resource.schema, obj, former)
    if resource.ruled is None:
        return causes
    if any(cause.reason in BLOCKING for cause in (*known, *causes)):
        return [*causes, RULES_SKIPPED]
    return causes + cel.check(resource.ruled, obj, former)
