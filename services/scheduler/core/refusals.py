"""The API server's words about a refused pod, as people may read them.  Pure.

Fields that it does not know get their paths in the user's resource.  Values of the environment and of annotations are
removed: an admission webhook may repeat the whole pod, and they may be secrets.
"""

from collections.abc import Iterator
from typing import Any

from shared.cluster.answers import UNKNOWN_FIELD, unknown_fields, without
from shared.cluster.pod_fields import meant
from shared.errors import Refused, Transient
from shared.untrusted import objects


def without_values(refusal: Refused | Transient, what: str, manifest: dict[str, Any]) -> Refused | Transient:
    """The refusal of this object, with words that repeat no value of its environment or annotations."""
    words = without(refusal.words, _values(manifest))
    message = f"{what}: {refusal.reason}" + (f": {words[:LONGEST_LOGGED]}" if words else "")
    if isinstance(refusal, Transient):
        return Transient(message, retry_after=refusal.retry_after, reason=refusal.reason, words=words)
    return Refused(message, reason=refusal.reason, field=refusal.field, words=words)


LONGEST_LOGGED = 300
"""Characters of the words in a line of the service's log."""


def _values(manifest: dict[str, Any]) -> Iterator[str]:
    meta, spec = manifest["metadata"], manifest.get("spec") or {}
    found = [*(meta.get("annotations") or {}).values()]
    # Names are not secret, and the message needs them; an annotation of Muster's names the training container.
    names = {meta["name"], meta.get("namespace"), *(owner["name"] for owner in meta.get("ownerReferences") or ())}
    for kind in ("initContainers", "containers"):
        for container in objects(spec.get(kind)):
            found += [variable.get("value") for variable in objects(container.get("env"))]
            if isinstance(name := container.get("name"), str):
                names.add(name)
    for value in dict.fromkeys(each for each in found if isinstance(each, str)):
        if value not in names:
            yield value


def in_resource(refusal: Refused, template: str) -> Refused:
    """The refusal of a pod for its unknown fields, with their paths from its `template`; any other one as it is."""
    paths = unknown_fields(refusal.words)
    if refusal.reason != UNKNOWN_FIELD or not paths:
        return refusal
    within = f"{template}." if template else ""
    fields = [f"{within}{path}" + (f" (is it {name}?)" if (name := meant(path)) else "") for path in paths]
    words = f"the API server knows no such field: {', '.join(fields)}"
    return Refused(str(refusal), reason=UNKNOWN_FIELD, field=within + paths[0], words=words)
