"""Custom resources: pruned, completed and validated by their schema, then by its rules."""

from devcluster.apiserver import cel
from devcluster.apiserver.errors import Cause, Json
from devcluster.apiserver.resources import Resource
from devcluster.apiserver.schema import ABSENT, apply_defaults, prune
from devcluster.apiserver.validation import validate

BLOCKING = frozenset(
    {"FieldValueRequired", "FieldValueTypeInvalid", "FieldValueTooLong", "FieldValueTooMany", "FieldValueDuplicate"}
)
RULES_SKIPPED = Cause(
    "<nil>",
    "FieldValueInvalid",
    'Invalid value: "null": some validation rules were not checked because the object was invalid; correct the '
    "existing errors to complete validation",
)


def fill(resource: Resource, obj: Json) -> list[str]:
    """Prune and complete `obj` in place; the paths of the fields that were dropped."""
    if resource.schema is None:
        return []
    dropped = prune(resource.schema, obj)
    apply_defaults(resource.schema, obj)
    return dropped


def wrong(resource: Resource, obj: Json, old: Json | None) -> list[Cause]:
    if resource.schema is None:
        return []
    former = ABSENT if old is None else old
    causes = validate(resource.schema, obj, former)
    if resource.ruled is None:
        return causes
    if any(cause.reason in BLOCKING for cause in causes):
        return [*causes, RULES_SKIPPED]
    return causes + cel.check(resource.ruled, obj, former)
