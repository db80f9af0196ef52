"""Effects that come late: what was decided on a world that is no more changes nothing in the one that is."""

from typing import Any

import msgspec
import pytest

from services.scaler.core import Policy
from services.scaler.core.effects import NudgeLauncher, OwnRequest, WriteHosts
from services.scaler.shell import Scaler
from services.scheduler.core.effects import DeleteJob, DeletePod, DeleteSecret, DeleteService
from services.scheduler.shell import Scheduler
from services.status.core.effects import PatchStatus
from services.status.shell import Status
from shared.cluster import Manifest, Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.cluster.objects import Object
from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Bucket
from shared.eventlog.account import HEADS
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.naming import HOSTS_VERSION, JOB_UID, JobKey, Uid
from shared.job.state import Job, with_resource
from shared.runtime.acts import Context
from tests.kit.builders import a_running_job
from tests.kit.histories import a_history
from tests.kit.world import NAMESPACE, a_scale_out, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.eventlog import MemoryEventLog, MemoryJournal
from tests.memory.store import MemoryStore
from tests.memory.watching import Held

EARLIER = Uid("an-earlier-life")


def a_patch(uid: Uid, document: bytes) -> PatchStatus:
    return PatchStatus(TRAININGJOBS.api_version, TRAININGJOBS.kind, "resnet", uid, document)


RUNNING, CREATED = b'{"phase":"Running"}', b'{"phase":"Created"}'
A_BRIEF_JOB = a_training_job(ttlSecondsAfterFinished=0)


class Busy(MemoryCluster):
    """A cluster in which another client writes between the service's read and its write."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._store = store
        self.meanwhile: tuple[Resource[Any], str, Manifest] | None = None
        self.trouble: Exception | None = None
        """Why nothing can be written."""
        self.patched = 0

    async def patch(self, resource: Resource[Any], *args: Any, **named: Any) -> Any:
        self.patched += 1
        if self.trouble is not None:
            raise self.trouble
        if self.meanwhile is not None:
            (what, name, manifest), self.meanwhile = self.meanwhile, None
            self._store.patch(what, NAMESPACE, name, manifest)
        return await super().patch(resource, *args, **named)


class Stage:
    """A cluster with one job, and what an effect on it is decided on."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cluster = Busy(self.store)
        self.uid = Uid(self.store.create(TRAININGJOBS, NAMESPACE, A_BRIEF_JOB).metadata["uid"])
        self.key = JobKey(NAMESPACE, "resnet", self.uid)

    @property
    def context(self) -> Context:
        job: Job = a_history(a_running_job(), self.key).job
        return Context(job, Head(7, "0" * 64), "2030-01-01T00:00:00.000Z")

    def held(self, resource: Resource[Any], name: str) -> Held:
        held = self.store.get(resource, NAMESPACE, name)
        assert held is not None
        return held

    def hosts(self) -> tuple[str, str]:
        """The version and the hostfile in the cluster."""
        manifest = self.held(CONFIGMAPS, "resnet-config").manifest
        return manifest["metadata"]["annotations"][HOSTS_VERSION], manifest["data"]["hostfile"]


async def a_bucket() -> Bucket:
    """Of checkpoints, on a log of its own."""
    return await MemoryEventLog(MemoryJournal(), user="status").bucket(HEADS)


async def a_status(stage: Stage) -> Status:
    return Status(stage.cluster, await a_bucket(), "memory")


async def checkpoint(stage: Stage, heads: Bucket) -> str:
    kept = await heads.get(stage.uid)
    assert kept is not None
    return kept.value.decode()


@pytest.mark.parametrize(
    ("resource", "effect"),
    [
        pytest.param(PODS, DeletePod("resnet-worker-0", EARLIER), id="pod"),
        pytest.param(SERVICES, DeleteService("resnet-worker-0", EARLIER), id="service"),
        pytest.param(SECRETS, DeleteSecret(0, "resnet-worker-0", EARLIER), id="secret"),
    ],
)
async def test_a_late_delete_spares_who_has_the_name_now(
    resource: Resource[Object], effect: DeletePod | DeleteService | DeleteSecret
):
    stage = Stage()
    stage.store.create(resource, NAMESPACE, {"metadata": {"name": effect.name}, "spec": {}})
    await Scheduler(stage.cluster).act(effect, stage.context)
    held = stage.held(resource, effect.name)
    assert "deletionTimestamp" not in held.metadata


async def test_a_job_whose_time_is_over_goes_and_its_namesake_stays():
    stage = Stage()
    scheduler, context = Scheduler(stage.cluster), stage.context
    await scheduler.act(DeleteJob(), context)
    assert stage.store.get(TRAININGJOBS, NAMESPACE, "resnet") is None
    again = stage.store.create(TRAININGJOBS, NAMESPACE, A_BRIEF_JOB)
    await scheduler.act(DeleteJob(), context)
    assert stage.held(TRAININGJOBS, "resnet") == again


async def test_an_older_hosts_file_never_comes_back():
    stage = Stage()
    scaler = Scaler(stage.cluster, Policy())
    await scaler.act(WriteHosts(2, (0, 1)), stage.context)
    await scaler.act(WriteHosts(1, (0, 1, 2)), stage.context)
    assert stage.hosts() == ("2", "resnet-worker-0:1\nresnet-worker-1:1\n")


async def test_a_hosts_file_written_meanwhile_is_not_written_over():
    stage = Stage()
    scaler = Scaler(stage.cluster, Policy())
    await scaler.act(WriteHosts(1, (0, 1)), stage.context)
    newer = {"metadata": {"annotations": {HOSTS_VERSION: "3"}}, "data": {"hostfile": "resnet-worker-0:1\n"}}
    stage.cluster.meanwhile = (CONFIGMAPS, "resnet-config", newer)
    with pytest.raises(Conflict):
        await scaler.act(WriteHosts(2, (0, 1, 2)), stage.context)
    assert stage.hosts() == ("3", "resnet-worker-0:1\n")


@pytest.mark.parametrize("spoilt", ["²", "1"])
async def test_hosts_files_whose_version_a_person_spoilt_are_written_again(spoilt: str):
    stage = Stage()
    scaler = Scaler(stage.cluster, Policy())
    await scaler.act(WriteHosts(2, (0,)), stage.context)
    mine = {"metadata": {"annotations": {HOSTS_VERSION: spoilt}}, "data": {"hostfile": "mine"}}
    stage.store.patch(CONFIGMAPS, NAMESPACE, "resnet-config", mine)
    await scaler.act(WriteHosts(2, (0,)), stage.context)
    assert stage.hosts() == ("2", "resnet-worker-0:1\n")


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "changed"])
async def test_hosts_files_that_somebody_touched_since_the_last_write_are_read_before_the_next(*, deleted: bool):
    stage = Stage()
    scaler = Scaler(stage.cluster, Policy())
    await scaler.act(WriteHosts(1, (0, 1)), stage.context)
    if deleted:
        stage.store.delete(CONFIGMAPS, NAMESPACE, "resnet-config")
    else:
        stage.store.patch(CONFIGMAPS, NAMESPACE, "resnet-config", {"data": {"hostfile": "mine"}})
    with pytest.raises(Transient if deleted else Conflict):
        await scaler.act(WriteHosts(2, (0,)), stage.context)
    await scaler.act(WriteHosts(2, (0,)), stage.context)
    assert stage.hosts() == ("2", "resnet-worker-0:1\n")


async def test_a_late_nudge_spares_the_pod_that_has_the_name_now():
    stage = Stage()
    stage.store.create(PODS, NAMESPACE, {"metadata": {"name": "resnet-launcher"}, "spec": {}})
    await Scaler(stage.cluster, Policy()).act(NudgeLauncher("resnet-launcher", EARLIER, 4), stage.context)
    assert "annotations" not in stage.held(PODS, "resnet-launcher").metadata


async def test_a_launcher_that_somebody_changed_since_the_last_nudge_is_read_before_the_next():
    stage = Stage()
    scaler = Scaler(stage.cluster, Policy())
    owner = {"apiVersion": TRAININGJOBS.api_version, "kind": TRAININGJOBS.kind, "name": "resnet", "controller": True}
    ours = {"labels": {JOB_UID: stage.uid}, "ownerReferences": [{**owner, "uid": stage.uid}]}
    pod = stage.store.create(PODS, NAMESPACE, {"metadata": {"name": "resnet-launcher", **ours}, "spec": {}})
    uid = Uid(pod.metadata["uid"])
    for version in (1, 2):
        await scaler.act(NudgeLauncher("resnet-launcher", uid, version), stage.context)
    stage.store.patch(PODS, NAMESPACE, "resnet-launcher", {"metadata": {"labels": {JOB_UID: "another"}}})
    with pytest.raises(Conflict):
        await scaler.act(NudgeLauncher("resnet-launcher", uid, 3), stage.context)
    with pytest.raises(Refused, match="is left alone"):
        await scaler.act(NudgeLauncher("resnet-launcher", uid, 3), stage.context)
    assert stage.held(PODS, "resnet-launcher").metadata["annotations"][HOSTS_VERSION] == "2"


async def test_a_request_that_another_owner_took_meanwhile_stays_with_it():
    stage = Stage()
    request = stage.store.create(SCALEOUTS, NAMESPACE, a_scale_out())
    theirs = {"apiVersion": "v1", "kind": "Other", "name": "other", "uid": "other", "controller": True}
    stage.cluster.meanwhile = (SCALEOUTS, "out", {"metadata": {"ownerReferences": [theirs]}})
    with pytest.raises(Conflict):
        await Scaler(stage.cluster, Policy()).act(
            OwnRequest("ScaleOut", "out", Uid(request.metadata["uid"])), stage.context
        )
    assert stage.held(SCALEOUTS, "out").metadata["ownerReferences"] == [theirs]


async def test_a_late_status_spares_the_job_that_has_the_name_now():
    stage = Stage()
    status = await a_status(stage)
    before = stage.context
    effect = a_patch(stage.uid, RUNNING)
    await status.act(effect, before)
    stage.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
    stage.store.create(TRAININGJOBS, NAMESPACE, a_training_job())
    await status.act(a_patch(stage.uid, b'{"phase":"Succeeded"}'), before)
    assert not stage.held(TRAININGJOBS, "resnet").manifest.get("status")


async def test_the_checkpoint_knows_a_head_before_the_resource_shows_it():
    stage = Stage()
    heads = await a_bucket()
    stage.cluster.trouble = Transient("the API server does not answer")
    with pytest.raises(Transient):
        await Status(stage.cluster, heads, "memory").act(a_patch(stage.uid, RUNNING), stage.context)
    assert await checkpoint(stage, heads) == f"memory/{stage.context.head}"


async def test_a_status_that_woke_up_does_not_set_back_a_checkpoint():
    stage = Stage()
    heads = await a_bucket()
    slept, awake = (Status(stage.cluster, heads, "memory") for _ in range(2))

    def later(events: int) -> Context:
        head = stage.context.head
        return msgspec.structs.replace(stage.context, head=Head(head.sequence + events, head.hash))

    effect = a_patch(stage.uid, RUNNING)
    await slept.act(effect, later(0))
    await awake.act(a_patch(stage.uid, b'{"phase":"Succeeded"}'), later(2))
    # The checkpoint is not as this process left it, and is read once more.
    await slept.act(effect, later(1))
    assert await checkpoint(stage, heads) == f"memory/{later(2).head}"


async def test_a_checkpoint_of_another_log_gives_way_however_far_that_came():
    stage = Stage()
    heads = await a_bucket()
    await heads.put(stage.uid, f"lost/{stage.context.head.sequence + 100}:ab".encode())
    await Status(stage.cluster, heads, "memory").act(a_patch(stage.uid, RUNNING), stage.context)
    assert await checkpoint(stage, heads) == f"memory/{stage.context.head}"


async def test_a_status_that_finds_no_such_kind_is_not_taken_for_written():
    stage = Stage()
    status = await a_status(stage)
    stage.cluster.trouble = Refused("404 page not found", reason="NotFound")
    with pytest.raises(Refused):
        await status.act(a_patch(stage.uid, RUNNING), stage.context)


async def test_a_status_of_what_is_gone_is_let_go():
    stage = Stage()
    status = await a_status(stage)
    await status.act(a_patch(stage.uid, RUNNING), stage.context)
    stage.store.delete(TRAININGJOBS, NAMESPACE, "resnet")
    await status.act(a_patch(stage.uid, b'{"phase":"Failed"}'), stage.context)


def at(stage: Stage, sequence: int) -> Context:
    return msgspec.structs.replace(stage.context, head=Head(sequence, f"hash-{sequence}"))


def shown(stage: Stage) -> tuple[str, int]:
    """The phase and the head's sequence in the cluster."""
    status = stage.held(TRAININGJOBS, "resnet").manifest["status"]
    return status["phase"], status["history"]["sequence"]


async def test_a_replica_that_woke_up_does_not_set_back_a_status():
    stage = Stage()
    heads = await a_bucket()
    slept, awake = (Status(stage.cluster, heads, "memory") for _ in range(2))
    await slept.act(a_patch(stage.uid, CREATED), at(stage, 7))
    await awake.act(a_patch(stage.uid, RUNNING), at(stage, 9))
    await slept.act(a_patch(stage.uid, b'{"phase":"Late"}'), at(stage, 8))
    assert shown(stage) == ("Running", 9)


async def test_a_status_is_written_although_a_user_wrote_meanwhile():
    stage = Stage()
    status = await a_status(stage)
    await status.act(a_patch(stage.uid, CREATED), at(stage, 7))
    stage.cluster.meanwhile = (TRAININGJOBS, "resnet", {"metadata": {"labels": {"team": "a"}}})
    await status.act(a_patch(stage.uid, RUNNING), at(stage, 9))
    assert shown(stage) == ("Running", 9)


async def test_a_first_status_is_written_although_a_user_wrote_one_meanwhile():
    stage = Stage()
    status = await a_status(stage)
    version = int(stage.held(TRAININGJOBS, "resnet").metadata["resourceVersion"])
    blank = with_resource(at(stage, 7).job, blank=True, version=version, edited=1)
    theirs = {"status": {"phase": "Succeeded", "completionTime": "2030-01-01T00:00:00Z"}}
    stage.store.patch(TRAININGJOBS, NAMESPACE, "resnet", theirs, subresource="status")
    await status.act(a_patch(stage.uid, RUNNING), msgspec.structs.replace(at(stage, 7), job=blank))
    assert shown(stage) == ("Running", 7)
    assert "completionTime" not in stage.held(TRAININGJOBS, "resnet").manifest["status"]


async def test_a_status_whose_write_failed_is_read_before_the_next_one():
    stage = Stage()
    status = await a_status(stage)
    version = int(stage.held(TRAININGJOBS, "resnet").metadata["resourceVersion"])
    blank = with_resource(at(stage, 7).job, blank=True, version=version, edited=1)
    await status.act(a_patch(stage.uid, CREATED), msgspec.structs.replace(at(stage, 7), job=blank))
    stage.cluster.trouble = Transient("the API server does not answer")
    with pytest.raises(Transient):
        await status.act(a_patch(stage.uid, RUNNING), msgspec.structs.replace(at(stage, 8), job=blank))
    stage.cluster.trouble = None
    stage.cluster.patched = 0
    await status.act(a_patch(stage.uid, RUNNING), msgspec.structs.replace(at(stage, 9), job=blank))
    assert shown(stage) == ("Running", 9)
    assert stage.cluster.patched == 1


async def test_a_forged_head_stands_until_it_was_noticed():
    stage = Stage()
    status = await a_status(stage)
    await status.act(a_patch(stage.uid, CREATED), at(stage, 7))
    forged = {"status": {"history": {"log": "memory", "sequence": 2**60, "hash": "forged"}}}
    stage.store.patch(TRAININGJOBS, NAMESPACE, "resnet", forged, subresource="status")
    await status.act(a_patch(stage.uid, RUNNING), at(stage, 9))
    assert shown(stage) == ("Created", 2**60), "it may be that of a replica that has read more"
    await status.act(msgspec.structs.replace(a_patch(stage.uid, RUNNING), repair=10), at(stage, 10))
    assert shown(stage) == ("Running", 10)


@pytest.mark.parametrize(
    ("newest", "kept"), [(9, None), (12, "of this log")], ids=["at the same event", "at an earlier one"]
)
async def test_a_head_to_which_the_log_does_not_lead_stands_until_it_was_noticed(newest: int, kept: str | None):
    stage = Stage()
    heads = await a_bucket()
    await Status(stage.cluster, heads, "memory").act(a_patch(stage.uid, CREATED), at(stage, 9))
    status = Status(stage.cluster, heads, "memory")
    status.hash_at = lambda key, sequence: kept if sequence == 9 else None
    rewritten = msgspec.structs.replace(at(stage, newest), head=Head(newest, "rewritten"))
    await status.act(a_patch(stage.uid, RUNNING), rewritten)
    assert shown(stage) == ("Created", 9), "it is what tells the watcher that the log was rewritten"
    await status.act(msgspec.structs.replace(a_patch(stage.uid, RUNNING), repair=newest), rewritten)
    assert shown(stage) == ("Running", newest)


async def test_a_head_of_another_log_takes_the_place():
    stage = Stage()
    for log, document, sequence in (("memory", RUNNING, 9), ("another", CREATED, 3)):
        heads = await a_bucket()
        await Status(stage.cluster, heads, log).act(a_patch(stage.uid, document), at(stage, sequence))
    assert shown(stage) == ("Created", 3)
