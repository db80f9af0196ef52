"""What a pod's spec and an image give a container: environment, variables in the command, folders, user and rights.

It applies users, groups, dropped capabilities, `allowPrivilegeEscalation` and a read-only root; it ignores seccomp
profiles and SELinux labels.  Only an agent that runs as root can run containers as other users.
On a node without a container runtime an image's name maps to a folder of the host.
"""

import base64
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.client import Json
from devcluster.node.relay import APISERVER_VARIABLES
from devcluster.node.runtime import Identity

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


def identity(pod: Json, container: Json) -> Identity:
    """The identity of a container.  Raises `BadConfiguration` with the kubelet's message."""
    general: Json = pod["spec"].get("securityContext") or {}
    own: Json = {**general, **(container.get("securityContext") or {})}
    user = int(own.get("runAsUser", 0))
    if own.get("runAsNonRoot") and not user:
        raise BadConfiguration("container has runAsNonRoot and image will run as root")
    capabilities: dict[str, Any] = own.get("capabilities") or {}
    dropped, added = "ALL" in (capabilities.get("drop") or ()), capabilities.get("add")
    if dropped and added:
        raise BadConfiguration(f"no capabilities but {', '.join(added)}: that is not offered by this node")
    root = os.getuid() == 0
    return Identity(
        # Without root, the agent's user namespace has only the user root.
        user=user if root else 0,
        group=int(own.get("runAsGroup", 0)) if root else 0,
        groups=tuple(sorted({*_group(pod), *general.get("supplementalGroups", ())})) if root else (),
        privileged=bool(own.get("privileged")),
        new_privileges=own.get("allowPrivilegeEscalation", True),
        capabilities=not dropped,
        read_only_root=bool(own.get("readOnlyRootFilesystem")),
    )


def _group(pod: Json) -> tuple[int, ...]:
    group = files_group(pod)
    return () if group is None else (group,)


def files_group(pod: Json) -> int | None:
    """The group of the pod's volumes, `fsGroup`; None without one, or if this agent is not root."""
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return None if group is None or os.getuid() != 0 else int(group)


MISSING = "missing/"
"""The prefix of names that cannot be pulled, for tests of a failing pull."""

ENVIRONMENT = ".venv"
"""The virtual environment in an image's folder, or a link to one: its programs come first on the PATH."""


@dataclass(frozen=True)
class Images:
    """The folders of the images: an image has no file system, only the folder in which its containers start."""

    folders: Mapping[str, Path]
    """The folder of each image, by name without tag."""

    def folder(self, image: str) -> str:
        found = self.folders.get(without_tag(image))
        return str(found) if found else "/"

    def visible(self, image: str) -> list[str]:
        """The folders of the host that containers of the image must see."""
        found = self.folders.get(without_tag(image))
        if found is None:
            return []
        environment = found / ENVIRONMENT
        # The targets of the links: the environment, and the Python that made it.
        behind = {environment.resolve(), (environment / "bin" / "python").resolve().parents[1]}
        return [str(found), *(str(folder) for folder in sorted(behind) if environment.exists())]

    def programs(self, image: str) -> list[str]:
        """The folders of the image's programs, first on the PATH."""
        found = self.folders.get(without_tag(image))
        return [str(found / ENVIRONMENT / "bin")] if found and (found / ENVIRONMENT).exists() else []

    @staticmethod
    def missing(image: str) -> bool:
        return image.startswith(MISSING)


def without_tag(image: str) -> str:
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    # A colon before the last slash separates a registry's port, not a tag.
    return folder + slash + last.partition(":")[0]
