"""From a container of a pod's spec to what the zygote starts: command, environment, folder, mounts, files."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster.node.containers import Container
from devcluster.node.environment import environment, expand
from devcluster.node.identity import identity
from devcluster.node.names import hosts_file, resolver_file
from devcluster.node.rootfs import PRIVATE, Mount
from devcluster.node.runtime import Isolation, Launch

if TYPE_CHECKING:
    from devcluster.node.pods import Pod

NAME_SERVICES = "hosts: files dns\npasswd: files\ngroup: files\nshadow: files\n"
"""Instead of what the host asks, such as a resolver of its own that knows nothing of pods."""

MISSING = "missing/"
"""Images whose names begin so cannot be pulled, which is what tests of that trouble need."""

ENVIRONMENT = ".venv"
"""In the folder of an image, or a link to one: what the image would have installed, whose programs come first."""


class CannotStart(Exception):  # noqa: N818 - the kubelet's word for it is CreateContainerError
    """The container has nothing that could be started; the message says what is missing."""


async def prepare(pod: "Pod", container: Container) -> tuple[Launch, Isolation]:
    """Raises `BadConfiguration` or `CannotStart`; both may go away when objects change."""
    spec, status, images, hostname = container.spec, pod.field_values, pod.machine.images, pod.field_values["hostname"]
    image = spec["image"]
    variables = await environment(pod.object, spec, status, pod.fetch, images.programs(image))
    command = [expand(word, variables) for word in [*(spec.get("command") or ()), *(spec.get("args") or ())]]
    if not command:
        raise CannotStart("no command specified: images have none on this node, so the pod has to say it")
    who = identity(pod.object, spec)
    mounts = _program_mounts(images.visible(image), everywhere=bool(who.user)) + pod.volumes.mounts(spec, variables)
    message_path = spec.get("terminationMessagePath") or "/dev/termination-log"
    mounts.append({"source": str(container.message_file), "target": message_path, "read_only": False})
    folder = spec.get("workingDir") or images.folder(image)
    launch = Launch(command=command, environment=variables, folder=folder, identity=who)
    files = {
        "/etc/hosts": hosts_file(pod, hostname, pod.object["spec"].get("hostAliases") or ()),
        "/etc/resolv.conf": resolver_file(pod.object["spec"], pod.namespace, pod.machine.resolver),
        "/etc/hostname": hostname + "\n",
        "/etc/nsswitch.conf": NAME_SERVICES,
    }
    return launch, Isolation(pod=pod.uid, hostname=hostname, mounts=mounts, files=files)


def _program_mounts(folders: list[str], *, everywhere: bool) -> list[Mount]:
    """The image, the Python and our own code, when they lie where a container has an empty folder of its own.

    Or `everywhere`, for users who might not be let in where they lie.
    """
    ours = str(Path(__file__).parents[2])
    needed = {*folders, ours, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    return [
        {"source": folder, "target": folder, "read_only": True}
        for folder in sorted(needed)
        if everywhere or any(folder.startswith(f"{private}/") for private in PRIVATE)
    ]


@dataclass(frozen=True)
class Images:
    """What the name of an image means here: no file system, only the folder in which its containers start."""

    folders: Mapping[str, Path]
    """By name without tag."""

    def folder(self, image: str) -> str:
        found = self.folders.get(without_tag(image))
        return str(found) if found else "/"

    def visible(self, image: str) -> list[str]:
        """The folders that containers of the image must see, wherever on the host they are."""
        found = self.folders.get(without_tag(image))
        if found is None:
            return []
        environment = found / ENVIRONMENT
        # What is behind the links: the environment, and the Python that it was made of.
        behind = {environment.resolve(), (environment / "bin" / "python").resolve().parents[1]}
        return [str(found), *(str(folder) for folder in sorted(behind) if environment.exists())]

    def programs(self, image: str) -> list[str]:
        """Folders of programs that come before all others."""
        found = self.folders.get(without_tag(image))
        return [str(found / ENVIRONMENT / "bin")] if found and (found / ENVIRONMENT).exists() else []

    @staticmethod
    def missing(image: str) -> bool:
        return image.startswith(MISSING)


def without_tag(image: str) -> str:
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    # Only after the last slash is a colon a tag; before it, it is a registry's port.
    return folder + slash + last.partition(":")[0]
