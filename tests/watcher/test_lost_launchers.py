"""A launcher that vanished is lost only if its job is still there; the job's own GET says so, not the jobs watch."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from services.watcher.core.lists import question
from services.watcher.shell import Watcher
from shared.cluster.kinds import PODS
from shared.errors import Transient
from shared.eventlog import Entry
from shared.eventlog.account import HEADS
from shared.frameworks.training_job import JOB_NAME, JOB_ROLE, TRAININGJOBS
from shared.job.events.scheduler import SlotsAssigned
from shared.job.events.watcher import JobDeleting, JobGone, LauncherLost, PodsGone, PodsObserved
from shared.job.fold import History
from shared.job.naming import JOB_UID, Slot, Uid, pod_name, subject_of
from shared.job.policies.verdict import verdict
from shared.job.spec import LAUNCHER
from shared.job.views import Slots
from shared.runtime.run import Runtime
from tests.kit.builders import a_ready_job, a_running_job, a_spec, exited, launcher, worker
from tests.kit.groups import a_group_spec, a_running_group
from tests.kit.histories import folded
from tests.kit.virtual_time import until
from tests.kit.weather import Failing
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.watcher.test_shell import running
from tests.watcher.watching import Watching, a_resource, watching_a_running_job

UID = Uid("pod-launcher")


def watching_a_job_without_its_launcher() -> Watching:
    watching = watching_a_running_job()
    watching.take_pods("resnet-launcher")
    return watching


def test_nothing_is_said_of_it_before_the_job_was_asked_for():
    assert watching_a_job_without_its_launcher().seen() == []


def test_nothing_is_asked_while_the_watch_of_pods_lags_behind_the_log():
    watching = watching_a_job_without_its_launcher()
    assert question(watching.job(), watching.cache) is not None
    watching.cache.pods.version = watching.job().pods.views[UID].version - 1
    assert question(watching.job(), watching.cache) is None


def test_it_is_lost_when_its_job_is_still_there():
    watching = watching_a_job_without_its_launcher()
    watching.answer(there=True)
    assert watching.settle() == [LauncherLost(uid=UID)]


def test_it_went_with_its_job_when_that_is_gone():
    watching = watching_a_job_without_its_launcher()
    watching.show(None)
    watching.answer(there=False)
    assert watching.settle() == [JobGone(version=1_000), PodsGone(uids=(UID,))]
    assert not watching.job().attempt.launcher_lost


def test_or_when_the_job_is_gone_although_its_watch_still_shows_it():
    watching = watching_a_job_without_its_launcher()
    watching.answer(there=False)
    assert watching.settle() == [PodsGone(uids=(UID,))]


def test_or_when_the_job_is_on_its_way_out():
    watching = watching_a_job_without_its_launcher()
    watching.show(a_resource(version=90, deleting=True))
    assert watching.settle() == [JobDeleting(version=90), PodsGone(uids=(UID,))]


def test_its_end_in_its_deletion_waits_for_the_job_s_get_too():
    watching = watching_a_job_without_its_launcher()
    end = launcher(version=90, deleting=True, phase="Failed", exits=exited(143))
    watching.show_pods(end)
    assert watching.seen() == []
    watching.answer(there=True)
    assert watching.settle() == [PodsObserved(pods=(end,))]


def test_a_launcher_that_ends_by_itself_waits_for_nothing():
    watching = watching_a_job_without_its_launcher()
    end = launcher(version=90, phase="Failed", exits=exited(1))
    watching.show_pods(end)
    assert watching.seen() == [PodsObserved(pods=(end,))]


@pytest.mark.parametrize("code", [0, 1])
def test_a_launcher_that_had_ended_when_it_was_removed_is_not_lost(code: int):
    watching = watching_a_running_job()
    last = launcher(version=40, phase="Failed" if code else "Succeeded", exits=exited(code))
    watching.show_pods(last)
    # A controller collects completed pods before the watcher's next turn.
    watching.take_pods("resnet-launcher")
    assert watching.settle() == [PodsObserved(pods=(last,)), PodsGone(uids=(UID,))]
    end = verdict(watching.job())
    assert end is not None
    assert (end.success, end.reason) == (not code, "TrainingJobFailed" if code else "TrainingJobSucceeded")
    watching.cache.forget_ended(watching.histories)
    assert not watching.cache._over_of


@pytest.mark.parametrize("gone", [False, True])
def test_a_launcher_that_had_ended_when_its_deletion_began_is_not_lost(gone: bool):
    """A sidecar, or a finalizer, keeps the pod for some time."""
    watching = watching_a_running_job()
    last = launcher(version=40, phase="Succeeded", exits=exited(0), lingers=True)
    watching.show_pods(last)
    watching.show_pods(replace(last, version=41, deleting=True))
    if gone:
        watching.take_pods("resnet-launcher")
    assert watching.settle()[0] == PodsObserved(pods=(last,))
    end = verdict(watching.job())
    assert end is not None
    assert end.success
    watching.cache.forget_ended(watching.histories)
    assert not watching.cache._over_of


def test_a_launcher_that_ended_in_its_deletion_is_lost_with_it():
    watching = watching_a_running_job()
    watching.show_pods(launcher(version=40, phase="Succeeded", exits=exited(0), deleting=True))
    watching.take_pods("resnet-launcher")
    watching.answer(there=True)
    assert watching.settle() == [LauncherLost(uid=UID)]


def test_workers_without_whom_a_job_cannot_begin_wait_for_its_get_too():
    watching = Watching(*a_ready_job(workers=2, least=2))
    watching.show(a_resource(a_spec(2, least=2), version=1))
    watching.show_pods(worker(0), worker(1))
    watching.settle()
    watching.take_pods("resnet-worker-1")
    assert watching.seen() == []
    watching.show(a_resource(a_spec(2, least=2), version=90, deleting=True))
    assert watching.settle() == [JobDeleting(version=90), PodsGone(uids=(Uid("pod-1"),))]


def test_a_worker_that_the_job_can_do_without_or_that_is_replaced_waits_for_nothing():
    for events, spec in ((a_running_job(workers=2), a_spec(2)), (a_running_group(3), a_group_spec(3))):
        watching = Watching(*events)
        watching.show(a_resource(spec, version=1))
        watching.show_pods(*watching.job().pods.views.values())
        watching.settle()
        for child in watching.job().objects.children.values():
            watching.show_child(child)
        watching.take_pods("resnet-worker-1")
        assert watching.seen() == [PodsGone(uids=(Uid("pod-1"),))]


class Late:
    """A job with a running launcher, and a watcher whose jobs watch can be late."""

    def __init__(self) -> None:
        self.journal, self.store = MemoryJournal(), MemoryStore()
        silence = Transient("the stream is silent")
        self.weather = Failing(
            lambda call: (call.verb, call.plural) == ("watch", "trainingjobs"), silence, on=False, seconds=0.1
        )
        self.job = self.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
        uid = self.job.metadata["uid"]
        labels = {JOB_NAME: "resnet", JOB_UID: uid, JOB_ROLE: LAUNCHER, "muster.dev/attempt": "0"}
        owner = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "uid": uid}
        metadata = {
            "name": pod_name("resnet", Slot(0, LAUNCHER, 0)),
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        }
        self.store.create(PODS, NAMESPACE, {"metadata": metadata, "spec": {"containers": []}})

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        eventlog = MemoryEventLog(self.journal, user="watcher")
        watcher = Watcher(MemoryCluster(self.store, weather=self.weather), eventlog, await eventlog.bucket(HEADS))
        async with running(Runtime(watcher, eventlog)):
            await until(lambda: "PodsObserved" in self.kinds(), "the launcher")
            history = self.history()
            place = Slots(0, LAUNCHER, ((0, 0),))
            self.journal.append(
                Entry(
                    subject=subject_of(history.job.key, "jobs", "scheduler", "SlotsAssigned"),
                    event_id="assigned",
                    time="",
                    body=msgspec.json.encode(SlotsAssigned(slots=(place,))),
                    basis=history.basis,
                ),
                expect=0,
            )
            yield

    def history(self) -> History:
        (found,) = (history for history in folded(self.journal.events) if history.job.resource.generation)
        return found

    def kinds(self) -> list[str]:
        return [stored.subject.rpartition(".")[2] for stored in self.journal.events]


@pytest.mark.parametrize("late", [False, True], ids=["all watches are equally quick", "the jobs watch is late"])
async def test_a_deleted_job_loses_no_launcher_whichever_watch_is_first(late: bool):
    there = Late()
    async with there.watched():
        there.weather.on = late
        there.store.outage.cut_watches()
        there.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
        there.store.collect_garbage()
        await until(lambda: "PodsGone" in there.kinds() or "LauncherLost" in there.kinds(), "the launcher's end")
        there.weather.on = False
        await until(lambda: "JobGone" in there.kinds(), "the job's end")
    assert "LauncherLost" not in there.kinds()
