"""A node dies while a job trains on it: told at once, the job goes on, its stuck pods are deleted by force if asked."""

import functools
import json
from datetime import datetime
from typing import Any

import msgspec
import pytest

from services.watcher.core.disruption import lost_by_pod
from shared.cluster.objects import Pod
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import FORCE_DELETE_AFTER
from tests.kit.hosts import HOSTS, MakeHost, real
from tests.kit.operator import FOR_EVER, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

STAYS, DIES = "node-0", "node-1"
UNREACHABLE = "node.kubernetes.io/unreachable"
TOLD_SECONDS = 5.0
"""From the API server's own knowledge to the log."""


CLUSTERS = HOSTS[:2]


@pytest.fixture(scope="module")
def host(request: pytest.FixtureRequest) -> MakeHost:
    """With two nodes; the real control plane counts a node as lost after 20 s in place of 50."""
    make: MakeHost = request.param()
    if request.param is real:
        quick = {"kube-controller-manager": ["--node-monitor-grace-period=20s", "--node-monitor-period=1s"]}
        return functools.partial(make, nodes=2, more=quick)
    return functools.partial(make, nodes=2)


def a_job_on_two_nodes(name: str) -> dict[str, Any]:
    """Its launcher where nothing happens; Kubernetes gives its workers up after 5 s, and Muster deletes them then."""
    manifest = a_job(name, FOR_EVER, workers=3)
    manifest["metadata"]["annotations"] = {FORCE_DELETE_AFTER: "1"}
    roles = manifest["spec"]["etReplicaSpecs"]
    roles["launcher"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": STAYS}
    roles["worker"]["template"]["spec"] |= {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
            for key in ("node.kubernetes.io/not-ready", UNREACHABLE)
        ],
    }
    return manifest


async def nodes_of_workers(operator: Operator, job: str) -> dict[str, str]:
    listed = json.loads(
        await operator.kubectl("get", "pods", "-l", f"training-job-name={job},training-job-role=worker", "-o", "json")
    )
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in listed["items"]}


async def count_as_lost(operator: Operator, *, controlled: bool) -> datetime:
    """The API server knows that the node is lost; without a node lifecycle controller the test plays it."""
    if not controlled:
        lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": _now(), "reason": "NodeStatusUnknown"}
        patch = json.dumps({"status": {"conditions": [lost]}})
        await operator.kubectl("patch", "node", DIES, "--subresource=status", "--type=strategic", "-p", patch)
    found: dict[str, Any] = {}

    async def unknown() -> bool:
        node = json.loads(await operator.kubectl("get", "node", DIES, "-o", "json"))
        found.update(next(known for known in node["status"]["conditions"] if known["type"] == "Ready"))
        return bool(found["status"] == "Unknown")

    await operator.until(unknown, lambda: f"the node is {found}")
    return datetime.fromisoformat(found["lastTransitionTime"])


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


async def test_a_node_dies(operator: Operator, host: MakeHost):
    controlled = "more" in getattr(host, "keywords", {})
    await operator.apply(a_job_on_two_nodes("silent"))
    await operator.phase("Running", TRAININGJOBS, "silent")
    before = await nodes_of_workers(operator, "silent")
    staying, lost = ([name for name, node in sorted(before.items()) if node == at] for at in (STAYS, DIES))
    assert staying
    assert lost, "the workers are spread over both nodes"
    operator.stack.cluster.nodes[1].kill()
    known = await count_as_lost(operator, controlled=controlled)

    def told(status: dict[str, Any]) -> bool:
        messages = [known["message"] for known in status["conditions"] if known["type"] == "Running"]
        return any(f"NodeUnreachable: node {DIES}" in message and lost[0] in message for message in messages)

    await operator.shows(TRAININGJOBS, "silent", told, "told that a node is lost")
    if controlled:
        # A watcher that may not see nodes reads it in the pod.
        async def pod_shows_it() -> bool:
            pod = await operator.kubectl("get", "pod", lost[0], "-o", "json")
            return lost_by_pod(msgspec.json.decode(pod, type=Pod)) == "NodeUnreachable"

        await operator.until(pod_shows_it, lambda: f"{lost[0]} does not show that its node is lost")
    history = [stored for stored in await operator.log() if stored.subject.endswith("NodeLost")]
    seconds = (datetime.fromisoformat(history[0].time) - known).total_seconds()
    # The API server counts whole seconds.
    assert seconds < TOLD_SECONDS + 1, f"it took {seconds} s"
    print(f"told {seconds} s after the API server knew")

    async def others_go_on() -> bool:
        said = await operator.kubectl("exec", "silent-launcher", "--", "/etc/edl/discover_hosts.sh")
        return not {line.partition(":")[0] for line in said.split()} & {*lost}

    await operator.until(others_go_on, lambda: "the hosts files list workers of the lost node")
    assert f"node {DIES} is unreachable" in await operator.muster("why", "trainingjob/silent")
    if not controlled:
        await operator.kubectl("delete", "pods", *lost, "--wait=false")

    async def stuck_pods_are_gone() -> bool:
        return not {*lost} & {*await nodes_of_workers(operator, "silent")}

    await operator.until(stuck_pods_are_gone, lambda: "no pod is deleted by force")

    def complete(status: dict[str, Any]) -> bool:
        return bool(status["workers"] == "3/3" and status["phase"] == "Running" and status["restartCount"] == 0)

    await operator.shows(TRAININGJOBS, "silent", complete, "complete again, without a restart")
    assert set((await nodes_of_workers(operator, "silent")).values()) == {STAYS}
    reasons = await operator.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "NodeUnreachable" in reasons.split()
    await operator.delete("silent")
    await operator.leaves_no_pod("silent")
    await operator.stack.cluster.nodes[1].restart()
