"""A large job's pods are told of in bunches; a small one's at once; and in the end all is known."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.watcher.core.pace import (
    IN_A_ROW_SECONDS,
    LONGEST_IN_A_CROWD_SECONDS,
    LONGEST_OF_MANY_PODS_SECONDS,
    LONGEST_SECONDS,
    LONGEST_START_SECONDS,
    MOST_WAITED_FOR,
    RESTLESS,
    SHORTEST_SECONDS,
    START_SECONDS,
    Row,
    pause,
    wait,
    waits_for_the_rest,
)
from services.watcher.shell import Watcher
from shared.cluster.kinds import PODS
from shared.cluster.objects import Custom
from shared.eventlog import Entry
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import PodsObserved
from shared.job.naming import Slot
from shared.job.spec import WORKER
from shared.job.views import PodView
from tests.kit.builders import a_created_job, a_running_job, worker
from tests.kit.pods import pod_for
from tests.kit.world import NAMESPACE, World, a_training_job
from tests.memory.eventlog import MemoryEventLog
from tests.watcher.test_disruption import GOING
from tests.watcher.test_shell import Cluster
from tests.watcher.watching import Watching, a_resource

PACE_SECONDS = 0.002
"""Between two pods."""

APPEND_SECONDS = 0.2
"""Of a slow log: twice the longest pause."""


@pytest.mark.parametrize(
    ("pods", "append", "others", "seconds"),
    [
        pytest.param(4, 0.001, 0, SHORTEST_SECONDS, id="a small job waits as good as not at all"),
        pytest.param(400, 0.001, 0, 0.04, id="a large job pauses as long as all its pods take to look at"),
        pytest.param(4, 0.020, 0, 0.06, id="and any job while the log is slow"),
        pytest.param(4, 0.5, 0, LONGEST_SECONDS, id="but never so long that a person would notice"),
        pytest.param(7_000, 0.001, 0, 0.7, id="unless the job is so large"),
        pytest.param(50_000, 0.001, 0, LONGEST_OF_MANY_PODS_SECONDS, id="and never longer than a second"),
        pytest.param(4, 0.001, 6, 0.18, id="among many that start at once each waits its share"),
        pytest.param(4, 0.001, 900, LONGEST_IN_A_CROWD_SECONDS, id="which has an end too"),
    ],
)
def test_pause(pods, append, others, seconds):
    assert pause(pods, append, others) == pytest.approx(seconds)


async def test_nothing_is_kept_of_the_series_of_a_job_that_is_gone(world: World):
    await world.trains(workers=2)
    watcher = world._running["watcher"][0].service
    assert isinstance(watcher, Watcher)
    assert watcher._rows
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: not world.pods(), "the pods are collected")
    await world.quiet()
    assert not watcher._rows


def test_a_job_whose_pods_never_rest_pauses_for_the_longest():
    row, now = Row(), 100.0
    for number in range(1, 50):
        row = Row(row.next(now), now + 0.1)
        assert row.length == number
        assert pause(4, 0.001, 0, row.length) == (LONGEST_SECONDS if number > RESTLESS else SHORTEST_SECONDS)
        now = row.ends
    assert row.next(row.ends + IN_A_ROW_SECONDS) == 1


NOT_YET: dict[str, Any] = {"phase": "Pending", "ready": False}
NEW = PodsObserved(pods=())
STARTING = a_created_job(workers=2)


def waits(*shown: PodView, events: Sequence[AnyEvent] = STARTING) -> bool:
    watching = Watching(*events)
    watching.show(a_resource(version=1))
    watching.show_pods(*shown)
    return waits_for_the_rest(NEW, watching.job(), watching.cache)


@pytest.mark.parametrize(
    ("shown", "waiting"),
    [
        pytest.param([worker(0, **NOT_YET)], True, id="one of two pods waits for the other"),
        pytest.param([worker(0), worker(1, **NOT_YET)], True, id="one that runs waits for one that does not"),
        pytest.param([worker(0), worker(1)], False, id="two that run are all"),
        pytest.param([worker(0, deleting=True)], False, id="a pod that leaves waits for nothing"),
        pytest.param([worker(0, phase="Failed", ready=False)], False, id="nor does one that failed"),
        pytest.param([worker(0, disruption="EvictionByEvictionAPI")], False, id="nor one that is disrupted"),
    ],
)
def test_pods_of_a_start_wait_for_the_rest(shown: list[PodView], waiting: bool):
    assert waits(*shown) == waiting


def test_a_pod_on_a_node_that_ends_waits_for_nothing():
    watching = Watching(*STARTING)
    watching.show(a_resource(version=1))
    watching.show_pods(msgspec.structs.replace(worker(0, **NOT_YET), node="spot"))
    watching.cache.set_node("spot", GOING)
    assert not waits_for_the_rest(NEW, watching.job(), watching.cache)


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "without its owner"])
async def test_a_pod_that_goes_is_told_at_once_while_others_of_the_start_are_waited_for(world: World, deleted: bool):
    world.stuck.add("resnet-worker-2")
    world.apply(TRAININGJOBS, a_training_job(workers=3))
    await world.until(lambda: world.count("PodsObserved") == 1)
    world.odd.add("resnet-worker-1")
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    world.store.patch(PODS, NAMESPACE, "resnet-worker-1", not_ready, subresource="status")
    await asyncio.sleep(START_SECONDS / 10)
    assert world.count("PodsObserved") == 1, "it waits for the rest"
    if deleted:
        world.delete(PODS, "resnet-worker-0")
    else:
        world.store.patch(PODS, NAMESPACE, "resnet-worker-0", {"metadata": {"ownerReferences": []}})
    await asyncio.sleep(START_SECONDS / 10)
    assert world.count("PodsGone") == 1


def test_a_job_that_runs_waits_for_nothing():
    assert not waits(worker(0, **NOT_YET), events=a_running_job(workers=2))


def test_a_job_with_more_pods_than_are_compared_each_time_does_not_wait():
    assert not waits(worker(0), events=a_created_job(workers=MOST_WAITED_FOR + 1))


@pytest.mark.parametrize(
    ("others", "seconds"),
    [
        pytest.param(0, START_SECONDS, id="alone"),
        pytest.param(6, 0.6, id="among others"),
        pytest.param(1_000, LONGEST_START_SECONDS, id="with an end"),
    ],
)
def test_a_start_waits_the_longer_the_more_jobs_start(others: int, seconds: float):
    assert wait(others) == pytest.approx(seconds)


async def test_a_start_costs_ten_events_and_no_nudge(world: World):
    world.apply(TRAININGJOBS, a_training_job(workers=4))
    await world.running()
    await asyncio.sleep(60)
    once = (
        "LogCreated",
        "JobObserved",
        "JobCreated",
        "SecretMade",
        "ChildrenObserved",
        "HostsPublished",
        "JobRunning",
    )
    assert Counter(world.types()) == Counter(once) | {"SlotsAssigned": 2, "PodsObserved": 2}


async def _come_one_by_one(cluster: Cluster, workers: int, *, pace: float = PACE_SECONDS) -> None:
    """Pods of a job appear, each `pace` seconds after the last."""
    manifest = a_training_job(workers=workers)
    manifest["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = workers
    held = cluster.store.create(TRAININGJOBS, NAMESPACE, manifest)
    job = msgspec.convert(held.manifest, Custom)
    await cluster.quiet()
    for index in range(workers):
        slot = Slot(0, WORKER, index)
        cluster.store.create(PODS, NAMESPACE, pod_for(job, slot))
        await asyncio.sleep(pace)
    await cluster.quiet()


async def test_the_pods_of_a_large_job_are_told_of_in_bunches():
    cluster = Cluster()
    async with cluster.watched():
        await _come_one_by_one(cluster, 600)
    (job,) = cluster.jobs()
    assert len(job.pods.views) == 600
    # Each bunch takes longer than the one before.
    assert cluster.kinds().count("PodsObserved") < 150


async def test_the_pods_of_a_small_job_are_told_of_at_once():
    cluster = Cluster()
    async with cluster.watched():
        await _come_one_by_one(cluster, 10, pace=SHORTEST_SECONDS * 2)
    assert cluster.kinds().count("PodsObserved") == 10


async def test_what_changes_during_a_pause_is_told_when_it_ends():
    cluster = Cluster()
    async with cluster.watched():
        await _come_one_by_one(cluster, 600)
        for index in (7, 8, 9):
            cluster.store.patch(
                PODS, NAMESPACE, f"resnet-worker-{index}", {"status": {"phase": "Running"}}, subresource="status"
            )
            await asyncio.sleep(PACE_SECONDS)
        await asyncio.sleep(LONGEST_SECONDS)
        (job,) = cluster.jobs()
    assert sorted(pod.index for pod in job.pods.views.values() if pod.phase == "Running") == [7, 8, 9]


class SlowLog(MemoryEventLog):
    """Every append takes a while."""

    async def append(self, entry: Entry, *, expect: int) -> int:
        await asyncio.sleep(APPEND_SECONDS)
        return await super().append(entry, expect=expect)


async def test_what_waited_for_an_append_is_told_as_soon_as_that_is_done():
    cluster = Cluster()
    async with cluster.watched(log=SlowLog):
        await _come_one_by_one(cluster, 1)
        clock = asyncio.get_running_loop().time
        began, before = clock(), len(cluster.journal.events)
        for phase in ("Running", "Succeeded"):
            cluster.store.patch(PODS, NAMESPACE, "resnet-worker-0", {"status": {"phase": phase}}, subresource="status")
            await asyncio.sleep(APPEND_SECONDS * 0.9)
        while len(cluster.journal.events) < before + 2:
            await asyncio.sleep(PACE_SECONDS)
    # One after the other, and no pause between them.
    assert clock() - began < 2 * APPEND_SECONDS + LONGEST_SECONDS / 2


async def test_labels_that_are_written_for_ever_are_recorded_once_a_minute_without_the_spec_and_the_last_ones_at_last():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())

    def beat(number: int) -> None:
        cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"metadata": {"labels": {"beat": str(number)}}})

    def told() -> list[str]:
        return [dict(body["labels"])["beat"] for kind, body in cluster.said() if kind == "JobRelabelled"]

    async with cluster.watched():
        await cluster.quiet()
        for number in range(150):
            beat(number)
            await asyncio.sleep(1)
        assert [*map(int, told())] == [0, pytest.approx(60, abs=1), pytest.approx(120, abs=1)]
        await cluster.quiet()
        assert (len(told()), told()[-1]) == (4, "149")
        beat(200)
        await asyncio.sleep(1)
        assert told()[-1] == "200", "a change after a quiet minute is told at once"
    assert cluster.kinds() == ["JobObserved", *["JobRelabelled"] * 5]
