"""Renders the hosts ConfigMap: the members in every format that launchers read.  Pure.

`membership.py` decides who is a member; the framework has the formats and the paths in the launcher.
"""

from collections.abc import Sequence

from shared.frameworks.framework import Framework, metadata
from shared.frameworks.schemas import Document
from shared.job.naming import HOSTS_VERSION, JobKey, WorkerName, config_name
from shared.job.spec import JobSpec


def hosts_config_map(
    framework: Framework, key: JobKey, spec: JobSpec, *, members: Sequence[WorkerName], version: int
) -> Document:
    """The ConfigMap of this version; the watcher reads the version from its annotation."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(framework, key, config_name(key.name)) | {"annotations": {HOSTS_VERSION: str(version)}},
        "data": framework.hosts_files(key, spec, members),
    }
