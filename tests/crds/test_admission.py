"""What the API server admits: the published manifests, and nothing that `parse_job` and `parse_scale` would refuse."""

import copy
from pathlib import Path

import pytest
import yaml

from tests.crds.judges import Embedded, Judge
from tests.frameworks.documents import ABSENT, Document, changed, scale_in, scale_out, training_job

EXAMPLES = [
    pytest.param(document, id=f"{path.parent.name}/{path.stem}")
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    # What stands beside a job, such as an autoscaler, is of Kubernetes' own kinds; FlaxJob is a package's own.
    if not document["apiVersion"].startswith("autoscaling/") and document["kind"] != "FlaxJob"
]
ROLES = "spec.etReplicaSpecs"
WORKER = f"{ROLES}.worker"
CONTAINER = f"{WORKER}.template.spec.containers[0]"
HISTORY = {"log": "log-1", "sequence": 7, "hash": "abc"}


@pytest.mark.parametrize("example", EXAMPLES)
async def test_examples_are_admitted_whole(judge: Judge, example: Document) -> None:
    document = copy.deepcopy(example)
    document["metadata"].setdefault("name", "generated-x7k2p")
    assert await judge.refusals(document) == []
    assert await judge.pruned(document) == []


async def test_a_field_that_is_not_declared_is_dropped_and_named(judge: Judge) -> None:
    assert await judge.pruned(changed(training_job(), "spec.tomorrow", 1)) == ["spec.tomorrow"]


async def test_30_no_field_of_a_pod_template_is_pruned(judge: Judge) -> None:
    document = changed(training_job(), f"{WORKER}.template.metadata", {"labels": {"a": "b"}, "tomorrow": {"x": [1]}})
    document = changed(document, f"{WORKER}.template.spec.tomorrow", [{"y": None}])
    document = changed(document, f"{CONTAINER}.tomorrow", {"z": {"deep": True}})
    before = copy.deepcopy(document)
    assert await judge.pruned(document) == []
    assert document == before


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        pytest.param("metadata.name", "a" * 51, "at most 50", id="a name that makes pods' names too long"),
        pytest.param("metadata.name", "7b", "beginning with a letter", id="a name that begins with a digit"),
        pytest.param("metadata.name", "a.b", "hyphens", id="a name with a dot"),
        pytest.param("spec", ABSENT, "spec", id="no spec"),
        pytest.param(f"{ROLES}.launcher", ABSENT, "launcher", id="no launcher"),
        pytest.param(f"{ROLES}.launcher.replicas", 2, "less than or equal to 1", id="two launchers"),
        pytest.param(WORKER, ABSENT, "worker", id="no workers"),
        pytest.param(
            WORKER,
            {"minReplicas": 2, "template": training_job()["spec"]["etReplicaSpecs"]["worker"]["template"]},
            "at least minReplicas",
            id="one worker, because nothing is said, and a minimum of two",
        ),
        pytest.param(f"{WORKER}.replicas", 7001, "less than or equal to 7000", id="more than hosts files can list"),
        pytest.param(f"{WORKER}.replicas", 10, "at most maxReplicas", id="more than the maximum"),
        pytest.param(f"{WORKER}.minReplicas", 3, "at least minReplicas", id="fewer than the minimum"),
        pytest.param(f"{WORKER}.template", ABSENT, "template", id="no template"),
        pytest.param(f"{WORKER}.template", {}, "spec", id="an empty template"),
        pytest.param(f"{WORKER}.template.spec.containers", [], "at least 1 items", id="no containers"),
        pytest.param(f"{WORKER}.template.metadata", {"labels": {"team": 7}}, "string", id="a label that is a number"),
        pytest.param(f"{CONTAINER}.name", "Main", "should match", id="a capital letter in a container's name"),
        pytest.param(f"{CONTAINER}.image", ABSENT, "image", id="a container without an image"),
        pytest.param("spec.launcherAttachMode", "kubexec", "not supported", id="kubexec"),
    ],
)
async def test_a_job_is_refused(judge: Judge, path: str, value: object, word: str) -> None:
    causes = await judge.refusals(changed(training_job(), path, value))
    assert causes
    assert word in causes[0]


@pytest.mark.parametrize(
    ("document", "word"),
    [
        pytest.param(changed(scale_in(), "spec.toDelete", ABSENT), "toDelete", id="nothing to delete"),
        pytest.param(scale_in(podNames=[]), "at least 1 items", id="an empty list"),
        pytest.param(scale_in(count=1, podNames=["a"]), "either count or podNames", id="how many and which"),
        pytest.param(changed(scale_in(), "spec.toDelete", {}), "either count or podNames", id="neither"),
        pytest.param(scale_in(podNames=["a", "a"]), "Duplicate", id="the same worker twice"),
        pytest.param(changed(scale_out(), "spec.toAdd", {}), "count", id="nothing to add"),
        pytest.param(changed(scale_out(), "spec.selector", {}), "name", id="no job named"),
        pytest.param(changed(scale_out(), "metadata.name", "r" * 64), "at most 63", id="a name that no label holds"),
    ],
)
async def test_a_request_is_refused(judge: Judge, document: Document, word: str) -> None:
    causes = await judge.refusals(document)
    assert causes
    assert word in causes[0]


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        pytest.param(f"{CONTAINER}.env", [{"name": "A", "value": "1"}], "template", id="a worker's template"),
        pytest.param(f"{WORKER}.template.metadata", {"labels": {"a": "b"}}, "template", id="a template's labels"),
        pytest.param(f"{WORKER}.template.spec.tomorrow", 1, "template", id="a field that no schema declares"),
        pytest.param(f"{ROLES}.launcher.template.spec.hostNetwork", True, "template", id="the launcher's template"),
        pytest.param("spec.slotsPerWorker", 4, "slotsPerWorker", id="how many processes a worker has"),
    ],
)
async def test_a_running_job_keeps(judge: Judge, path: str, value: object, word: str) -> None:
    for status in (None, {"phase": "Running"}):
        old = changed(training_job(), "status", status) if status else training_job()
        causes = await judge.refusals(changed(old, path, value), old)
        assert len(causes) == 1
        assert word in causes[0]


@pytest.mark.parametrize(
    ("phase", "path", "value"),
    [
        pytest.param("Running", f"{WORKER}.replicas", 3, id="the size of a running job"),
        pytest.param("Scaling", f"{WORKER}.replicas", 1, id="the size of a job that is being scaled"),
        pytest.param("Running", f"{WORKER}.minReplicas", 2, id="the minimum of a running job"),
        pytest.param("Running", f"{WORKER}.maxReplicas", 4, id="bounds of a running job"),
        pytest.param("Running", f"{WORKER}.maxReplicas", ABSENT, id="no bound any more for a running job"),
        pytest.param("Running", f"{WORKER}.restartPolicy", "Always", id="the policy of a running job"),
        pytest.param("Running", "spec.cleanPodPolicy", "All", id="what is cleaned up after a running job"),
        pytest.param("Running", "spec.backoffLimit", 9, id="the limit of a running job"),
        pytest.param("Suspended", "spec.slotsPerWorker", 4, id="the slots of a suspended job"),
        pytest.param("Running", "spec.suspend", True, id="suspension of a running job"),
        pytest.param("Suspended", f"{CONTAINER}.image", "horovod:2", id="the template of a suspended job"),
        pytest.param("", f"{CONTAINER}.image", "horovod:2", id="the template of a refused job"),
        pytest.param("", f"{WORKER}.replicas", 3, id="the size of a refused job"),
    ],
)
async def test_may_be_changed(judge: Judge, phase: str, path: str, value: object) -> None:
    old = changed(training_job(), "status", {"phase": phase})
    assert await judge.refusals(changed(old, path, value), old) == []


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        pytest.param(f"{WORKER}.replicas", 10, "at most maxReplicas", id="more workers than the maximum"),
        pytest.param(f"{WORKER}.maxReplicas", 1, "at most maxReplicas", id="a maximum below the workers"),
        pytest.param(f"{WORKER}.minReplicas", 3, "at least minReplicas", id="a minimum above the workers"),
    ],
)
async def test_a_running_job_stays_within_its_bounds(judge: Judge, path: str, value: object, word: str) -> None:
    old = changed(training_job(), "status", {"phase": "Running"})
    (cause,) = await judge.refusals(changed(old, path, value), old)
    assert word in cause


@pytest.mark.parametrize("path", [f"{CONTAINER}.image", f"{ROLES}.launcher.template.spec.hostNetwork"])
async def test_a_template_may_change_in_the_write_that_suspends(judge: Judge, path: str) -> None:
    running = changed(training_job(), "status", {"phase": "Running"})
    value = "horovod:2" if path.endswith("image") else True
    suspended = changed(changed(running, path, value), "spec.suspend", True)
    assert await judge.refusals(suspended, running) == []
    # It may go on before the last pod is gone, again with other templates.
    going = changed(suspended, "status", {"phase": "Suspending"})
    assert await judge.refusals(running | {"status": going["status"]}, going) == []


async def test_a_field_that_comes_or_goes_has_changed_too(judge: Judge) -> None:
    running = changed(training_job(), "status", {"phase": "Running"})
    with_slots = changed(running, "spec.slotsPerWorker", 4)
    for old, new in ((running, with_slots), (with_slots, running)):
        (cause,) = await judge.refusals(new, old)
        assert "Suspended" in cause


async def test_a_request_never_changes(judge: Judge) -> None:
    for old, path in ((scale_in(), "spec.toDelete.count"), (scale_out(), "spec.toAdd.count")):
        (cause,) = await judge.refusals(changed(old, path, 2), old)
        assert "create another one" in cause
        assert await judge.refusals(changed(old, "status", {"phase": "Scaling"}), old) == []


async def test_a_status_can_be_written_for_a_job_from_before_these_rules() -> None:
    old = changed(training_job(name="7b" * 30), f"{WORKER}.template", ABSENT)
    now = changed(old, "status", {"phase": "", "conditions": [{"type": "Created", "status": "False"}]})
    assert await Embedded().refusals(now, old) == []
