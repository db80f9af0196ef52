"""What a thief of a service's token, or a program in a worker, reaches of a job's ssh keys and of the API server.

On a real API server, each service with its own token.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devcluster.controlplane import ControlPlane
from muster import permissions
from muster.stack import APPLIED, SERVICES, Stack
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import Operator, a_job

pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

HERE = "default"
WAITS = "sleep 1000 & wait"
JOB = "locked"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    require_control_plane()
    folder: Path = tmp_path_factory.mktemp("pods")
    audit = folder / "audit.jsonl"
    async with Stack(folder, ControlPlane, audit=audit) as stack:
        operator = Operator(stack, audit)
        await operator.apply(a_job(JOB, WAITS, workers=1, restartPolicy="OnFailure"))
        await operator.phase("Running", TRAININGJOBS, JOB)
        yield operator


async def secrets(operator: Operator) -> list[str]:
    return (await operator.kubectl("get", "secrets", "-o", "jsonpath={.items[*].metadata.name}")).split()


async def pod(operator: Operator, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await operator.kubectl("get", "pod", name, "-o", "json"))["spec"]
    return found


@pytest.mark.attack("any service's token", "keys")
@pytest.mark.parametrize("service", SERVICES)
async def test_no_services_token_reads_a_key(operator: Operator, service: str):
    [name] = [name for name in await secrets(operator) if name.startswith(f"{JOB}-ssh-")]
    plane = operator.stack.cluster
    assert isinstance(plane, ControlPlane)
    all_of = f"/api/v1/namespaces/{HERE}/secrets"
    async with plane.session(service) as session:
        for path in (f"{all_of}/{name}", all_of, f"{all_of}?watch=1", "/api/v1/secrets"):
            async with session.get(path) as answer:
                assert answer.status == 403, path


@pytest.mark.attack("a program in a worker", "the launcher's key")
async def test_a_worker_mounts_no_private_key_but_its_host_key(operator: Operator):
    [volume] = [known for known in (await pod(operator, f"{JOB}-worker-0"))["volumes"] if known["name"] == "muster-ssh"]
    host_key = {"ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"}
    assert {item["key"] for item in volume["secret"]["items"]} == {"id_rsa.pub", *host_key}


@pytest.mark.attack("a program in a pod", "a token of a service account")
async def test_a_pod_of_a_template_without_wishes_has_no_token(operator: Operator):
    for name in (f"{JOB}-launcher", f"{JOB}-worker-0"):
        spec = await pod(operator, name)
        assert spec["automountServiceAccountToken"] is False
        assert not [known for known in spec["volumes"] if "projected" in known], name


@pytest.mark.attack("who kept a key of an earlier attempt", "keys")
async def test_a_second_attempt_has_another_key(operator: Operator):
    [first] = [name for name in await secrets(operator) if name.startswith(f"{JOB}-ssh-")]
    before = await operator.kubectl("get", "secret", first, "-o", r"jsonpath={.data.id_rsa\.pub}")
    await operator.kubectl("annotate", "trainingjob", JOB, "muster.dev/restart=now")

    async def renewed() -> bool:
        return [name for name in await secrets(operator) if name.startswith(f"{JOB}-ssh-")] == [f"{first[:-1]}1"]

    await operator.until(renewed, lambda: "the second attempt has no Secret of its own")
    after = await operator.kubectl("get", "secret", f"{first[:-1]}1", "-o", r"jsonpath={.data.id_rsa\.pub}")
    assert before != after
    await operator.phase("Running", TRAININGJOBS, JOB)
    await operator.delete(JOB)


SAID = "nodes are not watched"
WATCHER = f"system:serviceaccount:{permissions.HOME}:watcher"


async def test_a_watcher_that_may_not_see_nodes_says_so_once_and_works(operator: Operator):
    """An administrator may withhold that right: everything else works as before."""
    stack, watcher = operator.stack, operator.stack.services["watcher"]
    kept = permissions.rules("watcher", permissions.HOME)
    await stack.kube.patch(APPLIED["ClusterRole"], "", permissions.role("watcher"), {"rules": kept})

    async def withheld() -> bool:
        # It ends with an error for a no, which `fails` asks for.
        await operator.kubectl("auth", "can-i", "list", "nodes", "--as", WATCHER, fails=True)
        return True

    await operator.until(withheld, lambda: "the watcher may still list nodes")
    watcher.kill()
    watcher.start()

    async def told() -> bool:
        return SAID in watcher.log.read_text()

    await operator.until(told, lambda: "the watcher never said it")
    await operator.apply(a_job("blind", "sleep 0.5", workers=1))
    await operator.phase("Succeeded", TRAININGJOBS, "blind")
    assert watcher.log.read_text().count(SAID) == 1
