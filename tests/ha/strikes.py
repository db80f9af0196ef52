"""Who is struck, how and when: a plan from a seed, and its execution."""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import msgspec

from muster.stack import SERVICES
from shared.errors import Trouble
from shared.eventlog.account import LEASES, STREAM, stream_of
from tests.ha.world import PATIENCE_SECONDS, Pairs

How = Literal["kill", "pause", "stop"]
Role = Literal["owner", "standby", "leader", "keeper", "follower", "only"]
"""Of the log's servers one leads the log, one keeps the leases, and they may be the same."""

NATS = "nats"
APISERVER = "apiserver"
PAUSE_SECONDS = 10.0
DOWN_SECONDS = 1.0
"""From a kill to the new start: a kubelet's first one comes at once, and an image is there."""
CALM_SECONDS = 1.0
"""Between all being well again and the next strike."""


class Strike(msgspec.Struct, frozen=True):
    """A wish: who is who is known only when it comes to it."""

    how: How
    service: str
    """A service, the log or the API server."""
    role: Role


class Struck(msgspec.Struct, frozen=True):
    """What came of it; times are those of the wall clock, as in logs."""

    strike: Strike
    name: str
    began: float
    down: float
    """From now on it did nothing."""
    up: float
    """From now on it might again."""
    well: float
    """All is as before."""


EVERYBODY: tuple[Strike, ...] = (
    *(Strike("kill", service, role) for service in SERVICES for role in ("owner", "standby")),
    *(Strike("kill", NATS, role) for role in ("leader", "keeper", "follower")),
)


def plan(seed: int, kills: int, pauses: int, stops: int = 0) -> list[Strike]:
    """In an order of chance; everybody is killed before anybody is killed again, and owners most."""
    chance = random.Random(seed)
    owners = [Strike("kill", service, "owner") for service in SERVICES]
    chosen: list[Strike] = []
    while len(chosen) < kills:
        some = [*EVERYBODY, *owners, *owners]
        chance.shuffle(some)
        # The first round is everybody once.
        chosen += some if chosen else chance.sample(EVERYBODY, len(EVERYBODY))
    chosen = chosen[:kills]
    # Who is paused or stopped is an owner, and every fifth time the server that leads the log: of pauses the last one,
    # of stops the first, for a server may have been killed before.
    several: list[tuple[How, list[str], int]] = [
        ("pause", [*chance.sample(SERVICES, len(SERVICES)), NATS], pauses),
        ("stop", [NATS, *chance.sample(SERVICES, len(SERVICES))], stops),
    ]
    for how, targets, times in several:
        for target in itertools.islice(itertools.cycle(targets), times):
            chosen.append(Strike(how, target, "leader" if target == NATS else "owner"))
    chance.shuffle(chosen)
    return chosen


async def strike_all(
    world: Pairs,
    strikes: Sequence[Strike],
    tell: Callable[[str], None],
    *,
    every: float = 0.0,
    lasting: float = math.inf,
    spared: Collection[str] = (),
) -> list[Struck]:
    """One after the other: as soon as all is well, and no sooner than `every` seconds after the one before began.

    None begins after `lasting` seconds.  Who is spared stands still where others are killed or stopped.
    """
    struck: list[Struck] = []
    end = time.time() + lasting
    for number, strike in enumerate(strikes, start=1):
        await _until_well(world)
        last = struck[-1].began if struck else -math.inf
        await asyncio.sleep(max(CALM_SECONDS, last + every - time.time()))
        if time.time() >= end:
            break
        done = await _strike(world, strike, spared)
        took = done.well - done.began
        tell(f"{number}/{len(strikes)} {done.strike.how} {done.name} ({strike.role}): well after {took:.1f} s")
        struck.append(done)
    return struck


async def _strike(world: Pairs, strike: Strike, spared: Collection[str]) -> Struck:
    name = await _victim(world, strike)
    if name in spared:
        strike = msgspec.structs.replace(strike, how="pause")
    began = time.time()
    match strike.how:
        case "kill":
            world.kill(name)
        case "pause":
            world.pause(name)
        case "stop":
            await world.stop(name)
    down = time.time()
    await asyncio.sleep(PAUSE_SECONDS if strike.how == "pause" else DOWN_SECONDS)
    up = time.time()
    try:
        if strike.how == "pause":
            world.wake(name)
        else:
            await world.start(name)
        await _until_well(world)
    except (Trouble, TimeoutError) as error:
        raise AssertionError(f"not well after {strike}: {error}\n{await world.last_words(name)}") from error
    return Struck(strike, name, began, down, up, time.time())


async def _until_well(world: Pairs) -> None:
    # Not as often as can be: the asking shares the machine with those who are asked.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await world.all_well():
            await asyncio.sleep(0.1)


async def _victim(world: Pairs, strike: Strike) -> str:
    if strike.service == APISERVER:
        return APISERVER
    if strike.service != NATS:
        find = world.owner if strike.role == "owner" else world.standby
        return (await find(strike.service)).name
    leader = await world.leader(stream_of(LEASES) if strike.role == "keeper" else STREAM)
    return leader if strike.role != "follower" else next(name for name in world.nats.servers if name != leader)
