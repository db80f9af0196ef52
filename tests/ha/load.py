"""The load: jobs that are created, scaled, ended and deleted all the time, by a seed, and what the cluster showed.

Every job has a life of its own, at the end of which it is as its life says: finished, running, or gone.
"""

import asyncio
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from shared.cluster.kinds import CONFIGMAPS, PODS, SERVICES
from shared.cluster.objects import Metadata
from shared.frameworks.scale_requests import GROUP, SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.bench.real.client import MERGE, CallError, Client, encode
from tests.bench.real.manifests import collection, scale_in, scale_out, training_job
from tests.ha.oracles import Place

NAMESPACE = "load"
PATIENCE_SECONDS = 120.0
"""For any step of a life: several kills may come in between."""

AGAIN_SECONDS = 1.0

MOST_AT_ONCE = 30
"""Jobs: a machine that is busier than it can bear measures itself."""

_ENDED = {
    "name": "main",
    "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    "ready": False,
    "image": "registry.example/train:1",
    "imageID": "",
    "restartCount": 0,
}


class Status(msgspec.Struct, frozen=True):
    phase: str = ""


class Shown(msgspec.Struct, frozen=True):
    """Any object."""

    metadata: Metadata = Metadata()
    status: Status = Status()


class Load:
    """`begin()` it; `end()` it, and all lives go on to their ends."""

    def __init__(self, client: Client, *, seed: int, a_second: float, most: int, most_kept: int) -> None:
        """At most `most` jobs in all, and `most_kept` that are left when their lives are over: the oldest goes then."""
        self._client = client
        self._chance = random.Random(seed)
        self._a_second, self._most, self._most_kept = a_second, most, most_kept
        self._kept: deque[str] = deque()
        self._now: defaultdict[str, dict[str, Shown]] = defaultdict(dict)
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._enough = False
        self.made: defaultdict[Place, dict[str, int]] = defaultdict(dict)
        """Every pod, Service and ConfigMap that ever was: the version at which it came, by uid."""
        self.deleted: dict[str, int] = {}
        """The version at which anything went, by uid."""
        self.ends: dict[str, str] = {}
        """The expected phase of each job by its life; empty if it is expected to be gone."""
        self.scaled = 0

    async def begin(self) -> None:
        await self._asked("POST", "/api/v1/namespaces", encode({"metadata": {"name": NAMESPACE}}))
        for kind in (PODS, SERVICES, CONFIGMAPS):
            self._follow(kind.kind, collection(kind.plural, NAMESPACE))
        for kind in (TRAININGJOBS, SCALEOUTS, SCALEINS):
            self._follow(kind.kind, collection(kind.plural, NAMESPACE, GROUP))
        self._tasks.append(asyncio.create_task(self._generate()))

    async def end(self) -> None:
        """No new jobs; raises what went wrong in a life."""
        self._enough = True
        await asyncio.gather(*self._lives.values())

    async def close(self) -> None:
        for task in (*self._tasks, *self._lives.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._lives.values(), return_exceptions=True)

    def __len__(self) -> int:
        return len(self._lives)

    def left(self) -> list[str]:
        """Children whose owner is gone, and jobs that are not in the expected phase."""
        alive = {shown.metadata.uid for shown in self._now["TrainingJob"].values()}
        orphans = [
            f"{kind} {name}: its owner is gone"
            for kind in ("Pod", "Service", "ConfigMap")
            for name, shown in self._now[kind].items()
            if (owner := shown.metadata.controller) is not None and owner.uid not in alive
        ]
        phases = {name: self._phase("TrainingJob", name) for name in self.ends}
        return orphans + [
            f"{name} is {phases[name] or 'gone'}, expected {end or 'gone'}"
            for name, end in self.ends.items()
            if phases[name] != end
        ]

    async def _generate(self) -> None:
        number = 0
        while not self._enough and number < self._most:
            if sum(not life.done() for life in self._lives.values()) < MOST_AT_ONCE:
                name = f"job-{number}"
                life = self._chance.choices((self._brief, self._finished, self._scaled), (2, 2, 1))[0]
                self._lives[name] = asyncio.create_task(self._live(name, life))
                number += 1
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) / self._a_second)

    async def _live(self, name: str, life: Callable[[str, random.Random], Awaitable[None]]) -> None:
        chance = random.Random(self._chance.random())
        manifest = training_job(name, NAMESPACE, chance.choice((1, 2)))
        await self._asked("POST", collection("trainingjobs", NAMESPACE, GROUP), encode(manifest))
        await life(name, chance)

    async def _brief(self, name: str, chance: random.Random) -> None:
        """Deleted at any moment, perhaps before anything was made."""
        await asyncio.sleep(chance.random() * 4.0)
        await self._delete(name)

    async def _finished(self, name: str, chance: random.Random) -> None:
        await self._until("TrainingJob", name, "Running")
        await asyncio.sleep(chance.random())
        await self._finish(name, chance)

    async def _scaled(self, name: str, chance: random.Random) -> None:
        await self._until("TrainingJob", name, "Running")
        for plural, request in (("scaleouts", scale_out), ("scaleins", scale_in)):
            manifest = request(name, NAMESPACE, name, 1)
            await self._asked("POST", collection(plural, NAMESPACE, GROUP), encode(manifest))
            await self._until(manifest["kind"], name, "ScaleSucceeded")
            self.scaled += 1
        if chance.random() < 0.8:
            await self._finish(name, chance)
        else:
            await self._keep(name, "Running")

    async def _finish(self, name: str, chance: random.Random) -> None:
        """The launcher ends well; most jobs are deleted then."""
        status = encode({"status": {"phase": "Succeeded", "containerStatuses": [_ENDED]}})
        path = f"{collection('pods', NAMESPACE)}/{name}-launcher/status"
        await self._asked("PATCH", path, status, MERGE)
        await self._until("TrainingJob", name, "Succeeded")
        if chance.random() < 0.7:
            await self._delete(name)
        else:
            await self._keep(name, "Succeeded")

    async def _keep(self, name: str, phase: str) -> None:
        self.ends[name] = phase
        self._kept.append(name)
        if len(self._kept) > self._most_kept:
            await self._delete(self._kept.popleft())

    async def _delete(self, name: str) -> None:
        await self._asked("DELETE", f"{collection('trainingjobs', NAMESPACE, GROUP)}/{name}")
        self.ends[name] = ""

    async def _asked(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> None:
        """Ask as people's clients do: again while the server fails, as after it stood still."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            for again in itertools.chain((False,), itertools.repeat(True)):
                try:
                    await self._client.call(method, path, body, kind)
                except CallError as failure:
                    # What failed may have been done all the same.
                    if again and (method, failure.status) in (("POST", 409), ("DELETE", 404)):
                        return
                    if failure.status < 500:
                        raise
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    return

    def _phase(self, kind: str, name: str) -> str:
        shown = self._now[kind].get(name)
        return shown.status.phase if shown is not None else ""

    async def _until(self, kind: str, name: str, phase: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while self._phase(kind, name) != phase:
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise AssertionError(f"{kind} {name} is {self._phase(kind, name)!r}, never {phase}") from error

    def _follow(self, kind: str, path: str) -> None:
        def tell(event: str, shown: Shown, _: float) -> None:
            owner = shown.metadata.controller
            if owner is not None and kind in ("Pod", "Service", "ConfigMap"):
                place = Place(kind, shown.metadata.name, owner.uid)
                self.made[place].setdefault(shown.metadata.uid, shown.metadata.version)
            if event == "DELETED":
                self.deleted[shown.metadata.uid] = shown.metadata.version
                self._now[kind].pop(shown.metadata.name, None)
            else:
                self._now[kind][shown.metadata.name] = shown

        self._tasks.append(asyncio.create_task(self._client.follow(path, Shown, tell)))


async def quiet(load: Load) -> None:
    """Wait until every job is in its expected phase; raises with those that are not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while load.left():
                await asyncio.sleep(0.1)
    assert not load.left(), "\n".join(load.left())
