"""The watcher's shell: restarts, a cluster restored from a backup, and requests that were there before their job."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from services.watcher.core.lists import VANISHED_AT_ONCE
from services.watcher.core.pace import LONGEST_TURN_SECONDS, MOST
from services.watcher.shell import Watcher
from services.watcher.watches import Options
from shared.cluster import Resource, Snapshot
from shared.cluster.kinds import CONFIGMAPS, NAMESPACES, PODS, SERVICES
from shared.errors import Refused, Transient
from shared.eventlog import Entry
from shared.eventlog.account import HEADS
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.watcher import TimePassed
from shared.job.naming import ATTEMPT, INDEX, JOB_UID, ROLE, Uid
from shared.job.state import Job
from shared.runtime.run import Runtime
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY, folded, log_of
from tests.kit.tasks import beside
from tests.kit.virtual_time import until
from tests.kit.world import NAMESPACE, a_scale_out, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore

PASSED = msgspec.json.encode(TimePassed(anchor=1, timer="none"))


MOST_LOOKS = 200
"""More looks at the log's end than any story here takes: virtual time stands still while a watcher spins."""


class Bounded(MemoryEventLog):
    """A log that fails a watcher that asks without end."""

    looks = 0

    async def end(self, subjects: tuple[str, ...] = ()) -> int:
        self.looks += 1
        assert self.looks < MOST_LOOKS, "the watcher asks without end"
        return await super().end(subjects)


@asynccontextmanager
async def running(runtime: Runtime) -> AsyncIterator[Runtime]:
    """It runs, and does not end by itself."""
    async with beside(runtime.run()) as task:
        yield runtime
        assert not task.done(), "the watcher ended by itself"


class Cluster:
    """A cluster with a log beside it, and watchers that come and go."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.store = MemoryStore()

    def pad(self, events: int) -> None:
        """A log that takes longer to fold than a LIST takes to come."""
        subject, last = "facts.team-b.bert.uid-of-bert.watcher.TimePassed", 0
        for number in range(events):
            entry = Entry(subject=subject, event_id=f"pad-{number}", time="", body=PASSED)
            last = self.journal.append(entry, expect=last)

    def restored(self, version: int) -> None:
        """Another store in the old one's place, at this revision; it names its objects as the old one did."""
        self.store = MemoryStore()
        self.store.version = version

    @asynccontextmanager
    async def watched(
        self,
        *,
        kinds: Kinds = BUILT_IN,
        believes_vanished: bool = False,
        selector: tuple[str, ...] = (),
        log: type[MemoryEventLog] = Bounded,
    ) -> AsyncIterator[Runtime]:
        """A new process, from nothing."""
        eventlog = log(self.journal, user="watcher")
        cluster = MemoryCluster(self.store)
        heads = await eventlog.bucket(HEADS)
        options = Options(believes_vanished=believes_vanished, namespace_selector=selector)
        watcher = Watcher(cluster, eventlog, heads, kinds, options)
        async with running(Runtime(watcher, eventlog)) as runtime:
            yield runtime

    def said(self) -> list[tuple[str, dict[str, Any]]]:
        """(type, body) of every event so far."""
        return [(s.subject.rpartition(".")[2], msgspec.json.decode(s.body)) for s in self.journal.events[1:]]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.said()]

    def jobs(self) -> list[Job]:
        return [history.job for history in folded(self.journal.events) if history.job.resource.generation]

    async def quiet(self) -> None:
        """A minute without a log line; a repeated line fails here."""
        before = -1
        for _ in range(10):
            if len(self.journal.events) == before:
                return
            before = len(self.journal.events)
            await asyncio.sleep(60)
        raise AssertionError(f"the watcher repeats itself: {self.said()[-4:]}")


async def test_a_restart_says_nothing_that_is_known():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    for _ in range(3):
        async with cluster.watched():
            await cluster.quiet()
    assert cluster.kinds() == ["JobObserved"]


class Weighed(MemoryCluster):
    """A cluster that weighs what a watch keeps."""

    async def watch(
        self, resource: Resource[Any], *, namespace: str = "", selector: str = "", name: str = ""
    ) -> AsyncGenerator[Any, None]:
        async for seen in super().watch(resource, namespace=namespace, selector=selector, name=name):
            kept = seen.objects if isinstance(seen, Snapshot) else (getattr(seen, "object", None),)
            assert len(msgspec.json.encode(kept, enc_hook=repr)) < 5_000, f"{resource.plural} are kept whole"
            yield seen


async def test_of_each_object_that_a_list_shows_its_view_alone_is_kept():
    cluster, large = Cluster(), {"large": "x" * 100_000}
    owner = {"apiVersion": TRAININGJOBS.api_version, "kind": "TrainingJob", "name": "resnet", "uid": "u"}
    labels = {JOB_UID: "u", ATTEMPT: "0", ROLE: "worker", INDEX: "0"}
    metadata = {"annotations": large, "labels": labels, "ownerReferences": [owner | {"controller": True}]}
    whole = a_training_job()
    whole["metadata"]["annotations"] = large
    cluster.store.create(TRAININGJOBS, NAMESPACE, whole)
    for resource in (PODS, SERVICES, CONFIGMAPS):
        cluster.store.create(resource, NAMESPACE, {"metadata": {"name": "mine", **metadata}, "spec": {}})
    eventlog = MemoryEventLog(cluster.journal, user="watcher")
    watcher = Watcher(Weighed(cluster.store), eventlog, await eventlog.bucket(HEADS))
    async with running(Runtime(watcher, eventlog)):
        await until(lambda: "JobObserved" in cluster.kinds(), "the job")


async def test_writes_that_a_list_shows_at_once_have_no_writer():
    cluster = Cluster()
    created = with_writers(a_training_job(), ("kubectl", 1))
    cluster.store.create(TRAININGJOBS, NAMESPACE, created)
    async with cluster.watched():
        await cluster.quiet()
        # Two writes, of which the managed fields show the last one alone, and a watch that has lost its place.
        for workers in (3, 4):
            patch = with_writers({"spec": {"etReplicaSpecs": {"worker": {"replicas": workers}}}}, ("robot", 2))
            cluster.store.patch(TRAININGJOBS, NAMESPACE, created["metadata"]["name"], patch)
        cluster.store.compact()
        await cluster.quiet()
    assert [body["by"] for kind, body in cluster.said() if kind == "JobObserved"] == [
        [{"manager": "kubectl", "operation": "Update", "subresource": ""}],
        [],
    ]


def with_writers(manifest: dict[str, Any], *writers: tuple[str, int]) -> dict[str, Any]:
    """A manifest whose spec these clients wrote, each at a second."""
    fields = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "kai.alibabacloud.com/v1alpha1",
            "time": f"2030-01-01T00:00:{second:02}Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:within": {}}},
        }
        for manager, second in writers
    ]
    return manifest | {"metadata": {**manifest.get("metadata", {}), "managedFields": fields}}


async def test_a_cluster_restored_while_the_watcher_was_down_is_noticed_by_its_lower_versions_and_its_epoch_goes_on():
    cluster = Cluster()
    cluster.pad(5_000)
    cluster.store.version = 5_000
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(workers=2))
    async with cluster.watched():
        await cluster.quiet()
    cluster.restored(version=100)
    held = cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(workers=3))
    async with cluster.watched():
        await cluster.quiet()
    (job,) = cluster.jobs()
    assert (job.resource.epoch, job.resource.version) == (1, 101)
    assert job.spec is not None
    assert job.spec.role("worker").replicas == 3
    cluster.store.patch(TRAININGJOBS, *held.at, {"spec": {"backoffLimit": 3}})
    async with cluster.watched():
        await cluster.quiet()
    (job,) = cluster.jobs()
    assert (job.resource.epoch, job.resource.generation) == (1, 2)
    assert cluster.kinds().count("JobObserved") == 3


async def test_a_job_that_was_gone_is_taken_on_again_when_a_backup_brings_it_back_with_its_head():
    cluster = Cluster()
    cluster.store.version = 5_000
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    async with cluster.watched() as runtime:
        await cluster.quiet()
        (key,) = {history.job.key for history in runtime.histories if history.job.resource.generation}
        head = runtime.histories[key].head
        cluster.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
        await until(lambda: "JobGone" in cluster.kinds(), "the end")
        await cluster.quiet()
    cluster.restored(version=100)
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    shown = {"log": cluster.journal.events[0].event_id, "sequence": head.sequence, "hash": head.hash}
    cluster.store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": {"history": shown}}, subresource="status")
    async with cluster.watched():
        await cluster.quiet()
    assert cluster.kinds() == ["JobObserved", "JobGone", "JobObserved"]
    (job,) = cluster.jobs()
    assert not job.resource.gone


async def test_another_watch_that_is_ahead_is_no_restored_cluster():
    cluster = Cluster()
    async with cluster.watched():
        for number in range(20):
            cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(f"job-{number}"))
            await asyncio.sleep(0)
        await cluster.quiet()
    assert {job.resource.epoch for job in cluster.jobs()} == {0}


async def test_requests_that_were_there_first_move_to_their_job_in_their_order():
    cluster = Cluster()
    async with cluster.watched():
        for name in ("first", "second", "third"):
            cluster.store.create(SCALEOUTS, NAMESPACE, a_scale_out(name=name))
            await asyncio.sleep(1)
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
        await cluster.quiet()
    (job,) = cluster.jobs()
    assert [request.name for request in job.scaling.requests.values()] == ["first", "second", "third"]
    kinds = cluster.kinds()
    assert kinds == [*["ScaleRequested"] * 3, "JobObserved", *kinds[4:]]
    assert kinds.count("ScaleRequested") == 6
    assert [body["reason"] for kind, body in cluster.said() if kind == "ScaleRequestGone"] == ["Bound"] * 3


async def test_a_deleted_job_is_not_gone_while_its_get_fails():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    async with cluster.watched():
        await cluster.quiet()
        cluster.store.faults.fail_next("get", Transient("503"), plural="trainingjobs", times=30)
        cluster.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
        await asyncio.sleep(20)
        assert cluster.kinds() == ["JobObserved"]
        await until(lambda: "JobGone" in cluster.kinds(), "the end")
    assert cluster.store.faults.next("get", "trainingjobs") is None, "it asked until it was answered"


async def test_when_too_many_vanish_at_once_none_is_believed_gone():
    cluster = Cluster()
    count = VANISHED_AT_ONCE + 1
    for number in range(count):
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(f"job-{number}"))
    async with cluster.watched():
        await cluster.quiet()
    cluster.restored(version=9_000)
    cluster.store.create(PODS, NAMESPACE, {"metadata": {"name": "stranger"}, "spec": {"containers": []}})
    async with cluster.watched():
        await cluster.quiet()
    assert cluster.kinds() == ["JobObserved"] * count
    async with cluster.watched(believes_vanished=True):
        await cluster.quiet()
    assert cluster.kinds() == ["JobObserved"] * count + ["JobGone"] * count


async def test_a_job_begins_once_its_namespace_has_the_labels_and_goes_on_when_they_go():
    cluster = Cluster()

    def label(value: str) -> None:
        cluster.store.patch(NAMESPACES, "", NAMESPACE, {"metadata": {"labels": {"muster.dev/jobs": value}}})

    def begun() -> list[str]:
        return [job.key.name for job in cluster.jobs()]

    cluster.store.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
    cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job("first"))
    async with cluster.watched(selector=("muster.dev/jobs=enabled",)) as runtime:
        await cluster.quiet()
        assert begun() == []
        assert runtime.metrics.outside == {NAMESPACE: 1}
        label("enabled")
        await until(lambda: begun() == ["first"], "the first")
        await until(lambda: not runtime.metrics.outside, "the count")
        label("no")
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job("second"))
        cluster.store.delete(TRAININGJOBS, NAMESPACE, "first")
        await until(lambda: "JobGone" in cluster.kinds(), "the end")
        assert begun() == ["first"]
    async with cluster.watched(selector=("muster.dev/jobs=enabled",)):
        await cluster.quiet()
        assert begun() == ["first"], "the labels still lack after a restart"
        label("enabled")
        await until(lambda: begun() == ["first", "second"], "the second")


async def test_no_job_begins_in_a_namespace_of_the_system():
    cluster = Cluster()
    cluster.store.create(TRAININGJOBS, "kube-system", a_training_job())
    async with cluster.watched() as runtime:
        await cluster.quiet()
        assert runtime.metrics.outside == {"kube-system": 1}
        cluster.store.delete(TRAININGJOBS, "kube-system", a_training_job()["metadata"]["name"])
        await until(lambda: not runtime.metrics.outside, "the count")
    assert cluster.jobs() == []


async def test_jobs_that_wait_where_none_begin_any_more_take_no_turns_from_others():
    cluster, late = Cluster(), "team-b"

    def begun(namespace: str) -> int:
        return sum(job.key.namespace == namespace and job.spec is not None for job in cluster.jobs())

    for name in (NAMESPACE, late):
        cluster.store.create(NAMESPACES, "", {"metadata": {"name": name, "labels": {"muster.dev/jobs": "enabled"}}})
    for number in range(3 * MOST):
        cluster.store.create(TRAININGJOBS, NAMESPACE, a_training_job(f"job-{number}"))
    async with cluster.watched(selector=("muster.dev/jobs=enabled",)):
        await until(lambda: begun(NAMESPACE) == MOST, "the first")
        cluster.store.patch(NAMESPACES, "", NAMESPACE, {"metadata": {"labels": {"muster.dev/jobs": "no"}}})
        await asyncio.sleep(LONGEST_TURN_SECONDS + 5)
        assert begun(NAMESPACE) == MOST
        for number in range(2 * MOST):
            cluster.store.create(TRAININGJOBS, late, a_training_job(f"job-{number}"))
        await asyncio.sleep(5)
        assert begun(late) == MOST


class Away(Bounded):
    """A log that stores no progress."""

    async def append(self, entry: Entry, *, expect: int) -> int:
        if entry.subject.endswith("ProgressReported"):
            raise Refused("closed", reason="Closed")
        return await super().append(entry, expect=expect)


async def test_a_report_on_its_way_ends_with_its_service_which_begins_anew_with_another_log():
    cluster = Cluster()
    async with cluster.watched():
        await cluster.quiet()
    cluster.journal.events += log_of(a_running_job(), after=len(cluster.journal.events))
    async with cluster.watched(log=Away) as runtime:
        await runtime.folded.wait()
        reports = cast(Watcher, runtime.service).reports
        reports.take(KEY, Uid("pod-0"), b'{"trainerStatus": {"metrics": [{"name": "current_step", "value": "7"}]}}')
        reports.take(KEY, Uid("pod-0"), b'{"trainerStatus": {"metrics": [{"name": "current_step", "value": "8"}]}}')
        await asyncio.sleep(1)
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
