"""From a container of a pod's spec to what the zygote starts: command, environment, folder, mounts, files."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from devcluster.node.environment import Fetch, environment, expand
from devcluster.node.identity import identity
from devcluster.node.images import Images
from devcluster.node.kubernetes import Json
from devcluster.node.rootfs import PRIVATE, Mount
from devcluster.node.runtime import Isolation, Launch
from devcluster.node.volumes import Volumes

NAME_SERVICES = "hosts: files dns\npasswd: files\ngroup: files\nshadow: files\n"
"""Instead of what the host asks, such as a resolver of its own that knows nothing of pods."""


class CannotStart(Exception):  # noqa: N818 - the kubelet's word for it is CreateContainerError
    """The container has nothing that could be started; the message says what is missing."""


async def prepare(
    pod: Json,
    container: Json,
    *,
    images: Images,
    volumes: Volumes,
    status: Mapping[str, str],
    fetch: Fetch,
    files: Mapping[str, str],
    message_file: Path,
) -> tuple[Launch, Isolation]:
    """Raises `BadConfiguration` or `CannotStart`; both may go away when objects change."""
    image = container["image"]
    variables = await environment(pod, container, status, fetch, images.programs(image))
    command = [expand(word, variables) for word in [*(container.get("command") or ()), *(container.get("args") or ())]]
    if not command:
        raise CannotStart("no command specified: images have none on this node, so the pod has to say it")
    who = identity(pod, container)
    mounts = _program_mounts(images.visible(image), everywhere=bool(who.user)) + volumes.mounts(container, variables)
    message_path = container.get("terminationMessagePath") or "/dev/termination-log"
    mounts.append({"source": str(message_file), "target": message_path, "read_only": False})
    launch = Launch(
        command=command,
        environment=variables,
        folder=container.get("workingDir") or images.folder(image),
        identity=who,
    )
    isolation = Isolation(
        pod=pod["metadata"]["uid"],
        hostname=status["hostname"],
        mounts=mounts,
        files={**files, "/etc/hostname": status["hostname"] + "\n", "/etc/nsswitch.conf": NAME_SERVICES},
    )
    return launch, isolation


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
