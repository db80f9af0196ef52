"""TFJobs as their users see them: the published examples, with kubectl."""

import json

import pytest

from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.operator import FOR_EVER, Operator, a_job, an_example, of_kubeflow

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

TFJOBS = TFJOB.resource


async def test_a_chief_trains_with_its_servers_and_workers(operator: Operator):
    await operator.apply(an_example("tensorflow/chief_and_evaluator"))
    await operator.comes_to("Succeeded", TFJOBS, "whole")
    # cleanPodPolicy Running: only the chief, which has ended, stays.
    await operator.selects(of_kubeflow("whole"), "whole-chief-0")
    (line,) = (await operator.kubectl("logs", "whole-chief-0")).splitlines()
    config = json.loads(line)
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"]["worker"] == ["whole-worker-0.default.svc:2222", "whole-worker-1.default.svc:2222"]
    assert "evaluator" not in config["cluster"]


async def test_columns_short_name_and_events_are_those_of_the_kind(operator: Operator):
    header, row = (await operator.kubectl("get", "tfj", "whole")).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "WORKERS", "FAILED", "REASON"]
    assert row.split()[:2] == ["whole", "Succeeded"]
    described = await operator.kubectl("describe", "tfjob", "whole")
    for reason in ("TFJobRunning", "TFJobSucceeded"):
        assert reason in described
    await operator.kubectl("wait", "--for=condition=Succeeded", "tfjob/whole", "--timeout=5s")


async def test_all_workers_have_to_end_well(operator: Operator):
    await operator.apply(an_example("tensorflow/all_workers"))
    status = await operator.comes_to("Succeeded", TFJOBS, "together")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 3


async def test_a_worker_begins_again_in_its_place_until_the_limit_is_reached(operator: Operator):
    job = an_example("tensorflow/limits")
    job["spec"]["runPolicy"] |= {"backoffLimit": 1, "ttlSecondsAfterFinished": 3}
    await operator.apply(job)
    status = await operator.comes_to("Failed", TFJOBS, "limited")
    assert status["conditions"][-1]["message"].startswith("BackoffLimitExceeded: limited-worker-1 ")

    async def gone() -> bool:
        return await operator.stack.kube.get(TFJOBS, "default", "limited") is None

    await operator.until(gone, lambda: "it is not deleted after its time to live")
    await operator.selects(of_kubeflow("limited"))


async def test_a_suspended_job_begins_when_a_person_resumes_it(operator: Operator):
    await operator.apply(an_example("tensorflow/suspended"))
    await operator.comes_to("Suspended", TFJOBS, "paused")
    assert await operator.selected(of_kubeflow("paused")) == []
    patch = json.dumps({"spec": {"runPolicy": {"suspend": False}}})
    await operator.kubectl("patch", "tfjob", "paused", "--type", "merge", "-p", patch)
    await operator.comes_to("Succeeded", TFJOBS, "paused")


async def test_dynamic_workers_are_scaled_by_kubectl(operator: Operator):
    await operator.apply(an_example("tensorflow/dynamic_workers"))
    await operator.comes_to("Running", TFJOBS, "dynamic")
    await operator.kubectl("scale", "tfjob", "dynamic", "--replicas", "3")
    names = ["dynamic-ps-0", *(f"dynamic-worker-{index}" for index in range(3))]
    await operator.selects(of_kubeflow("dynamic"), *names)
    await operator.kubectl("wait", "--for=condition=Ready", "pod/dynamic-worker-2", "--timeout=60s")
    await operator.kubectl("scale", "tfjob", "dynamic", "--replicas", "2")
    await operator.selects(of_kubeflow("dynamic"), *names[:-1])
    await operator.signal("dynamic-worker-0", "tensorflow")
    await operator.comes_to("Succeeded", TFJOBS, "dynamic")


async def test_a_training_job_of_the_same_name_waits_for_the_name_of_its_worker(operator: Operator):
    job = an_example("tensorflow/suspended")
    job["metadata"]["name"] = "twins"
    job["spec"]["runPolicy"] = {}
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", f"trap 'exit 0' TERM; {FOR_EVER}"]
    await operator.apply(job)
    await operator.comes_to("Running", TFJOBS, "twins")
    await operator.apply(a_job("twins", FOR_EVER))

    async def told() -> bool:
        return "NameConflict" in str((await operator.status(TRAININGJOBS, "twins")).get("conditions"))

    await operator.until(told, lambda: "no status says that the name is taken")
    assert await operator.selected(of_kubeflow("twins")) == ["twins-worker-0", "twins-worker-1"]
    await operator.kubectl("delete", "tfjob", "twins")
    await operator.phase("Running", TRAININGJOBS, "twins")
    await operator.kubectl("delete", "trainingjob", "twins")
