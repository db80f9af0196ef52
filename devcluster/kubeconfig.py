"""Kubeconfig files with everything inlined, so that they can be copied anywhere."""

import base64
from pathlib import Path

import yaml

CONTEXT = "devcluster"


def write_kubeconfig(path: Path, *, server: str, authority: bytes, user: str, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": "default"}}],
        "current-context": CONTEXT,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
