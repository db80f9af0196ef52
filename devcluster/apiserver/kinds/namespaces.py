"""Namespaces.  How they end is the collector's affair."""

from devcluster.apiserver.errors import Json
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import label_1123
from devcluster.apiserver.shapes import Namespace

NAME_LABEL = "kubernetes.io/metadata.name"


def fill(namespace: Json, old: Json | None) -> None:
    metadata = namespace["metadata"]
    metadata["labels"] = (metadata.get("labels") or {}) | {NAME_LABEL: metadata["name"]}
    if old is None:
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}
    else:
        namespace["spec"] = old["spec"]


RULES = Rules(shape=Namespace, name=label_1123, fill=fill)
