"""TrainingJobs in a queue of the real Kueue: the steps of an external framework, one by one."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from devcluster.cluster import ADMIN
from muster.permissions import HOME
from shared.frameworks.queueing import GROUP, IN_USE, JOB_UID, POD_SET, QUEUE, VERSION, WORKLOAD
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import Operator, a_request, audited
from tests.queues.jobs import POOL, TOLERATION, a_training_job, by_capacity, give
from tests.queues.lives import QUOTA
from tests.queues.manager import muster_and_kueue, why_says

pytestmark = [pytest.mark.kueue, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    """Muster and Kueue, with a queue that has room for four pods."""
    async with muster_and_kueue(tmp_path_factory.mktemp("stack"), QUOTA, MUSTER_KUEUE="true") as (operator, _):
        yield operator


async def workloads(operator: Operator, job: str) -> list[dict[str, Any]]:
    """The Workloads of a job, in the order of their numbers."""
    listed = json.loads(await operator.kubectl("get", "workloads", "-o", "json"))["items"]
    owned = [each for each in listed if each["metadata"]["ownerReferences"][0]["name"] == job]
    return sorted(owned, key=lambda each: int(each["metadata"]["name"].rpartition("-")[2]))


def condition(workload: dict[str, Any], kind: str) -> dict[str, Any]:
    known = workload.get("status", {}).get("conditions", [])
    return next((each for each in known if each["type"] == kind), {})


async def becomes(operator: Operator, job: str, kind: str, status: str = "True") -> dict[str, Any]:
    """Wait until the newest Workload of a job has this condition; return the Workload."""
    newest: list[dict[str, Any]] = []

    async def so() -> bool:
        newest[:] = await workloads(operator, job)
        return bool(newest) and condition(newest[-1], kind).get("status") == status

    await operator.until(so, lambda: f"no Workload of {job} is {kind}={status}: {newest}")
    return newest[-1]


async def pods(operator: Operator, job: str) -> list[dict[str, Any]]:
    found = json.loads(await operator.kubectl("get", "pods", "-l", f"training-job-name={job}", "-o", "json"))
    return [*found["items"]]


async def end(operator: Operator, *jobs: str) -> None:
    """Delete the jobs, and wait until no Workload keeps quota."""
    await operator.kubectl("delete", "trainingjob", *jobs)
    for job in jobs:

        async def none(job: str = job) -> bool:
            return not await workloads(operator, job)

        await operator.until(none, lambda: "a Workload is left")


async def test_an_admitted_job_runs_where_its_flavor_says_and_finishes_its_workload(operator: Operator):
    await operator.apply(a_training_job("runs"))
    await operator.comes_to("Running", TRAININGJOBS, "runs")
    ready = await becomes(operator, "runs", "PodsReady")
    [workload] = await workloads(operator, "runs")
    meta = workload["metadata"]
    assert (meta["finalizers"], meta["labels"][JOB_UID]) == ([IN_USE], meta["ownerReferences"][0]["uid"])
    assert {each["name"]: each["count"] for each in workload["spec"]["podSets"]} == {"launcher": 1, "worker": 1}
    assert condition(ready, "PodsReady")["reason"] == "Started"
    for pod in await pods(operator, "runs"):
        assert pod["spec"]["nodeSelector"] == {POOL: "a"}
        assert TOLERATION in pod["spec"]["tolerations"]
        assert pod["metadata"]["labels"][POD_SET] == pod["metadata"]["labels"]["training-job-role"]
        assert pod["metadata"]["annotations"][WORKLOAD] == meta["name"]

    await operator.signal("runs-launcher")
    await operator.comes_to("Succeeded", TRAININGJOBS, "runs")
    over = await becomes(operator, "runs", "Finished")
    assert condition(over, "Finished")["reason"] == "Succeeded"

    async def released() -> bool:
        [workload] = await workloads(operator, "runs")
        return not workload["metadata"].get("finalizers")

    await operator.until(released, lambda: "the finalizer is left")
    await end(operator, "runs")


async def test_a_job_beyond_the_quota_waits_and_says_so(operator: Operator):
    await operator.apply(a_training_job("first", workers=2), a_training_job("second", workers=2))
    running = await one_of(operator, "first", "second")
    waiting = "second" if running == "first" else "first"
    await operator.comes_to("Suspended", TRAININGJOBS, waiting)
    [shown] = [
        each
        for each in (await status(operator, waiting))["conditions"]
        if (each["type"], each["status"]) == ("Suspended", "True")
    ]
    assert shown["message"] == "waits for quota in queue team-a"
    assert not await pods(operator, waiting)
    await why_says(operator, f"trainingjob/{waiting}", "waits for quota in queue team-a since")
    await operator.kubectl("delete", "trainingjob", running)
    await operator.comes_to("Running", TRAININGJOBS, waiting)
    await end(operator, waiting)


async def one_of(operator: Operator, *jobs: str) -> str:
    """The first of the jobs that runs."""
    found: list[str] = []

    async def runs() -> bool:
        found[:] = [job for job in jobs if (await status(operator, job)).get("phase") == "Running"]
        return bool(found)

    await operator.until(runs, lambda: f"none of {jobs} runs")
    return found[0]


async def status(operator: Operator, job: str) -> dict[str, Any]:
    held = await operator.stack.kube.get(TRAININGJOBS, "default", job)
    assert held is not None
    return held.status or {}


async def sequence_of(operator: Operator, job: str, kind: str) -> int:
    """The newest event of that type in a job's history."""
    subjects = [(stored.sequence, stored.subject.split(".")) for stored in await operator.log()]
    return max(sequence for sequence, parts in subjects if (parts[2], parts[-1]) == (job, kind))


async def test_a_preempted_job_gives_its_quota_back_when_its_pods_are_gone(operator: Operator):
    await operator.apply(a_training_job("low", workers=3))
    await operator.comes_to("Running", TRAININGJOBS, "low")
    await operator.apply(a_training_job("high", workers=1, urgent=True))
    await operator.comes_to("Running", TRAININGJOBS, "high")
    await operator.comes_to("Suspended", TRAININGJOBS, "low")
    assert await sequence_of(operator, "low", "PodsGone") < await sequence_of(operator, "high", "SlotsAssigned")
    [workload] = await workloads(operator, "low")
    assert condition(workload, "QuotaReserved")["status"] == "False"
    assert condition(workload, "Requeued")["status"] == "True"
    said = next(each for each in (await status(operator, "low"))["conditions"] if each["type"] == "Suspended")
    assert said["message"].startswith("waits for quota in queue team-a; evicted (Preempted)")

    await operator.kubectl("delete", "trainingjob", "high")
    await operator.comes_to("Running", TRAININGJOBS, "low")
    # The same Workload, in its place in the queue.
    assert [each["metadata"]["name"] for each in await workloads(operator, "low")] == [workload["metadata"]["name"]]
    assert (await operator.job("low")).attempt.number == 1
    await end(operator, "low")


async def test_a_scale_in_gives_quota_back_in_place(operator: Operator):
    await operator.apply(a_training_job("shrinks", workers=3))
    await operator.comes_to("Running", TRAININGJOBS, "shrinks")
    await operator.apply(a_training_job("other", workers=1))
    await operator.comes_to("Suspended", TRAININGJOBS, "other")
    await operator.apply(a_request("ScaleIn", "in", "shrinks", toDelete={"count": 2}))
    await operator.comes_to("Running", TRAININGJOBS, "other")
    [workload] = await workloads(operator, "shrinks")
    assert {each["name"]: each["count"] for each in workload["spec"]["podSets"]} == {"launcher": 1, "worker": 1}
    assert (await operator.job("shrinks")).attempt.number == 0
    await end(operator, "shrinks", "other")


async def test_a_scale_out_waits_for_quota_and_grows_the_job_in_place(operator: Operator):
    await operator.apply(a_training_job("grows", workers=1), a_training_job("beside", workers=1))
    await operator.comes_to("Running", TRAININGJOBS, "grows")
    await operator.comes_to("Running", TRAININGJOBS, "beside")
    await operator.apply(a_request("ScaleOut", "out", "grows", toAdd={"count": 2}))

    async def waits() -> bool:
        told = json.loads(await operator.kubectl("get", "scaleout", "out", "-o", "json")).get("status", {})
        return [(told.get("phase"), each["reason"]) for each in told.get("conditions", [])][-1:] == [
            ("Pending", "WaitsForQuota")
        ]

    await operator.until(waits, lambda: "the ScaleOut does not say that it waits for quota")
    old, new = await workloads(operator, "grows")
    assert condition(old, "Admitted")["status"] == "True"
    assert not condition(new, "Admitted")
    assert (await status(operator, "grows"))["phase"] == "Running"

    await operator.kubectl("delete", "trainingjob", "beside")
    await operator.members("grows", "grows-worker-0", "grows-worker-1", "grows-worker-2")
    assert (await operator.job("grows")).attempt.number == 0

    async def one() -> bool:
        return [each["metadata"]["name"] for each in await workloads(operator, "grows")] == [new["metadata"]["name"]]

    await operator.until(one, lambda: "the replaced Workload is left")
    for pod in await pods(operator, "grows"):
        assert pod["spec"]["nodeSelector"] == {POOL: "a"}
    await end(operator, "grows")


async def test_jobs_by_capacity_use_all_the_quota_together_and_one_takes_what_another_leaves(operator: Operator):
    await give(operator, "600m")
    jobs = "left", "right"
    await operator.apply(*map(by_capacity, jobs))

    async def all_used() -> bool:
        trained = [len((await operator.status(TRAININGJOBS, job)).get("currentWorkers", ())) for job in jobs]
        quota = [[workers(each) for each in await workloads(operator, job)] for job in jobs]
        return sum(trained) == 4 and quota == [[number, number + 1] for number in trained]

    await operator.until(all_used, lambda: "they have no quota for four workers, or do not wait for one more each")
    await operator.kubectl("delete", "trainingjob", "left")
    await operator.members("right", *(f"right-worker-{number}" for number in range(4)))
    assert (await operator.job("right")).attempt.number == 0
    await end(operator, "right")
    await give(operator, QUOTA)


async def test_a_job_by_capacity_gets_all_that_kueue_takes_from_a_job_of_lower_priority(operator: Operator):
    await operator.apply(a_training_job("below", workers=1))
    await operator.comes_to("Running", TRAININGJOBS, "below")
    above = by_capacity("above", urgent=True)
    above["spec"]["etReplicaSpecs"]["worker"]["replicas"] = 3
    await operator.apply(above)
    await operator.members("above", "above-worker-0", "above-worker-1", "above-worker-2")
    assert await asked(operator, "above") == [1, 3]
    await operator.comes_to("Suspended", TRAININGJOBS, "below")
    await operator.kubectl("delete", "trainingjob", "above")
    await operator.comes_to("Running", TRAININGJOBS, "below")
    await end(operator, "below")


async def asked(operator: Operator, job: str) -> list[int]:
    """The numbers of workers for which Muster made Workloads of a job, in order."""
    calls = [
        call for call in audited(operator.audit) if (call["verb"], call["responseStatus"]["code"]) == ("create", 201)
    ]
    made = [call["responseObject"] for call in calls if call["objectRef"]["resource"] == "workloads"]
    return [workers(each) for each in made if each["metadata"]["ownerReferences"][0]["name"] == job]


def workers(workload: dict[str, Any]) -> int:
    return {part["name"]: int(part["count"]) for part in workload["spec"]["podSets"]}["worker"]


async def test_a_job_whose_label_was_changed_grows_in_the_queue_that_gave_its_quota(operator: Operator):
    await operator.apply(a_training_job("moved", workers=1))
    await operator.comes_to("Running", TRAININGJOBS, "moved")
    await operator.kubectl("label", "trainingjob", "moved", f"{QUEUE}=nowhere", "--overwrite")
    await operator.apply(a_request("ScaleOut", "moves", "moved", toAdd={"count": 1}))
    await operator.members("moved", "moved-worker-0", "moved-worker-1")

    async def one() -> bool:
        return [each["spec"]["queueName"] for each in await workloads(operator, "moved")] == ["team-a"]

    await operator.until(one, lambda: "the replaced Workload is left")
    await end(operator, "moved")


async def test_a_person_s_pause_lasts_and_gives_the_quota_back(operator: Operator):
    await operator.apply(a_training_job("paused", workers=3))
    await operator.comes_to("Running", TRAININGJOBS, "paused")
    await operator.muster("suspend", "trainingjob/paused", "--timeout", "60")
    await operator.apply(a_training_job("meanwhile", workers=3))
    await operator.comes_to("Running", TRAININGJOBS, "meanwhile")
    await operator.kubectl("delete", "trainingjob", "meanwhile")
    await operator.muster("resume", "trainingjob/paused", "--timeout", "60")
    await operator.comes_to("Running", TRAININGJOBS, "paused")
    await end(operator, "paused")


async def test_a_workload_that_a_person_deletes_is_made_again(operator: Operator):
    await operator.apply(a_training_job("loses"))
    await operator.comes_to("Running", TRAININGJOBS, "loses")
    [workload] = await workloads(operator, "loses")
    await operator.kubectl("delete", "workload", workload["metadata"]["name"], "--wait=false")

    async def anew() -> bool:
        known = await workloads(operator, "loses")
        return [each["metadata"]["uid"] for each in known] not in ([], [workload["metadata"]["uid"]])

    await operator.until(anew, lambda: "no new Workload")
    await operator.comes_to("Running", TRAININGJOBS, "loses")
    assert (await operator.job("loses")).attempt.number == 1
    await end(operator, "loses")


async def test_a_job_in_a_queue_that_is_not_there_waits_and_says_so(operator: Operator):
    lost = a_training_job("lost")
    lost["metadata"]["labels"][QUEUE] = "nowhere"
    await operator.apply(lost)
    await operator.comes_to("Suspended", TRAININGJOBS, "lost")
    await why_says(operator, "trainingjob/lost", "LocalQueue nowhere doesn't exist")
    # A change of the label is enough.
    await operator.kubectl("label", "trainingjob", "lost", f"{QUEUE}=team-a", "--overwrite")
    await operator.comes_to("Running", TRAININGJOBS, "lost")
    await end(operator, "lost")


async def test_pods_that_a_deletion_leaves_keep_their_quota_until_a_person_deletes_the_workload(operator: Operator):
    await operator.apply(a_training_job("left", workers=2))
    await operator.comes_to("Running", TRAININGJOBS, "left")
    [workload] = await workloads(operator, "left")
    await operator.kubectl("delete", "trainingjob", "left", "--cascade=orphan")
    name = workload["metadata"]["name"]

    async def orphaned() -> bool:
        held = json.loads(await operator.kubectl("get", "workload", name, "-o", "json"))
        return not held["metadata"].get("ownerReferences") and condition(held, "Admitted")["status"] == "True"

    await operator.until(orphaned, lambda: "the Workload has an owner")
    assert len(await pods(operator, "left")) == 3
    await operator.kubectl("delete", "workload", name, "--timeout=30s")
    await operator.kubectl("delete", "pods", "-l", "training-job-name=left")


async def test_the_scheduler_s_account_writes_no_workload_but_for_a_job_and_with_a_class_s_priority(
    operator: Operator,
):
    await operator.apply(a_training_job("asked"))
    await operator.comes_to("Running", TRAININGJOBS, "asked")
    [workload] = await workloads(operator, "asked")
    meta = {field: workload["metadata"][field] for field in ("namespace", "labels", "ownerReferences")}
    whole = {key: workload[key] for key in ("apiVersion", "kind")} | {"spec": workload["spec"]}
    account = f"--as=system:serviceaccount:{HOME}:scheduler"
    for forged, changed in (
        (meta, {"spec": workload["spec"] | {"priority": 1_000_000}}),
        (meta | {"ownerReferences": []}, {}),
        (meta | {"labels": {}}, {}),
    ):
        wanted = whole | {"metadata": forged | {"name": "forged"}} | changed
        told = await operator.kubectl("create", account, "-f", "-", given=wanted, fails=True)
        assert "ValidatingAdmissionPolicy" in told
    await operator.kubectl(
        "create", account, "--dry-run=server", "-f", "-", given=whole | {"metadata": meta | {"name": "forged"}}
    )
    # kubectl reads the subresource first, which this account may not.
    path = f"/apis/{GROUP}/{VERSION}/namespaces/default/workloads/{workload['metadata']['name']}/status?dryRun=All"
    headers = {
        "Impersonate-User": account.removeprefix("--as="),
        "Content-Type": "application/merge-patch+json",
    }
    another = workload["status"]["admission"] | {"clusterQueue": "another"}
    answers = []
    async with operator.stack.cluster.session(ADMIN) as session:
        for changed in ({"admission": another}, {"admission": None}, {"requeueState": {"count": 1}}):
            body = json.dumps({"status": changed})
            async with session.patch(path, data=body, headers=headers) as answer:
                answers.append((answer.status, "it would be admitted" in await answer.text()))
    # Kueue itself may refuse the others.
    assert [told for _, told in answers] == [True, False, False], answers
    await end(operator, "asked")
