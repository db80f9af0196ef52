"""The image as a real kubelet runs it: under the profile `restricted`, without a way to write but to /tmp."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from muster.permissions import HOME
from muster.stack import Stack
from tests.kit.hosts import MakeHost
from tests.kit.image import IMAGE, have
from tests.kit.operator import Operator

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

RESTRICTED = {
    "runAsNonRoot": True,
    # The kubelet takes the user from the image, but not the group.
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The profile `restricted`, and a read-only root, as the chart has it."""

LOOK = """
import os, pathlib, shutil, sys
print(os.getuid(), os.getgid())
pathlib.Path("/tmp/mine").write_text("")
for folder in ("/", "/opt/muster"):
    try:
        pathlib.Path(folder, "mine").write_text("")
    except OSError as refused:
        print(refused.strerror)
print(shutil.which("pip"), [name for name in ("pip", "devcluster", "tests", "numpy") if name in sys.modules])
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(host: MakeHost, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Without the services, which have no part in this."""
    folder = tmp_path_factory.mktemp("node")
    async with Stack(folder, host) as stack:
        await stack.stop_services()
        yield Operator(stack, folder / "audit.jsonl")


@pytest.fixture(scope="module")
def imported(built: tuple[Path, Path], operator: Operator) -> None:
    have(built[0])


def _pod(name: str, *, environment: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    given = [{"name": key, "value": value} for key, value in (environment or {}).items()]
    main = {"name": "main", "image": IMAGE, "env": given, "securityContext": RESTRICTED, **container}
    main.setdefault("volumeMounts", []).append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108  the pod's own
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": HOME},
        "spec": {
            "containers": [main],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


async def _ended(operator: Operator, pod: dict[str, Any], phase: str = "Succeeded") -> str:
    """Run it to its end; what it said."""
    name = pod["metadata"]["name"]
    await operator.apply(pod)
    await operator.kubectl("wait", "-n", HOME, f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}")
    return await operator.kubectl("logs", "-n", HOME, name)


async def test_it_is_no_root_and_writes_nothing_but_to_tmp(operator: Operator, imported: None):
    said = await _ended(operator, _pod("look", command=["python3", "-c", LOOK]))
    assert said.splitlines() == ["65532 65532", "Read-only file system", "Read-only file system", "None []"]


async def test_what_follows_its_name_is_a_command_of_muster(operator: Operator, imported: None):
    assert "Elastic training jobs" in await _ended(operator, _pod("help"))
    assert "CustomResourceDefinition" in await _ended(operator, _pod("crds", args=["crds"]))
    assert (await _ended(operator, _pod("demo", args=["demo"]), "Failed")).count("\n") == 1


async def test_a_service_without_its_log_says_so_and_waits(operator: Operator, imported: None):
    # In a pod's own network no other process has this address.
    probe = {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1}
    nowhere = {"NATS_URL": "nats://127.0.0.1:4222"}
    await operator.apply(_pod("lonely", environment=nowhere, command=["muster-watcher"], readinessProbe=probe))

    async def said() -> bool:
        return "nats://127.0.0.1:4222" in await operator.kubectl("logs", "-n", HOME, "lonely")

    await operator.until(said, lambda: "it does not say which log it waits for")
    ready = "jsonpath={.status.phase} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}"
    assert await operator.kubectl("get", "-n", HOME, "pod/lonely", "-o", ready) == "Running false 0"
    await operator.kubectl("delete", "-n", HOME, "pod/lonely", "--wait=false")
