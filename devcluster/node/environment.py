"""A container's environment, the variables in its command, and the fields of its pod that it can refer to."""

import base64
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from devcluster.node.kubernetes import Json
from devcluster.node.relay import APISERVER_VARIABLES

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Fetch = Callable[[str, str], Awaitable[Json | None]]
"""Reads an object of a kind (`configmaps`, `secrets`) by name from the pod's namespace; None if there is none."""

_REFERENCE = re.compile(r"\$\$|\$\(([^()$]+)\)")
_KINDS = {"configMap": "configmaps", "secret": "secrets"}


class BadConfiguration(Exception):  # noqa: N818 - the kubelet's word for it is CreateContainerConfigError
    """The container cannot be made from the present objects; `kubectl describe` shows the message."""


def image_environment(programs: Sequence[str] = ()) -> dict[str, str]:
    """The environment of an image: its `PATH` has the folders `programs`, then the Python that runs the agent."""
    # Not resolved: a virtual environment finds its packages by the link.
    python = os.path.dirname(os.path.abspath(sys.executable))  # noqa: PTH100, PTH120
    home = "/root" if os.getuid() == 0 else str(Path.home())
    return {"PATH": ":".join([*programs, python, STANDARD_PATH]), "HOME": home}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by its value and `$$` by a dollar; unknown names stay as they are."""

    def replacement(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


async def environment(
    pod: Json, container: Json, status: Mapping[str, str], fetch: Fetch, programs: Sequence[str] = ()
) -> dict[str, str]:
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind, plural in _KINDS.items():
            if reference := source.get(f"{kind}Ref"):
                for name, value in (await _all(reference, plural, fetch)).items():
                    variables[source.get("prefix", "") + name] = value
    for entry in container.get("env") or ():
        found = await _value(pod, entry, status, fetch, variables)
        if found is not None:
            variables[entry["name"]] = found
    return image_environment(programs) | {"HOSTNAME": status["hostname"], **APISERVER_VARIABLES} | variables


async def _value(
    pod: Json, entry: Json, status: Mapping[str, str], fetch: Fetch, variables: Mapping[str, str]
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", variables)
    if reference := source.get("fieldRef"):
        return field(pod, status, reference["fieldPath"])
    for kind, plural in _KINDS.items():
        if reference := source.get(f"{kind}KeyRef"):
            values = await _all(reference, plural, fetch)
            if reference["key"] in values:
                return values[reference["key"]]
            if reference.get("optional"):
                return None
            place = f"{kind[:1].upper()}{kind[1:]} {pod['metadata']['namespace']}/{reference['name']}"
            raise BadConfiguration(f"couldn't find key {reference['key']} in {place}")
    raise BadConfiguration(f"variable {entry['name']}: {', '.join(source)} is not offered by this node")


async def _all(reference: Json, plural: str, fetch: Fetch) -> dict[str, str]:
    found = await fetch(plural, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise BadConfiguration(f'{plural.removesuffix("s")} "{reference["name"]}" not found')
    data = found.get("data") or {}
    if plural == "configmaps":
        return dict(data)
    return {name: base64.b64decode(value).decode(errors="surrogateescape") for name, value in data.items()}


_ENTRY = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def field(pod: Json, status: Mapping[str, str], path: str) -> str:
    """The text of a field reference; `status` has the values that the object may not have yet."""
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
            raise BadConfiguration(f"field {path} is not offered by this node")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
