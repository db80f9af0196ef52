"""The hosts ConfigMap: the members in every format that launchers read.  Pure.

Who is a member is decided in `membership.py`; where the launcher finds each key is in the scheduler's `manifests.py`.
"""

from collections.abc import Sequence

from shared.frameworks.children import Document, child_metadata
from shared.frameworks.training import TRAININGJOBS
from shared.job.naming import (
    DEEPSPEED_HOSTFILE,
    DISCOVER_HOSTS,
    EDL_FOLDER,
    HOSTFILE,
    HOSTS_VERSION,
    JobKey,
    WorkerName,
    config_name,
)

# Built-ins of any shell only: an image may lack `cat`.
DISCOVER_SCRIPT = f"""\
#!/bin/sh
while read -r host; do
  echo "$host"
done < {EDL_FOLDER}/{HOSTFILE}
"""


def hosts_config_map(key: JobKey, *, members: Sequence[WorkerName], slots: int, version: int) -> Document:
    """The ConfigMap of this version; its annotation is what the watcher compares, without reading the files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(TRAININGJOBS, key, config_name(key.name))
        | {"annotations": {HOSTS_VERSION: str(version)}},
        "data": {
            HOSTFILE: "".join(f"{member}:{slots}\n" for member in members),
            DEEPSPEED_HOSTFILE: "".join(f"{member} slots={slots}\n" for member in members),
            DISCOVER_HOSTS: DISCOVER_SCRIPT,
        },
    }
