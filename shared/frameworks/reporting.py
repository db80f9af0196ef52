"""How a pod reports its progress: what Kubeflow Trainer puts into its pods, from version 2.2 on.  Pure.

Libraries such as `transformers` read the three variables; the token is the pod's own, and for this port alone.  The
authority comes in an annotation and not in a ConfigMap: it is no secret, and one object less for each job.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.frameworks.schemas import Document
from shared.job.naming import JobKey, Uid

AUDIENCE = "progress.muster.dev"

FOLDER = "/var/run/secrets/muster/progress"
VOLUME = "muster-progress"
AUTHORITY = "muster.dev/progress-authority"
URL = "muster.dev/progress-url"
"""Annotations of a pod.  A process that ssh starts has none of its container's variables, and finds the files."""

TOKEN_SECONDS = 3600

_PATH = re.compile("/v1/namespaces/([^/]{1,63})/jobs/([^/]{1,253})/([^/]{1,64})/progress")


class Port(NamedTuple):
    """Where programs report to."""

    url: str
    """Its beginning, such as `https://muster-progress.muster.svc:8443`."""
    authority: str
    """The certificates that it is checked by, as PEM."""


def path_of(key: JobKey) -> str:
    """The path to which the programs of a job report."""
    return f"/v1/namespaces/{key.namespace}/jobs/{key.name}/{key.uid}/progress"


def key_at(path: str) -> JobKey | None:
    """The job of a path; None for another one."""
    found = _PATH.fullmatch(path)
    return JobKey(found[1], found[2], Uid(found[3])) if found is not None else None


def with_reporting(pod: Document, key: JobKey, container: str, port: Port) -> Document:
    """The pod with what its training container needs to report; a variable of the user's stays."""
    url = port.url.rstrip("/") + path_of(key)
    meta, spec = pod["metadata"], pod["spec"]
    annotations = (meta.get("annotations") or {}) | {AUTHORITY: port.authority, URL: url}
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    files = [
        {"path": name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        for name, annotation in (("ca.crt", AUTHORITY), ("url", URL))
    ]
    sources = [{"serviceAccountToken": token}, {"downwardAPI": {"items": files}}]
    variables = {"URL": url, "CA_CERT": f"{FOLDER}/ca.crt", "TOKEN": f"{FOLDER}/token"}
    containers = [_reporting(each, variables) if each.get("name") == container else each for each in spec["containers"]]
    volumes = [*(spec.get("volumes") or []), {"name": VOLUME, "projected": {"sources": sources}}]
    return {
        **pod,
        "metadata": meta | {"annotations": annotations},
        "spec": spec | {"containers": containers, "volumes": volumes},
    }


def _reporting(container: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    theirs = container.get("env") or []
    taken = {each.get("name") for each in theirs}
    ours = [{"name": f"KUBEFLOW_TRAINER_SERVER_{name}", "value": value} for name, value in variables.items()]
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    return container | {
        "env": [*theirs, *(each for each in ours if each["name"] not in taken)],
        "volumeMounts": [*(container.get("volumeMounts") or []), mount],
    }
