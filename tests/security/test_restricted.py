"""Pod Security `restricted`: a template that passes it is admitted with all that Muster adds, for each example.

The API server judges: pods are made as the scheduler makes them, in dry run, in a namespace that enforces the profile.
"""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from devcluster.cluster import ADMIN
from devcluster.controlplane import ControlPlane
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.pods import with_last_words, with_token_if_asked
from shared.job.naming import Slot
from shared.job.spec import JobSpec
from tests.examples.table import TABLE, Example
from tests.frameworks.documents import custom
from tests.kit.pods import pod_for

pytestmark = pytest.mark.real

OF_POD = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
OF_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}
AS_ROOT = {
    "deepspeed/training_job.yaml",
    "horovod/elastic.yaml",
    "horovod/training_job.yaml",
    "mpi/elastic.yaml",
    "mpi/launcher_works.yaml",
    "mpi/mpi_job_v1.yaml",
    "mpi/mpi_job_v2beta1.yaml",
    "mpi/training_job.yaml",
}
"""The examples whose image has an sshd that lets a launcher in only as root; `mpi/intel.yaml` shows the other way."""


def framework_of(example: Example) -> Framework | None:
    manifest = example.manifest
    return BUILT_IN.find(manifest["apiVersion"], manifest["kind"])


JOBS = [example for example in TABLE if framework_of(example) is not None]


def hardened(part: Any) -> Any:
    """The document with a restricted security context in each pod template."""
    if isinstance(part, list):
        return [hardened(known) for known in part]
    if not isinstance(part, dict):
        return part
    if "containers" not in part:
        return {name: hardened(value) for name, value in part.items()}
    kinds = ("initContainers", "containers")
    containers = {kind: [known | {"securityContext": OF_CONTAINER} for known in part.get(kind, ())] for kind in kinds}
    return part | {"securityContext": OF_POD} | {kind: known for kind, known in containers.items() if known}


def pods_of(manifest: dict[str, Any], namespace: str) -> Iterator[dict[str, Any]]:
    """The first pod of each role, as the scheduler creates it."""
    framework = BUILT_IN.find(manifest["apiVersion"], manifest["kind"])
    assert framework is not None
    job = custom(manifest | {"metadata": {**manifest["metadata"], "namespace": namespace, "uid": str(uuid4())}})
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    for role in spec.roles:
        yield with_last_words(with_token_if_asked(pod_for(job, Slot(0, role.name, 0), framework)))


async def refusals(plane: ControlPlane, manifest: dict[str, Any]) -> list[str]:
    """What the profile says against the pods of a job."""
    namespace, found = f"restricted-{uuid4().hex[:8]}", []
    async with plane.session(ADMIN) as session:
        made = {"metadata": {"name": namespace, "labels": ENFORCED}}
        async with session.post("/api/v1/namespaces", json=made) as answer:
            assert answer.status == 201, await answer.text()
        account = {"metadata": {"name": "default"}}
        async with session.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", json=account) as answer:
            assert answer.status in (201, 409), await answer.text()
        for pod in pods_of(manifest, namespace):
            async with session.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", json=pod) as answer:
                said = await answer.text()
                assert answer.status in (201, 403), said
                if answer.status == 403:
                    assert "violates PodSecurity" in said
                    found.append(said)
    return found


@pytest.mark.parametrize("example", JOBS, ids=lambda example: example.file)
async def test_what_muster_adds_to_a_restricted_template_is_restricted(control_plane: ControlPlane, example: Example):
    assert await refusals(control_plane, hardened(example.manifest)) == []


@pytest.mark.parametrize("example", JOBS, ids=lambda example: example.file)
async def test_an_example_passes_as_it_stands_unless_it_needs_root(control_plane: ControlPlane, example: Example):
    assert bool(await refusals(control_plane, example.manifest)) == (example.file in AS_ROOT)
