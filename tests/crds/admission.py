"""The API server's answer to a resource of ours, by the embedded server's own validation."""

from functools import cache
from typing import Any

from devcluster.apiserver.cel import check, program, ruled_part
from devcluster.apiserver.schema import ABSENT, prune, validate
from muster.crds import manifests
from shared.frameworks.kinds import BUILT_IN, Kinds
from tests.kit.choirs import Band, Choir

Document = dict[str, Any]

KINDS = Kinds((*BUILT_IN, Choir(), Band()))
"""With two unknown ones."""

# Its first use raises Python's recursion limit; in the midst of a property test, Hypothesis would warn of that.
program("true")


def schema(document: Document) -> Document:
    """That of the document's kind, in its version."""
    group, _, version = document["apiVersion"].partition("/")
    return _schema(group, version, document["kind"])


@cache
def _schema(group: str, version: str, kind: str) -> Document:
    specs = [crd["spec"] for crd in manifests(KINDS)]
    (spec,) = [spec for spec in specs if (spec["group"], spec["names"]["kind"]) == (group, kind)]
    (found,) = [known["schema"]["openAPIV3Schema"] for known in spec["versions"] if known["name"] == version]
    schema: Document = found
    return schema


def refusals(document: Document, old: Document | None = None) -> list[str]:
    """`field: message` for each cause; empty when it is admitted.  With `old` it is an update."""
    whole, before = schema(document), ABSENT if old is None else old
    causes = validate(whole, document, before)
    if not causes:
        ruled = ruled_part(whole)
        assert ruled is not None
        causes = check(ruled, document, before)
    return [f"{cause.field}: {cause.message}" for cause in causes]


def pruned(document: Document) -> list[str]:
    """The paths of fields that the API server would drop."""
    return prune(schema(document), document)
