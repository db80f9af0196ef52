"""JAXJobs, PaddleJobs, XGBoostJobs and TrainJobs as their users see them, with kubectl."""

import pytest

from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.paddlejob import PADDLEJOB
from shared.frameworks.trainjob import TRAINJOB
from shared.frameworks.xgboostjob import XGBOOSTJOB
from tests.kit.operator import SHELL, Operator, an_example, of_kubeflow
from tests.kit.published import PUBLISHED, Published
from tests.kit.trainer import replicated_job, runtime, train_job

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


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


RUN_HERE = ("jax/cpu-demo/demo", "paddlepaddle/simple-cpu", "xgboost/smoke-dist/xgboostjob_v1alpha1_rabit_test")


@pytest.mark.parametrize(
    "example", [known for known in PUBLISHED if known.file in RUN_HERE], ids=lambda example: example.file
)
async def test_an_example_of_training_operator_runs_with_a_program_of_ours(operator: Operator, example: Published):
    job = example.manifest
    job["metadata"].pop("namespace", None)
    for replica in job["spec"][example.field].values():
        (container,) = replica["template"]["spec"]["containers"]
        container |= {"image": SHELL, "command": ["sh", "-c", "sleep 1"]}
    framework = BUILT_IN.find(job["apiVersion"], job["kind"])
    assert framework is not None
    await operator.apply(job)
    await operator.comes_to("Succeeded", framework.resource, example.name)
    await operator.selects(of_kubeflow(example.name), *example.pods)
    await operator.kubectl("delete", f"{framework.resource.plural}.{framework.resource.group}", example.name)
