"""Whom a container runs as, and what it may: its security context as far as this node keeps it.

Kept are users, groups, capabilities that are dropped, no new privileges, and a root that is read-only; seccomp profiles
and SELinux labels are passed over.  Another user than root takes an agent that is root itself.
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
    """Whether a program may have more than who started it, as with sudo."""
    capabilities: bool = True
    """Those of every container, and not none."""
    read_only_root: bool = False


ROOT: Identity = Identity()


def identity(pod: Json, container: Json) -> Identity:
    """Raises `BadConfiguration` in the kubelet's words."""
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
        # The user namespace of an agent that is not root has one user, root.
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
    """The group of the pod's volumes, `fsGroup`; None without one, and where this agent is not root."""
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    return None if group is None or os.getuid() != 0 else int(group)
