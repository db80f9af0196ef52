"""HorizontalPodAutoscalers drive jobs by their subresource `scale`, on the real control plane.

The autoscaler is kube-controller-manager's own; `custom.metrics.k8s.io` is served by a stand-in in this process.
"""

import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from devcluster.certificates import make_server
from shared.cluster import Resource
from shared.cluster.objects import Custom
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.frameworks.training_job import TRAININGJOBS
from shared.ports import HOST, free_port
from tests.kit.controlplane import require_control_plane
from tests.kit.operator import FOR_EVER, Operator, a_job, an_example, an_operator, of_kubeflow
from tests.kit.recordings import RecordedPlane

pytestmark = [pytest.mark.real, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

GROUP, VERSION, METRIC = "custom.metrics.k8s.io", "v1beta2", "backlog"
EACH_SECOND = {"kube-controller-manager": ["--horizontal-pod-autoscaler-sync-period=1s"]}
PER_WORKER = 10


class Metrics:
    """The API of custom metrics, with one number for every object."""

    def __init__(self) -> None:
        self.backlog = PER_WORKER

    async def resources(self, _: web.Request) -> web.Response:
        kinds = (TRAININGJOBS, PYTORCHJOB.resource)
        served = [
            {
                "name": f"{kind.plural}.{kind.group}/{METRIC}",
                "namespaced": True,
                "kind": "MetricValueList",
                "verbs": ["get"],
            }
            for kind in kinds
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response(listed | {"resources": served})

    async def value(self, request: web.Request) -> web.Response:
        described = {"kind": "Job", "namespace": "default", "name": request.match_info["name"]}
        metric = {"describedObject": described, "metric": {"name": METRIC}, "value": str(self.backlog)}
        item = metric | {"timestamp": "2026-01-01T00:00:00Z"}
        answer = {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": [item]}
        return web.json_response(answer)


@asynccontextmanager
async def served(operator: Operator, folder: Path) -> AsyncIterator[Metrics]:
    """The stand-in behind kube-apiserver."""
    metrics, app, port = Metrics(), web.Application(), free_port()
    make_server(folder, ["metrics.default.svc"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    app.router.add_get(f"/apis/{GROUP}/{VERSION}", metrics.resources)
    app.router.add_get(f"/apis/{GROUP}/{VERSION}/namespaces/default/{{kind}}/{{name}}/{METRIC}", metrics.value)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port, ssl_context=context).start()
        await operator.apply(*an_api((folder / "ca.crt").read_bytes(), port))
        yield metrics
    finally:
        await runner.cleanup()


def an_api(authority: bytes, port: int) -> list[dict[str, Any]]:
    named = {"name": "metrics", "namespace": "default"}
    here = {"type": "ExternalName", "externalName": "localhost"}
    spec = {"group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 10}
    spec |= {"service": {**named, "port": port}, "caBundle": b64encode(authority).decode()}
    api = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{VERSION}.{GROUP}"}}
    return [{"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": here}, api | {"spec": spec}]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def operator(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    require_control_plane()
    async with an_operator(tmp_path_factory.mktemp("stack"), partial(RecordedPlane, more=EACH_SECOND)) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def metrics(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Metrics]:
    async with served(operator, tmp_path_factory.mktemp("metrics")) as metrics:
        yield metrics


def an_autoscaler(resource: Resource[Custom], name: str, most: int) -> dict[str, Any]:
    """One worker for each ten of the backlog, at once in both directions."""
    target = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name}
    average = {"type": "AverageValue", "averageValue": str(PER_WORKER)}
    metric = {"metric": {"name": METRIC}, "describedObject": target, "target": average}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [{"type": "Object", "object": metric}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


async def test_an_autoscaler_drives_a_training_job_and_is_named_in_its_history(operator: Operator, metrics: Metrics):
    metrics.backlog = PER_WORKER
    await operator.apply(a_job("elastic", FOR_EVER, workers=1))
    await operator.members("elastic", "elastic-worker-0")
    await operator.apply(an_autoscaler(TRAININGJOBS, "elastic", most=4))
    metrics.backlog = 3 * PER_WORKER
    await operator.members("elastic", *(f"elastic-worker-{index}" for index in range(3)))
    metrics.backlog = 2 * PER_WORKER
    await operator.members("elastic", *(f"elastic-worker-{index}" for index in range(2)))
    told = await operator.muster("history", "trainingjob/elastic")
    assert "an autoscaler (kube-controller-manager, scale)" in told, told
    await operator.assert_replayed("elastic")
    await operator.kubectl("delete", "hpa", "elastic")
    await operator.delete("elastic")


async def test_an_autoscaler_drives_an_elastic_pytorchjob(operator: Operator, metrics: Metrics):
    metrics.backlog = 2 * PER_WORKER
    await operator.apply(an_example("pytorch/group"))
    await operator.comes_to("Running", PYTORCHJOB.resource, "group")
    await operator.apply(an_autoscaler(PYTORCHJOB.resource, "group", most=3))
    metrics.backlog = 9 * PER_WORKER
    await operator.selects(of_kubeflow("group"), *(f"group-worker-{index}" for index in range(3)))
    metrics.backlog = PER_WORKER
    await operator.selects(of_kubeflow("group"), "group-worker-0")
    await operator.kubectl("delete", "hpa", "group")
    await operator.kubectl("delete", "pytorchjob", "group", "--wait=false")


async def test_the_metrics_of_an_elastic_policy_drive_its_pytorchjob(operator: Operator, metrics: Metrics):
    metrics.backlog = 2 * PER_WORKER
    job = an_example("pytorch/group")
    job["metadata"]["name"] = "measured"
    policy = job["spec"]["elasticPolicy"]
    policy["metrics"] = an_autoscaler(PYTORCHJOB.resource, "measured", most=3)["spec"]["metrics"]
    await operator.apply(job)
    await operator.comes_to("Running", PYTORCHJOB.resource, "measured")
    metrics.backlog = 9 * PER_WORKER
    await operator.selects(of_kubeflow("measured"), *(f"measured-worker-{index}" for index in range(3)))
    assert "an autoscaler (kube-controller-manager, scale) asked for 3 workers" in await operator.muster(
        "why", "pytorchjob/measured"
    )
    await operator.kubectl("delete", "pytorchjob", "measured")
    await operator.leaves_nothing("measured", "hpa")
