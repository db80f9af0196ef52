"""The ssh keys of an attempt: made once, for this attempt only, and never logged."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from services.scheduler.core.effects import CreateSecret
from services.scheduler.shell import Scheduler
from shared.cluster.kinds import PODS, SECRETS
from shared.errors import Refused, Transient, Withheld
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.events.catalog import AnyEvent
from shared.job.events.scheduler import SecretMade
from shared.job.fold import closed
from shared.job.naming import JobKey, Uid, secret_name
from shared.runtime.acts import Context
from tests.kit.builders import a_created_job
from tests.kit.histories import a_history
from tests.kit.weather import Failing, met_by
from tests.kit.world import NAMESPACE, World, a_training_job
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore
from tests.memory.watching import Held

BEGINNING = "-----BEGIN"


class Making:
    """A cluster with one job, and the scheduler that makes its Secret."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        uid = self.store.create(TRAININGJOBS, NAMESPACE, a_training_job()).metadata["uid"]
        self.key = JobKey(NAMESPACE, "resnet", Uid(uid))
        self.name = secret_name(self.key, 0)
        self._scheduler = Scheduler(MemoryCluster(self.store))

    async def make(self) -> AnyEvent | None:
        context = Context(a_history(a_created_job(), self.key).job, Head(7, "0" * 64), "2030-01-01T00:00:00.000Z")
        return await self._scheduler.act(CreateSecret(0, self.name), context)

    @property
    def secret(self) -> Held:
        held = self.store.get(SECRETS, NAMESPACE, self.name)
        assert held is not None
        return held

    def contents(self) -> dict[str, bytes]:
        return {name: base64.b64decode(value) for name, value in self.secret.manifest["data"].items()}


def pair_of(contents: dict[str, bytes], name: str) -> bytes:
    """The public half of a pair whose halves belong together."""
    private, public = load_ssh_private_key(contents[name], password=None), contents[f"{name}.pub"]
    assert private.public_key() == load_ssh_public_key(public)
    return public


async def test_the_secret_has_the_launchers_pair_the_workers_host_key_and_the_clients_settings():
    making = Making()
    made = await making.make()
    assert made == SecretMade(attempt=0, uid=Uid(making.secret.metadata["uid"]))
    contents = making.contents()
    assert contents.keys() == {
        *("id_rsa", "id_rsa.pub", "config", "config-pinned"),
        *("known_hosts", "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"),
    }
    host = pair_of(contents, "ssh_host_ed25519_key")
    assert pair_of(contents, "id_rsa") != host
    assert contents["known_hosts"] == b"resnet-worker-*,[resnet-worker-*]:* " + host
    settings = dict(line.split() for line in contents["config"].decode().splitlines())
    assert (settings["StrictHostKeyChecking"], settings["UserKnownHostsFile"]) == ("no", "/dev/null")
    pinned = contents["config-pinned"].decode()
    assert pinned.startswith("Host resnet-worker-*\n    StrictHostKeyChecking yes\n")
    assert pinned.endswith(contents["config"].decode())
    assert making.secret.manifest["type"] == "Opaque"


async def test_that_the_lease_is_lost_stays_known_where_messages_are_withheld():
    making = Making()
    making.store.faults.fail_next("create", Withheld("this replica lost the lease"), plural="secrets")
    with pytest.raises(Withheld):
        await making.make()


async def test_a_secret_whose_answer_was_lost_counts_at_the_next_try_and_stays_as_it_is():
    making = Making()
    making.store.faults.fail_next("create", Transient("lost"), plural="secrets", applied=True)
    with pytest.raises(Transient):
        await making.make()
    before = making.secret
    assert await making.make() == SecretMade(attempt=0, uid=Uid(before.metadata["uid"]))
    assert making.secret == before


async def test_a_refusal_of_the_secret_may_repeat_it_and_is_not_logged():
    making = Making()
    told: list[Any] = []

    def admit(before: Any, after: Any) -> None:
        told.append(after["data"]["id_rsa"])
        raise Refused(f"denied: {after}", reason="Forbidden", field="data")

    making.store.admit(SECRETS, admit)
    with pytest.raises(Refused) as refusal:
        await making.make()
    assert (refusal.value.reason, refusal.value.field) == ("Forbidden", "data")
    assert told[0] not in str(refusal.value)
    assert refusal.value.__suppress_context__


async def test_no_pod_is_made_before_the_keys_and_nothing_of_them_is_in_the_log(world: World):
    at_first_pod: list[bool] = []
    world.store.admit(PODS, lambda *_: at_first_pod.append(bool(world.store.find(SECRETS))))
    await world.trains(workers=2)
    assert all(at_first_pod)
    [held] = world.store.find(SECRETS)
    private = held.manifest["data"]["id_rsa"]
    log = b"".join(stored.body for stored in world.journal.events).decode()
    assert private not in log
    assert BEGINNING not in log
    assert "ssh-ed25519" not in log


async def test_a_secret_that_a_person_made_before_with_the_jobs_name_is_neither_used_nor_touched(world: World):
    mine = world.apply(SECRETS, {"metadata": {"name": "resnet"}, "data": {"id_rsa": ""}})
    await world.trains(workers=1)
    assert world.store.get(SECRETS, NAMESPACE, "resnet") == mine


async def test_of_a_deleted_job_no_keys_stay(world: World):
    # The garbage collector is late; the scheduler does not wait for it.
    world.collecting = False
    await world.trains(workers=1)
    world.delete(TRAININGJOBS, "resnet")
    await world.until(lambda: world.store.find(SECRETS) == [], "the Secret is gone")


@pytest.mark.parametrize(
    "reason", [pytest.param("Denied", id="by the policy"), pytest.param("Forbidden", id="by its roles")]
)
async def test_a_job_in_a_namespace_that_was_closed_to_muster_since_goes_with_all_that_it_had(reason: str):
    refusal = Refused("Muster may not do that: the namespace is closed", reason=reason)
    closing = Failing(lambda call: call.verb in ("create", "patch", "delete"), refusal, on=False)
    async with World(weather=met_by("scheduler", closing)) as world:
        uid = (await world.trains(workers=1)).metadata["uid"]
        closing.on = True
        world.delete(TRAININGJOBS, "resnet")
        await world.until(lambda: closed(world.life(uid)))
        assert world.count("SecretGone") == 1
