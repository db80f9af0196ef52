"""A replica that reaches the log but not the API server leaves its work to the one that waits."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devcluster.node.relay import out_to, relaying
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.hosts import EMBEDDED
from tests.kit.operator import Operator, a_job
from tests.kit.service import a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CLUSTERS = EMBEDDED


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
