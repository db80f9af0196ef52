"""The downward API: what a pod may know about itself."""

import re
from collections.abc import Mapping

from devcluster.node.kubernetes import Json

_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class UnknownField(Exception):  # noqa: N818 - said of a field
    """No such field is offered; the message names it."""


def field(pod: Json, status: Mapping[str, str], path: str) -> str:
    """The text of a field reference; `status` has what this node knows better than the object."""
    metadata = pod["metadata"]
    if entry := _ENTRY.fullmatch(path):
        return str((metadata.get(entry[1]) or {}).get(entry[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(metadata[path.removeprefix("metadata.")])
        case "metadata.labels" | "metadata.annotations":
            entries = metadata.get(path.removeprefix("metadata.")) or {}
            return "\n".join(f"{name}={_quoted(entries[name])}" for name in sorted(entries))
        case "spec.nodeName":
            return str(pod["spec"]["nodeName"])
        case "spec.serviceAccountName":
            return str(pod["spec"].get("serviceAccountName", "default"))
        case "status.podIP" | "status.hostIP" | "status.podIPs" | "status.hostIPs":
            return status[path.removeprefix("status.").removesuffix("s")]
        case _:
            raise UnknownField(f"field {path} is not offered by this node")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
