"""The Helm chart as helm renders it; `make chart` writes `deploy/kustomize/base/` from it.

People without Helm use that base.  It has no Secret: its passwords and keys would be the same everywhere.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from devcluster.binaries import MissingProgram, find

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/muster"
BASE = ROOT / "deploy/kustomize/base"
NAME = "muster"
"""Of the release and its namespace."""

Document = dict[str, Any]

_HEADER = "# Written by `make chart`; a change here would be overwritten.\n"
_BY_HELM = "app.kubernetes.io/managed-by"
_COMPONENT = "app.kubernetes.io/component"


class NotRendered(Exception):  # noqa: N818 - what is the matter
    """Helm refuses the values; the message is helm's."""


def render(*options: str, release: str = NAME, namespace: str = NAME) -> str:
    """All manifests, with `options` such as `--set replicas=2`.  Raises `NotRendered` and `MissingProgram`."""
    command = [str(find("helm")), "template", release, str(CHART), "--namespace", namespace, *options]
    rendered = subprocess.run(command, capture_output=True, text=True, check=False)
    if rendered.returncode:
        raise NotRendered(rendered.stderr.strip())
    return rendered.stdout


def documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def base() -> dict[str, str]:
    """The files of the Kustomize base by name: one for each component."""
    files: dict[str, list[Document]] = {"namespace": [_namespace()]}
    for document in documents(render()):
        if document["kind"] == "Secret":
            continue
        component = document["metadata"]["labels"][_COMPONENT]
        for metadata in _metadata(document):
            metadata.get("labels", {}).pop(_BY_HELM, None)
        files.setdefault(component, []).append(document)
    kustomization: Document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{name}.yaml" for name in files],
    }
    return {
        f"{name}.yaml": _HEADER + yaml.safe_dump_all(found, sort_keys=False, width=120)
        for name, found in {**files, "kustomization": [kustomization]}.items()
    }


def _namespace() -> Document:
    profile = "pod-security.kubernetes.io/enforce"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME, "labels": {profile: "restricted"}}}


def _metadata(value: object) -> Iterator[Document]:
    """Those of an object and of the templates within it."""
    if isinstance(value, dict):
        if isinstance(found := value.get("metadata"), dict):
            yield found
        for inner in value.values():
            yield from _metadata(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _metadata(inner)


def main() -> int:
    try:
        files = base()
    except (MissingProgram, NotRendered) as problem:
        print(problem, file=sys.stderr)
        return 1
    BASE.mkdir(parents=True, exist_ok=True)
    for old in BASE.glob("*.yaml"):
        old.unlink()
    for name, text in files.items():
        (BASE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
