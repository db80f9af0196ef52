"""Whether the store behind the API server is another one: one old answer is none, nor is a replica ahead of us."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from services.watcher.asking import ASK_AGAIN_SECONDS
from services.watcher.core.lists import Known
from services.watcher.core.views import observed_job
from services.watcher.shell import Watcher
from services.watcher.watches import LISTS_THAT_WENT_BACK
from shared.cluster import Resource
from shared.cluster.decoding import decoder
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Custom, Metadata, Object
from shared.eventlog import Entry
from shared.eventlog.account import HEADS
from shared.frameworks.training_job import TRAININGJOB, TRAININGJOBS
from shared.job.events.watcher import JobObserved
from shared.job.naming import JobKey, Uid, subject_of
from shared.job.state import Job, JobResource
from shared.runtime.run import Runtime
from tests.kit.apiserver import ScriptedApiServer
from tests.kit.builders import a_running_job, worker
from tests.kit.histories import KEY, folded
from tests.kit.virtual_time import in_virtual_time, until
from tests.kit.watching import PATIENCE
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.watcher.test_shell import Cluster, running
from tests.watcher.watching import Watching, a_resource

pytestmark = pytest.mark.real_time

UID = Uid("uid-1")


def shown(version: int, uid: str = UID) -> Object:
    return Object(metadata=Metadata(uid=uid, resource_version=str(version)))


@pytest.mark.parametrize(
    ("version", "objects", "back"),
    [
        pytest.param(100, [], False, id="as far as before"),
        pytest.param(99, [], True, id="not as far as before"),
        pytest.param(500, [shown(50)], False, id="a known object as it was"),
        pytest.param(500, [shown(60)], False, id="a newer version of it"),
        # An etcd that was restored with its revision raised counts on; its objects are the old ones all the same.
        pytest.param(500, [shown(49)], True, id="an older version of it"),
        pytest.param(500, [shown(1, "another")], False, id="an unknown object"),
    ],
)
def test_a_list_that_cannot_come_after_what_was_known(version: int, objects: list[Object], back: bool):
    before = Known(TRAININGJOBS, epoch=0, reached=100)
    before.add(Job(key=KEY, resource=JobResource(kind="TrainingJob", api_version=TRAININGJOBS.api_version, version=50)))
    assert (version < before.reached or any(map(before.has_newer, objects))) == back


@pytest.mark.parametrize(
    ("resource", "epoch", "reached", "older"),
    [(TRAININGJOBS, 1, 70, True), (TRAININGJOBS, 2, 5, False), (PODS, 1, 5, False)],
)
def test_only_what_was_seen_in_this_store_counts(resource: Resource[Any], epoch: int, reached: int, older: bool):
    before = Known(resource, epoch=epoch, reached=5)
    before.add(
        Job(
            key=KEY, resource=JobResource(kind="TrainingJob", api_version=TRAININGJOBS.api_version, epoch=1, version=70)
        )
    )
    assert (before.epoch, before.reached) == (epoch, reached)
    assert before.has_newer(shown(69)) == older
    assert not before.has_newer(shown(70))


class TestInAnotherStore:
    def test_what_was_not_listed_again_means_nothing(self):
        watching = Watching(*a_running_job(workers=2))
        watching.show(a_resource(version=1))
        watching.show_pods(worker(0, version=900, ready=False))
        watching.cache.enter(1)
        assert watching.seen() == []
        assert not watching.cache.sees(TRAININGJOBS)

    def test_a_job_is_said_before_its_pods(self):
        watching = Watching(*a_running_job(workers=2))
        watching.show(a_resource(version=1))
        watching.show_pods(worker(0, version=3, ready=False))
        watching.cache.enter(1)
        watching.cache.pods.outdated = False
        assert watching.seen() == []
        watching.cache.scalable.outdated = False
        assert [type(fact).__name__ for fact in watching.seen()] == ["JobObserved"]


class Replies:
    """An API server whose lists of jobs are these, one after the other, the last one for ever."""

    def __init__(self, *replies: tuple[int, list[int]]) -> None:
        """Each the list's version, and the version of the job in it, if it is there."""
        self._replies = [*replies]
        self.listed = 0
        self.others = Counter[str]()
        """How often another kind was listed."""
        self.gets: list[float] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while the second list is under way."""

    async def list(self, request: web.Request) -> web.StreamResponse:
        jobs = request.path.endswith(f"/{TRAININGJOBS.plural}")
        if not jobs and request.path.rpartition("/")[2] == "resnet":
            self.gets.append(asyncio.get_running_loop().time())
            return web.json_response(a_job(5))
        version, versions = 9_000, []
        if not jobs:
            self.others[request.path.rpartition("/")[2]] += 1
        else:
            self.listed += 1
            if self.listed == 2 and self.meanwhile is not None:
                await self.meanwhile()
            version, versions = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        items = [a_job(each) for each in versions]
        return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": items})


def a_job(version: int) -> dict[str, Any]:
    job = a_training_job()
    metadata = {"namespace": NAMESPACE, "uid": UID, "resourceVersion": str(version), "generation": 1}
    return {**job, "metadata": {**job["metadata"], **metadata}}


class Scene:
    """A watcher before such a server, and its log, in which the job is known at version 90."""

    def __init__(self, runtime: Runtime, journal: MemoryJournal) -> None:
        self.runtime = runtime
        self.journal = journal

    @property
    def job(self) -> Job:
        return folded(self.journal.events)[KEY].job

    @property
    def observed(self) -> JobObserved:
        return msgspec.json.decode(self.journal.events[1].body, type=JobObserved)

    def kinds(self) -> list[str]:
        return [stored.subject.rpartition(".")[2] for stored in self.journal.events[1:]]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.01)


@asynccontextmanager
async def a_scene(folder: Path, replies: Replies) -> AsyncIterator[Scene]:
    journal = MemoryJournal()
    # As the API server gives it back, so that nothing but its version can be news.
    known_job = decoder(Custom).decode(msgspec.json.encode(a_job(90)))
    append(journal, observed_job(TRAININGJOB, known_job).observed)
    async with ScriptedApiServer() as server:
        server.every_list = replies.list
        cluster = await KubeCluster.connect(server.kubeconfig(folder))
        eventlog = MemoryEventLog(journal, user="watcher")
        watcher = Watcher(cluster, eventlog, await eventlog.bucket(HEADS))
        try:
            async with running(Runtime(watcher, eventlog)) as runtime:
                yield Scene(runtime, journal)
        finally:
            await cluster.close()


def append(journal: MemoryJournal, event: JobObserved, key: JobKey = KEY) -> None:
    last = max((s.sequence for s in journal.events if s.subject.startswith("facts.team-a")), default=0)
    entry = Entry(
        subject=subject_of(key, "facts", "watcher", "JobObserved"),
        event_id=f"by-hand-{len(journal.events)}",
        time="2030-01-01T00:00:00.000Z",
        body=msgspec.json.encode(event),
    )
    journal.append(entry, expect=last)


async def test_one_old_list_is_asked_for_again_and_not_believed(tmp_path: Path):
    replies = Replies((40, []), (100, [95]))
    async with a_scene(tmp_path, replies) as scene:
        await scene.until(lambda: replies.listed == 2 and bool([*scene.runtime.service.known()]))
        assert scene.kinds() == ["JobObserved"]
        assert replies.gets == [], "there was no question about the job that the old list lacks"


async def test_as_many_as_it_takes_are_another_store(tmp_path: Path):
    replies = Replies((40, [30]))
    async with a_scene(tmp_path, replies) as scene:
        await scene.until(lambda: scene.job.resource.epoch == 1)
        assert (scene.job.resource.version, replies.listed) == (30, LISTS_THAT_WENT_BACK)
        # A stream that did not break knows nothing of that by itself.
        others = {"scaleins", "scaleouts", "pods", "services", "configmaps"}
        await scene.until(lambda: all(replies.others[plural] == 2 for plural in others))


async def test_a_log_that_got_ahead_while_a_list_was_under_way_is_no_reason_for_another_store(tmp_path: Path):
    # The second list is held against what was known when it was asked for, not against what came meanwhile.
    replies = Replies((80, []), (95, [90]))
    async with a_scene(tmp_path, replies) as scene:

        async def got_ahead() -> None:
            append(scene.journal, msgspec.structs.replace(scene.observed, version=200, generation=2))
            await scene.until(lambda: scene.runtime.histories.position == len(scene.journal.events))

        replies.meanwhile = got_ahead
        await scene.until(lambda: bool([*scene.runtime.service.known()]))
        assert replies.listed == 2
        assert scene.kinds() == ["JobObserved"] * 2
        assert scene.job.resource.epoch == 0


async def test_a_job_that_its_watch_does_not_show_is_not_asked_for_in_a_hot_loop(tmp_path: Path):
    replies = Replies((100, []))
    async with a_scene(tmp_path, replies) as scene:
        await scene.until(lambda: len(replies.gets) == 2)
        first, second = replies.gets
        assert second - first > ASK_AGAIN_SECONDS * 0.9
        assert not scene.job.resource.gone


@in_virtual_time
async def test_who_takes_over_after_another_saw_the_store_go_back_lists_again():
    cluster = Cluster()
    cluster.store.version = 50
    held = cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    async with cluster.watched():
        await cluster.quiet()
        (job,) = cluster.jobs()
        assert job.spec is not None
        again = JobObserved(
            kind=job.resource.kind,
            api_version=job.resource.api_version,
            generation=1,
            version=51,
            epoch=3,
            spec=job.spec,
        )
        append(cluster.journal, again, job.key)
        cluster.store.patch(TRAININGJOBS, *held.at, {"spec": {"backoffLimit": 3}})
        await until(lambda: cluster.jobs()[0].resource.generation == 2, "the change")
    assert cluster.jobs()[0].resource.epoch == 3
