"""The walk of et-operator's README and the GPU job of mx-operator's, with kubectl, step by step.

The walk shows what that page prints, but for the names of the cluster's own objects, ages, and its operator's pod.
And a job that is suspended, resumed and restarted from the command line, and asked why.
"""

import json
import re
import shlex
from typing import Any

import pytest
import yaml

from shared.frameworks.scale_requests import SCALEINS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import EMBEDDED
from tests.kit.operator import SHELL, UNTIL_TOLD, WAITING_WORKER, Operator, a_job, an_example, launcher_that
from tests.kit.walking import agrees

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED

JOB = "elastic-training"


async def shows(operator: Operator, command: str, *lines: str) -> None:
    """Wait until a command, typed as the page has it, writes what the page shows; columns of ours come after theirs."""
    said = ""

    async def so() -> bool:
        nonlocal said
        said = await operator.kubectl(*shlex.split(command)[1:])
        return agrees(lines, said)

    await operator.until(so, lambda: f"{command} wrote\n{said}and not\n" + "\n".join(lines))


async def runs_pods(operator: Operator, *names: str) -> None:
    rows = [f"{JOB}-{name} 1/1 Running 0 ..." for name in names]
    await shows(operator, "kubectl get po", "NAME READY STATUS RESTARTS AGE", *rows)


def elastic_training() -> dict[str, Any]:
    """`examples/training_job.yaml`, with programs of ours: its image needs a GPU."""
    job = an_example("horovod/training_job")
    roles = job["spec"]["etReplicaSpecs"]
    roles["launcher"]["template"]["spec"]["containers"] = [launcher_that(UNTIL_TOLD)]
    roles["worker"]["template"]["spec"]["containers"] = [WAITING_WORKER]
    return job


def a_request_of_the_page(example: str, named: str, **wish: Any) -> dict[str, Any]:
    """A request whose name begins as the page shows it."""
    request = an_example(f"horovod/{example}")
    request["metadata"] = {"generateName": named}
    request["spec"] |= wish
    return request


async def test_the_walk_of_et_operators_readme_shows_what_that_page_prints(operator: Operator):
    await shows(
        operator,
        "kubectl get crd",
        "NAME CREATED AT",
        "...",
        "scaleins.kai.alibabacloud.com ...",
        "scaleouts.kai.alibabacloud.com ...",
        "...",
        "trainingjobs.kai.alibabacloud.com ...",
        "...",
    )
    await operator.apply(elastic_training())
    await shows(operator, "kubectl get trainingjob", "NAME PHASE AGE ...", f"{JOB} Running ...")
    await runs_pods(operator, "launcher", "worker-0", "worker-1")

    await operator.kubectl("create", "-f", "-", given=a_request_of_the_page("scale_in_count", "scalein-sample-"))
    await shows(operator, "kubectl get scalein", "NAME PHASE AGE ...", "scalein-sample-... ScaleSucceeded ...")
    await runs_pods(operator, "launcher", "worker-0")

    two = a_request_of_the_page("scale_out", f"{JOB}-scaleout-", toAdd={"count": 2})
    await operator.kubectl("create", "-f", "-", given=two)
    await shows(operator, "kubectl get scaleout", "NAME PHASE AGE ...", f"{JOB}-scaleout-... ScaleSucceeded ...")
    await runs_pods(operator, "launcher", "worker-0", "worker-1", "worker-2")


async def test_its_scale_in_by_name_finds_the_worker_that_the_walk_leaves(operator: Operator):
    created = await operator.kubectl("create", "-o", "name", "-f", "-", given=an_example("horovod/scale_in_pod"))
    name = created.strip().rpartition("/")[2]
    status = await operator.phase("ScaleSucceeded", SCALEINS, name)
    assert status["toDeletePods"] == [f"{JOB}-worker-1"]
    await runs_pods(operator, "launcher", "worker-0", "worker-2")
    await operator.tell_to_end(JOB)
    await operator.phase("Succeeded", TRAININGJOBS, JOB)
    await operator.delete(JOB)
    await operator.leaves_no_pod(JOB)


OF_MX_OPERATOR_WITH_GPUS = yaml.safe_load(f"""
apiVersion: fioravanzo.org/v1alpha1
kind: MXJob
metadata: {{name: mx-cifar-gpu}}
spec:
  replicaSpecs:
  - &entry
    replicas: 1
    mxReplicaType: SCHEDULER
    template:
      spec: &pod
        containers:
        - &mxnet {{image: {SHELL}, name: mxnet, volumeMounts: [{{name: myshare, mountPath: /share}}]}}
        restartPolicy: OnFailure
        volumes: [{{name: myshare, emptyDir: {{}}}}]
  - {{<<: *entry, mxReplicaType: SERVER}}
  - <<: *entry
    mxReplicaType: WORKER
    template:
      spec:
        <<: *pod
        containers: [{{<<: *mxnet, resources: {{limits: {{alpha.kubernetes.io/nvidia-gpu: 1}}}}}}]
""")
"""The GPU example of mx-operator's README: its aliases come before their anchors, and its share is a cloud's."""


async def test_the_gpu_job_of_mx_operators_readme_asks_for_todays_gpus_on_its_workers_alone(operator: Operator):
    created = await operator.kubectl("create", "-f", "-", given=OF_MX_OPERATOR_WITH_GPUS)
    assert created == "mxjob.fioravanzo.org/mx-cifar-gpu created\n"
    asked: dict[str, Any] = {}

    async def made() -> bool:
        listed = await operator.kubectl("get", "po", "-l", "mx_job_name=mx-cifar-gpu", "-o", "json")
        for pod in json.loads(listed)["items"]:
            container = pod["spec"]["containers"][0]
            assert [mount["name"] for mount in container["volumeMounts"]][:1] == ["myshare"]
            asked[pod["metadata"]["labels"]["job_type"]] = container.get("resources", {}).get("limits", {})
        return len(asked) == 3

    await operator.until(made, lambda: f"not all pods are made: {asked}")
    assert {role: {name: str(number) for name, number in limits.items()} for role, limits in asked.items()} == {
        "SCHEDULER": {},
        "SERVER": {},
        "WORKER": {"nvidia.com/gpu": "1"},
    }
    await operator.kubectl("delete", "mxjobs.fioravanzo.org", "mx-cifar-gpu")


def phases(told: str) -> list[str]:
    """What a command said of the job, and not of the waiting."""
    return [line.removeprefix("trainingjob/asked ") for line in told.splitlines() if line.startswith("trainingjob/")]


async def test_a_job_is_paused_goes_on_begins_again_and_can_say_why(operator: Operator):
    await operator.apply(a_job("asked", UNTIL_TOLD))
    await operator.phase("Running", TRAININGJOBS, "asked")
    told = await operator.muster("suspend", "trainingjob/asked")
    assert told.splitlines()[0] == "trainingjob/asked asked to suspend"
    assert phases(told)[-1].startswith("Suspended")
    assert "is suspended already" in await operator.muster("suspend", "asked")
    assert "muster resume trainingjob/asked" in await operator.muster("restart", "asked", code=1)
    # A real API server keeps who wrote it.
    assert re.search("the job was edited( by muster)? to suspend it", await operator.muster("why", "asked"))
    told = await operator.muster("resume", "asked")
    assert phases(told)[-1].startswith("Running")
    before = (await operator.job("asked")).attempt.number
    told = await operator.muster("restart", "asked")
    assert phases(told)[-1].startswith("Running")
    assert (await operator.job("asked")).attempt.number == before + 1
    assert "attempt 3 begins, not counted as a restart" in await operator.muster("why", "asked")
    await operator.muster("suspend", "asked", "--no-wait")
    told = await operator.muster("resume", "asked")
    assert phases(told)[-1].startswith("Running")
    # Nothing says that it is paused at all when both were asked for before anybody looked.
    assert (await operator.job("asked")).attempt.number in (before + 1, before + 2)
    before = (await operator.job("asked")).attempt.number
    await operator.muster("restart", "asked", "--no-wait")
    await operator.muster("restart", "asked")
    assert (await operator.job("asked")).attempt.number in (before + 1, before + 2)
    chain = json.loads(await operator.muster("why", "trainingjob/asked", "worker-1", "--json"))
    assert re.fullmatch("the job was edited( by muster)? to restart it", chain[-1]["text"])
    await operator.tell_to_end("asked")
    await operator.phase("Succeeded", TRAININGJOBS, "asked")
    for command in ("suspend", "resume", "restart"):
        assert "is over (Succeeded)" in await operator.muster(command, "asked", code=1)
    assert "knows no job default/nobody" in await operator.muster("why", "nobody", code=1)
