"""The life of a job as its user sees it, with kubectl; `tests/node` tells these stories on a real node, too."""

import json

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import A_SCALED_LIFE, Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

UNTIL_TOLD = (
    "trap 'exit 0' USR1; until [ $(/etc/edl/discover_hosts.sh | wc -l) = 4 ]; do sleep 0.05; done; "
    "echo four; until [ $(/etc/edl/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.05; done; "
    "until [ $(cat /job/hostfile /etc/mpi/deepspeed-hostfile | wc -l) = 6 ]; do sleep 0.05; done; "
    "/etc/edl/discover_hosts.sh; cat /job/hostfile /etc/mpi/deepspeed-hostfile; getent hosts life-worker-0; "
    "while :; do sleep 0.05; done"
)
"""It ends when a signal says so: of a job that is over no request can succeed.

A kubelet writes each mount of one ConfigMap at a moment of its own, so the script waits for all three.
"""


async def test_a_job_trains_grows_shrinks_and_succeeds(operator: Operator):
    await operator.apply(a_job("life", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "life")
    assert await operator.pods("life") == ["life-launcher", "life-worker-0", "life-worker-1"]
    await operator.apply(a_request("ScaleOut", "life-out", "life", toAdd={"count": 2}))
    out = await operator.phase("ScaleSucceeded", SCALEOUTS, "life-out")
    assert out["addPods"] == ["life-worker-2", "life-worker-3"]
    # Of two changes within half a second a kubelet may bring only the newer one to the launcher.
    await operator.until(lambda: _launcher_said(operator, "four"), lambda: "the launcher never saw four workers")
    await operator.apply(a_request("ScaleIn", "life-in", "life", toDelete={"count": 1}))
    shrunk = await operator.phase("ScaleSucceeded", SCALEINS, "life-in")
    assert shrunk["toDeletePods"] == ["life-worker-3"]
    # A request succeeds once the deletion of its pods is seen; a kubelet takes its time for their end.
    await operator.until(lambda: operator.pod_is_gone("life-worker-3"), lambda: "the worker that left is still there")
    await operator.tell_to_end("life")
    status = await operator.phase("Succeeded", TRAININGJOBS, "life")
    assert [condition["type"] for condition in status["conditions"]] == A_SCALED_LIFE
    said = (await operator.kubectl("logs", "life-launcher")).splitlines()
    assert said[0] == "four"
    assert said[1:4] == ["life-worker-0:1", "life-worker-1:1", "life-worker-2:1"]
    assert said[4:7] == ["life-worker-0 slots=1", "life-worker-1 slots=1", "life-worker-2 slots=1"]
    assert said[10].split()[1].startswith("life-worker-0"), "plain worker names resolve"
    await operator.until(lambda: _only_launcher(operator), lambda: "the workers are cleaned up")
    await operator.assert_replayed("life")


async def _launcher_said(operator: Operator, word: str) -> bool:
    return word in (await operator.kubectl("logs", "life-launcher")).split()


async def _only_launcher(operator: Operator) -> bool:
    return await operator.pods("life") == ["life-launcher"]


async def test_columns_and_events_are_those_of_the_contract(operator: Operator):
    header, row = (await operator.kubectl("get", "trainingjob", "life")).splitlines()
    assert header.split() == ["NAME", "PHASE", "AGE", "WORKERS", "RESTARTS", "REASON"]
    assert row.split()[:2] == ["life", "Succeeded"]
    wide = (await operator.kubectl("get", "trainingjob", "life", "-o", "wide")).splitlines()[0]
    assert wide.split() == ["NAME", "PHASE", "AGE", "WORKERS", "MIN", "MAX", "RESTARTS", "SCALER", "REASON", "MESSAGE"]
    described = await operator.kubectl("describe", "trainingjob", "life")
    for reason in ("TrainingJobWorkerCreated", "TrainingJobRunning", "TrainingJobSucceeded"):
        assert reason in described
    requests = (await operator.kubectl("get", "scalein/life-in", "scaleout/life-out")).split()
    assert requests.count("ScaleSucceeded") == 2


async def test_the_history_tells_what_happened(operator: Operator):
    told = await operator.muster("history", "trainingjob/life", "--decisions")
    decisions = [line.split()[3] for line in told.splitlines()]
    # Which service is quicker to say that it scales is not a promise.
    assert [decision for decision in decisions if decision != "JobScaling"] == [
        "JobCreated",
        "SlotsAssigned",
        "HostsPublished",
        "SlotsAssigned",
        "JobRunning",
        "ScaleAccepted",
        "HostsPublished",
        "ScaleSucceeded",
        "JobRunning",
        "ScaleAccepted",
        "HostsPublished",
        "WorkersReleased",
        "ScaleSucceeded",
        "JobRunning",
        "JobSucceeded",
        "SlotsReleased",
    ]
    assert decisions.count("JobScaling") == 2
    assert "different: 0" in await operator.muster("replay", "--verify")
    assert "Succeeded" in await operator.muster("get")
    saved = await operator.muster("history", "trainingjob/life", "--json")
    assert json.loads(saved.splitlines()[0])["subject"].endswith("JobObserved")


async def test_a_deleted_job_leaves_nothing(operator: Operator):
    await operator.apply(a_job("short", "sleep 1000 & wait"))
    await operator.phase("Running", TRAININGJOBS, "short")
    await operator.apply(a_request("ScaleOut", "short-out", "short", toAdd={"count": 1}))

    async def owned() -> bool:
        request = await operator.stack.kube.get(SCALEOUTS, "default", "short-out")
        return request is not None and request.metadata.controller is not None

    # A request that is not admitted yet would wait for the next job of that name instead.
    await operator.until(owned, lambda: "the request was never taken up")
    await operator.kubectl("delete", "trainingjob", "short", "--wait=false")
    await operator.leaves_nothing("short", "pods,services,configmaps,scaleouts")
    assert (await operator.job("short")).resource.gone


async def test_muster_scale_asks_and_follows(operator: Operator):
    await operator.apply(a_job("sized", "sleep 1000 & wait"))
    await operator.phase("Running", TRAININGJOBS, "sized")
    told = await operator.muster("scale", "trainingjob/sized", "--to", "3")
    assert "2 -> 3 workers" in told
    assert "ScaleSucceeded" in told
    assert "has 3 workers already" in await operator.muster("scale", "sized", "--to", "3")
    await operator.muster("scale", "sized", "--to", "9", code=1)
    await operator.kubectl("delete", "trainingjob", "sized", "--wait=false")


async def test_doctor_finds_nothing_wrong(operator: Operator):
    assert "FAIL" not in await operator.muster("doctor")


READS = (
    "trap 'exit 0' USR1; while :; do sleep 0.02; for file in /etc/edl/hostfile /etc/mpi/hostfile; do "
    "now=$(tr '\\n' ' ' < $file); "
    'case "$said" in *"<$now>"*) ;; *) echo "<$now>"; said="$said<$now>";; esac; done; done'
)
"""It says each different text that it ever finds in a hosts file."""


async def test_20_no_launcher_reads_part_of_a_hosts_file(operator: Operator):
    await operator.apply(a_job("reader", READS))
    await operator.phase("Running", TRAININGJOBS, "reader")
    await operator.apply(a_request("ScaleOut", "reader-out", "reader", toAdd={"count": 4}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "reader-out")
    await operator.apply(a_request("ScaleIn", "reader-in", "reader", toDelete={"count": 3}))
    await operator.phase("ScaleSucceeded", SCALEINS, "reader-in")
    lines = ["<" + "".join(f"reader-worker-{index}:1 " for index in range(size)) + ">" for size in (2, 6, 3)]
    shown: list[str] = []

    async def newest_shown() -> bool:
        nonlocal shown
        # What comes after the last end of line may be the beginning of one.
        shown = (await operator.kubectl("logs", "reader-launcher")).split("\n")[:-1]
        return lines[-1] in shown

    await operator.until(newest_shown, lambda: f"the launcher found {shown}")
    assert set(shown) <= set(lines)
    await operator.delete("reader")
