"""Persistent volumes: what stands behind a claim.  Only folders of this machine, which outlive the pod."""

import os
from pathlib import Path

from devcluster.node.environment import BadConfiguration, Fetch

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


async def claimed(name: str, fetch: Fetch, group: int | None) -> Path:
    """The folder behind a claim; raises `BadConfiguration` until there is one."""
    claim = await fetch(CLAIMS, name)
    if claim is None:
        raise BadConfiguration(f'persistentvolumeclaim "{name}" not found')
    volume_name = claim["spec"].get("volumeName")
    if not volume_name or (claim.get("status") or {}).get("phase") != "Bound":
        raise BadConfiguration(f'persistentvolumeclaim "{name}" is not bound')
    volume = await fetch(VOLUMES, volume_name)
    if volume is None:
        raise BadConfiguration(f'persistentvolume "{volume_name}" not found')
    source = volume["spec"].get("local") or volume["spec"].get("hostPath")
    if not source:
        raise BadConfiguration(f'persistentvolume "{volume_name}": only local and hostPath are offered by this node')
    return _opened(volume_name, Path(source["path"]), group if "local" in volume["spec"] else None)


def _opened(volume: str, folder: Path, group: int | None) -> Path:
    """As the pod's group may use it."""
    if not folder.is_dir():
        raise BadConfiguration(f'persistentvolume "{volume}": {folder} is not a directory')
    if group is not None:
        os.chown(folder, -1, group)
        # New files are the group's, too.
        folder.chmod(folder.stat().st_mode | 0o2770)
    return folder
