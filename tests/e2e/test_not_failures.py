"""What must not happen to jobs and to their neighbours, with everything real; each test names its line of the contract.

What must not happen to scale requests is in `test_not_requests.py`; what a kubelet has a part in, in
`test_attempts.py`, `test_scripts.py` and `test_bad_scripts.py`.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.policies.replacement import new_workers
from tests.kit.builders import workers
from tests.kit.operator import (
    FOR_EVER,
    THIRD_FAILS,
    UNTIL_TOLD,
    WAITING_WORKER,
    Operator,
    a_job,
    a_request,
    audited,
    worker_that,
)

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CRDS = Path(__file__).parents[2] / "crds"

Document = dict[str, Any]


async def got(operator: Operator, *what: str) -> Document:
    """An object, or a list of them."""
    found: Document = json.loads(await operator.kubectl("get", *what, "-o", "json"))
    return found


async def test_2_finishing_a_job_leaves_its_namesake_in_another_namespace_alone(operator: Operator):
    await operator.kubectl("create", "namespace", "team-b")
    theirs, request = a_job("twin", FOR_EVER), a_request("ScaleOut", "elsewhere", "alone", toAdd={"count": 1})
    theirs["metadata"]["namespace"] = request["metadata"]["namespace"] = "team-b"
    await operator.apply(a_job("twin", UNTIL_TOLD), a_job("alone", FOR_EVER), theirs, request)
    for job, namespace in (("twin", "default"), ("twin", "team-b"), ("alone", "default")):
        await operator.phase("Running", TRAININGJOBS, job, namespace)
    before = await operator.pod_uids("twin", "team-b")
    await operator.tell_to_end("twin")
    await operator.phase("Succeeded", TRAININGJOBS, "twin")
    await operator.has_pods("twin", "twin-launcher")
    assert await operator.pod_uids("twin", "team-b") == before
    assert len(before) == 3
    assert (await operator.status(TRAININGJOBS, "twin", "team-b"))["phase"] == "Running"
    # A request finds no job but those of its own namespace.
    waiting = await operator.phase("Pending", SCALEOUTS, "elsewhere", "team-b")
    assert waiting["conditions"][-1]["reason"] == "JobNotFound"
    await operator.kubectl("delete", "-n", "team-b", "trainingjobs,scaleouts", "--all", "--wait=false")
    await operator.delete("alone")


async def test_5_without_policies_the_defaults_hold(operator: Operator):
    job = a_job("plain", "exit 1")
    for optional in ("minReplicas", "maxReplicas"):
        del job["spec"]["etReplicaSpecs"]["worker"][optional]
    assert [*job["spec"]] == ["etReplicaSpecs"]
    await operator.apply(job)
    status = await operator.phase("Failed", TRAININGJOBS, "plain")
    assert (status["restartCount"], status["conditions"][-1]["reason"]) == (0, "TrainingJobFailed")
    assert status["replicaStatuses"]["Launcher"] == {"active": 0, "succeeded": 0, "failed": 1}
    await operator.has_pods("plain", "plain-launcher")


async def test_15_a_hosts_file_that_cannot_be_written_stops_no_replacement(operator: Operator):
    job = a_job("stone", FOR_EVER)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = "Always"
    await operator.apply(job)
    await operator.phase("Running", TRAININGJOBS, "stone")
    await operator.kubectl("patch", "configmap", "stone-config", "-p", '{"immutable": true}')
    await operator.kubectl("delete", "pod", "stone-worker-1", "--wait=false")
    await operator.has_pods("stone", "stone-launcher", "stone-worker-0", "stone-worker-2")

    async def refused() -> bool:
        return "EffectRefused" in await operator.types("stone")

    await operator.until(refused, lambda: "no service tried to write the hosts files")
    held = await got(operator, "configmap", "stone-config")
    assert held["data"]["hostfile"] == "stone-worker-0:1\nstone-worker-1:1\n", "it cannot be written"
    # Once it can be, it tells of the new worker.
    await operator.kubectl("delete", "configmap", "stone-config")
    await operator.until(lambda: _lists(operator, "stone", 0, 2), lambda: "the hosts files are not written")
    await operator.members("stone", "stone-worker-0", "stone-worker-2")
    await operator.delete("stone")


async def _lists(operator: Operator, job: str, *workers: int) -> bool:
    held = await got(operator, "configmap", f"{job}-config")
    return bool(held["data"]["hostfile"] == "".join(f"{job}-worker-{index}:1\n" for index in workers))


async def test_17_what_a_person_deletes_comes_back(operator: Operator):
    children = ("service/tidy", "configmap/tidy-config")

    async def uids() -> list[str]:
        return [item["metadata"]["uid"] for item in (await got(operator, *children))["items"]]

    await operator.apply(a_job("tidy", FOR_EVER))
    await operator.phase("Running", TRAININGJOBS, "tidy")
    before = await uids()
    await operator.kubectl("delete", *children)

    async def others() -> bool:
        return not {*await uids()} & {*before}

    await operator.until(others, lambda: "what was deleted is not there again")
    assert await _lists(operator, "tidy", 0, 1)
    # The job goes on, and can still be scaled.
    await operator.apply(a_request("ScaleOut", "tidy-out", "tidy", toAdd={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "tidy-out")
    await operator.members("tidy", *(f"tidy-worker-{index}" for index in range(3)))
    await operator.assert_replayed("tidy")
    await operator.delete("tidy")


def foreign(kind: str, name: str, **fields: Any) -> Document:
    """A pod of another owner, with a label that any user can copy."""
    labels = {"training-job-name": f"claim-{kind.lower()}"}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels}, **fields}


FOREIGN = [
    foreign("Pod", "claim-pod-worker-1", spec={"containers": [WAITING_WORKER]}),
    foreign("Service", "claim-service", spec={"ports": [{"port": 80}]}),
    foreign("ConfigMap", "claim-configmap-config", data={"hostfile": "mine"}),
]


async def test_19_what_others_hold_is_never_touched_and_the_job_goes_on_when_it_is_gone(operator: Operator):
    jobs = [f"claim-{thing['kind'].lower()}" for thing in FOREIGN]
    theirs = [f"{thing['kind'].lower()}/{thing['metadata']['name']}" for thing in FOREIGN]
    await operator.apply(*FOREIGN)

    async def running() -> bool:
        return bool((await got(operator, theirs[0]))["status"]["phase"] == "Running")

    async def held() -> list[Document]:
        items = (await got(operator, *theirs))["items"]
        # A node goes on telling of the pod.
        return [item | {"status": None, "metadata": item["metadata"] | {"resourceVersion": ""}} for item in items]

    await operator.until(running, lambda: "the foreign pod does not run")
    before = await held()
    await operator.apply(*(a_job(job, FOR_EVER) for job in jobs))

    async def shown(job: str) -> bool:
        conditions = (await operator.status(TRAININGJOBS, job)).get("conditions", ())
        return any((c["status"], c["reason"]) == ("False", "NameConflict") for c in conditions)

    for job in jobs:
        await operator.until(lambda job=job: shown(job), lambda job=job: f"{job} does not say what is in its way")
        assert (await operator.status(TRAININGJOBS, job))["phase"] == "Created"
    assert await held() == before
    # kubectl would wait for ever if our pod of that name came before it looked (kubernetes/kubernetes#135562).
    await operator.kubectl("delete", *theirs, "--wait=false")
    for job in jobs:
        await operator.phase("Running", TRAININGJOBS, job)
    await operator.delete(*jobs)


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


async def test_22_a_worker_that_crashes_for_ever_is_not_replaced_for_ever(operator: Operator):
    crashing = worker_that(
        "case $n in *-worker-0) sleep 1000 & wait;; esac; exit 1", ready="case $n in *-worker-0) ;; *) false;; esac"
    )
    job = a_job("crash", FOR_EVER, worker=crashing, backoffLimit=1)
    job["spec"]["etReplicaSpecs"]["worker"]["restartPolicy"] = "Always"
    await operator.apply(job)
    await operator.members("crash", "crash-worker-0")
    status = await operator.status(TRAININGJOBS, "crash")
    assert status["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 0, "failed": 2}
    assert new_workers(await operator.job("crash"), 1) == workers(3)
    await operator.delete("crash")


async def test_24_counts_are_right_at_every_stage_and_after_the_clean_up(operator: Operator):
    async def counts(launcher: str, workers: str) -> None:
        """Wait until the status has these: active, succeeded, failed."""
        wanted = {
            role: dict(zip(("active", "succeeded", "failed"), map(int, told), strict=True))
            for role, told in (("Launcher", launcher), ("Worker", workers))
        }
        shown: Any = None

        async def so() -> bool:
            nonlocal shown
            shown = (await operator.status(TRAININGJOBS, "sums"))["replicaStatuses"]
            return bool(shown == wanted)

        await operator.until(so, lambda: f"{shown} is counted, not {wanted}")

    # Told to, each exits with its number.
    worker = worker_that('trap "exit ${n##*-}" USR1; while :; do sleep 0.05; done')
    await operator.apply(a_job("sums", UNTIL_TOLD, workers=3, worker=worker))
    await operator.phase("Running", TRAININGJOBS, "sums")
    await counts("100", "300")
    await operator.signal("sums-worker-1")
    await counts("100", "201")
    await operator.signal("sums-worker-0")
    await counts("100", "111")
    await operator.apply(a_request("ScaleOut", "sums-out", "sums", toAdd={"count": 2}))
    await operator.phase("ScaleSucceeded", SCALEOUTS, "sums-out")
    await counts("100", "311")
    await operator.apply(a_request("ScaleIn", "sums-in", "sums", toDelete={"count": 1}))
    await operator.phase("ScaleSucceeded", SCALEINS, "sums-in")
    await counts("100", "211")
    await operator.tell_to_end("sums")
    await operator.phase("Succeeded", TRAININGJOBS, "sums")
    await operator.has_pods("sums", "sums-launcher", "sums-worker-0", "sums-worker-1")
    # Who was cleaned up did not fail.
    await counts("010", "011")
    await operator.assert_replayed("sums")


async def test_26_no_kubernetes_event_speaks_of_what_did_not_happen(operator: Operator):
    await operator.apply(a_job("heard", "trap 'exit 2' USR1; while :; do sleep 0.05; done", worker=THIRD_FAILS))
    await operator.phase("Running", TRAININGJOBS, "heard")
    await operator.apply(
        a_request("ScaleOut", "heard-breaks", "heard", toAdd={"count": 1}, backoffLimit=0),
        a_request("ScaleOut", "heard-too-many", "heard", toAdd={"count": 99}),
        a_request("ScaleIn", "heard-works", "heard", toDelete={"count": 1}),
    )
    await operator.phase("ScaleFailed", SCALEOUTS, "heard-breaks")
    await operator.phase("ScaleFailed", SCALEOUTS, "heard-too-many")
    await operator.phase("ScaleSucceeded", SCALEINS, "heard-works")
    await operator.tell_to_end("heard")
    await operator.phase("Failed", TRAININGJOBS, "heard")
    wanted = [
        ("TrainingJobWorkerCreated", "heard"),
        ("TrainingJobRunning", "heard"),
        ("ScalingStart", "heard-breaks"),
        ("TrainingJobWorkerFailed", "heard"),
        ("WorkerFailed", "heard-breaks"),
        ("ScalingOutFailed", "heard"),
        ("AboveMaximum", "heard-too-many"),
        ("ScalingStart", "heard-works"),
        ("ScalingInSucceeded", "heard-works"),
        ("ScalingInSucceeded", "heard"),
        ("TrainingJobFailed", "heard"),
    ]
    told: Counter[tuple[str, str]] = Counter()

    async def all_told() -> bool:
        nonlocal told
        told = Counter[tuple[str, str]]()
        for event in (await got(operator, "events"))["items"]:
            thing = event["involvedObject"]
            if thing["name"].startswith("heard") and thing["apiVersion"] == TRAININGJOBS.api_version:
                told[event["reason"], thing["name"]] += event.get("count", 1)
        return told.total() >= len(wanted)

    await operator.until(all_told, lambda: f"only {told} was told")
    assert told == Counter(wanted)


async def test_29_pods_of_others_are_never_asked_for(operator: Operator):
    calls = audited(operator.audit)
    asked = [
        call["requestURI"]
        for call in calls
        if "requestURI" in call
        and call["verb"] in ("list", "watch")
        and call["objectRef"]["resource"] == "pods"
        and ":muster:" in call["user"]["username"]
    ]
    if not any("requestURI" in call for call in calls):
        pytest.skip("only a real API server's audit log has the selectors of requests")
    assert asked
    assert all("labelSelector=muster.dev%2Fjob-uid" in uri for uri in asked)


async def test_30_definitions_apply_again_and_keep_every_field_of_a_pod(operator: Operator):
    await operator.kubectl("apply", "-f", str(CRDS))
    job = a_job("tomorrow", FOR_EVER)
    odd = {"tomorrow": {"deep": [{"x": 1.5}, "text"]}}
    job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"] |= odd
    await operator.apply(job)
    # A pod with a field that the API server does not know is never created.
    status = await operator.phase("Failed", TRAININGJOBS, "tomorrow")
    assert "spec.etReplicaSpecs.worker.template.spec.tomorrow" in status["conditions"][-1]["message"]
    held = await got(operator, "trainingjob", "tomorrow")
    assert held["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"].items() >= odd.items()
    await operator.delete("tomorrow")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("x" * 51, "50", id="longer than its pods' names can be"),
        pytest.param("9starts-with-a-digit", "letter", id="begins with a digit"),
        pytest.param("a.b", "hyphens", id="a dot is no part of a DNS label"),
    ],
)
async def test_35_a_name_that_cannot_be_a_pods_is_refused(operator: Operator, name: str, says: str):
    assert says in await operator.kubectl("apply", "-f", "-", given=a_job(name, "sleep 1"), fails=True)


async def test_35_the_longest_name_that_may_be_runs(operator: Operator):
    name = "x" * 50
    await operator.apply(a_job(name, "exit 0"))
    await operator.phase("Succeeded", TRAININGJOBS, name)
