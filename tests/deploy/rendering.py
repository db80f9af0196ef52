"""The Helm chart as helm renders it; `make chart` writes the folders of `deploy/kustomize/` from it.

People without Helm use the base and the component `history`.  They have no Secret: its passwords and keys would be the
same everywhere.
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
HISTORY = ROOT / "deploy/kustomize/components/history"
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
    # The loader in C reads the same, ten times as fast.
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def base() -> dict[str, str]:
    """The files of the Kustomize base by name: one for each component."""
    return _written("Kustomization", "v1beta1", {"namespace": [_namespace()], **_by_component(render())})


def history() -> dict[str, str]:
    """The files of the Kustomize component `history`, with a certificate by cert-manager."""
    found = _by_component(render("--set", "history.enabled=true,history.tls.issuerRef.name=muster-history"))
    return _written("Component", "v1alpha1", {"history": found["history"]})


def _by_component(text: str) -> dict[str, list[Document]]:
    files: dict[str, list[Document]] = {}
    for document in documents(text):
        if document["kind"] == "Secret":
            continue
        component = document["metadata"]["labels"][_COMPONENT]
        for metadata in _metadata(document):
            metadata.get("labels", {}).pop(_BY_HELM, None)
        files.setdefault(component, []).append(document)
    return files


def _written(kind: str, version: str, files: dict[str, list[Document]]) -> dict[str, str]:
    kustomization: Document = {
        "apiVersion": f"kustomize.config.k8s.io/{version}",
        "kind": kind,
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
        folders = {BASE: base(), HISTORY: history()}
    except (MissingProgram, NotRendered) as problem:
        print(problem, file=sys.stderr)
        return 1
    for folder, files in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.yaml"):
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
