"""What a service says where another installation has the scope, and on definitions of an older release."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.cluster import Devcluster
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.kube import KubeCluster
from shared.eventlog.account import ADMIN
from shared.eventlog.server import NatsServer
from shared.frameworks.training_job import TRAININGJOBS
from shared.release import MARK, this_release
from tests.kit.commands import Ended, run
from tests.kit.nats import until
from tests.kit.service import Service, a_service

pytestmark = pytest.mark.e2e

DEFINITION = f"{TRAININGJOBS.plural}.{TRAININGJOBS.group}"


class Town:
    """One cluster and the logs of two installations."""

    def __init__(self, cluster: Devcluster, logs: dict[str, NatsServer], kube: KubeCluster) -> None:
        self.cluster = cluster
        self.logs = logs
        self.kube = kube

    def environment(self, log: str, user: str) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.cluster.kubeconfig(CLUSTER_ADMIN)),
            "NATS_URL": self.logs[log].url,
            "NATS_USER": user,
            "NATS_PASSWORD": self.logs[log].users[user],
            "MUSTER_KINDS": "TrainingJob.kai.alibabacloud.com",
        }

    async def setup(self, log: str, *words: str) -> Ended:
        """`muster setup` as a Job of that installation runs it."""
        command = (sys.executable, "-m", "muster", "setup", "--timeout", "30", *words)
        return await run(*command, environment=self.environment(log, ADMIN))


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Devcluster(tmp_path / "cluster", nodes=0))
        logs = {name: await stack.enter_async_context(NatsServer(tmp_path / name)) for name in ("one", "two")}
        kube = await KubeCluster.connect(cluster.kubeconfig(CLUSTER_ADMIN))
        stack.push_async_callback(kube.close)
        yield Town(cluster, logs, kube)


async def test_the_second_installation_is_refused_and_a_service_without_the_scope_waits_for_it(
    town: Town, tmp_path: Path
):
    first = await town.setup("one")
    assert first.code == 0, first.out + first.complaint
    refused = await town.setup("two")
    assert refused.code == 1
    assert len(refused.complaint.splitlines()) == 1
    assert f"the whole cluster has the log {first.out.split('log ')[1].split()[0]} at nats://" in refused.complaint
    assert "muster setup --take-scope" in refused.complaint
    taken = await town.setup("two", "--take-scope")
    assert taken.code == 0, taken.out + taken.complaint
    async with a_service("status", tmp_path, town.environment("one", "status")) as service:
        await service.says("not ready", DEFINITION, "the whole cluster has the log", "--take-scope")
        assert (await service.probed("readyz"))[0] == 503
        assert (await town.setup("two", "--release")).code == 0
        assert (await town.setup("one")).code == 0
        await service.becomes(200)
        assert len(service.lines("not ready")) == 1


async def test_a_service_works_on_definitions_of_an_older_release_and_says_so(town: Town, tmp_path: Path):
    assert (await town.setup("one")).code == 0
    older = {"metadata": {"annotations": {MARK: "0.0.1"}}}
    await town.kube.patch(DEFINITIONS, "", DEFINITION, older)
    async with a_service("watcher", tmp_path, town.environment("one", "watcher")) as service:
        await service.becomes(200)
        (line,) = service.lines("definitions of an older release")
        assert (line["definitions"], line["remedy"]) == ([DEFINITION], "run `muster setup`")
    assert (await town.setup("one")).code == 0
    found = await town.kube.get(DEFINITIONS, "", DEFINITION)
    assert found is not None
    assert (found.metadata.annotations or {})[MARK] == this_release()
    async with a_service("watcher", tmp_path, town.environment("one", "watcher")) as service:
        await service.becomes(200)
        assert len(service.lines("definitions of an older release")) == 1, "the first life's line"


async def test_on_one_log_a_service_of_a_namespace_waits_for_the_one_of_the_whole_cluster(town: Town, tmp_path: Path):
    assert (await town.setup("one")).code == 0
    environment = town.environment("one", "watcher")
    folders = {name: tmp_path / name for name in ("wide", "narrow")}
    for folder in folders.values():
        folder.mkdir()
    narrow = environment | {"MUSTER_NAMESPACE": "default"}
    async with AsyncExitStack() as stack:
        async with a_service("watcher", folders["wide"], environment) as first:
            await acting(first)
            second = await stack.enter_async_context(a_service("watcher", folders["narrow"], narrow))
            await second.says("not ready", "on the same log the watcher of the whole cluster acts", "a log of its own")
            assert (await second.probed("readyz"))[0] == 503
            assert (await first.probed("readyz"))[0] == 200
        await acting(second)
        assert len(second.lines("not ready")) == 1


async def acting(service: Service) -> None:
    await service.becomes(200)

    async def owner() -> bool:
        return bool((await service.probed("healthz"))[1]["owner"])

    await until(owner)
