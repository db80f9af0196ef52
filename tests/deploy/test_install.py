"""The chart installed on the real control plane: its Deployments, its NATS and its Job run from the working tree.

Every service has its own account's rights and token, its own password at the log, and the `restricted` profile.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.kit.next_release import FIELD, next_release
from tests.kit.operator import a_job
from tests.kit.platform import Platform, a_platform

pytestmark = pytest.mark.real

INSTALL = "helm install muster deploy/helm/muster --namespace muster --create-namespace"
WAIT = "--wait --timeout 2m"
PATIENCE = 130.0
"""Seconds for a command that waits up to two minutes itself."""
PRODUCTION = "--set replicas=2 --set nats.replicas=3"
FEW_RESOURCES = "--set resources.requests.cpu=10m --set nats.resources.requests.cpu=10m"
"""So that two pods of everything and their successors have room on one small machine."""
UNTIL_TOLD = "until [ -e /tmp/end ]; do sleep 0.1; done"
DEFINITION = "customresourcedefinition/trainingjobs.kai.alibabacloud.com"
SERVICES = {f"muster-{service}" for service in ("watcher", "scheduler", "scaler", "status")}


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    async with a_platform(tmp_path, disks=3) as platform:
        yield platform


@pytest.fixture
def the_next(tmp_path: Path) -> Iterator[Path]:
    """Values that make the chart's pods run the next release, of which more is in tests/e2e/test_upgrade.py."""
    # Not below /tmp, of which every container of our node has its own; and others than root have to read it.
    with TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        environment = next_release(Path(folder) / "next")
        file = tmp_path / "next.yaml"
        file.write_text(yaml.safe_dump({"extraEnv": [{"name": key, "value": environment[key]} for key in environment]}))
        yield file


def a_long_job(name: str) -> dict[str, Any]:
    """It trains until it is told to end, whatever happens meanwhile."""
    job = a_job(name, UNTIL_TOLD)
    for replicas in job["spec"]["etReplicaSpecs"].values():
        (container,) = replicas["template"]["spec"]["containers"]
        container["image"] = "code:1"
    return job


async def lives(platform: Platform) -> list[tuple[str, str, int]]:
    """Of a job's pods: name, uid and how often a container was started again."""
    pods = (await platform.get("pods --namespace default"))["items"]
    return sorted(
        (pod["metadata"]["name"], pod["metadata"]["uid"], container["restartCount"])
        for pod in pods
        for container in pod["status"]["containerStatuses"]
    )


def ready(pods: dict[str, Any]) -> bool:
    return bool(pods["items"]) and all(
        condition["status"] == "True"
        for pod in pods["items"]
        for condition in pod["status"]["conditions"]
        if condition["type"] == "Ready"
    )


def has_field(definition: dict[str, Any]) -> bool:
    return f'"{FIELD}":' in json.dumps(definition["spec"])


async def history(platform: Platform, job: str) -> list[str]:
    """As the log has it."""
    command = f"muster history trainingjob/{job} -n default --json"
    return (await platform.do(f"kubectl -n muster exec deploy/muster-status -- {command}")).splitlines()


def warnings(events: dict[str, Any]) -> str:
    return "\n".join(event["message"] for event in events["items"])


async def test_jobs_know_nothing_of_upgrades_rollbacks_and_the_end_of_two_replicas_and_three_nodes(
    platform: Platform, the_next: Path
):
    await platform.do(f"{INSTALL} {PRODUCTION} {FEW_RESOURCES} {WAIT}", patience=PATIENCE)
    deployments = (await platform.get("deployments --namespace muster"))["items"]
    assert {one["metadata"]["name"]: one["status"]["readyReplicas"] for one in deployments} == dict.fromkeys(
        SERVICES, 2
    )
    budgets = (await platform.get("poddisruptionbudgets --namespace muster"))["items"]
    assert {one["metadata"]["name"] for one in budgets if one["status"]["disruptionsAllowed"] == 1} >= SERVICES

    await platform.do("kubectl apply -f -", given=yaml.safe_dump_all([a_long_job("first"), a_long_job("second")]))
    for job in ("first", "second"):
        await platform.do(f"kubectl wait --for=condition=Running trainingjob/{job} --timeout=60s")
    before = await lives(platform)
    assert len(before) == 6
    known = await history(platform, "first")
    assert known
    assert not has_field(await platform.get(DEFINITION))

    await platform.do(
        f"helm upgrade muster deploy/helm/muster -n muster --reuse-values --values {the_next} {WAIT}", patience=PATIENCE
    )
    definition = await platform.until(DEFINITION, has_field)
    assert await lives(platform) == before
    await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_long_job("third")))
    await platform.do("kubectl wait --for=condition=Running trainingjob/third --timeout=60s")
    before = await lives(platform)
    await platform.do(f"helm rollback muster 1 --namespace muster {WAIT}", patience=PATIENCE)
    assert await lives(platform) == before
    assert (await platform.get(DEFINITION))["spec"] == definition["spec"]
    assert (await history(platform, "first"))[: len(known)] == known

    # The services of now know the jobs of then.
    for job in ("first", "third"):
        await platform.do(f"kubectl exec {job}-launcher -- touch /tmp/end")
        await platform.do(f"kubectl wait --for=condition=Succeeded trainingjob/{job} --timeout=60s")

    await platform.do(f"helm uninstall muster --namespace muster {WAIT}", patience=PATIENCE)
    second = [pod for pod in await lives(platform) if pod[0].startswith("second-")]
    assert second == [pod for pod in before if pod[0].startswith("second-")]
    claims = (await platform.get("persistentvolumeclaims --namespace muster"))["items"]
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"] * 3


async def test_what_is_missing_is_said_and_made_up_for(platform: Platform):
    await platform.do(f"{INSTALL} --set setup.enabled=false --set nats.auth.existingSecret=passwords {FEW_RESOURCES}")
    failed = "events --namespace muster --field-selector=reason=Failed"
    await platform.until(failed, lambda events: 'secret "passwords" not found' in warnings(events))

    users = ("admin", "reader", "watcher", "scheduler", "scaler", "status")
    words = " ".join(f"--from-literal={user}=of-{user}" for user in users)
    await platform.do(f"kubectl -n muster create secret generic passwords {words}")
    for service in SERVICES:
        told = await platform.says(f"-n muster deploy/{service}", "stream not found")
        assert json.loads(told)["level"] == "warning"
    assert not ready(await platform.get("pods --namespace muster --selector=app.kubernetes.io/component=watcher"))

    await platform.do(
        f"helm upgrade muster deploy/helm/muster -n muster --reuse-values --set setup.enabled=true {WAIT}",
        patience=PATIENCE,
    )
    await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_long_job("job")))
    await platform.do("kubectl wait --for=condition=Running trainingjob/job --timeout=60s")
