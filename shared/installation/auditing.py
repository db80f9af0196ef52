"""What an API server needs for the audit service: an admission policy, and the policy of its audit log.  Pure.

An audit event says who asked, and the answer says which version the object has now.  It does not say whether the
request made that version: an edit without a change is answered with the version of the last write.  So an admission
policy, which refuses nothing, notes in the audit event whether the request changed the object.  An API server asks it
again at each try of a request, and of two notes with the same key it keeps the first; so there are two keys, and a
write is certain with the one and without the other.
"""

from collections.abc import Iterable
from typing import Any

from shared.frameworks.framework import Framework
from shared.installation.admission import matching, rule
from shared.installation.permissions import REQUESTS
from shared.job.naming import WRITE_CHANGED, WRITE_UNCHANGED

Document = dict[str, Any]

_SAME = "object.spec == oldObject.spec" + "".join(
    f" && object.metadata.?{field} == oldObject.metadata.?{field}" for field in ("labels", "annotations")
)


def spec(kinds: Iterable[Framework]) -> Document:
    """The admission policy for jobs of these kinds and for scale requests."""
    return {
        # A request without a note stays without an author; none is refused.
        "failurePolicy": "Ignore",
        "matchConstraints": matching(
            rule([group], ["CREATE", "UPDATE", "DELETE"], resources) for group, resources in _resources(kinds).items()
        ),
        "variables": [
            {
                "name": "changed",
                "expression": "!(has(request.dryRun) && request.dryRun) && (request.operation == 'CREATE'"
                " || (request.operation == 'DELETE' ? !has(oldObject.metadata.deletionTimestamp)"
                f" : !({_SAME})))",
            }
        ],
        "auditAnnotations": [
            {"key": WRITE_CHANGED, "valueExpression": "variables.changed ? 'yes' : ''"},
            {"key": WRITE_UNCHANGED, "valueExpression": "variables.changed ? '' : 'yes'"},
        ],
    }


def log_policy(kinds: Iterable[Framework]) -> Document:
    """The API server's own audit policy (`--audit-policy-file`): writes of jobs and requests, with their answers.

    A lower level than RequestResponse has no version of the object.
    """
    resources = [{"group": group, "resources": found} for group, found in _resources(kinds).items()]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {
                "level": "RequestResponse",
                "verbs": ["create", "update", "patch", "delete"],
                "resources": resources,
                "omitManagedFields": True,
            },
            {"level": "None"},
        ],
    }


def _resources(kinds: Iterable[Framework]) -> dict[str, list[str]]:
    """The plurals by group, those of subresources by which a job is changed included."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.group, []).extend([kind.resource.plural, f"{kind.resource.plural}/scale"])
    for request in REQUESTS:
        found.setdefault(request.group, []).append(request.plural)
    return found
