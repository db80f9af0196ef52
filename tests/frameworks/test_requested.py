"""What a role requests, as the kube-scheduler counts it."""

import msgspec
import pytest

from services.watcher.core.views import observed_job
from shared.cluster.objects import Custom
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.pods import amount, requests
from tests.kit.published import PUBLISHED, Published


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
