"""What must not happen in launchers: scripts of requests, and looks at who is still in use."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from services.scaler.launcher_commands import HOSTS
from shared.cluster import Execution
from shared.errors import Refused
from shared.eventlog import Stored
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.runtime import acts
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out, a_training_job

SCRIPT = "/opt/rescale.sh"


def with_script(request: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**request, "spec": {**request["spec"], "script": SCRIPT, **spec}}


class Launchers:
    """What runs in the launchers of a world: a process table, and scripts that end as a test wants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ran: list[tuple[str, tuple[str, ...]]] = []
        """Scripts, by pod."""
        self.looked = 0
        self.table = b"python\0train.py\0"
        self.script: Callable[[], Awaitable[int]] | None = None
        """How a script goes; at once and well without."""
        world.store.program = self._run

    async def _run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
        if tuple(command) == HOSTS:
            return Execution(0, "".join(f"{host}:1\n" for host in self.world.hosts(pod[: -len("-launcher")])).encode())
        if SCRIPT not in command:
            self.looked += 1
            return Execution(0, self.table)
        self.ran.append((pod, tuple(command)))
        return Execution(await self.script() if self.script else 0, b"said")


async def a_running_world(world: World, workers: int = 2) -> None:
    job = a_training_job(workers=workers)
    job["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = 12
    world.apply(TRAININGJOBS, job)
    await world.running()


async def test_8_a_launcher_without_ps_or_shell_is_scaled_all_the_same():
    async with World(drain_seconds=3) as world:

        async def nothing(namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
            raise Refused("no such program", reason="CannotExecute")

        world.store.program = nothing
        await a_running_world(world)
        world.apply(SCALEINS, a_scale_in(1))
        await world.phase("ScaleSucceeded", SCALEINS, "in")
        world.apply(SCALEOUTS, with_script(a_scale_out(1)))
        await world.phase("ScaleFailed", SCALEOUTS, "out")
        assert world.condition(SCALEOUTS, "out", "ScaleFailed") == ("True", "CannotExecute")


async def test_28_a_launcher_that_hangs_keeps_no_other_job_waiting(monkeypatch: pytest.MonkeyPatch):
    """Lines 8 and 28."""
    # Fewer hang than effects may be in flight, unless the bound is as low as this.
    monkeypatch.setattr(acts, "EFFECTS_IN_FLIGHT", 10)
    async with World(drain_seconds=3) as world:
        forever = asyncio.Event()

        async def hang(namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
            if pod != "other-launcher":
                await forever.wait()
            return Execution(0, b"python\0")

        world.store.program = hang
        names = [f"job-{index}" for index in range(20)]
        for name in [*names, "other"]:
            world.apply(TRAININGJOBS, a_training_job(name, workers=2))
        for name in [*names, "other"]:
            await world.running(name)
        for name in names[:10]:
            world.apply(SCALEINS, a_scale_in(1, name=f"{name}-in", job=name))
        for name in names[10:]:
            world.apply(SCALEINS, with_script(a_scale_in(1, name=f"{name}-in", job=name), timeout=30))
        await world.until(lambda: world.count("ScriptStarted") == 10, "the scripts hang")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        world.apply(SCALEOUTS, a_scale_out(1, name="quick", job="other"))
        await world.phase("ScaleSucceeded", SCALEOUTS, "quick")
        assert loop.time() - begun < 1
        world.apply(SCALEINS, with_script(a_scale_in(1, name="quick", job="other")))
        await world.phase("ScaleSucceeded", SCALEINS, "quick")
        assert loop.time() - begun < 7, "its look waits for its turn for a few seconds at most"
        await world.pass_seconds(40)
        for name in names[:10]:
            await world.phase("ScaleSucceeded", SCALEINS, f"{name}-in")
        for name in names[10:]:
            await world.phase("ScaleFailed", SCALEINS, f"{name}-in")
            assert world.condition(SCALEINS, f"{name}-in", "ScaleFailed") == ("True", "ScriptTimedOut")
            assert len(world.hosts(name)) == 2


async def test_1_a_hundred_requests_at_once_end_in_the_order_of_the_log(world: World):
    launchers = Launchers(world)
    # A hundred objects are looked through for nothing.
    world.collecting = False
    job = a_training_job(workers=3)
    job["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = 5
    world.apply(TRAININGJOBS, job)
    for index in range(50):
        world.apply(SCALEOUTS, with_script(a_scale_out(1 + index % 3, name=f"out-{index}")))
        world.apply(SCALEINS, a_scale_in(1 + index % 2, name=f"in-{index}"))
    ends, ended = (".ScaleSucceeded", ".ScaleRejected"), list[str]()

    def note(stored: Stored) -> None:
        if stored.subject.endswith(ends):
            ended.append(stored.subject)

    world.journal.listeners.append(note)
    await world.until(lambda: len(ended) == 100, "all of them end")

    def told(*kinds: str) -> list[str]:
        found = [msgspec.json.decode(s.body) for s in world.journal.events if s.subject.endswith(kinds)]
        return list(dict.fromkeys(body.get("request") or body["uid"] for body in found))

    uid = world.job().key.uid
    asked = [*world.life(uid).scaling.requests]
    assert told(*ends) == asked, "they end as they were first heard of"
    assert world.count("ScaleSucceeded") > 20
    assert len(launchers.ran) == world.count("ScriptStarted") > 5
    await world.quiet()
    assert len(world.hosts()) == world.job().scaling.size


# Edits of the job itself.


def edit(world: World, replicas: int, **worker: Any) -> None:
    patch = {"spec": {"etReplicaSpecs": {"worker": {"replicas": replicas, **worker}}}}
    world.store.patch(TRAININGJOBS, NAMESPACE, "resnet", patch)


async def test_an_edited_size_is_reached_and_nothing_speaks_of_a_request(world: World):
    Launchers(world)
    await a_running_world(world)
    edit(world, 4)
    await world.until(lambda: len(world.hosts()) == 4, "it grows")
    edit(world, 1)
    await world.until(lambda: sorted(world.pods()) == ["resnet-launcher", "resnet-worker-0"], "it shrinks")
    await world.running()
    await world.quiet()
    assert world.hosts() == ["resnet-worker-0"]
    assert world.status(TRAININGJOBS, "resnet")["replicas"] == 1
    assert world.count("ScaleRequestGone") == world.count("EffectRefused") == 0
    spoken = {name for _, name in world.kubernetes_events()}
    assert spoken == {"resnet"}
    scalers = [status.get("currentScaler") for status in world.statuses["TrainingJob", NAMESPACE, "resnet"]]
    assert {*scalers} == {None}
