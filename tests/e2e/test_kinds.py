"""One walk of each kind beside TrainingJobs as its users see it: the published examples, with kubectl and muster.

What the services decide about them `tests/service` tells; here containers find each other by what they are given.
What the real API server makes of their definitions `tests/crds` compares.
"""

import json
from typing import Any

import pytest

from shared.cluster import Resource
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.jaxjob import JAXJOB
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from tests.kit.hosts import EMBEDDED
from tests.kit.operator import SHELL, Operator, an_example, of_kubeflow
from tests.kit.published import PUBLISHED
from tests.kit.trainer import replicated_job, runtime, train_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED


async def test_the_chief_of_a_tfjob_trains_with_its_servers_and_workers(operator: Operator):
    await operator.apply(an_example("tensorflow/chief_and_evaluator"))
    await operator.comes_to("Succeeded", TFJOB.resource, "whole")
    # cleanPodPolicy Running: only the chief, which has ended, stays.
    await operator.selects(of_kubeflow("whole"), "whole-chief-0")
    (line,) = (await operator.kubectl("logs", "whole-chief-0")).splitlines()
    config = json.loads(line)
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"]["worker"] == ["whole-worker-0.default.svc:2222", "whole-worker-1.default.svc:2222"]
    assert "evaluator" not in config["cluster"]
    header, row = (await operator.kubectl("get", "tfj", "whole")).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE", "WORKERS", "FAILED", "REASON"]
    assert row.split()[:2] == ["whole", "Succeeded"]
    described = await operator.kubectl("describe", "tfjob", "whole")
    for reason in ("TFJobRunning", "TFJobSucceeded"):
        assert reason in described
    await operator.kubectl("wait", "--for=condition=Succeeded", "tfjob/whole", "--timeout=5s")


async def printed(operator: Operator, pod: str) -> dict[str, str]:
    """The environment that a pod has printed."""
    found: dict[str, str] = {}

    async def all_of_it() -> bool:
        nonlocal found
        lines = (await operator.kubectl("logs", pod)).splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        return "PET_NNODES" in found

    await operator.until(all_of_it, lambda: f"{pod} printed {found}")
    return found


async def test_the_master_of_a_pytorchjob_leads_and_its_end_is_the_jobs(operator: Operator):
    await operator.apply(an_example("pytorch/environment"))
    worker = await printed(operator, "led-worker-1")
    ours = {name: worker[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NPROC_PER_NODE")}
    assert ours == {
        "MASTER_ADDR": "led-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "6",
        "RANK": "2",
        "PET_NPROC_PER_NODE": "2",
    }
    await operator.comes_to("Succeeded", PYTORCHJOB.resource, "led")
    # cleanPodPolicy Running: only the master, which has ended, stays.
    await operator.selects(of_kubeflow("led"), "led-master-0")
    assert (await printed(operator, "led-master-0"))["RANK"] == "0"


async def test_an_elastic_pytorchjob_is_scaled_and_ends_with_its_first_worker(
    operator: Operator,
):
    await operator.apply(an_example("pytorch/group"))
    await operator.comes_to("Running", PYTORCHJOB.resource, "group")
    await operator.kubectl("scale", "pytorchjob", "group", "--replicas", "3")
    await operator.kubectl("wait", "--for=create", "pod/group-worker-2", "--timeout=60s")
    await operator.kubectl("wait", "--for=condition=Ready", "pod/group-worker-2", "--timeout=60s")
    assert await printed(operator, "group-worker-2") == await printed(operator, "group-worker-0")
    await operator.muster("scale", "pytorchjob/group", "--to", "1")
    await operator.selects(of_kubeflow("group"), "group-worker-0")
    await operator.muster("scale", "pytorchjob/group", "--to", "2")
    await operator.selects(of_kubeflow("group"), "group-worker-0", "group-worker-1")
    await operator.signal("group-worker-1", "pytorch")
    await operator.comes_to("Succeeded", PYTORCHJOB.resource, "group")


async def test_the_trainers_of_a_paddle_job_meet_at_the_first_one_and_all_have_to_end_well(operator: Operator):
    await operator.apply(an_example("paddle/collective"))
    status = await operator.comes_to("Succeeded", PADDLEJOB.resource, "paddle-collective")
    assert status["replicaStatuses"]["Worker"]["succeeded"] == 2
    first, second = await operator.selected(of_kubeflow("paddle-collective"))
    address = await operator.kubectl("get", "pod", first, "-o", "jsonpath={.status.podIP}")
    job = "of 2 in paddle-collective\n"
    assert await operator.kubectl("logs", first) == f"meets at {address}:36543, {job}"
    assert await operator.kubectl("logs", second) == f"meets at paddle-collective-worker-0:36543, {job}"


async def test_the_masters_end_is_that_of_an_xgboost_job(operator: Operator):
    await operator.apply(an_example("xgboost/environment"))
    await operator.comes_to("Running", XGBOOSTJOB.resource, "xgboost-led")
    await operator.comes_to("Succeeded", XGBOOSTJOB.resource, "xgboost-led")
    await operator.selects(of_kubeflow("xgboost-led"), "xgboost-led-master-0")
    machines = "xgboost-led-worker-0,xgboost-led-worker-1"
    tracker = "xgboost-led-master-0:9999"
    assert await operator.kubectl("logs", "xgboost-led-master-0") == (
        f"rank 0 of 3, tracker {tracker}, machines {machines}\n"
    )


async def test_a_train_job_waits_for_its_runtime_and_its_nodes_meet_at_the_first(operator: Operator):
    says = "echo node $PET_NODE_RANK of $PET_NNODES meets at $PET_MASTER_ADDR:$PET_MASTER_PORT; sleep 2"
    await operator.apply(train_job("told", runtime="two-nodes", trainer={"command": ["sh", "-c", says]}))
    await operator.shows(TRAINJOB.resource, "told", lambda status: "TrainingRuntimeNotFound" in str(status), "waiting")
    await operator.apply(runtime("two-nodes", {"numNodes": 2, "torch": {}}, replicated_job("node", image=SHELL)))
    status = await operator.comes_to("Complete", TRAINJOB.resource, "told")
    assert [(known["name"], known["succeeded"]) for known in status["jobsStatus"]] == [("node", 1)]
    for rank in range(2):
        told = await operator.kubectl("logs", f"told-node-0-{rank}")
        assert told == f"node {rank} of 2 meets at told-node-0-0.told:29500\n"
    assert "Complete" in await operator.kubectl("get", "trainjob", "told")
    await operator.kubectl("delete", "trainjob", "told")
    await operator.kubectl("delete", "clustertrainingruntime", "two-nodes")


async def test_a_published_jaxjob_runs_with_a_program_of_ours(operator: Operator):
    example = next(known for known in PUBLISHED if known.file == "jax/cpu-demo/demo")
    job = example.manifest
    job["metadata"].pop("namespace", None)
    for replica in job["spec"][example.field].values():
        (container,) = replica["template"]["spec"]["containers"]
        container |= {"image": SHELL, "command": ["sh", "-c", "sleep 1"]}
    await operator.apply(job)
    await operator.comes_to("Succeeded", JAXJOB.resource, example.name)
    await operator.selects(of_kubeflow(example.name), *example.pods)


async def comes_to(operator: Operator, resource: Resource[Any], job: str, phase: str, state: str) -> dict[str, Any]:
    return await operator.shows(
        resource, job, lambda status: (status.get("phase"), status.get("state")) == (phase, state), state
    )


async def test_the_scheduler_may_stand_anywhere_and_its_end_is_the_jobs(operator: Operator):
    await operator.apply(an_example("mxnet/any_order"))
    resource = FIORAVANZO_MXJOB.resource
    await comes_to(operator, resource, "mx-any-order", "Running", "Running")
    names = [
        f"mx-any-order-{known}" for known in ("scheduler-demo-0", "server-demo-0", "worker-demo-0", "worker-demo-1")
    ]
    await operator.selects("mx_job_name=mx-any-order", *names)
    await operator.selects("fioravanzo.org=,job_type=WORKER,task_index=1,team=vision", names[-1])
    await operator.kubectl("wait", "--for=condition=Ready", f"pod/{names[-1]}", "--timeout=60s")
    assert await operator.kubectl("logs", names[-1]) == "worker of 2 at mx-any-order-scheduler-demo-0:9321\n"
    await operator.signal(names[0], "mxnet")
    status = await comes_to(operator, resource, "mx-any-order", "Done", "Succeeded")
    assert status["replicaStatuses"][2] == {
        "mx_replica_type": "SCHEDULER",
        "state": "Succeeded",
        "ReplicasStates": {"Succeeded": 1},
    }
    # Pods stay after the end, for their logs.
    await operator.selects("mx_job_name=mx-any-order", *names)
    assert "SuccessfulCreate" in await operator.kubectl("describe", "mxjobs.fioravanzo.org", "mx-any-order")
    await operator.kubectl("delete", "mxjobs.fioravanzo.org", "mx-any-order")
    await operator.selects("mx_job_name=mx-any-order")


async def test_a_local_job_and_its_columns(operator: Operator):
    await operator.apply(an_example("mxnet/local"))
    await comes_to(operator, MLKUBE_MXJOB.resource, "mx-alone", "Done", "Succeeded")
    (pod,) = await operator.selected("mxnet.mlkube.io=,job_type=WORKER")
    assert await operator.kubectl("logs", pod) == "role: none\n"
    header, row = (await operator.kubectl("get", "mxjobs.mxnet.mlkube.io", "mx-alone", "-o", "wide")).splitlines()
    assert header.split() == [
        "NAME",
        "KIND",
        "PHASE",
        "STATE",
        "AGE",
        "DESIRED",
        "SUCCESSFUL",
        "WORKERS",
        "FAILED",
        "REASON",
    ]
    columns = row.split()
    assert (columns[:4], columns[5:7]) == (["mx-alone", "MxJob", "Done", "Succeeded"], ["1", "1"])


async def test_a_spec_that_is_a_list(operator: Operator):
    await operator.apply(an_example("mxnet/list"))
    status = await comes_to(operator, MPBA_MXJOB.resource, "mx-list", "Done", "Failed")
    assert "scheduler-mx-list-0 exited with 3" in status["reason"]
    said = "scheduler scheduler-mx-list-0:9000"
    assert status["result"] == {"pod": "scheduler-mx-list-0", "exitCode": 3, "message": said}
    # What still ran is gone, what had ended stays.
    await operator.selects("job_name=mx-list", "scheduler-mx-list-0")
    assert await operator.kubectl("logs", "scheduler-mx-list-0") == "scheduler scheduler-mx-list-0:9000\n"


async def test_what_a_scheduler_leaves_as_its_termination_message_is_the_result_of_the_job(operator: Operator):
    job = an_example("mxnet/list")
    job["metadata"]["name"] = "mx-result"
    (container,) = job["spec"][0]["template"]["spec"]["containers"]
    container["terminationMessagePath"] = "/tmp/result"  # noqa: S108 -- a file of the container
    container["command"] = ["sh", "-c", "sleep 1; echo accuracy 0.93 > /tmp/result"]
    await operator.apply(job)
    status = await comes_to(operator, MPBA_MXJOB.resource, "mx-result", "Done", "Succeeded")
    assert status["result"] == {"pod": "scheduler-mx-result-0", "exitCode": 0, "message": "accuracy 0.93"}


async def test_a_tuners_end_is_that_of_a_tuning_job(operator: Operator):
    await operator.apply(an_example("mxnet/tuning"))
    await operator.kubectl("wait", "--for=condition=Succeeded", "mxjobs.kubeflow.org/mx-tuning", "--timeout=100s")
    await operator.selects("training.kubeflow.org/job-name=mx-tuning", "mx-tuning-tuner-0")
    config = json.loads(await operator.kubectl("logs", "mx-tuning-tuner-0"))
    assert config["labels"] == {"tunertracker": "", "tunerserver": "2080ti", "tuner": ""}
    assert [known["url"] for known in config["cluster"]["tunerserver"]] == [
        "mx-tuning-tunerserver-0",
        "mx-tuning-tunerserver-1",
    ]
