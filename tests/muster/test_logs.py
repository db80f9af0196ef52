"""`muster logs`: the lines of every pod of a job, on an API server with a node that runs them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import typer

from devcluster.cluster import ADMIN, Devcluster
from muster import crds
from muster.asking import failure_in_one_line
from muster.logs import Seen, logs
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JOB_UID
from shared.telling.targets import parse_target
from tests.devcluster.node.kit import FOREVER, Space, a_cluster, a_space
from tests.kit.clusters import define
from tests.kit.operator import a_job
from tests.muster.conftest import NAME, Said

SPACE = "logs"
JOB = parse_target(f"trainingjob/{NAME}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devcluster]:
    with a_cluster(tmp_path_factory.mktemp("logs") / "shared", "--sync-period", "1") as cluster:
        asyncio.run(define(cluster, *crds.manifests()))
        yield cluster


class Site:
    """A job whose pods a test makes."""

    def __init__(self, kube: KubeCluster, space: Space, uid: str) -> None:
        self.kube = kube
        self.space = space
        self._uid = uid

    async def run(self, name: str, command: str = FOREVER, **spec: Any) -> None:
        await self.space.run(name, command, labels={JOB_UID: self._uid}, **spec)

    async def phase(self, phase: str) -> None:
        status = {"phase": phase, "conditions": [], "replicaStatuses": {}}
        await self.kube.patch(TRAININGJOBS, self.space.name, NAME, {"status": status}, subresource="status")

    async def logs(self, *, follow: bool = False, tail: int | None = None) -> None:
        await logs(self.kube, JOB, self.space.name, follow=follow, tail=tail)


@pytest.fixture
async def site(cluster: Devcluster, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    number = request.node.nodeid.encode().hex()[-12:]
    async with a_space(cluster, f"{SPACE}-{number}") as space:
        kube = await KubeCluster.connect(cluster.kubeconfig(ADMIN))
        manifest = a_job(NAME, "true")
        manifest["metadata"]["namespace"] = space.name
        made = await kube.create(TRAININGJOBS, space.name, manifest)
        try:
            yield Site(kube, space, made.metadata.uid)
        finally:
            await kube.close()


async def test_every_line_of_every_pod_has_its_name_before_it(site: Site, said: Said):
    await site.run("resnet-worker-10", "echo ten")
    await site.run("resnet-worker-9", "printf 'one\\n\\nthree'")
    await site.space.run("another", "echo foreign")
    for name in ("resnet-worker-10", "resnet-worker-9", "another"):
        await site.space.over(name)
    await site.logs()
    nine = [f"[resnet-worker-9] {text}".rstrip() for text in ("one", "", "three")]
    assert [line.rstrip() for line in said.out.splitlines()] == [*nine, "[resnet-worker-10] ten"]


async def test_of_several_containers_the_training_container_is_read(site: Site, said: Said):
    side = {"name": "side", "image": "code:1", "command": ["sh", "-c", "echo side"]}
    main = {"name": "main", "image": "code:1", "command": ["sh", "-c", "echo main"]}
    await site.run("resnet-worker-0", containers=[side, main])
    await site.space.over("resnet-worker-0")
    await site.logs()
    assert said.out == "[resnet-worker-0] main\n"


async def test_the_last_lines_alone_are_printed_when_they_are_asked_for(site: Site, said: Said):
    await site.run("resnet-worker-0", "echo one; echo two; echo three")
    await site.space.over("resnet-worker-0")
    await site.logs(tail=2)
    assert said.out == "[resnet-worker-0] two\n[resnet-worker-0] three\n"


async def test_a_pod_that_has_not_started_is_named(site: Site, said: Said):
    await site.run("resnet-worker-0", container={"image": "missing/trainer:1"})
    await site.space.pod("resnet-worker-0", lambda pod: "waiting" in pod["status"]["containerStatuses"][0]["state"])
    await site.logs()
    assert said.err.startswith("muster: resnet-worker-0 has not started yet")
    assert said.out == ""


async def test_a_job_without_pods_is_one_line(site: Site, said: Said):
    with pytest.raises(typer.Exit), failure_in_one_line():
        await site.logs()
    assert said.err == "muster: trainingjob/resnet has no pods now; `muster why trainingjob/resnet` says why\n"


async def test_a_request_has_no_logs(site: Site, said: Said):
    with pytest.raises(typer.Exit), failure_in_one_line():
        await logs(site.kube, parse_target("scaleout/more"), site.space.name, follow=False, tail=None)
    assert said.err == "muster: only a job has pods that write logs; name the job\n"


async def test_following_shows_new_lines_and_new_pods_until_the_job_is_over(site: Site, said: Said):
    await site.phase("Running")
    await site.run("resnet-worker-0", f"echo first; {FOREVER}")
    following = asyncio.ensure_future(site.logs(follow=True))
    await said.until("[resnet-worker-0] up")
    await site.run("resnet-worker-1", "echo joined")
    await said.until("[resnet-worker-1] joined")
    assert not following.done()
    await site.space.exec("resnet-worker-0", "sh", "-c", "echo more > /proc/1/fd/1")
    await said.until("[resnet-worker-0] more")
    held = await site.kube.get(PODS, site.space.name, "resnet-worker-0")
    assert held is not None
    await site.kube.delete(PODS, site.space.name, "resnet-worker-0", uid=held.metadata.uid)
    await site.phase("Succeeded")
    await asyncio.wait_for(following, 30)
    assert said.out.splitlines() == [
        "[resnet-worker-0] first",
        "[resnet-worker-0] up",
        "[resnet-worker-1] joined",
        "[resnet-worker-0] more",
    ]


async def test_following_a_job_that_is_over_prints_what_is_there(site: Site, said: Said):
    await site.run("resnet-worker-0", "echo done")
    await site.space.over("resnet-worker-0")
    await site.phase("Succeeded")
    await asyncio.wait_for(site.logs(follow=True), 30)
    assert said.out == "[resnet-worker-0] done\n"


def test_a_stream_that_begins_again_repeats_no_line():
    seen = Seen()
    first = ["00:00.1Z", "00:00.12Z", "00:00.12Z"]
    assert seen.begin() == ""
    assert all(seen.is_new(time) for time in first)
    assert seen.begin() == "00:00.12Z"
    again = [seen.is_new(time) for time in [*first, "00:00.12Z", "00:01Z"]]
    assert again == [False, False, False, True, True]


async def test_of_a_pod_that_did_not_start_the_output_of_its_init_containers_is_printed(site: Site, said: Said):
    before = {"name": "fetch", "image": "code:1", "command": ["sh", "-c", "echo no such bucket; exit 7"]}
    await site.run("resnet-worker-0", initContainers=[before])
    await site.space.over("resnet-worker-0")
    await site.logs()
    assert said.err == "muster: resnet-worker-0 did not start: init container fetch exited with 7\n"
    assert said.out == "[resnet-worker-0] no such bucket\n"
