"""Published manifests make the pods that training-operator 1.9 makes, ours can be acted upon; what roles request."""

from pathlib import Path

import msgspec
import pytest
import yaml

from services.watcher.core.views import observed_job
from shared.cluster.objects import Custom
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.pods import amount, requests
from shared.job.naming import Slot
from shared.job.spec import RENDEZVOUS, JobSpec
from tests.crds import admission
from tests.frameworks.documents import Document, changed, custom
from tests.kit.pods import pod_for, service_for
from tests.kit.published import PUBLISHED, Published


@pytest.mark.parametrize("example", PUBLISHED, ids=lambda example: example.file)
def test_an_example_is_admitted_and_makes_the_pods_that_training_operator_makes(example: Published):
    manifest = example.manifest
    assert admission.refusals(manifest) == []
    assert admission.pruned(manifest) == []
    framework = BUILT_IN.find(manifest["apiVersion"], manifest["kind"])
    assert framework is not None
    job = custom(changed(changed(manifest, "metadata.uid", "uid-1"), "metadata.namespace", "kubeflow"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    # The rendezvous of an elastic group is Muster's own.
    roles = [role for role in spec.roles if role.name != RENDEZVOUS]
    slots = [Slot(0, role.name, index) for role in roles for index in range(role.replicas)]
    pods = [pod_for(job, slot, framework) for slot in slots]
    assert sorted(pod["metadata"]["name"] for pod in pods) == example.pods


def test_all_examples_of_the_small_kinds_are_there():
    kinds = [example.kind for example in PUBLISHED]
    assert (kinds.count("JAXJob"), kinds.count("PaddleJob"), kinds.count("XGBoostJob")) == (2, 2, 8)


EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = [
    pytest.param(framework, document, id=f"{path.parent.name}/{path.stem}")
    for path in sorted(EXAMPLES.glob("*/*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if (framework := BUILT_IN.find(document["apiVersion"], document["kind"])) is not None
]


@pytest.mark.parametrize(("framework", "document"), JOBS)
def test_an_example_can_be_acted_upon(framework: Framework, document: Document):
    job = custom(changed(document, "metadata.uid", "uid-1"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    for role in spec.roles:
        for index in range(role.replicas):
            assert pod_for(job, Slot(0, role.name, index), framework)["spec"]["containers"]


@pytest.mark.parametrize(("framework", "document"), JOBS)
def test_the_service_of_a_pod_selects_that_pod_alone(framework: Framework, document: Document):
    job = custom(changed(document, "metadata.uid", "uid-1"))
    spec = framework.parse(job)
    assert isinstance(spec, JobSpec), spec
    slots = [Slot(0, role.name, index) for role in spec.roles for index in range(role.replicas)]
    labels = {slot: pod_for(job, slot, framework)["metadata"]["labels"] for slot in slots}
    for slot in slots:
        selector = service_for(job, slot, framework)["spec"]["selector"]
        assert [known for known in slots if selector.items() <= labels[known].items()] == [slot]


def container(asked: object = None, **more: object) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": asked} | more.pop("resources", {}), **more}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("2", 2), (2, 2), ("1.5", 1.5), ("500m", 0.5), ("1k", 1000), ("2Ki", 2048), ("4Gi", 4 * 1024**3),
        ("1e3", 1000), ("1E", 1e18), (".5", 0.5), ("100n", 1e-7), ("-1", 0), ("", 0), ("many", 0), (None, 0),
        (True, 0), ({}, 0), ("9" * 500, 0), ("1e999", 0),
    ],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_writes_it(quantity: object, number: float):
    assert amount(quantity) == pytest.approx(number)


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({"containers": [container({"cpu": "1"}), container({"cpu": "500m"})]}, {"cpu": 1.5}, id="a sum"),
        pytest.param(
            {"containers": [container({"cpu": 1}, resources={"limits": {"cpu": "4", "nvidia.com/gpu": 8}})]},
            {"cpu": 1, "nvidia.com/gpu": 8},
            id="limits stand for absent requests",
        ),
        pytest.param(
            {"initContainers": [container({"cpu": 3})], "containers": [container({"cpu": 1})]},
            {"cpu": 3},
            id="an init container runs alone",
        ),
        pytest.param(
            {
                "initContainers": [container({"cpu": 1}, restartPolicy="Always"), container({"cpu": 2})],
                "containers": [container({"cpu": 1})],
            },
            {"cpu": 3},
            id="a sidecar runs beside all that follow it",
        ),
        pytest.param({"containers": [{"name": "c"}]}, {}, id="nothing"),
        pytest.param({"containers": [container([1]), container({"cpu": {}, "x" * 200: 1})]}, {}, id="any JSON"),
        pytest.param(None, {}, id="no pod"),
    ],
)
def test_a_pod_requests_what_its_containers_do(pod: object, found: dict[str, float]):
    assert requests(pod) == found


ON_GPUS = [each for each in PUBLISHED if "nvidia.com/gpu" in str(each.manifest)]


@pytest.mark.parametrize("example", ON_GPUS, ids=lambda example: example.file)
def test_a_job_knows_the_devices_of_its_roles(example: Published):
    manifest = example.manifest
    manifest["metadata"] |= {"uid": "uid-1", "namespace": "team-a", "resourceVersion": "1", "generation": 1}
    framework = BUILT_IN.find("kubeflow.org/v1", example.kind)
    assert framework is not None
    framework = next(each for each in (framework, *framework.others) if each.resource.version == "v1")
    spec = observed_job(framework, msgspec.convert(manifest, Custom)).observed.spec
    assert spec is not None
    assert all(dict(role.requests)["nvidia.com/gpu"] >= 1 for role in spec.roles if role.name != "launcher")
