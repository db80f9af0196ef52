"""`muster run --nats embedded`: the whole operator in one process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from devcluster.cluster import ADMIN
from muster.crds import manifests
from muster.stack import CRDS, SERVICES
from shared.cluster.kube import KubeCluster
from shared.frameworks.training_job import TRAININGJOBS
from shared.ports import free_port
from tests.kit.hosts import EMBEDDED, MakeHost
from tests.kit.operator import a_job

pytestmark = pytest.mark.e2e

CLUSTERS = EMBEDDED

PATIENCE_SECONDS = 180.0
STOP_SECONDS = 30.0


async def test_one_command_runs_the_whole_operator(host: MakeHost, tmp_path: Path):
    async with host(tmp_path / "cluster") as cluster:
        port = free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig(ADMIN)),
            "MUSTER_HEALTH_PORT": str(port),
        }
        kube = await KubeCluster.connect(cluster.kubeconfig(ADMIN))
        try:
            for manifest in manifests():
                await kube.create(CRDS, "", manifest)
            running = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "muster", "run", "--nats", "embedded", "--data", str(tmp_path / "log")),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            try:
                assert running.stdout is not None
                exports = [(await running.stdout.readline()).decode().split()[1] for _ in range(4)]
                # Commands would go by the labels that the chart asks of a namespace.
                assert exports[-1] == "MUSTER_NAMESPACE_SELECTOR=kubernetes.io/metadata.name"
                await kube.create(TRAININGJOBS, "default", a_job("one", "sleep 0.3"))
                await _until_succeeded(kube)
                told = await _muster("history", "trainingjob/one", environment=environment, exports=exports)
                assert "JobSucceeded" in told
                ready = [line for line in await _scraped(port) if line.startswith("muster_ready{")]
                assert sorted(ready) == [f'muster_ready{{service="{name}"}} 1.0' for name in sorted(SERVICES)]
                counted = 'muster_jobs_successful_total{job_namespace="",kind="TrainingJob.kai.alibabacloud.com"}'
                async with asyncio.timeout(PATIENCE_SECONDS):
                    # A scraper is told a snapshot of some moments ago.
                    while f"{counted} 1.0" not in await _scraped(port):
                        await asyncio.sleep(0.1)
                running.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(running.wait(), STOP_SECONDS) == 0
            finally:
                if running.returncode is None:
                    running.kill()
                    await running.wait()
        finally:
            await kube.close()


async def _until_succeeded(kube: KubeCluster) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            job = await kube.get(TRAININGJOBS, "default", "one")
            if job is not None and (job.status or {}).get("phase") == "Succeeded":
                return
            await asyncio.sleep(0.1)


async def _scraped(port: int) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return (await answer.text()).splitlines()


async def _muster(*words: str, environment: dict[str, str], exports: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster", *words),
        env={**environment, **dict(export.split("=", 1) for export in exports)},
        stdout=subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()
