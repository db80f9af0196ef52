"""Kubeconfig files with their certificates and tokens inlined, so that they can be copied, and other private files."""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CONTEXT = "devcluster"


def write_kubeconfig(path: Path, *, server: str, authority: bytes, user: str, token: str) -> None:
    trusted = base64.b64encode(authority).decode()
    write_access(path, {"server": server, "certificate-authority-data": trusted}, user=user, token=token)


def write_access(path: Path, cluster: Mapping[str, Any], *, user: str, token: str) -> None:
    """Write a kubeconfig with the entry `cluster`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": dict(cluster)}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": "default"}}],
        "current-context": CONTEXT,
    }
    # Whole or not at all: a running program may read it now.
    write_private(path, yaml.safe_dump(config, sort_keys=False))


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, whole or not at all, and also if it existed before."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            os.fchmod(opened, 0o600)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(opened)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
