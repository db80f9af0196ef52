"""Mistakes in the kinds of other operators: the API server refuses them when they are applied, as the parser would."""

import copy

import pytest

from shared.frameworks.kinds import BUILT_IN
from shared.job.spec import JobSpec
from tests.crds.admission import refusals
from tests.crds.judges import Embedded, Judge
from tests.frameworks.documents import (
    ABSENT,
    Document,
    changed,
    custom,
    fioravanzo_job,
    jax_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    paddle_job,
    pytorch_job,
    tf_job,
    training_job,
    xgboost_job,
)

ELASTIC = pytorch_job(policy={"minReplicas": 2, "maxReplicas": 4}, Worker=3)
TF, TORCH, MPI = "spec.tfReplicaSpecs", "spec.pytorchReplicaSpecs", "spec.mpiReplicaSpecs"
CONTAINER = "template.spec.containers[0]"
TUNING = kubeflow_mx_job("MXTune", Tuner=1, TunerTracker=1, TunerServer=1)


def with_another(job: Document, entry: int) -> Document:
    """The job with an entry of its list twice, and so without the last one."""
    entries = copy.deepcopy(job["spec"] if isinstance(job["spec"], list) else job["spec"]["replicaSpecs"])
    entries[-1] = copy.deepcopy(entries[entry])
    return changed(job, "spec" if isinstance(job["spec"], list) else "spec.replicaSpecs", entries)


MISTAKES = [
    pytest.param(tf_job(), TF, {}, f"{TF} in body should have at least 1 properties", id="no replicas"),
    pytest.param(tf_job(), f"{TF}.Boss", tf_job()["spec"]["tfReplicaSpecs"]["Worker"], "Chief, Master, PS, Worker",
        id="a type that the kind has not"),
    pytest.param(tf_job(Chief=1, Worker=1), f"{TF}.master", tf_job()["spec"]["tfReplicaSpecs"]["Worker"],
        "two names for the task that leads", id="a chief and a master"),
    pytest.param(tf_job(), f"{TF}.Worker.replicas", 0, "ask for at least one pod", id="no pod"),
    pytest.param(tf_job(), f"{TF}.Worker.template", ABSENT, f"{TF}.Worker.template: Required value", id="no template"),
    pytest.param(tf_job(), f"{TF}.Worker.{CONTAINER}.name", "main", "call the container that trains tensorflow",
        id="a container of another name in a TFJob"),
    pytest.param(tf_job(), f"{TF}.Worker.{CONTAINER}.image", ABSENT, "image: Required value", id="no image"),
    pytest.param(pytorch_job(), f"{TORCH}.Master.replicas", 2, "ask for 0 to 1 of Master", id="two masters"),
    pytest.param(pytorch_job(), f"{TORCH}.Worker.{CONTAINER}.name", "main", "call the container that trains pytorch",
        id="a container of another name in a PyTorchJob"),
    pytest.param(pytorch_job(), "spec.nprocPerNode", "many", "nprocPerNode in body should match", id="no number"),
    pytest.param(pytorch_job(Master=1), "spec.elasticPolicy", {"maxReplicas": 2}, "add a Worker",
        id="an elasticPolicy about no worker"),
    pytest.param(ELASTIC, f"{TORCH}.Worker.replicas", 5, "at most maxReplicas", id="more than the maximum"),
    pytest.param(ELASTIC, f"{TORCH}.Worker.replicas", 1, "at least minReplicas", id="fewer than the minimum"),
    pytest.param(ELASTIC, f"{TORCH}.Worker.replicas", ABSENT, "at least minReplicas", id="one, and a minimum of two"),
    pytest.param(ELASTIC, "spec.elasticPolicy", {"minReplicas": 5, "maxReplicas": 3}, "set minReplicas to at most",
        id="a minimum above the maximum"),
    pytest.param(changed(ELASTIC, "spec.nprocPerNode", "2"), "spec.elasticPolicy.nProcPerNode", 2,
        "write nprocPerNode alone", id="processes said twice"),
    pytest.param(mpi_job(Worker=2), "spec.slotsPerWorker", 1, "add 1 Launcher", id="no launcher"),
    pytest.param(mpi_job(), f"{MPI}.Launcher.replicas", 2, "ask for 1 Launcher", id="two launchers"),
    pytest.param(mpi_job(), f"{MPI}.Worker.replicas", ABSENT, "ask for at least one Worker", id="workers of no number"),
    pytest.param(mpi_job(), f"{MPI}.Worker.replicas", 0, "ask for at least one Worker", id="no workers"),
    pytest.param(mpi_job(), f"{MPI}.Worker.replicas", 5001, "ask for 0 to 5000 of Worker", id="more than a file lists"),
    pytest.param(mpi_job(v2beta1=True), "spec.sshAuthMountPath", "ssh", "should match", id="a path that is relative"),
    pytest.param(mpi_job(v2beta1=True), f"{MPI}.Launcher.replicas", 2, "ask for 1 Launcher", id="two in v2beta1"),
    pytest.param(kubeflow_mx_job(), "spec.jobMode", "MXTune", "ends with its Tuner", id="nothing that tunes"),
    pytest.param(TUNING, "spec.jobMode", "MXTrain", "add a Scheduler", id="nothing that schedules"),
    pytest.param(kubeflow_mx_job(), "spec.mxReplicaSpecs.Scheduler.replicas", 2, "ask for 0 to 1 of Scheduler",
        id="two schedulers in a map"),
    pytest.param(fioravanzo_job(SERVER=1, WORKER=1), "spec.mxImage", "a", "add 1 SCHEDULER", id="no scheduler"),
    pytest.param(fioravanzo_job(), "spec.replicaSpecs[0].replicas", 2, "ask for 1 SCHEDULER", id="two schedulers"),
    pytest.param(fioravanzo_job(), f"spec.replicaSpecs[0].{CONTAINER}.name", "main",
        "call the container that trains mxnet", id="a container of another name in a list"),
    pytest.param(with_another(fioravanzo_job(), 1), "spec.mxImage", "a", "one entry for each type", id="servers twice"),
    pytest.param(fioravanzo_job(), "spec.RuntimeId", "A-1", "RuntimeId in body should match", id="no part of a name"),
    pytest.param(mpba_job(SERVER=1), "spec[0].replicas", 1, "add 1 SCHEDULER", id="no scheduler where spec is a list"),
    pytest.param(with_another(mpba_job(), 1), "spec[1].replicas", 1, "one entry for each type",
        id="servers twice where spec is a list"),
    pytest.param(mlkube_job(), "spec.jobMode", "local", "one WORKER and nothing else", id="a local job of many"),
    pytest.param(mlkube_job(mode="local", WORKER=1), "spec.jobMode", "dist", "needs SCHEDULER, SERVER, WORKER",
        id="a distributed job of one"),
    pytest.param(mlkube_job(), "spec.replicaSpecs[1].replicas", 0, "needs SCHEDULER, SERVER, WORKER", id="no servers"),
]  # fmt: skip


@pytest.mark.parametrize(("job", "path", "value", "says"), MISTAKES)
async def test_is_refused_when_it_is_applied(judge: Judge, job: Document, path: str, value: object, says: str):
    wrong = changed(job, path, value)
    told = await judge.refusals(wrong)
    assert any(says in cause for cause in told), told
    framework = BUILT_IN.find(wrong["apiVersion"], wrong["kind"])
    assert framework is not None
    assert not isinstance(framework.parse(custom(wrong)), JobSpec), "what the parser takes is not refused"


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(tf_job(Worker=2, pS=1), id="types in any case"),
        pytest.param(changed(tf_job(), f"{TF}.Worker.replicas", ABSENT), id="a type without a number is one"),
        pytest.param(tf_job(Chief=1, Worker=0), id="no workers beside a chief"),
        pytest.param(changed(pytorch_job(), "spec.nprocPerNode", ""), id="an empty text is an absent one"),
        pytest.param(mpi_job(Launcher=1), id="a launcher alone"),
        pytest.param(changed(mpi_job(), f"{MPI}.Launcher.{CONTAINER}.name", "any"), id="an MPI container of any name"),
        pytest.param(kubeflow_mx_job(Worker=2, Server=0), id="workers alone, and no servers"),
        pytest.param(TUNING, id="a tuner with its servers"),
        pytest.param(mlkube_job(mode="local", WORKER=1), id="a local job"),
        pytest.param(
            changed(tf_job(), f"{TF}.Worker.{CONTAINER}.env", [{"name": "A", "valueFrom": {"fieldRef": {"x": 1}}}]),
            id="a variable from elsewhere",
        ),
    ],
)
async def test_is_taken_as_the_parser_takes_it(judge: Judge, job: Document):
    assert await judge.refusals(job) == []
    framework = BUILT_IN.find(job["apiVersion"], job["kind"])
    assert framework is not None
    assert isinstance(framework.parse(custom(job)), JobSpec)


@pytest.mark.parametrize(
    ("job", "container"),
    [
        (training_job(), "spec.etReplicaSpecs.worker.template.spec.containers[0]"),
        (tf_job(), f"{TF}.Worker.{CONTAINER}"),
        (fioravanzo_job(), f"spec.replicaSpecs[0].{CONTAINER}"),
    ],
    ids=["TrainingJob", "TFJob", "MXJob"],
)
@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("env", [{"name": "THREADS", "value": 1}], "env[0].value"),
        ("env", [{"value": "1"}], "env[0].name: Required value"),
        ("command", "train.py", "command in body must be of type array"),
        ("args", ["--epochs", 3], "args[1]"),
    ],
    ids=[
        "a number for a variable",
        "a variable without a name",
        "a command that is no list",
        "a number for an argument",
    ],
)
async def test_no_pod_can_be_made_of(judge: Judge, job: Document, container: str, field: str, value: object, says: str):
    told = await judge.refusals(changed(job, f"{container}.{field}", value))
    assert any(says in cause for cause in told), told


@pytest.mark.parametrize(
    ("job", "specs"),
    [
        (tf_job(), TF),
        (pytorch_job(Worker=2), TORCH),
        (mpi_job(), MPI),
        (kubeflow_mx_job(), "spec.mxReplicaSpecs"),
        (jax_job(), "spec.jaxReplicaSpecs"),
        (paddle_job(), "spec.paddleReplicaSpecs"),
        (xgboost_job(), "spec.xgbReplicaSpecs"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("part", ["template", "template.spec", "template.spec.containers"])
async def test_a_job_from_before_the_schema_gets_its_status(job: Document, specs: str, part: str):
    """An error of a rule is never dropped, so no rule may stumble over what older definitions let through."""
    old = changed(job, f"{specs}.Worker.{part}", ABSENT)
    now = changed(old, "status", {"conditions": [{"type": "Failed", "status": "True"}]})
    assert await Embedded().refusals(now, old) == []


@pytest.mark.parametrize(
    ("job", "default"), [(fioravanzo_job(), 0), (mlkube_job(), 2)], ids=["fioravanzo's SCHEDULER", "mlkube's WORKER"]
)
def test_a_type_is_one_of_the_kinds_or_left_out(job: Document, default: int):
    field = f"spec.replicaSpecs[{default}].mxReplicaType"
    assert refusals(job) == []
    for left_out in ("", ABSENT):
        assert refusals(changed(job, field, left_out)) == []
    for unknown in ("MASTER", "scheduler"):
        (told,) = refusals(changed(job, field, unknown))
        assert "mxReplicaType" in told


@pytest.mark.parametrize("word", ["SERVER", "server", "Server"])
def test_dl_operators_types_are_taken_in_any_case(word: str):
    assert refusals(changed(mpba_job(), "spec[1].replicaType", word)) == []


def test_a_name_may_begin_with_a_digit_where_pods_names_begin_with_the_type():
    assert refusals(mpba_job("1abc")) == []
    assert "a letter or digit" in refusals(mpba_job("-abc"))[0]
    for job in (fioravanzo_job("1abc"), mlkube_job("1abc")):
        assert "beginning with a letter and" in refusals(job)[0]


@pytest.mark.parametrize("mode", ["", "MXTrain", ABSENT])
def test_an_empty_mode_is_an_absent_one(mode: object):
    assert refusals(changed(kubeflow_mx_job(), "spec.jobMode", mode)) == []
