"""Tells of fields that the API server does not know by their paths in the user's resource.  Pure."""

from shared.cluster.answers import UNKNOWN_FIELD, unknown_fields
from shared.cluster.pod_fields import meant
from shared.errors import Refused


def in_resource(refusal: Refused, template: str) -> Refused:
    """The refusal of a pod for its unknown fields, with their paths from its `template`; any other one as it is."""
    paths = unknown_fields(refusal.words)
    if refusal.reason != UNKNOWN_FIELD or not paths:
        return refusal
    within = f"{template}." if template else ""
    fields = [f"{within}{path}" + (f" (is it {name}?)" if (name := meant(path)) else "") for path in paths]
    words = f"the API server knows no such field: {', '.join(fields)}"
    return Refused(str(refusal), reason=UNKNOWN_FIELD, field=within + paths[0], words=words)
