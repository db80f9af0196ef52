"""MXNet jobs of four operators as their users see them: the published examples, with kubectl."""

import copy
import json
from typing import Any

import pytest

from shared.cluster import Resource
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxnet import runtime_id
from tests.frameworks.documents import custom
from tests.frameworks.test_fioravanzo import PUBLISHED as OF_MX_OPERATOR
from tests.frameworks.test_mpba import PUBLISHED as OF_DL_OPERATOR
from tests.kit.operator import SHELL, Operator, an_example

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def comes_to(operator: Operator, resource: Resource[Any], job: str, phase: str, state: str) -> dict[str, Any]:
    return await operator.shows(
        resource, job, lambda status: (status.get("phase"), status.get("state")) == (phase, state), state
    )


@pytest.mark.parametrize(
    ("published", "resource", "pods"),
    [
        pytest.param(
            OF_MX_OPERATOR,
            FIORAVANZO_MXJOB.resource,
            ("mx-test-dist-scheduler-{}-0", "mx-test-dist-server-{}-0", "mx-test-dist-worker-{}-0"),
            id="mx-operator",
        ),
        pytest.param(
            OF_DL_OPERATOR,
            MPBA_MXJOB.resource,
            ("scheduler-test02-0", "server-test02-0", "worker-test02-0"),
            id="dl-operator",
        ),
    ],
)
async def test_the_published_example_is_created_as_its_page_says_runs_and_succeeds(
    operator: Operator, published: dict[str, Any], resource: Resource[Any], pods: tuple[str, ...]
):
    job = copy.deepcopy(published)
    # The image is theirs; here its command is ours.
    script = "test $DMLC_ROLE = scheduler || exec sleep 1000; sleep 3"
    for entry in job["spec"] if isinstance(job["spec"], list) else job["spec"]["replicaSpecs"]:
        (container,) = entry["template"]["spec"]["containers"]
        container |= {"image": SHELL, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}
    name = job["metadata"]["name"]
    assert f"{name} created" in await operator.kubectl("create", "-f", "-", given=job)
    await comes_to(operator, resource, name, "Running", "Running")
    uid = await operator.kubectl("get", f"{resource.plural}.{resource.group}", name, "-o", "jsonpath={.metadata.uid}")
    made = custom({**job, "metadata": {"name": name, "uid": uid}})
    for pod in pods:
        await operator.kubectl("get", "pod", pod.format(runtime_id(made)))
    status = await comes_to(operator, resource, name, "Done", "Succeeded")
    assert (status["result"]["exitCode"], len(status["replicaStatuses"])) == (0, 3)
    await operator.kubectl("delete", f"{resource.plural}.{resource.group}", name)


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


async def test_a_worker_of_mx_operator_restarts_after_exit_0_too(operator: Operator):
    job = an_example("mxnet/any_order")
    job["metadata"]["name"] = "mx-exits"
    worker = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    del worker["restartPolicy"]
    worker["containers"][0]["command"] = ["sh", "-c", "sleep 3"]
    await operator.apply(job)
    await comes_to(operator, FIORAVANZO_MXJOB.resource, "mx-exits", "Running", "Running")
    name = "mx-exits-worker-demo-0"
    first = await operator.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}")
    await operator.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=60s")
    await operator.kubectl("wait", "--for=delete", f"pod/{name}", "--timeout=60s")
    await operator.kubectl("wait", "--for=create", f"pod/{name}", "--timeout=60s")
    assert await operator.kubectl("get", "pod", name, "-o", "jsonpath={.metadata.uid}") != first
    await comes_to(operator, FIORAVANZO_MXJOB.resource, "mx-exits", "Running", "Running")
    await operator.kubectl("delete", "mxjobs.fioravanzo.org", "mx-exits")


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


async def test_what_cannot_run_is_told_and_makes_no_pod(operator: Operator):
    job = an_example("mxnet/any_order")
    job["metadata"]["name"] = "mx-nobody"
    # What the API server cannot see is the parser's to tell.
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "DMLC_ROLE", "value": "worker"}]
    await operator.apply(job)
    status = await comes_to(operator, FIORAVANZO_MXJOB.resource, "mx-nobody", "Failed", "Failed")
    assert status["reason"].startswith("ReservedVariable: spec.replicaSpecs[0].template.spec.containers[0].env[0].name")
    await operator.selects("mx_job_name=mx-nobody")


async def test_a_job_without_a_scheduler_is_refused_when_it_is_applied(operator: Operator):
    job = an_example("mxnet/any_order")
    job["metadata"]["name"] = "mx-nobody"
    del job["spec"]["replicaSpecs"][2]
    refused = await operator.kubectl("apply", "-f", "-", given=job, fails=True)
    assert "add 1 SCHEDULER" in refused
