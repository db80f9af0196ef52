"""Nodes that go while a job trains: an autoscaler, a spot market and an administrator take them, or they die.

A loss is told at once, the job goes on, and its stuck pods are deleted by force if asked.
"""

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from services.watcher.core.disruption import lost_by_pod
from shared.cluster.kinds import NODES, PODS
from shared.cluster.objects import Node, NodeCondition
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import FORCE_DELETE_AFTER
from tests.kit.hosts import HOSTS, MakeHost, real
from tests.kit.operator import FOR_EVER, Operator, a_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

STAYS, GOES = "node-0", "node-1"
HOSTNAME = "kubernetes.io/hostname"
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


@asynccontextmanager
async def a_job_on_two_nodes(
    operator: Operator, name: str, *, annotations: dict[str, str] | None = None, **of_workers: Any
) -> AsyncIterator[dict[str, str]]:
    """It runs, its launcher where nothing happens, and workers on both nodes; gives the node of each worker."""
    manifest = a_job(name, FOR_EVER, workers=3)
    manifest["metadata"]["annotations"] = annotations or {}
    roles: dict[str, Any] = manifest["spec"]["etReplicaSpecs"]
    roles["launcher"]["template"]["spec"]["nodeSelector"] = {HOSTNAME: STAYS}
    roles["worker"]["template"]["spec"] |= of_workers
    # One that a test before this one began again may not be well yet.
    await operator.until(functools.partial(take_pods, operator), lambda: "a node takes no pods")
    await operator.apply(manifest)
    await operator.phase("Running", TRAININGJOBS, name)
    workers = await nodes_of_workers(operator, name)
    assert set(workers.values()) == {STAYS, GOES}, "the workers are spread over both nodes"
    try:
        yield workers
    finally:
        await operator.delete(name)
        # What still stood on a node would have a say where the pods of the next job go.
        await operator.leaves_no_pod(name)


async def take_pods(operator: Operator) -> bool:
    """True if every node is well."""
    nodes = [await a_node(operator, name) for name in (STAYS, GOES)]
    return all(is_ready(node).status == "True" and not node.spec.taints for node in nodes)


async def a_node(operator: Operator, name: str) -> Node:
    found = await operator.stack.kube.get(NODES, "", name)
    assert found is not None
    return found


def is_ready(node: Node) -> NodeCondition:
    """What its condition Ready says."""
    return next(known for known in node.status.conditions or () if known.type == "Ready")


async def nodes_of_workers(operator: Operator, job: str) -> dict[str, str]:
    """The node of each worker that is not to go."""
    selector = f"training-job-name={job},training-job-role=worker"
    return {
        pod.metadata.name: pod.spec.node_name or ""
        for pod in await operator.found(selector)
        if pod.metadata.deletion_timestamp is None
    }


async def listed(operator: Operator, job: str) -> list[str]:
    """The workers that the launcher is shown."""
    said = await operator.kubectl("exec", f"{job}-launcher", "--", "/etc/edl/discover_hosts.sh")
    return [line.partition(":")[0] for line in said.split()]


async def until_moved(operator: Operator, job: str, before: dict[str, str]) -> None:
    """Wait until no worker is on the node that goes, and others have taken the paths."""
    staying = [worker for worker, node in before.items() if node == STAYS]
    new = [f"{job}-worker-{3 + number}" for number in range(3 - len(staying))]
    now: dict[str, str] = {}

    async def moved() -> bool:
        nonlocal now
        now = await nodes_of_workers(operator, job)
        return now == dict.fromkeys([*staying, *new], STAYS) and await listed(operator, job) == [*staying, *new]

    await operator.until(moved, lambda: f"{job} is on {now}, and was on {before}")


async def until_as_before(operator: Operator, job: str) -> None:
    """Wait until the status shows all workers; nothing began anew meanwhile."""
    status = await operator.shows(TRAININGJOBS, job, lambda status: bool(status["workers"] == "3/3"), "complete again")
    assert (status["phase"], status["restartCount"]) == ("Running", 0)


async def test_the_workers_of_a_node_that_an_autoscaler_removes_move_before_it_goes(operator: Operator):
    async with a_job_on_two_nodes(operator, "spot") as before:
        await operator.kubectl("taint", "node", GOES, "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
        try:
            await until_moved(operator, "spot", before)
        finally:
            await operator.kubectl("taint", "node", GOES, "ToBeDeletedByClusterAutoscaler-")
        await until_as_before(operator, "spot")
        told = await operator.types("spot")
        assert told.count("DisruptionNoticed") == 1
        # Replaced first, then out of the hosts file, and at last drained and released.
        replaced = told.index("SlotsAssigned", told.index("DisruptionNoticed"))
        published = told.index("HostsPublished", replaced)
        assert published < told.index("TimePassed", published) < told.index("WorkersReleased")
        await operator.assert_replayed("spot")


async def test_the_workers_of_a_node_that_an_administrator_drains_are_replaced(operator: Operator):
    async with a_job_on_two_nodes(operator, "drained") as before:
        workers_only = ("--pod-selector", "training-job-role=worker", "--delete-emptydir-data")
        await operator.kubectl("drain", GOES, *workers_only, "--timeout=60s")
        try:
            await until_moved(operator, "drained", before)
        finally:
            await operator.kubectl("uncordon", GOES)
        # A cordon is no notice; the pods said it themselves.
        assert "DisruptionNoticed" not in await operator.types("drained")
        await until_as_before(operator, "drained")


async def test_the_history_shows_why(operator: Operator):
    told = await operator.muster("history", "trainingjob/spot")
    assert "NodeScaledDown" in told
    assert "different: 0" in await operator.muster("replay", "--verify")


async def count_as_lost(operator: Operator, *, controlled: bool) -> datetime:
    """The API server knows that the node is lost; without a node lifecycle controller the test plays it."""
    if not controlled:
        lost = {"type": "Ready", "status": "Unknown", "lastTransitionTime": _now(), "reason": "NodeStatusUnknown"}
        patch = json.dumps({"status": {"conditions": [lost]}})
        await operator.kubectl("patch", "node", GOES, "--subresource=status", "--type=strategic", "-p", patch)
    known = NodeCondition()

    async def unknown() -> bool:
        nonlocal known
        known = is_ready(await a_node(operator, GOES))
        return known.status == "Unknown"

    await operator.until(unknown, lambda: f"the node is {known}")
    return datetime.fromisoformat(known.last_transition_time or "")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


async def test_a_node_dies(operator: Operator, host: MakeHost):
    # Kubernetes gives its workers up after 5 s, and Muster deletes them then.
    tolerations = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
        for key in ("node.kubernetes.io/not-ready", UNREACHABLE)
    ]
    quick = {"terminationGracePeriodSeconds": 1, "tolerations": tolerations}
    async with a_job_on_two_nodes(operator, "silent", annotations={FORCE_DELETE_AFTER: "1"}, **quick) as before:
        await its_node_dies(operator, before, controlled="more" in getattr(host, "keywords", {}))
    await operator.stack.cluster.nodes[1].restart()


async def test_a_node_restarts(operator: Operator):
    """Its containers are lost without an end that anyone saw, which is the fault of none of them."""
    async with a_job_on_two_nodes(operator, "restarted") as before:
        operator.stack.cluster.nodes[1].kill()
        await operator.stack.cluster.nodes[1].restart()
        lost = {name for name, node in before.items() if node == GOES}

        async def others_go_on() -> bool:
            now = {*await listed(operator, "restarted")}
            return len(now) == len(before) and not lost & now

        # Their restartPolicy is Never.
        await operator.until(others_go_on, lambda: "the lost workers are not replaced")
        await until_as_before(operator, "restarted")
        told = await operator.muster("why", "trainingjob/restarted")
        assert "ContainerStatusUnknown" in told


async def its_node_dies(operator: Operator, before: dict[str, str], *, controlled: bool) -> None:
    lost = [name for name, node in sorted(before.items()) if node == GOES]
    operator.stack.cluster.nodes[1].kill()
    known = await count_as_lost(operator, controlled=controlled)

    def told(status: dict[str, Any]) -> bool:
        messages = [known["message"] for known in status["conditions"] if known["type"] == "Running"]
        return any(f"NodeUnreachable: node {GOES}" in message and lost[0] in message for message in messages)

    await operator.shows(TRAININGJOBS, "silent", told, "told that a node is lost")
    if controlled:
        # A watcher that may not see nodes reads it in the pod.
        async def pod_shows_it() -> bool:
            pod = await operator.stack.kube.get(PODS, "default", lost[0])
            return pod is not None and lost_by_pod(pod) == "NodeUnreachable"

        await operator.until(pod_shows_it, lambda: f"{lost[0]} does not show that its node is lost")
    history = [stored for stored in await operator.log() if stored.subject.endswith("NodeLost")]
    seconds = (datetime.fromisoformat(history[0].time) - known).total_seconds()
    # The API server counts whole seconds.
    assert seconds < TOLD_SECONDS + 1, f"it took {seconds} s"
    print(f"told {seconds} s after the API server knew")

    async def others_go_on() -> bool:
        return not {*lost} & {*await listed(operator, "silent")}

    await operator.until(others_go_on, lambda: "the hosts files list workers of the lost node")
    assert f"node {GOES} is unreachable" in await operator.muster("why", "trainingjob/silent")
    if not controlled:
        await operator.kubectl("delete", "pods", *lost, "--wait=false")

    async def stuck_pods_are_gone() -> bool:
        return not {*lost} & {*await operator.pods("silent")}

    await operator.until(stuck_pods_are_gone, lambda: "no pod is deleted by force")
    await until_as_before(operator, "silent")
    assert set((await nodes_of_workers(operator, "silent")).values()) == {STAYS}
    reasons = await operator.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "NodeUnreachable" in reasons.split()
