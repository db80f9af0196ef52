"""What the chart renders, before a real API server: strictly valid, and admitted under the `restricted` profile.

Nothing is made but namespaces of our own and the service accounts in them, without which no pod is admitted.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from devcluster import binaries
from devcluster.controlplane import ControlPlane
from tests.crds.kubectl import kubectl, tried
from tests.deploy.charts import SETS, rendered
from tests.deploy.rendering import ROOT, Document, documents
from tests.kit.commands import run

pytestmark = pytest.mark.real

HOME = "muster"
PAGE = (ROOT / "deploy/kustomize/README.md").read_text()
DRY = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")


@pytest.mark.parametrize("name", SETS)
async def test_a_real_server_takes_what_the_chart_renders_and_admits_its_pods(
    control_plane: ControlPlane, name: str
) -> None:
    # But for what the Prometheus operator reads, whose definitions are not here.
    every = documents(rendered(name))
    manifests = [one for one in every if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    paths = await restricted(control_plane, manifests)
    there = moved(manifests, paths)
    said = await tried(control_plane, *DRY, given=text(there))
    assert not said.code, said.complaint
    assert said.out.count("\n") == len(manifests)
    assert "PodSecurity" not in said.complaint, "a warning of the profile at a Deployment, Job or StatefulSet"

    pods = [pod_of(owner) for owner in there if "template" in owner.get("spec", {})]
    assert pods
    accounts = [found for found in there if found["kind"] == "ServiceAccount"]
    named = {pod["spec"].get("serviceAccountName", "default") for pod in pods}
    assert named <= {"default", *(found["metadata"]["name"] for found in accounts)}
    await kubectl(control_plane, "apply", "-f", "-", given=text(accounts))
    # NATS has no account of its own; that of the namespace is made by a controller.
    home = ("--namespace", paths[HOME], "--timeout=30s")
    await kubectl(control_plane, "wait", "--for=create", "serviceaccount/default", *home)
    said = await tried(control_plane, *DRY, given=text(pods))
    assert not said.code, said.complaint


async def test_the_profile_refuses_such_a_pod_as_root(control_plane: ControlPlane) -> None:
    manifests = documents(rendered("default"))
    paths = await restricted(control_plane, manifests)
    there = moved(manifests, paths)
    await kubectl(
        control_plane, "apply", "-f", "-", given=text([one for one in there if one["kind"] == "ServiceAccount"])
    )
    pod = next(pod_of(owner) for owner in there if owner["kind"] == "Deployment")
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    said = await tried(control_plane, *DRY, given=text([pod]))
    assert said.code
    assert 'violates PodSecurity "restricted:latest": runAsNonRoot != true' in said.complaint


async def test_a_real_server_takes_the_component_of_the_history_service(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    write_overlay(tmp_path / "mine", "0.1.0", component="history")
    built = await run(str(binaries.kubectl()), "kustomize", str(tmp_path / "mine"))
    assert not built.code, built.complaint
    manifests = [one for one in documents(built.out) if one["kind"] != "Certificate"]
    assert "muster-history" in {one["metadata"]["name"] for one in manifests if one["kind"] == "Deployment"}
    paths = await restricted(control_plane, manifests)
    said = await tried(control_plane, *DRY, given=text(moved(manifests, paths)))
    assert not said.code, said.complaint


@pytest.mark.parametrize("folder", ["base", "overlays/two-replicas"])
async def test_a_real_server_takes_what_kustomize_builds(control_plane: ControlPlane, folder: str) -> None:
    built = await run(str(binaries.kubectl()), "kustomize", str(ROOT / "deploy/kustomize" / folder))
    assert not built.code, built.complaint
    manifests = documents(built.out)
    assert {one["kind"] for one in manifests} >= {"Namespace", "Deployment", "Job", "ClusterRole"}
    paths = await restricted(control_plane, manifests)
    said = await tried(control_plane, *DRY, given=text(moved(manifests, paths)))
    assert not said.code, said.complaint


async def test_an_overlay_with_another_image_is_applied_again_as_its_page_says(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    first = await of_overlay(tmp_path / "first", "0.1.0")
    pods = [pod_of(owner) for owner in first if "template" in owner.get("spec", {})]
    images = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    assert images == {"registry.example/muster:0.1.0", "nats:2.15.1-alpine"}
    paths = await restricted(control_plane, first)
    await kubectl(control_plane, "apply", "-f", "-", given=text(of_setup(first, paths)))
    upgrade = ("apply", "-f", "-")
    after = text(of_setup(await of_overlay(tmp_path / "second", "0.2.0"), paths))
    said = await tried(control_plane, *upgrade, given=after)
    assert "field is immutable" in said.complaint, "then the page need not delete the Job"
    (delete,) = re.findall(r"^kubectl --namespace muster (delete job .*)$", PAGE, re.MULTILINE)
    await kubectl(control_plane, "--namespace", paths[HOME], *delete.split())
    await kubectl(control_plane, *upgrade, given=after)


async def of_overlay(folder: Path, tag: str) -> list[Document]:
    """What the page's own overlay builds, with this tag of the image."""
    write_overlay(folder, tag)
    built = await run(str(binaries.kubectl()), "kustomize", str(folder))
    assert not built.code, built.complaint
    return documents(built.out)


def write_overlay(folder: Path, tag: str, component: str = "") -> None:
    (overlay,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    folder.mkdir()
    base = os.path.relpath((ROOT / "deploy/kustomize/base").resolve(), folder.resolve())
    written = overlay.replace("../../base", base).replace("newTag: 0.1.0", f"newTag: {tag}")
    if component:
        written += f"components:\n  - {base}/../components/{component}\n"
    (folder / "kustomization.yaml").write_text(written)


def of_setup(manifests: list[Document], paths: dict[str, str]) -> list[Document]:
    """The Job and its account alone, which need nothing else to be taken."""
    named = [one for one in manifests if one["metadata"]["name"].startswith("muster-setup")]
    return moved([one for one in named if one["kind"] in ("Job", "ServiceAccount")], paths)


async def restricted(plane: ControlPlane, manifests: list[Document]) -> dict[str, str]:
    """A new namespace under the profile for each that is named; the old name → the new one."""
    named = {one["metadata"]["namespace"] for one in manifests if "namespace" in one["metadata"]} | {HOME}
    paths = {name: f"{name}-{uuid4().hex[:8]}" for name in named}

    async def make(name: str) -> None:
        await kubectl(plane, "create", "namespace", name)
        await kubectl(plane, "label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")

    await asyncio.gather(*(make(name) for name in paths.values()))
    return paths


def moved(manifests: list[Document], paths: dict[str, str]) -> list[Document]:
    """They in namespaces of our own."""
    found: list[Document] = []
    for one in manifests:
        metadata: dict[str, Any] = dict(one["metadata"])
        if one["kind"] == "Namespace":
            metadata["name"] = paths[metadata["name"]]
        elif "namespace" in metadata:
            metadata["namespace"] = paths[metadata["namespace"]]
        found.append({**one, "metadata": metadata})
    return found


def pod_of(owner: Document) -> Document:
    """The pod that its controller would make: a StatefulSet's has a volume for each claim."""
    template, metadata = owner["spec"]["template"], owner["metadata"]
    claims = [claim["metadata"]["name"] for claim in owner["spec"].get("volumeClaimTemplates", ())]
    volumes = [*template["spec"].get("volumes", ()), *({"name": name, "emptyDir": {}} for name in claims)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {**template["spec"], "volumes": volumes},
    }


def text(manifests: list[Document]) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False)
