"""The user and the rights of a container: the part of its security context that this node applies.

It applies users, groups, dropped capabilities, `allowPrivilegeEscalation` and a read-only root; it ignores seccomp
profiles and SELinux labels.  Only an agent that runs as root can run containers as other users.
"""

import os
from dataclasses import dataclass
from typing import Any

from devcluster.node.environment import BadConfiguration
from devcluster.node.kubernetes import Json


@dataclass(frozen=True, kw_only=True)
class Identity:
    user: int = 0
    group: int = 0
    groups: tuple[int, ...] = ()
    privileged: bool = False
    new_privileges: bool = True
    """True if a program may gain rights that its caller lacks, as with sudo."""
    capabilities: bool = True
    """True for the default capabilities of containers; False for none."""
    read_only_root: bool = False


ROOT: Identity = Identity()


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
