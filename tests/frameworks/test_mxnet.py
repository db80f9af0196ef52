"""MXNet jobs, whichever operator's: the environment that ps-lite reads, and what is common to lists of replicas."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.frameworks.fioravanzo import FIORAVANZO_MXJOB
from shared.frameworks.framework import Framework
from shared.frameworks.mlkube import MLKUBE_MXJOB
from shared.frameworks.mpba import MPBA_MXJOB
from shared.frameworks.mxjob import MXJOB
from shared.job.naming import Slot
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
from tests.kit.pods import context_of, pod_for, service_for

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"

LISTS = [
    pytest.param(FIORAVANZO_MXJOB, fioravanzo_job(), "spec.replicaSpecs", "mxReplicaType", id="fioravanzo"),
    pytest.param(MPBA_MXJOB, mpba_job(), "spec", "replicaType", id="mpba"),
    pytest.param(MLKUBE_MXJOB, mlkube_job(), "spec.replicaSpecs", "mxReplicaType", id="mlkube"),
]
ALL = [*((known.values[0], known.values[1], f"{known.values[2]}[0]") for known in LISTS)]
ALL.append((MXJOB, kubeflow_mx_job(), "spec.mxReplicaSpecs.Scheduler"))


def reasons(framework: Framework, document: Document) -> set[str]:
    return {*reasons_of(framework, document)}


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


@pytest.mark.parametrize(
    ("name", "framework", "document"),
    [
        (
            "fioravanzo",
            FIORAVANZO_MXJOB,
            changed(fioravanzo_job(WORKER=2, SERVER=1, SCHEDULER=1), "spec.replicaSpecs[2].mxPort", 9321),
        ),
        ("mpba", MPBA_MXJOB, mpba_job(SCHEDULER=1, SERVER=2, WORKER=1)),
        ("mlkube_dist", MLKUBE_MXJOB, mlkube_job(SCHEDULER=1, SERVER=2, WORKER=1)),
        ("mlkube_local", MLKUBE_MXJOB, mlkube_job(mode="local", WORKER=1)),
        (
            "kubeflow_train",
            MXJOB,
            changed(
                kubeflow_mx_job(),
                "spec.mxReplicaSpecs.Worker.template.spec.containers[0].ports",
                [{"name": "mxjob-port", "containerPort": 9991}],
            ),
        ),
        (
            "kubeflow_tune",
            MXJOB,
            changed(
                changed(
                    kubeflow_mx_job("MXTune", TunerTracker=1, TunerServer=1, Tuner=1),
                    "spec.mxReplicaSpecs.TunerServer.label",
                    "2080ti",
                ),
                "spec.mxReplicaSpecs.Tuner.template.metadata",
                {"annotations": {"tuner-server-key": "a100"}},
            ),
        ),
    ],
)
def test_every_pod_gets_the_environment_of_the_contract(name: str, framework: Framework, document: Document):
    assert environments(framework, document) == yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())


@pytest.mark.parametrize(("framework", "document", "at"), ALL)
class TestEnvironmentOfUsers:
    def test_it_wins_where_that_is_safe(self, framework: Framework, document: Document, at: str):
        theirs = [{"name": "PS_VERBOSE", "value": "0"}, {"name": "DMLC_USE_KUBERNETES", "value": "0"}]
        job = custom(changed(document, f"{at}.template.spec.containers[0].env", theirs))
        (container,) = pod_for(job, Slot(0, "scheduler", 0), framework)["spec"]["containers"]
        assert container["env"][-2:] == theirs
        names = [known["name"] for known in container["env"]]
        assert len(names) == len(set(names))

    @pytest.mark.parametrize("name", ["DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER"])
    def test_it_is_refused_where_the_pods_would_not_find_each_other(
        self, framework: Framework, document: Document, at: str, name: str
    ):
        clash = changed(document, f"{at}.template.spec.containers[0].env", [{"name": name, "value": "x"}])
        assert reasons(framework, clash) == {"ReservedVariable"}


@pytest.mark.parametrize(("framework", "document", "at"), ALL)
class TestPods:
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

    def test_gpus_may_go_by_their_old_name(self, framework: Framework, document: Document, at: str):
        old = {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1, "memory": "1Gi"}, "requests": {"cpu": 1}}
        job = custom(changed(document, f"{at}.template.spec.containers[0].resources", old))
        (container,) = pod_for(job, Slot(0, "scheduler", 0), framework)["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}, "requests": {"cpu": 1}}

    def test_todays_name_counts_where_both_stand(self, framework: Framework, document: Document, at: str):
        both = {"limits": {"nvidia.com/gpu": 2, "alpha.kubernetes.io/nvidia-gpu": 1}}
        job = custom(changed(document, f"{at}.template.spec.containers[0].resources", both))
        (container,) = pod_for(job, Slot(0, "scheduler", 0), framework)["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}

    def test_every_pod_has_a_service_under_its_name(self, framework: Framework, document: Document, at: str):
        job = custom(document)
        slot = Slot(0, "scheduler", 0)
        service = service_for(job, slot, framework)
        assert service["metadata"]["name"] == pod_for(job, slot, framework)["metadata"]["name"]
        (port,) = service["spec"]["ports"]
        assert (port["name"], port["port"]) == (
            framework.container_properties.port_name,  # type: ignore[attr-defined]
            framework.container_properties.port,  # type: ignore[attr-defined]
        )
        assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)


@pytest.mark.parametrize(("framework", "document", "at", "type_field"), LISTS)
class TestLists:
    """What cannot run is refused: nothing is made of it."""

    def test_no_scheduler(self, framework: Framework, document: Document, at: str, type_field: str):
        without = document["spec"] if at == "spec" else document["spec"]["replicaSpecs"]
        assert reasons(framework, changed(document, at, without[1:])) == {"NoReplicas"}

    def test_two_schedulers(self, framework: Framework, document: Document, at: str, type_field: str):
        assert "InvalidValue" in reasons(framework, changed(document, f"{at}[0].replicas", 2))
        assert "DuplicateReplicaType" in reasons(framework, changed(document, f"{at}[1].{type_field}", "SCHEDULER"))

    def test_a_scheduler_with_no_replicas(self, framework: Framework, document: Document, at: str, type_field: str):
        assert reasons(framework, changed(document, f"{at}[0].replicas", 0)) & {"InvalidValue", "NoReplicas"}

    def test_an_unknown_type(self, framework: Framework, document: Document, at: str, type_field: str):
        assert "UnknownReplicaType" in reasons(framework, changed(document, f"{at}[1].{type_field}", "MASTER"))
        assert "InvalidValue" in reasons(framework, changed(document, f"{at}[1].{type_field}", ["SERVER"]))

    @pytest.mark.parametrize("nothing", [[], None, {}, "SCHEDULER", [None]])
    def test_nothing(self, framework: Framework, document: Document, at: str, type_field: str, nothing: object):
        assert reasons(framework, changed(document, at, nothing))

    def test_an_entry_without_template(self, framework: Framework, document: Document, at: str, type_field: str):
        assert reasons(framework, changed(document, f"{at}[1].template", ABSENT)) == {"NoTemplate"}
        assert reasons(framework, changed(document, f"{at}[1].template.spec.containers", [])) == {"NoContainers"}

    def test_problems_say_where(self, framework: Framework, document: Document, at: str, type_field: str):
        problems = framework.parse(custom(changed(document, f"{at}[2].template", ABSENT)))
        assert isinstance(problems, tuple)
        assert [problem.field for problem in problems] == [f"{at}[2].template"]

    def test_a_name_that_no_host_can_have(self, framework: Framework, document: Document, at: str, type_field: str):
        for name in ("my.job", "-lives", "lives-", "m" * 70):
            assert "InvalidName" in reasons(framework, changed(document, "metadata.name", name))

    def test_failed_pods_are_not_made_again_for_ever(
        self, framework: Framework, document: Document, at: str, type_field: str
    ):
        spec = spec_of(framework, document)
        assert spec.backoff_limit == 6
        assert {role.name: role.restart_policy for role in spec.roles} == {
            "scheduler": "ExitCode",
            "server": "OnFailure",
            "worker": "OnFailure",
        }
        assert (spec.handling.leader, spec.handling.restarts) == ("scheduler", "Job")
        assert spec.handling.out_of_memory_is_final
