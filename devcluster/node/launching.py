"""Translates a container of a pod's spec into what the zygote starts: command, environment, folder, mounts, files."""

import os
import sys
from pathlib import Path

from devcluster.node.containers import Container, OnNode
from devcluster.node.environment import environment, expand
from devcluster.node.identity import identity
from devcluster.node.names import hosts_file, resolver_file
from devcluster.node.rootfs import PRIVATE, Mount
from devcluster.node.runtime import Isolation, Launch

NAME_SERVICES = "hosts: files dns\npasswd: files\ngroup: files\nshadow: files\n"
"""The container's `nsswitch.conf`: the host's may name a resolver that does not know the pods."""


class CannotStart(Exception):  # noqa: N818 - the kubelet's word for it is CreateContainerError
    """The container cannot be started; the message says what is missing."""


async def prepare(pod: OnNode, container: Container) -> tuple[Launch, Isolation]:
    """The launch of a container.  Raises `BadConfiguration` or `CannotStart`; a change of an object may mend both."""
    spec, status, images, hostname = container.spec, pod.field_values, pod.machine.images, pod.field_values["hostname"]
    image = spec["image"]
    variables = await environment(pod.object, spec, status, pod.fetch, images.programs(image))
    command = [expand(word, variables) for word in [*(spec.get("command") or ()), *(spec.get("args") or ())]]
    if not command:
        raise CannotStart("no command specified: images have none on this node, so the pod has to name one")
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
    """Mounts of the image, the Python and this code, if a container has a private folder in their place.

    With `everywhere` they are always mounted, because a user other than root may not be able to read the folders above.
    """
    ours = str(Path(__file__).parents[2])
    needed = {*folders, ours, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    return [
        {"source": folder, "target": folder, "read_only": True}
        for folder in sorted(needed)
        if everywhere or any(folder.startswith(f"{private}/") for private in PRIVATE)
    ]
