"""What `kubectl get` shows of each kind: the columns that its users know first, then what a person looks for."""

import pytest

from devcluster.apiserver.table import find
from devcluster.controlplane import ControlPlane
from muster.crds import manifests
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.job.events.watcher import JobObserved
from shared.job.spec import MANY_STARTING, OVER_BUDGET, Problem
from tests.crds.admission import Document
from tests.crds.judges import real
from tests.frameworks.documents import (
    changed,
    fioravanzo_job,
    jax_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    mpi_job,
    paddle_job,
    pytorch_job,
    scale_in,
    scale_out,
    tf_job,
    training_job,
    xgboost_job,
)
from tests.kit.histories import a_history

COLUMNS = {
    (crd["spec"]["group"], crd["spec"]["names"]["kind"]): version["additionalPrinterColumns"]
    for crd in manifests()
    for version in crd["spec"]["versions"]
}
NOW = "2030-01-01T00:00:00Z"


def a_status(phase: str, **more: object) -> Document:
    """With what et-operator's definition asks for."""
    return {"phase": phase, "conditions": [], "replicaStatuses": {}} | more


def conditions(*types: str) -> list[Document]:
    return [
        {"type": name, "status": "True", "reason": f"Job{name}", "message": f"it is {name}", "lastUpdateTime": NOW}
        for name in types
    ]


def counted(**active: int) -> Document:
    """The status of a job of the training operator's that runs; one worker failed."""
    replicas: Document = {name: {"active": count} for name, count in active.items()}
    replicas["Worker"] = replicas["Worker"] | {"failed": 1}
    return {"conditions": conditions("Created", "Running"), "replicaStatuses": replicas}


def listed(type_field: str) -> Document:
    """The status of an MXNet job that runs."""
    states = [("SCHEDULER", {"Running": 1}), ("WORKER", {"Failed": 1, "Running": 2})]
    replicas = [{type_field: name, "state": "Running", "ReplicasStates": known} for name, known in states]
    status = {"phase": "Running", "state": "Running", "reason": "", "replicaStatuses": replicas}
    return status | ({"desired": 3, "successful": 0} if type_field == "Mx_replica_type" else {})


TRAINING = changed(
    training_job(),
    "status",
    a_status(
        "Running",
        workers="2/3",
        restartCount=1,
        currentScaler="ScaleOut:team-a/more",
        conditions=conditions("Created", "Running"),
    ),
)
ENDED = {"conditions": conditions("Created", "ScaleFailed")}

TABLE = [
    pytest.param(
        TRAINING,
        {"Phase": "Running", "Age": None, "Workers": "2/3", "Restarts": 1, "Reason": "JobRunning"},
        {"Min": 1, "Max": 9, "Scaler": "ScaleOut:team-a/more", "Message": "it is Running"},
        id="TrainingJob",
    ),
    pytest.param(
        changed(scale_in(), "status", a_status("ScaleFailed", **ENDED)),
        {"Phase": "ScaleFailed", "Age": None, "Job": "resnet", "Reason": "JobScaleFailed"},
        {"Count": 1, "Message": "it is ScaleFailed"},
        id="ScaleIn",
    ),
    pytest.param(
        changed(scale_out(), "status", a_status("ScaleFailed", **ENDED)),
        {"Phase": "ScaleFailed", "Age": None, "Job": "resnet", "Reason": "JobScaleFailed"},
        {"Count": 1, "Message": "it is ScaleFailed"},
        id="ScaleOut",
    ),
    pytest.param(
        changed(tf_job(Worker=2), "status", counted(Worker=2, PS=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Chief": None, "Master": None, "PS": 1, "Evaluator": None, "Message": "it is Running"},
        id="TFJob",
    ),
    pytest.param(
        changed(pytorch_job(), "status", counted(Worker=2, Master=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Master": 1, "Message": "it is Running"},
        id="PyTorchJob",
    ),
    pytest.param(
        changed(mpi_job(), "status", counted(Worker=2, Launcher=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Launcher": 1, "Message": "it is Running"},
        id="MPIJob",
    ),
    pytest.param(
        changed(kubeflow_mx_job(), "status", counted(Worker=2, Scheduler=1, Server=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {
            **{"Scheduler": 1, "Server": 1, "TunerTracker": None, "TunerServer": None, "Tuner": None},
            **{"Message": "it is Running"},
        },
        id="MXJob of kubeflow.org",
    ),
    pytest.param(
        changed(jax_job(), "status", counted(Worker=2)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Message": "it is Running"},
        id="JAXJob",
    ),
    pytest.param(
        changed(paddle_job(Master=1, Worker=2), "status", counted(Worker=2, Master=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Master": 1, "Message": "it is Running"},
        id="PaddleJob",
    ),
    pytest.param(
        changed(xgboost_job(), "status", counted(Worker=2, Master=1)),
        {"State": "Running", "Age": None, "Workers": 2, "Failed": 1, "Reason": "JobRunning"},
        {"Master": 1, "Message": "it is Running"},
        id="XGBoostJob",
    ),
    pytest.param(
        changed(fioravanzo_job(), "status", listed("mx_replica_type")),
        {"Phase": "Running", "State": "Running", "Age": None, "Workers": 2},
        {"Failed": 1, "Reason": ""},
        id="MXJob of fioravanzo.org",
    ),
    pytest.param(
        changed(mpba_job(), "status", listed("replicaType")),
        {"Phase": "Running", "State": "Running", "Age": None, "Workers": 2},
        {"Failed": 1, "Reason": ""},
        id="MXJob of mpba.fbk.eu",
    ),
    pytest.param(
        changed(mlkube_job(), "status", listed("Mx_replica_type")),
        {"Kind": "MxJob", "Phase": "Running", "State": "Running", "Age": None, "Workers": 2},
        {"Desired": 3, "Successful": 0, "Failed": 1, "Reason": ""},
        id="MxJob of mxnet.mlkube.io",
    ),
]


@pytest.mark.parametrize(("document", "narrow", "wide"), TABLE)
def test_a_running_job_shows(document: Document, narrow: Document, wide: Document):
    columns = COLUMNS[document["apiVersion"].partition("/")[0], document["kind"]]
    for shown, priority in ((narrow, 0), (wide, 1)):
        known = [column for column in columns if column.get("priority", 0) == priority]
        assert {column["name"]: find(document, column["jsonPath"]) for column in known} == shown
        assert [column["name"] for column in known] == [*shown], "in this order"


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        pytest.param(Problem(reason="NoContainers", message="add one"), {"Refused", "Failed"}, id="refused"),
        pytest.param(Problem(reason=MANY_STARTING), {"Pending", "", "Unknown"}, id="waits until others have started"),
        pytest.param(Problem(reason=OVER_BUDGET), {"Pending", "", "Unknown"}, id="waits for its namespace's budget"),
    ],
)
@pytest.mark.parametrize("framework", [*BUILT_IN], ids=lambda framework: framework.resource.plural)
def test_a_job_that_is_not_admitted_shows_that_and_why(framework: Framework, problem: Problem, words: set[str]):
    resource = framework.resource
    seen = JobObserved(
        kind=resource.kind, api_version=resource.api_version, generation=1, version=1, problems=(problem,)
    )
    document = {"status": framework.status(a_history([seen]).job)}
    shown = {known["name"]: find(document, known["jsonPath"]) for known in COLUMNS[resource.group, resource.kind]}
    assert {shown[name] for name in ("Phase", "State") if name in shown} <= words
    assert problem.reason in str(shown["Reason"]) + str(shown.get("Message"))
    # Kueue, Argo and the SDKs of Kubeflow take Failed for the end.
    assert "Failed" in words or "Failed" not in str(document)


@pytest.mark.real
@pytest.mark.parametrize(("document", "narrow", "wide"), TABLE)
async def test_the_api_server_shows_the_same(
    installed: ControlPlane, document: Document, narrow: Document, wide: Document
):
    async with real(installed) as judge:
        await judge.create(document)
        path = judge.path(document, named=True)
        async with judge.session.get(
            path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        ) as answer:
            table = await answer.json()
    (row,) = table["rows"]
    cells = dict(zip([column["name"] for column in table["columnDefinitions"]], row["cells"], strict=True))
    shown = narrow | wide
    assert {name: cells[name] for name in shown if name != "Age"} == {
        name: value for name, value in shown.items() if name != "Age"
    }
