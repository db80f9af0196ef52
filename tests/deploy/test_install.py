"""The chart installed on the real control plane: its Deployments, its NATS and its Job run from the working tree.

Every service has its own account's rights and token, its own password at the log, and the `restricted` profile.
A program in a pod reports to the watcher: its token, the token's review and TLS are real.
"""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from shared.eventlog.account import USERS
from shared.job.naming import STALL_TIMEOUT
from tests.kit.next_release import FIELD, next_release
from tests.kit.operator import a_job
from tests.kit.platform import ROOT, Platform, a_platform
from tests.kit.walking import steps
from tests.security.authority import Authority

pytestmark = pytest.mark.real

INSTALL = "helm install muster deploy/helm/muster --namespace muster --create-namespace"
WAIT = "--wait --timeout 2m"
PATIENCE = 130.0
"""Seconds for a command that waits up to two minutes itself."""
PRODUCTION = "--set replicas=2 --set nats.replicas=3 --set progress.enabled=true"
FEW_RESOURCES = "--set resources.requests.cpu=10m --set nats.resources.requests.cpu=10m"
"""So that two pods of everything and their successors have room on one small machine."""
UNTIL_TOLD = "until [ -e /tmp/end ]; do sleep 0.1; done"
LIMIT = 10
"""Seconds without a step, after which a program is stalled."""
STEPS = """
import time
from muster.train import report
for step in range(1, 21):
    report(step, 100, checkpoint=step // 5 * 5 or None, loss=1 / step)
    time.sleep(0.1)
time.sleep(1000)
"""
DEFINITION = "customresourcedefinition/trainingjobs.kai.alibabacloud.com"
RUNBOOK = ROOT / "docs" / "runbook.md"
BY_HAND, LARGER, MOVED = "What `kubectl scale` changed", "A larger disk", "Another number of servers"
SERVICES = {f"muster-{service}" for service in ("watcher", "scheduler", "scaler", "status", "archiver")}


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    async with a_platform(tmp_path, disks=6) as platform:
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


def a_stalling_job() -> dict[str, Any]:
    """It makes twenty steps, and stops."""
    container = {"name": "pytorch", "image": "muster:0.1.0", "command": ["python", "-c", STEPS]}
    spec = {"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "steps", "namespace": "default", "annotations": {STALL_TIMEOUT: str(LIMIT)}},
        "spec": {"pytorchReplicaSpecs": spec},
    }


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

    jobs = [a_long_job("first"), a_long_job("second"), a_stalling_job()]
    await platform.do("kubectl apply -f -", given=yaml.safe_dump_all(jobs))
    for job in ("first", "second"):
        await platform.do(f"kubectl wait --for=condition=Running trainingjob/{job} --timeout=60s")
    await _a_program_reports_with_its_own_token_and_is_stalled_once_it_stops(platform)
    before = await lives(platform)
    assert len(before) == 7
    known = await history(platform, "first")
    assert known
    assert not has_field(await platform.get(DEFINITION))

    await platform.do(
        f"helm upgrade muster deploy/helm/muster -n muster --reset-then-reuse-values --values {the_next} {WAIT}",
        patience=PATIENCE,
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


async def _a_program_reports_with_its_own_token_and_is_stalled_once_it_stops(platform: Platform) -> None:
    def is_stalled(job: Any) -> bool:
        return any("Stalled" in each["message"] for each in job.get("status", {}).get("conditions", ()))

    await platform.until("pytorchjob steps", is_stalled)
    why = await platform.do("kubectl -n muster exec deploy/muster-status -- muster why pytorchjob/steps -n default")
    assert "its newest checkpoint is of step 20" in why
    assert f"no step for {LIMIT} s" in why


async def test_a_lone_server_from_what_it_lacks_at_first_to_three_servers(platform: Platform):
    await _what_is_missing_is_said_and_made_up_for(platform)
    before = await lives(platform)
    known = await history(platform, "job")

    await _numbers_changed_by_hand_are_taken_back(platform)
    await _servers_of_another_number_leave_the_log_alone(platform)
    await platform.do("kubectl -n muster delete pvc data-muster-nats-1 data-muster-nats-2")
    assert (await history(platform, "job"))[: len(known)] == known
    assert [*steps(RUNBOOK, LARGER), *steps(RUNBOOK, MOVED), *steps(RUNBOOK, BY_HAND)] == steps(RUNBOOK), (
        "a block that is walked nowhere"
    )
    await platform.walk(RUNBOOK, LARGER, patience=PATIENCE)
    async with platform.forwarded("-n muster muster-nats-0", 4222) as port:
        where = {"NATS_URL": f"tls://127.0.0.1:{port}", "NATS_CA": str(platform.folder / "pki" / "authority.crt")}
        platform.environment |= where | {"NATS_USER": "admin", "NATS_PASSWORD": "of-admin"}
        await platform.walk(RUNBOOK, MOVED, patience=PATIENCE)

    copies = "kubectl -n muster exec deploy/muster-status -- muster doctor | grep 'JOBS 3, KV_LEASES 3, KV_HEADS 3'"
    await platform.do(f'timeout 50 bash -c "until {copies}; do sleep 0.5; done"')
    assert await lives(platform) == before
    assert (await history(platform, "job"))[: len(known)] == known
    await platform.do("kubectl exec job-launcher -- touch /tmp/end")
    await platform.do("kubectl wait --for=condition=Succeeded trainingjob/job --timeout=60s")


async def _what_is_missing_is_said_and_made_up_for(platform: Platform) -> None:
    await platform.do("kubectl create namespace muster")
    served = Authority(platform.folder / "pki").issue(
        "server", host="*.muster-nats.muster.svc", life=timedelta(days=30)
    )
    files = {"ca.crt": "pki/authority.crt", "tls.crt": served.certificate, "tls.key": served.key}
    words = " ".join(f"--from-file={name}={platform.folder / str(path)}" for name, path in files.items())
    await platform.do(f"kubectl -n muster create secret generic pki {words}")
    given = "--set nats.auth.existingSecret=passwords,nats.tls.secret=pki"
    await platform.do(f"{INSTALL} --set setup.enabled=false {given} {FEW_RESOURCES}")
    failed = "events --namespace muster --field-selector=reason=Failed"
    await platform.until(failed, lambda events: 'secret "passwords" not found' in warnings(events))

    users = (*USERS, "route")
    words = " ".join(f"--from-literal={user}=of-{user}" for user in users)
    await platform.do(f"kubectl -n muster create secret generic passwords {words}")
    for service in SERVICES:
        told = await platform.says(f"-n muster deploy/{service}", "stream not found")
        assert json.loads(told)["level"] == "warning"
    assert not ready(await platform.get("pods --namespace muster --selector=app.kubernetes.io/component=watcher"))

    await platform.do(
        f"helm upgrade muster deploy/helm/muster -n muster --reset-then-reuse-values --set setup.enabled=true {WAIT}",
        patience=PATIENCE,
    )
    await platform.do("kubectl apply -f -", given=yaml.safe_dump(a_long_job("job")))
    await platform.do("kubectl wait --for=condition=Running trainingjob/job --timeout=60s")


async def _numbers_changed_by_hand_are_taken_back(platform: Platform) -> None:
    """Those of a Deployment, and of a lone server of NATS, whose log stays where it is."""
    server = (await platform.get("pod muster-nats-0 -n muster"))["metadata"]["uid"]
    await platform.do("kubectl -n muster scale deployment/muster-watcher --replicas=2")
    await platform.do("kubectl -n muster scale deployment/muster-scaler --replicas=0")
    await platform.do("kubectl -n muster scale statefulset/muster-nats --replicas=3")
    await platform.do("kubectl -n muster rollout status statefulset/muster-nats --timeout=60s", patience=70)
    assert await history(platform, "job")

    refused = await platform.shell("helm upgrade muster deploy/helm/muster -n muster --reset-then-reuse-values")
    assert refused.code
    assert 'conflict with "kubectl" with subresource "scale"' in refused.complaint
    assert ".spec.replicas" in refused.complaint
    # It went on after the first one.
    assert "muster-watcher" in refused.complaint
    assert "muster-nats" in refused.complaint
    await platform.walk(RUNBOOK, BY_HAND, patience=PATIENCE)
    deployments = (await platform.get("deployments --namespace muster"))["items"]
    assert {one["metadata"]["name"]: one["spec"]["replicas"] for one in deployments} == dict.fromkeys(SERVICES, 1)
    await platform.do("kubectl -n muster wait --for=delete pod/muster-nats-2 --timeout=60s", patience=70)
    assert (await platform.get("pod muster-nats-0 -n muster"))["metadata"]["uid"] == server


async def _servers_of_another_number_leave_the_log_alone(platform: Platform) -> None:
    """As with what applies the output of `helm template`: the new servers come up, then the old one does not."""
    nats = "--show-only templates/nats.yaml --show-only templates/nats-config.yaml"
    render = f"helm get values muster -n muster -o yaml | helm template muster deploy/helm/muster -n muster {nats} -f -"
    apply = "kubectl apply --server-side --field-manager=helm -f -"
    # Without the budget of three servers, which nothing here would take away again.
    await platform.do(f"{render} --set nats.replicas=3,podDisruptionBudget.enabled=false | {apply}")
    await platform.says("-n muster muster-nats-0 -c store", "the log in this volume is of 1")
    unavailable = "--for=condition=Available=False deployment --all"
    await platform.do(f"kubectl -n muster wait {unavailable} --timeout=60s", patience=70)
    await platform.do(f"{render} | {apply}")
    await platform.do("kubectl -n muster wait --for=delete pod/muster-nats-2 --timeout=60s", patience=70)
    await platform.do("kubectl -n muster rollout status statefulset/muster-nats --timeout=60s", patience=70)
    await platform.do("kubectl -n muster wait --for=condition=Available deployment --all --timeout=60s", patience=70)
