"""The API server's answer to a resource of ours, by the embedded server's own validation."""

from functools import cache
from typing import Any

from devcluster.apiserver.cel import check, program, ruled_part
from devcluster.apiserver.schema import ABSENT, prune
from devcluster.apiserver.validation import validate
from muster.crds import manifests

Document = dict[str, Any]

# Its first use raises Python's recursion limit; in the midst of a property test, Hypothesis would warn of that.
program("true")


@cache
def schema(kind: str) -> Document:
    (crd,) = [crd for crd in manifests() if crd["spec"]["names"]["kind"] == kind]
    found: Document = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def refusals(document: Document, old: Document | None = None) -> list[str]:
    """`field: message` for each cause; empty when it is admitted.  With `old` it is an update."""
    whole, before = schema(document["kind"]), ABSENT if old is None else old
    causes = validate(whole, document, before)
    if not causes:
        ruled = ruled_part(whole)
        assert ruled is not None
        causes = check(ruled, document, before)
    return [f"{cause.field}: {cause.message}" for cause in causes]


def pruned(document: Document) -> list[str]:
    """The paths of fields that the API server would drop."""
    return prune(schema(document["kind"]), document)
