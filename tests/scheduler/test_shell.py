"""The scheduler's shell: a resource is read once for all pods of a start, and waiting effects may be cancelled."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from services.scheduler.core.effects import CreatePod, CreateSecret, DeletePod, DeleteSecret
from services.scheduler.shell import KEPT_BYTES, Scheduler
from shared.cluster.kinds import PODS, SECRETS
from shared.errors import Conflict, Refused, Transient, Trouble
from shared.flow import is_wanted, only_while
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SecretGone
from shared.job.naming import JobKey, Slot, Uid
from shared.job.reasons import SSH_OFF
from shared.job.spec import WORKER
from shared.runtime.acts import Context
from tests.kit.builders import a_created_job, a_running_job
from tests.kit.histories import a_history
from tests.kit.world import NAMESPACE, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

HEAD = Head(7, "0" * 64)


def decided_on(uid: str, story: Sequence[AnyEvent], name: str = "resnet", head: Head = HEAD) -> Context:
    """What an effect on the job with this uid and this history is decided on."""
    return Context(a_history(story, JobKey(NAMESPACE, name, Uid(uid))).job, head, "2030-01-01T00:00:00.000Z")


def applied(store: MemoryStore, manifest: dict[str, Any] | None = None, *, created: bool = False) -> Context:
    """A job that a person applied, which runs, or is just `created`."""
    held = store.create(TRAININGJOBS, NAMESPACE, manifest or a_training_job())
    story = a_created_job() if created else a_running_job()
    return decided_on(held.metadata["uid"], story, held.at[1])


class Slow(MemoryCluster):
    """A cluster that takes its time to say that it cannot answer."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked = asyncio.Event()
        self.fails = asyncio.Event()

    async def get(self, *args: Any, **named: Any) -> Any:
        self.asked.set()
        await self.fails.wait()
        raise Transient("the API server does not answer")


async def test_a_read_that_fails_after_its_effect_was_broken_off_is_no_error_of_the_loop():
    store, complaints = MemoryStore(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    cluster = Slow(store)
    scheduler = Scheduler(cluster)
    act = asyncio.create_task(scheduler.act(CreatePod(Slot(0, WORKER, 0)), applied(store)))
    await cluster.asked.wait()
    act.cancel()
    await asyncio.gather(act, return_exceptions=True)
    cluster.fails.set()
    del act, scheduler
    await asyncio.sleep(0.01)
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize(
    ("letters", "reads"), [pytest.param(9, 2, id="both are kept"), pytest.param(KEPT_BYTES // 2, 3, id="one is kept")]
)
async def test_a_resource_is_read_once_for_all_its_pods_while_there_is_room_for_it(letters: int, reads: int):
    store, asked = MemoryStore(), Counter[Any]()

    class Asked(MemoryCluster):
        async def get(self, resource: Any, *args: Any, **named: Any) -> Any:
            asked[resource] += 1
            return await super().get(resource, *args, **named)

    contexts = {}
    for name in ("first", "second"):
        manifest = a_training_job()
        manifest["metadata"] |= {"name": name, "annotations": {"more": "x" * letters}}
        contexts[name] = applied(store, manifest)
    scheduler = Scheduler(Asked(store))
    for name, index in (("first", 0), ("second", 0), ("first", 1)):
        await scheduler.act(CreatePod(Slot(0, WORKER, index)), contexts[name])
    assert asked[TRAININGJOBS] == reads


async def test_an_effect_that_is_wanted_no_more_tries_a_doubtful_field_for_those_that_are():
    store, tried = MemoryStore(), list[bool]()

    class Trying(MemoryCluster):
        async def would_create(self, *args: Any) -> None:
            tried.append(is_wanted())

    manifest = a_training_job()
    spec = manifest["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]
    spec["fromALaterRelease"] = True
    context, scheduler = applied(store, manifest, created=True), Scheduler(Trying(store))
    with only_while(lambda: False):
        await scheduler.act(CreatePod(Slot(0, WORKER, 0)), context)
    await scheduler.act(CreatePod(Slot(0, WORKER, 1)), context)
    assert tried == [True]


async def make_a_worker(store: MemoryStore, manifest: dict[str, Any], **settings: Any) -> None:
    await Scheduler(MemoryCluster(store), **settings).act(CreatePod(Slot(0, WORKER, 0)), applied(store, manifest))


@pytest.mark.parametrize(
    ("template", "drained", "grace"),
    [
        pytest.param(300, True, 5, id="nothing uses it"),
        pytest.param(2, True, None, id="its template gives it less"),
        pytest.param(300, False, None, id="it may have something to finish"),
    ],
)
async def test_a_drained_pod_has_the_grace_period_of_the_setting_if_its_template_has_a_longer_one(
    template: int, drained: bool, grace: int | None
):
    store, asked = MemoryStore(), list[int | None]()

    class Asked(MemoryCluster):
        async def delete(self, *args: Any, grace: int | None = None, **named: Any) -> None:
            asked.append(grace)

    manifest = a_training_job()
    manifest["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = template
    await make_a_worker(store, manifest)
    held = store.get(PODS, NAMESPACE, "resnet-worker-0")
    assert held is not None
    context = decided_on(held.metadata["ownerReferences"][0]["uid"], a_running_job())
    effect = DeletePod("resnet-worker-0", Uid(held.metadata["uid"]), drained=drained)
    await Scheduler(Asked(store)).act(effect, context)
    assert asked == [grace]


async def test_no_pod_is_made_for_a_job_whose_status_shows_events_that_the_log_lost():
    store = MemoryStore()
    uid = store.create(TRAININGJOBS, NAMESPACE, a_training_job()).metadata["uid"]
    over = {"phase": "Succeeded", "history": {"log": "log", "sequence": 9, "hash": "9" * 64}}
    store.patch(TRAININGJOBS, NAMESPACE, "resnet", {"status": over}, subresource="status")
    scheduler, effect = Scheduler(MemoryCluster(store)), CreatePod(Slot(0, WORKER, 0))
    with pytest.raises(Conflict, match="shows events"):
        await scheduler.act(effect, decided_on(uid, a_running_job(), head=Head(7, "7" * 64)))
    assert store.get(PODS, NAMESPACE, "resnet-worker-0") is None
    # A fold that has caught up reads the resource again.
    await scheduler.act(effect, decided_on(uid, a_running_job(), head=Head(9, "9" * 64)))
    assert store.get(PODS, NAMESPACE, "resnet-worker-0") is not None


@pytest.mark.parametrize(
    ("settings", "policies"),
    [
        pytest.param({}, ["FallbackToLogsOnError", "FallbackToLogsOnError", "File"], id="as it comes"),
        pytest.param({"last_words": False}, [None, None, "File"], id="where the setting is off"),
    ],
)
async def test_a_container_s_last_lines_are_asked_for_where_its_template_does_not_decide(
    settings: dict[str, Any], policies: list[str | None]
):
    store, manifest = MemoryStore(), a_training_job()
    template = manifest["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]
    (container,) = template["containers"]
    template["initContainers"] = [container | {"name": "first"}]
    template["containers"] = [container, container | {"name": "side", "terminationMessagePolicy": "File"}]
    await make_a_worker(store, manifest, **settings)
    pod = store.get(PODS, NAMESPACE, "resnet-worker-0")
    assert pod is not None
    spec = pod.manifest["spec"]
    made = [*spec["initContainers"], *spec["containers"]]
    assert [each.get("terminationMessagePolicy") for each in made] == policies


async def test_where_ssh_is_off_no_secret_is_made_and_one_that_is_there_goes_with_its_job():
    store = MemoryStore()
    context = applied(store, created=True)
    kept = store.create(SECRETS, NAMESPACE, {"metadata": {"name": "resnet-ssh"}})
    scheduler = Scheduler(MemoryCluster(store), ssh=False)
    with pytest.raises(Refused) as refused:
        await scheduler.act(CreateSecret(0, "resnet-ssh"), context)
    assert refused.value.reason == SSH_OFF
    assert "have them switched on" in refused.value.words
    # The owner reference is enough; a service without the right asks for nothing, and the history can close.
    gone = await scheduler.act(DeleteSecret(0, "resnet-ssh", Uid(kept.metadata["uid"])), context)
    assert gone == SecretGone(attempt=0)
    assert store.get(SECRETS, NAMESPACE, "resnet-ssh") == kept


@pytest.mark.parametrize(
    ("trouble", "by"),
    [
        pytest.param(
            partial(Refused, reason="Denied"),
            "ValidatingAdmissionPolicy 'no-keys' with binding 'here' denied request",
            id="a policy",
        ),
        pytest.param(
            partial(Refused, reason="Denied"), 'admission webhook "keys.example.com" denied the request', id="a webhook"
        ),
        pytest.param(
            partial(Transient, reason="WebhookFailed"),
            'failed calling webhook "keys.example.com"',
            id="a webhook that is away",
        ),
        pytest.param(partial(Refused, reason="Forbidden"), "", id="another"),
    ],
)
async def test_a_refused_secret_names_who_refused_it_and_repeats_nothing_of_it(
    trouble: Callable[..., Trouble], by: str
):
    store = MemoryStore()
    context = applied(store, created=True)
    said = f'secrets "resnet-ssh" is forbidden: {by}: PRIVATE KEY'
    store.faults.fail_next("create", trouble(said, words=said), plural="secrets")
    with pytest.raises(Trouble) as told:
        await Scheduler(MemoryCluster(store)).act(CreateSecret(0, "resnet-ssh"), context)
    assert getattr(told.value, "words", "") == by
    assert "PRIVATE KEY" not in str(told.value)


async def test_the_words_of_a_refusal_come_without_a_value_of_the_environment():
    store, manifest = MemoryStore(), a_training_job()
    (container,) = manifest["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    said = 'admission webhook "w" denied the request: PASSWORD=hunter2 is weak'
    refusal = Refused(f"create pods: {said}", reason="Forbidden", words=said)
    store.faults.fail_next("create", refusal, plural="pods")
    with pytest.raises(Refused) as told:
        await make_a_worker(store, manifest)
    assert told.value.words == 'admission webhook "w" denied the request: PASSWORD=[withheld] is weak'
    assert "hunter2" not in str(told.value)
