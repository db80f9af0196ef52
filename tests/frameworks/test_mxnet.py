"""The MXNet kinds of four operators: manifests, whose end is the job's, the environment of ps-lite, pods, status."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from services.status.core.announce import announcements
from services.status.core.effects import Announce
from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxjob import MXJOB
from shared.frameworks.mxnet import runtime_id
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import EffectRefused
from shared.job.events.scheduler import SlotsAssigned, SlotsReleased
from shared.job.events.status import JobCreated, JobFailed, JobRunning, JobSucceeded
from shared.job.events.watcher import JobDeleting, JobObserved, PodsObserved
from shared.job.naming import Slot
from shared.job.policies.retries import may_restart
from shared.job.policies.verdict import verdict
from shared.job.spec import Problem
from shared.job.views import Exit
from tests.frameworks.documents import (
    ABSENT,
    Document,
    changed,
    custom,
    fioravanzo_job,
    kubeflow_mx_job,
    mlkube_job,
    mpba_job,
    reasons_of,
    spec_of,
)
from tests.kit.histories import a_history
from tests.kit.pods import context_of, pod_for, service_for
from tests.kit.replicas import all_slots, ended, replica

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"

TRAIN, TUNE = kubeflow_mx_job(), kubeflow_mx_job("MXTune", TunerTracker=1, TunerServer=1, Tuner=1)
WORKER = "spec.mxReplicaSpecs.Worker.template"
LOCAL = mlkube_job(mode="local", WORKER=1)

LISTS = [
    (FIORAVANZO_MXJOB, fioravanzo_job(), "spec.replicaSpecs", "mxReplicaType"),
    (MPBA_MXJOB, mpba_job(), "spec", "replicaType"),
    (MLKUBE_MXJOB, mlkube_job(), "spec.replicaSpecs", "mxReplicaType"),
]
ALL = [
    *((framework, document, f"{at}[0]") for framework, document, at, _ in LISTS),
    (MXJOB, TRAIN, "spec.mxReplicaSpecs.Scheduler"),
]


def with_policies(document: Document, at: str, policy: object) -> Document:
    for index in range(3):
        document = changed(document, f"{at}[{index}].template.spec.restartPolicy", policy)
    return document


def role_of(framework: Framework, document: Document) -> dict[str, int]:
    return {role.name: role.replicas for role in spec_of(framework, document).roles}


@pytest.mark.parametrize(
    ("framework", "document", "roles"),
    [
        (FIORAVANZO_MXJOB, fioravanzo_job(SCHEDULER=1), {"scheduler": 1}),
        (FIORAVANZO_MXJOB, fioravanzo_job(SCHEDULER=1, WORKER=0), {"scheduler": 1, "worker": 0}),
        (MLKUBE_MXJOB, mlkube_job(), {"scheduler": 1, "server": 2, "worker": 3}),
        # Of each operator what an entry without a type is, and one without a number.
        (
            FIORAVANZO_MXJOB,
            changed(
                changed(fioravanzo_job(SCHEDULER=1), "spec.replicaSpecs[0].mxReplicaType", ABSENT),
                "spec.replicaSpecs[0].replicas",
                ABSENT,
            ),
            {"scheduler": 1},
        ),
        (MLKUBE_MXJOB, changed(LOCAL, "spec.replicaSpecs[0].mxReplicaType", ABSENT), {"worker": 1}),
        (MPBA_MXJOB, changed(mpba_job(), "spec[1].replicaType", "server"), {"scheduler": 1, "server": 2, "worker": 3}),
        (MXJOB, kubeflow_mx_job(SCHEDULER=1, server=1, Worker=2), {"scheduler": 1, "server": 1, "worker": 2}),
    ],
)
def test_the_roles_of_a_job_are_its_entries(framework: Framework, document: Document, roles: dict[str, int]):
    assert role_of(framework, document) == roles


@pytest.mark.parametrize(
    ("framework", "document", "leader", "restarts", "clean"),
    [
        *(
            (FIORAVANZO_MXJOB, changed(fioravanzo_job(), "spec.terminationPolicy", policy), "scheduler", "Job", "None")
            for policy in (
                *({}, None, {"chief": {}}, {"chief": None}, {"chief": {"replicaName": ""}}),
                {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 0}},
            )
        ),
        (MPBA_MXJOB, mpba_job(), "scheduler", "Job", "Running"),
        (MLKUBE_MXJOB, mlkube_job(), "scheduler", "Job", "Running"),
        (MLKUBE_MXJOB, LOCAL, "worker", "Job", "Running"),
        (MXJOB, changed(TRAIN, "spec.runPolicy", {"cleanPodPolicy": "Running"}), "scheduler", "Pod", "Running"),
        (MXJOB, changed(TRAIN, "spec.jobMode", ""), "scheduler", "Pod", "None"),
        (MXJOB, TUNE, "tuner", "Pod", "None"),
        (MXJOB, kubeflow_mx_job(Worker=2), "worker", "Pod", "None"),
        (MXJOB, kubeflow_mx_job(Worker=1, Server=0), "worker", "Pod", "None"),
        (MXJOB, kubeflow_mx_job(Scheduler=0, Worker=1), "worker", "Pod", "None"),
    ],
)
def test_whose_end_is_the_jobs(framework: Framework, document: Document, leader: str, restarts: str, clean: str):
    spec = spec_of(framework, document)
    assert (spec.handling.leader, spec.handling.restarts, spec.clean_pod_policy) == (leader, restarts, clean)
    if framework is MXJOB:
        assert (spec.handling.succeeds, spec.handling.winds_down) == ("All", leader == "scheduler")
    else:
        assert spec.policy(leader) == "ExitCode"
        assert (spec.backoff_limit, spec.handling.out_of_memory_is_final) == (6, True)


@pytest.mark.parametrize(
    ("framework", "at", "theirs", "policies"),
    [
        (FIORAVANZO_MXJOB, "spec.replicaSpecs", ABSENT, "ExitCode Always Always"),
        (FIORAVANZO_MXJOB, "spec.replicaSpecs", "Always", "ExitCode Always Always"),
        (FIORAVANZO_MXJOB, "spec.replicaSpecs", "OnFailure", "ExitCode OnFailure OnFailure"),
        # The operator replaced pods that failed.
        (FIORAVANZO_MXJOB, "spec.replicaSpecs", "Never", "ExitCode OnFailure OnFailure"),
        (FIORAVANZO_MXJOB, "spec.replicaSpecs", {"a": 1}, "ExitCode Always Always"),
        (MPBA_MXJOB, "spec", "OnFailure", "ExitCode OnFailure OnFailure"),
        (MPBA_MXJOB, "spec", "Always", "ExitCode Always Always"),
        (MPBA_MXJOB, "spec", "Never", "Never Never Never"),
        (MPBA_MXJOB, "spec", ABSENT, "ExitCode OnFailure OnFailure"),
        (MPBA_MXJOB, "spec", {"a": 1}, "ExitCode OnFailure OnFailure"),
        (MLKUBE_MXJOB, "spec.replicaSpecs", "Always", "ExitCode OnFailure OnFailure"),
    ],
)
def test_which_exits_begin_again(framework: Framework, at: str, theirs: object, policies: str):
    document = next(document for known, document, *_ in LISTS if known is framework)
    spec = spec_of(framework, with_policies(document, at, theirs))
    assert " ".join(spec.policy(role) for role in ("scheduler", "server", "worker")) == policies


def refused_lists() -> Iterator[tuple[Framework, Document, str]]:
    """What cannot run in any kind whose replicas are a list, and the one reason, or one of them before a `?`."""
    for framework, document, at, type_field in LISTS:
        entries = document["spec"] if at == "spec" else document["spec"]["replicaSpecs"]
        for where, value, reason in (
            (at, entries[1:], "NoReplicas"),
            (f"{at}[0].replicas", 2, "InvalidValue?"),
            (f"{at}[1].{type_field}", "SCHEDULER", "DuplicateReplicaType?"),
            (f"{at}[0].replicas", 0, "NoReplicas" if framework is MLKUBE_MXJOB else "InvalidValue"),
            (f"{at}[1].{type_field}", "MASTER", "UnknownReplicaType?"),
            (f"{at}[1].{type_field}", ["SERVER"], "InvalidValue?"),
            (f"{at}[1].template", ABSENT, "NoTemplate"),
            (f"{at}[1].template.spec.containers", [], "NoContainers"),
            *((at, nothing, "") for nothing in ([], None, {}, "SCHEDULER", [None])),
            *(("metadata.name", name, "InvalidName?") for name in ("my.job", "-lives", "lives-", "m" * 70)),
        ):
            yield framework, changed(document, where, value), reason


@pytest.mark.parametrize(
    ("framework", "document", "reason"),
    [
        *refused_lists(),
        *(
            (FIORAVANZO_MXJOB, changed(fioravanzo_job(), where, value), reason)
            for where, value, reason in (
                ("spec.terminationPolicy", {"chief": {"replicaName": "WORKER"}}, "UnsupportedChief"),
                (
                    "spec.terminationPolicy",
                    {"chief": {"replicaName": "SCHEDULER", "replicaIndex": 1}},
                    "UnsupportedChief",
                ),
                *(("spec.replicaSpecs[0].mxPort", port, "InvalidValue") for port in (0, 65_536, "9000", True)),
                *(
                    ("spec.RuntimeId", word, "InvalidRuntimeId")
                    for word in ("1KKF", "a.b", "é1kk", "-", "x" * 17, "x" * 70)
                ),
            )
        ),
        (MLKUBE_MXJOB, mlkube_job(mode="local", WORKER=2), "NotLocal?"),
        (MLKUBE_MXJOB, mlkube_job(mode="local"), "NotLocal?"),
        (MLKUBE_MXJOB, mlkube_job(mode="local", WORKER=0), "NoReplicas?"),
        (MLKUBE_MXJOB, mlkube_job(SCHEDULER=1, WORKER=1), "NoReplicas?"),
        (MLKUBE_MXJOB, mlkube_job(SCHEDULER=1, SERVER=1), "NoReplicas?"),
        (MLKUBE_MXJOB, mlkube_job(SCHEDULER=1, SERVER=0, WORKER=1), "NoReplicas?"),
        (MLKUBE_MXJOB, mlkube_job(mode="both"), "UnknownJobMode?"),
        (MLKUBE_MXJOB, changed(mlkube_job(), "spec.jobMode", ABSENT), "NoJobMode?"),
        (MLKUBE_MXJOB, changed(mlkube_job(), "metadata.name", "m" * 50), "InvalidName?"),
        (MLKUBE_MXJOB, mlkube_job("9lives"), "InvalidName?"),
        (MXJOB, kubeflow_mx_job(Server=1, Worker=1), "NoScheduler?"),
        (MXJOB, kubeflow_mx_job(Scheduler=0, Server=1, Worker=1), "NoScheduler?"),
        (MXJOB, kubeflow_mx_job(Scheduler=2, Worker=1), "InvalidValue?"),
        (MXJOB, kubeflow_mx_job("MXTune", TunerTracker=1), "NoReplicas?"),
        (MXJOB, kubeflow_mx_job("MXPlay"), "UnknownJobMode?"),
        (MXJOB, kubeflow_mx_job(Scheduler=1, Master=1), "UnknownReplicaType?"),
        (MXJOB, changed(TRAIN, "spec.mxReplicaSpecs", {}), "NoReplicas?"),
        (MXJOB, changed(TUNE, "spec.mxReplicaSpecs.TunerServer.label", 2080), "InvalidValue?"),
        (MXJOB, changed(TRAIN, f"{WORKER}.spec.containers[0].name", "main"), "NoTrainingContainer?"),
        *(
            (
                framework,
                changed(document, f"{at}.template.spec.containers[0].env", [{"name": name}]),
                "ReservedVariable",
            )
            for framework, document, at in ALL
            for name in ("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER")
        ),
    ],
)
def test_what_cannot_run_is_refused(framework: Framework, document: Document, reason: str):
    reasons = reasons_of(framework, document)
    assert reason.rstrip("?") in reasons if reason.endswith("?") else {reason or reasons[0]} <= {*reasons}
    if reason and not reason.endswith("?"):
        assert {*reasons} == {reason}


@pytest.mark.parametrize(("framework", "document", "at", "type_field"), LISTS)
def test_a_problem_says_where(framework: Framework, document: Document, at: str, type_field: str):
    problems = framework.parse(custom(changed(document, f"{at}[2].template", ABSENT)))
    assert isinstance(problems, tuple)
    assert [problem.field for problem in problems] == [f"{at}[2].template"]


class TestNames:
    @pytest.mark.parametrize(
        ("framework", "document", "slot", "name"),
        [
            (FIORAVANZO_MXJOB, fioravanzo_job(), Slot(0, "worker", 0), "mnist-worker-1kkf-0"),
            (FIORAVANZO_MXJOB, fioravanzo_job("m" * 63), Slot(0, "worker", 0), f"{'m' * 40}-worker-1kkf-0"),
            (MPBA_MXJOB, mpba_job("1abc"), Slot(0, "server", 1), "server-1abc-1"),
            (MLKUBE_MXJOB, mlkube_job(), Slot(0, "worker", 2), "mnist-worker-1kkf-2"),
            (MXJOB, TRAIN, Slot(0, "server", 0), "mnist-server-0"),
        ],
    )
    def test_they_are_those_of_each_operator(self, framework: Framework, document: Document, slot: Slot, name: str):
        job = custom(document)
        assert spec_of(framework, document)
        for made in (pod_for(job, slot, framework), service_for(job, slot, framework)):
            assert made["metadata"]["name"] == name

    def test_without_a_runtime_id_one_is_made_of_the_uid(self):
        job = changed(fioravanzo_job(), "spec.RuntimeId", ABSENT)
        made = runtime_id(custom(job))
        assert len(made) == 4
        name = pod_for(custom(job), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["metadata"]["name"]
        assert name == f"mnist-worker-{made}-0"
        assert runtime_id(custom(changed(job, "metadata.resourceVersion", "99"))) == made
        assert runtime_id(custom(changed(job, "metadata.uid", "uid-2"))) != made

    @pytest.mark.parametrize(
        ("identity", "name", "said"),
        [
            ("1kkf", "m" * 64, "at most 63 characters"),
            ("x" * 16, "m" * 50, "at most 34 lower-case letters"),
            ("x" * 16, "m" * 35, "at most 34 lower-case letters"),
            ("1kkf", "9lives", ""),
        ],
    )
    def test_one_that_cannot_be_is_told_with_the_length_if_that_is_the_reason(
        self, identity: str, name: str, said: str
    ):
        job = changed(fioravanzo_job(name), "spec.RuntimeId", identity)
        (problem,) = FIORAVANZO_MXJOB.parse(custom(job))
        assert problem.reason == "InvalidName"
        assert said in problem.message
        assert bool(said) == ("at most" in problem.message)
        assert spec_of(FIORAVANZO_MXJOB, changed(job, "metadata.name", "m" * 34))


def environments(framework: Framework, document: Document) -> dict[str, Any]:
    """The training container's, by pod; what is JSON as the object that it holds."""
    found: dict[str, Any] = {}
    job = custom(document)
    for role in spec_of(framework, document).roles:
        for index in range(role.replicas):
            slot = Slot(0, role.name, index)
            (container,) = pod_for(job, slot, framework)["spec"]["containers"]
            values = {known["name"]: known["value"] for known in container.get("env", ())}
            if "MX_CONFIG" in values:
                values["MX_CONFIG"] = json.loads(values["MX_CONFIG"])
            found[context_of(job, slot, framework, sizes={}).name] = values
    return found


MXJOB_PORT = [{"name": "mxjob-port", "containerPort": 9991}]
OTHER_PORT = changed(fioravanzo_job(WORKER=2, SERVER=1, SCHEDULER=1), "spec.replicaSpecs[2].mxPort", 9321)
LABELLED = changed(
    changed(TUNE, "spec.mxReplicaSpecs.TunerServer.label", "2080ti"),
    "spec.mxReplicaSpecs.Tuner.template.metadata",
    {"annotations": {"tuner-server-key": "a100"}},
)


@pytest.mark.parametrize(
    ("name", "framework", "document"),
    [
        ("fioravanzo", FIORAVANZO_MXJOB, OTHER_PORT),
        ("mpba", MPBA_MXJOB, mpba_job(SCHEDULER=1, SERVER=2, WORKER=1)),
        ("mlkube_dist", MLKUBE_MXJOB, mlkube_job(SCHEDULER=1, SERVER=2, WORKER=1)),
        ("mlkube_local", MLKUBE_MXJOB, LOCAL),
        ("kubeflow_train", MXJOB, changed(TRAIN, f"{WORKER}.spec.containers[0].ports", MXJOB_PORT)),
        ("kubeflow_tune", MXJOB, LABELLED),
    ],
)
def test_every_pod_gets_the_environment_of_the_contract(name: str, framework: Framework, document: Document):
    assert environments(framework, document) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


def test_workers_whose_scheduler_is_none_are_told_of_none():
    (told,) = environments(MXJOB, kubeflow_mx_job(Scheduler=0, Worker=1)).values()
    assert (told["DMLC_PS_ROOT_URI"], told["DMLC_PS_ROOT_PORT"]) == ("", "0")


def test_a_local_job_gets_no_variables_so_that_all_are_the_users():
    theirs = [{"name": "DMLC_ROLE", "value": "worker"}]
    job = changed(LOCAL, "spec.replicaSpecs[0].template.spec.containers[0].env", theirs)
    assert environments(MLKUBE_MXJOB, job) == {"mnist-worker-1kkf-0": {"DMLC_ROLE": "worker"}}


OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"


@pytest.mark.parametrize(("framework", "document", "at"), ALL)
class TestPods:
    def container(self, framework: Framework, document: Document, at: str, field: str, value: object) -> Document:
        job = custom(changed(document, f"{at}.template.spec.containers[0].{field}", value))
        (container,) = pod_for(job, Slot(0, "scheduler", 0), framework)["spec"]["containers"]
        return container

    def test_the_environment_of_users_wins_where_that_is_safe(self, framework: Framework, document: Document, at: str):
        theirs = [{"name": "PS_VERBOSE", "value": "0"}, {"name": "DMLC_USE_KUBERNETES", "value": "0"}]
        env = self.container(framework, document, at, "env", theirs)["env"]
        assert env[-2:] == theirs
        assert len(env) == len({known["name"] for known in env})

    def test_all_that_a_template_says_is_kept(self, framework: Framework, document: Document, at: str):
        side = {"name": "logs", "image": "shipper", "env": [{"name": "A", "value": "b"}]}
        template = {
            "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
            "spec": {
                "containers": [{"name": "mxnet", "image": "train", "workingDir": "/mxnet"}, side],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "schedulerName": "volcano",
                "restartPolicy": "OnFailure",
            },
        }
        pod = pod_for(custom(changed(document, f"{at}.template", template)), Slot(0, "scheduler", 0), framework)
        assert pod["metadata"]["labels"]["team"] == "a"
        assert pod["metadata"]["annotations"] == {"note": "b"}
        assert pod["spec"]["containers"][1] == side
        assert pod["spec"]["containers"][0]["workingDir"] == "/mxnet"
        for kept in ("volumes", "tolerations", "schedulerName"):
            assert pod["spec"][kept] == template["spec"][kept]
        assert pod["spec"]["restartPolicy"] == "Never"

    def test_gpus_may_go_by_their_old_name_and_todays_counts_where_both_stand(
        self, framework: Framework, document: Document, at: str
    ):
        old = {"limits": {OLD_GPU: 1, "memory": "1Gi"}, "requests": {"cpu": 1}}
        new = {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}, "requests": {"cpu": 1}}
        both, newest = {"limits": {"nvidia.com/gpu": 2, OLD_GPU: 1}}, {"limits": {"nvidia.com/gpu": 2}}
        assert self.container(framework, document, at, "resources", old)["resources"] == new
        assert self.container(framework, document, at, "resources", both)["resources"] == newest

    def test_every_pod_has_a_service_under_its_name(self, framework: Framework, document: Document, at: str):
        job, slot = custom(document), Slot(0, "scheduler", 0)
        service = service_for(job, slot, framework)
        assert service["metadata"]["name"] == pod_for(job, slot, framework)["metadata"]["name"]
        (port,) = service["spec"]["ports"]
        known = {
            FIORAVANZO_MXJOB: ("mx-port", 9000),
            MPBA_MXJOB: ("dlport0", 9000),
            MLKUBE_MXJOB: ("ps-root-port", 9091),
            MXJOB: ("mxjob-port", 9091),
        }
        assert (port["name"], port["port"]) == known[framework]
        assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)


@pytest.mark.parametrize(
    ("framework", "document", "of_pod", "of_service"),
    [
        (
            FIORAVANZO_MXJOB,
            fioravanzo_job(),
            "fioravanzo.org= job_type=SERVER runtime_id=1kkf mx_job_name=mnist task_index=1",
            "fioravanzo.org= job_type=SERVER runtime_id=1kkf mx_job_name=mnist task_index=1",
        ),
        (
            MPBA_MXJOB,
            mpba_job(),
            "pod_name=server-mnist-1 job_name=mnist",
            "service_name=server-mnist-1 job_name=mnist",
        ),
        (
            MLKUBE_MXJOB,
            mlkube_job(),
            "mxnet.mlkube.io= job_type=SERVER runtime_id=1kkf task_index=1",
            "mxnet.mlkube.io= job_type=SERVER runtime_id=1kkf task_index=1",
        ),
        (MXJOB, kubeflow_mx_job(Scheduler=1, Server=2), "training.kubeflow.org/job-role=master", ""),
    ],
)
def test_labels_are_theirs_beside_ours(framework: Framework, document: Document, of_pod: str, of_service: str):
    job, slot = custom(document), Slot(0, "server", 1)
    for made, theirs in ((pod_for, of_pod), (service_for, of_service)):
        labels = {f"{name}={value}" for name, value in made(job, slot, framework)["metadata"]["labels"].items()}
        assert {*theirs.split()} <= labels
    assert (
        "training.kubeflow.org/job-role" not in pod_for(job, Slot(0, "scheduler", 0), framework)["metadata"]["labels"]
    )


def test_the_schedulers_name_is_the_specs_unless_the_template_has_its_own():
    def scheduled(job: Document) -> str | None:
        name: str | None = pod_for(custom(job), Slot(0, "worker", 0), FIORAVANZO_MXJOB)["spec"].get("schedulerName")
        return name

    job = changed(fioravanzo_job(), "spec.schedulerName", "volcano")
    assert scheduled(job) == "volcano"
    assert scheduled(changed(job, "spec.replicaSpecs[2].template.spec.schedulerName", "yunikorn")) == "yunikorn"
    assert scheduled(fioravanzo_job()) is None


def test_the_first_container_of_a_list_trains_whatever_its_name():
    job = changed(mpba_job(), "spec[0].template.spec.containers[0].name", "linear")
    assert spec_of(MPBA_MXJOB, job).role("scheduler").container == "linear"
    (container,) = pod_for(custom(job), Slot(0, "scheduler", 0), MPBA_MXJOB)["spec"]["containers"]
    assert "DMLC_ROLE" in {variable["name"] for variable in container["env"]}


def test_the_image_of_the_spec_has_no_effect_and_the_job_says_so():
    spec = spec_of(FIORAVANZO_MXJOB, changed(fioravanzo_job(), "spec.mxImage", "mxnet:1"))
    assert [known.field for known in spec.ignored] == ["spec.mxImage"]


def test_their_definitions_are_a_list_and_columns_that_their_users_know():
    assert MPBA_MXJOB.definition.spec["type"] == "array"
    columns = {column["name"]: column for column in MLKUBE_MXJOB.definition.columns}
    assert columns["Kind"]["jsonPath"] == ".kind"
    assert columns["Desired"]["priority"] == columns["Successful"]["priority"] == 1


def begun(framework: Framework, document: Document) -> list[AnyEvent]:
    kind, spec = document["kind"], spec_of(framework, document)
    return [
        JobObserved(kind=kind, api_version=document["apiVersion"], generation=1, version=1, spec=spec),
        JobCreated(reason=f"{kind}Created"),
        SlotsAssigned(slots=all_slots(spec), reason="JobCreated"),
    ]


def running(framework: Framework, document: Document) -> list[AnyEvent]:
    pods = [replica(role, index) for role, number in role_of(framework, document).items() for index in range(number)]
    return [
        *begun(framework, document),
        PodsObserved(pods=tuple(pods)),
        JobRunning(reason=f"{document['kind']}Running"),
    ]


OF_FOUR = {"SCHEDULER": 1, "SERVER": 1, "WORKER": 2}
CREATED = begun(FIORAVANZO_MXJOB, fioravanzo_job(**OF_FOUR))
RUNNING = running(FIORAVANZO_MXJOB, fioravanzo_job(**OF_FOUR))
DIST, ALONE = running(MLKUBE_MXJOB, mlkube_job(**OF_FOUR)), running(MLKUBE_MXJOB, LOCAL)
OF_LIST = begun(MPBA_MXJOB, mpba_job(SCHEDULER=1, WORKER=1))


def exited(role: str, index: int, code: int, reason: str = "") -> AnyEvent:
    return ended(role, index, code, reason=reason, container="mxnet")


@pytest.mark.parametrize(("events", "judge"), [(DIST, "scheduler"), (ALONE, "worker")], ids=["dist", "local"])
@pytest.mark.parametrize(
    ("code", "reason", "end"),
    [
        (0, "", "success"),
        (1, "", "failure"),
        (127, "", "failure"),
        (128, "", "again"),
        (255, "", "again"),
        (137, "OOMKilled", "failure"),
    ],
)
def test_the_end_of_the_one_that_counts(events: list[AnyEvent], judge: str, code: int, reason: str, end: str):
    job = a_history([*events, exited(judge, 0, code, reason)]).job
    found = verdict(job)
    assert found is not None
    assert ("success" if found.success else "again" if may_restart(job, found) else "failure") == end


@pytest.mark.parametrize("role", ["server", "worker"])
@pytest.mark.parametrize("code", [0, 1, 137])
def test_the_end_of_a_server_or_worker_ends_no_job(role: str, code: int):
    assert verdict(a_history([*DIST, exited(role, 0, code)]).job) is None


def states(status: Document) -> dict[str, Document]:
    """The counts of each type."""
    return {
        known.get("mx_replica_type") or known.get("Mx_replica_type") or known["replicaType"]: known["ReplicasStates"]
        for known in status["replicaStatuses"]
    }


FAILED = JobFailed(reason="MXJobFailed", message="mnist-scheduler-1kkf-0 exited with 3 (Error)")
REPLACED = "mnist-worker-1kkf-1 exited with 137 (Error); it is replaced"
INVALID = JobFailed(reason="Invalid", message="CreatePod was refused for good")
PROBLEM = Problem(reason="NoReplicas", field="spec.replicaSpecs", message="add 1 SCHEDULER")
REFUSED = msgspec.structs.replace(CREATED[0], spec=None, problems=(PROBLEM,))
PULLS = PodsObserved(pods=(replica("scheduler", 0, phase="Pending", reason="ImagePullBackOff"),))


class TestStatus:
    @pytest.mark.parametrize(
        ("events", "words", "counts"),
        [
            (
                CREATED,
                ("Creating", "Running", ""),
                {"SCHEDULER": {"Unknown": 1}, "SERVER": {"Unknown": 1}, "WORKER": {"Unknown": 2}},
            ),
            (RUNNING, ("Running", "Running", ""), {"WORKER": {"Running": 2}}),
            (
                [*RUNNING, exited("worker", 1, 137)],
                ("Running", "Running", REPLACED),
                {"WORKER": {"Running": 1, "Unknown": 1}},
            ),
            (
                [*RUNNING, exited("worker", 0, 0), exited("scheduler", 0, 0), JobSucceeded(reason="MXJobSucceeded")],
                ("Done", "Succeeded", ""),
                {"SCHEDULER": {"Succeeded": 1}, "SERVER": {"Running": 1}, "WORKER": {"Running": 1, "Succeeded": 1}},
            ),
            (
                [*RUNNING, exited("scheduler", 0, 3), FAILED],
                ("Done", "Failed", f"{FAILED.reason}: {FAILED.message}"),
                {"SCHEDULER": {"Failed": 1}},
            ),
            ([*CREATED, INVALID], ("Done", "Failed", "Invalid: CreatePod was refused for good"), {}),
            ([REFUSED], ("Failed", "Failed", "NoReplicas: spec.replicaSpecs: add 1 SCHEDULER"), {}),
            ([*CREATED, PULLS], ("Creating", "Running", "resnet-scheduler-0: ImagePullBackOff"), {}),
            ([*RUNNING, JobDeleting(version=9)], ("CleanUp", "Running", ""), {}),
        ],
    )
    def test_it_is_that_of_mx_operator(
        self, events: list[AnyEvent], words: tuple[str, str, str], counts: dict[str, Document]
    ):
        status = FIORAVANZO_MXJOB.status(a_history(events).job)
        assert (status["phase"], status["state"], status["reason"]) == words
        assert counts.items() <= states(status).items()

    @pytest.mark.parametrize(
        ("phase", "state", "ours"),
        [
            ("", "Unknown", ""),
            ("Failed", "Failed", ""),
            ("Creating", "Running", "Created"),
            ("Running", "Running", "Running"),
            ("Done", "Succeeded", "Succeeded"),
            ("Done", "Failed", "Failed"),
            ([], {}, ""),
        ],
    )
    def test_a_phase_can_be_told_from_it(self, phase: object, state: object, ours: str):
        assert FIORAVANZO_MXJOB.phase({"phase": phase, "state": state}) == ours

    @pytest.mark.parametrize(
        ("framework", "events", "last"),
        [
            (
                FIORAVANZO_MXJOB,
                RUNNING,
                {"mx_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 2}},
            ),
            (MPBA_MXJOB, OF_LIST, {"replicaType": "WORKER", "state": "Starting", "ReplicasStates": {"Starting": 1}}),
            (
                MLKUBE_MXJOB,
                [*DIST, exited("worker", 1, 0)],
                {"Mx_replica_type": "WORKER", "state": "Running", "ReplicasStates": {"Running": 1, "Succeeded": 1}},
            ),
        ],
    )
    def test_it_has_the_spellings_of_each(self, framework: Framework, events: list[AnyEvent], last: Document):
        assert framework.status(a_history(events).job)["replicaStatuses"][-1] == last

    def test_that_of_mxnet_operator_has_conditions_and_counts(self):
        status = MLKUBE_MXJOB.status(a_history([*DIST, exited("worker", 1, 0)]).job)
        assert (status["phase"], status["state"], status["controlPaused"]) == ("Running", "Running", False)
        assert (status["desired"], status["successful"], len(status["conditions"]) <= 10) == (4, 1, True)
        running = next(known for known in status["conditions"] if known["type"] == "Running")
        assert running["reason"] == "MxJobRunning"
        assert running["transitionTime"].endswith("Z")

    def test_what_still_ran_when_it_failed_is_deleted(self):
        spec = spec_of(MLKUBE_MXJOB, mlkube_job(**OF_FOUR))
        rest = tuple(known for known in all_slots(spec) if known.role != "scheduler")
        over = exited("scheduler", 0, 1), JobFailed(reason="MxJobFailed")
        released = SlotsReleased(slots=rest, reason="CleanPodPolicyRunning")
        status = MLKUBE_MXJOB.status(a_history([*DIST, *over, released]).job)
        assert states(status) == {"SCHEDULER": {"Failed": 1}, "SERVER": {"Unknown": 1}, "WORKER": {"Unknown": 2}}

    def test_that_of_dl_operator_has_the_exit_code_of_the_scheduler_and_what_it_left(self):
        def ending(code: int, message: str) -> PodsObserved:
            exits = (Exit("mxnet", code, "", message),)
            return PodsObserved(pods=(replica("scheduler", 0, version=50, phase="Failed", exits=exits),))

        for event, result in (
            (PodsObserved(pods=(replica("scheduler", 0),)), None),
            (ending(0, ""), {"pod": "scheduler-mnist-0", "exitCode": 0}),
            (ending(3, "no data"), {"pod": "scheduler-mnist-0", "exitCode": 3, "message": "no data"}),
        ):
            status = MPBA_MXJOB.status(a_history([*OF_LIST, event]).job)
            assert (status["phase"], status["completionTime"], status["result"]) == ("Creating", None, result)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (CREATED, []),
        (RUNNING, ["SuccessfulCreate", "MXJobRunning"]),
        ([*CREATED, EffectRefused(effect="CreatePod", reason="Forbidden", field="spec.containers")], ["FailedCreate"]),
    ],
)
def test_kubernetes_events_have_the_words_of_mx_operator(events: list[AnyEvent], told: list[str]):
    found = [step for step in announcements(a_history(events).job) if isinstance(step, Announce)]
    assert [step.reason for step in found] == told
    if told == ["FailedCreate"]:
        assert (found[0].warning, found[0].message) == (True, "CreatePod was refused: Forbidden (spec.containers)")
