"""Two replicas of a service in real processes: what `/metrics` tells of the one that waits, and when it takes over.

That one tells of no jobs; once it took over, of all in the log.  An owner that reaches the log but not the API server
leaves its work to the other.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from devcluster.node.relay import out_to, relaying
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.clusters import eventually
from tests.kit.hosts import EMBEDDED
from tests.kit.nats import until
from tests.kit.operator import Operator, a_job
from tests.kit.service import PATIENCE_SECONDS, Service, a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED

PLACE = {"job_namespace": "", "kind": "TrainingJob.kai.alibabacloud.com"}


async def scraped(service: Service) -> dict[str, Metric]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{service.port}/metrics") as answer,
    ):
        assert answer.status == 200
        return {family.name: family for family in text_string_to_metric_families(await answer.text())}


def value(families: dict[str, Metric], family: str, suffix: str = "", **labels: str) -> float:
    (found,) = (
        sample.value
        for sample in families[family].samples
        if sample.name == family + suffix and sample.labels == labels
    )
    return found


async def test_a_replica_that_takes_over_tells_what_the_log_has(operator: Operator, tmp_path: Path):
    await operator.apply(a_job("counted", "sleep 0.2"))
    await operator.phase("Succeeded", TRAININGJOBS, "counted")
    environment = operator.stack.environment("status")
    async with a_service("status", tmp_path, environment) as standby:
        await standby.becomes(200)
        waiting: dict[str, Metric] = {}

        async def read_all() -> bool:
            nonlocal waiting
            waiting = await scraped(standby)
            return value(waiting, "muster_log_pending_events", service="status") == 0

        # The workers of the job that succeeded are still being released.
        await until(read_all, within=PATIENCE_SECONDS)
        assert value(waiting, "muster_owner", service="status") == 0
        assert value(waiting, "muster_ready", service="status") == 1
        told = {name for name in waiting if name.startswith("muster_jobs")}
        assert told == {"muster_jobs_over_budget", "muster_jobs_outside"}
        assert value(waiting, "muster_log_position", service="status") > 10
        assert sum(sample.value for sample in waiting["muster_kubernetes_requests"].samples) > 0
        assert waiting["process_resident_memory_bytes"].samples
        # It is started again, and waits in its turn.
        await operator.stack.services["status"].stop()

        async def took_over() -> bool:
            return "muster_jobs" in await scraped(standby)

        await until(took_over, within=PATIENCE_SECONDS)
        found = await scraped(standby)
        assert value(found, "muster_owner", service="status") == 1
        assert value(found, "muster_jobs_created", "_total", **PLACE) == 1
        assert value(found, "muster_jobs_successful", "_total", **PLACE) == 1
        assert value(found, "muster_jobs", **PLACE, phase="Succeeded") == 1
        assert value(found, "muster_job_start_duration_seconds", "_count", kind=PLACE["kind"]) == 1
        await operator.apply(a_job("counted-too", "sleep 0.2"))
        await operator.phase("Succeeded", TRAININGJOBS, "counted-too")
        found = await eventually(
            lambda: scraped(standby), lambda told: value(told, "muster_jobs_successful", "_total", **PLACE) == 2
        )
        assert value(found, "muster_decision_latency_seconds", "_count", service="status") >= 3
    decisions = [line for line in standby.lines() if "basis" in line]
    assert [line["event"] for line in decisions] == ["JobCreated", "JobRunning", "JobSucceeded"]
    assert {(line["job"], line["kind"], line["service"]) for line in decisions} == {
        ("default/counted-too", "TrainingJob", "status")
    }


@pytest.mark.parametrize("name", ["watcher", "scheduler"])
async def test_an_owner_without_the_api_server_is_followed(operator: Operator, tmp_path: Path, name: str):
    environment = operator.stack.environment(name)
    url = operator.stack.cluster.url
    async with AsyncExitStack() as stack:
        line = AsyncExitStack()
        stack.push_async_callback(line.aclose)
        listening = relaying(out_to(url), lambda relay: asyncio.start_server(relay, "127.0.0.1", 0))
        port = (await line.enter_async_context(listening)).sockets[0].getsockname()[1]
        environment["KUBECONFIG"] = _leading_to(f"https://127.0.0.1:{port}", environment["KUBECONFIG"], url, tmp_path)
        owner = await stack.enter_async_context(a_service(name, tmp_path, environment))
        await owner.becomes(200)
        # It is started again, and waits in its turn.
        await operator.stack.services[name].stop()
        await owner.says("lease acquired")
        job = f"after-the-{name}"
        await line.aclose()
        await operator.apply(a_job(job, "sleep 0.2"))
        await owner.says("lease offered", url.rpartition(":")[0])
        await operator.phase("Succeeded", TRAININGJOBS, job)
        assert not (await owner.probed("readyz"))[1]["owner"]


def _leading_to(other: str, kubeconfig: str, url: str, folder: Path) -> str:
    changed = folder / "kubeconfig"
    changed.write_text(Path(kubeconfig).read_text().replace(url, other))
    return str(changed)
