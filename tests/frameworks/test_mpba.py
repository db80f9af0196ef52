"""MXJob of mpba.fbk.eu: the spec is a list."""

from functools import partial

import pytest
import yaml

from shared.frameworks.mpba import MPBA_MXJOB
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.status import JobCreated
from shared.job.events.watcher import JobObserved, PodsObserved
from shared.job.naming import Slot
from shared.job.views import Exit
from tests.frameworks.documents import ABSENT, changed, custom, mpba_job, spec_of
from tests.kit.histories import a_history
from tests.kit.pods import pod_for, service_for
from tests.kit.replicas import all_slots, replica

PUBLISHED = yaml.safe_load("""
apiVersion: "mpba.fbk.eu/v1"
kind: MXJob
metadata: {name: test02}
spec:
- &entry
  replicas: 1
  replicaType: SCHEDULER
  template:
    spec:
      containers:
      - {image: "stefanofioravanzo/mxnet-linear-dist:cpu", name: mxnet, imagePullPolicy: Always}
      restartPolicy: OnFailure
- {<<: *entry, replicaType: SERVER}
- {<<: *entry, replicaType: WORKER}
""")
"""crds/mxjob_test.yml of dl-operator."""


parsed = partial(spec_of, MPBA_MXJOB)


def test_the_published_manifest_applies_unchanged():
    assert [(role.name, role.replicas) for role in parsed(PUBLISHED).roles] == [
        ("scheduler", 1),
        ("server", 1),
        ("worker", 1),
    ]


def test_the_definition_takes_a_list():
    definition = MPBA_MXJOB.definition
    assert definition is not None
    assert definition.spec["type"] == "array"


def test_types_are_taken_in_lower_case_too():
    assert parsed(changed(PUBLISHED, "spec[1].replicaType", "server")) == parsed(PUBLISHED)


def test_names_and_labels_are_theirs():
    job, slot = custom(mpba_job()), Slot(0, "server", 1)
    pod, service = pod_for(job, slot, MPBA_MXJOB), service_for(job, slot, MPBA_MXJOB)
    assert pod["metadata"]["name"] == service["metadata"]["name"] == "server-mnist-1"
    assert {"pod_name": "server-mnist-1", "job_name": "mnist"}.items() <= pod["metadata"]["labels"].items()
    assert {"service_name": "server-mnist-1", "job_name": "mnist"}.items() <= service["metadata"]["labels"].items()
    assert service["spec"]["ports"] == [{"name": "dlport0", "port": 9000}]


def test_a_name_may_begin_with_a_digit_because_the_type_stands_before_it():
    assert next(role.stem for role in parsed(mpba_job("1abc")).roles) == "scheduler-1abc-"


def test_the_first_container_trains_whatever_its_name():
    job = changed(mpba_job(), "spec[0].template.spec.containers[0].name", "linear")
    assert parsed(job).role("scheduler").container == "linear"
    (container,) = pod_for(custom(job), Slot(0, "scheduler", 0), MPBA_MXJOB)["spec"]["containers"]
    assert "DMLC_ROLE" in {variable["name"] for variable in container["env"]}


@pytest.mark.parametrize(
    ("theirs", "of_worker", "of_scheduler"),
    [
        pytest.param("OnFailure", "OnFailure", "ExitCode", id="OnFailure"),
        pytest.param("Always", "Always", "ExitCode", id="Always"),
        pytest.param("Never", "Never", "Never", id="Never"),
        pytest.param(ABSENT, "OnFailure", "ExitCode", id="nothing"),
        pytest.param({"a": 1}, "OnFailure", "ExitCode", id="nonsense"),
    ],
)
def test_the_restart_policy_of_a_template_is_kept(theirs: object, of_worker: str, of_scheduler: str):
    job = mpba_job()
    for index in range(3):
        job = changed(job, f"spec[{index}].template.spec.restartPolicy", theirs)
    spec = parsed(job)
    assert (spec.policy("worker"), spec.policy("scheduler")) == (of_worker, of_scheduler)


def test_its_status_says_what_theirs_never_did():
    spec = parsed(mpba_job(SCHEDULER=1, WORKER=1))
    observed = JobObserved(kind="MXJob", api_version="mpba.fbk.eu/v1", generation=1, version=1, spec=spec)
    assigned = SlotsAssigned(slots=all_slots(spec), reason="JobCreated")
    status = MPBA_MXJOB.status(a_history([observed, JobCreated(reason="MXJobCreated"), assigned]).job)
    assert (status["phase"], status["state"], status["completionTime"]) == ("Creating", "Running", None)
    assert status["replicaStatuses"][1] == {
        "replicaType": "WORKER",
        "state": "Starting",
        "ReplicasStates": {"Starting": 1},
    }


def test_its_result_is_the_exit_code_of_the_scheduler_and_what_it_left():
    spec = parsed(mpba_job(SCHEDULER=1, WORKER=1))
    observed = JobObserved(kind="MXJob", api_version="mpba.fbk.eu/v1", generation=1, version=1, spec=spec)
    begun = [observed, JobCreated(reason="MXJobCreated"), SlotsAssigned(slots=all_slots(spec), reason="JobCreated")]

    def result(*events: AnyEvent) -> object:
        return MPBA_MXJOB.status(a_history([*begun, *events]).job)["result"]

    def exited(code: int, message: str) -> PodsObserved:
        exits = (Exit("mxnet", code, "", message),)
        return PodsObserved(pods=(replica("scheduler", 0, version=50, phase="Failed", exits=exits),))

    assert result(PodsObserved(pods=(replica("scheduler", 0),))) is None
    assert result(exited(0, "")) == {"pod": "scheduler-mnist-0", "exitCode": 0}
    assert result(exited(3, "no data")) == {"pod": "scheduler-mnist-0", "exitCode": 3, "message": "no data"}
