"""One run: load, strikes, quiet, questions.  What came of it is returned, whether good or bad."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from muster.replay import WRONG, verified_jobs
from muster.stack import SERVICES
from shared.eventlog import Stored
from shared.eventlog.account import READER
from shared.job.naming import namespace_filters
from shared.telling.reading import everything
from shared.telling.targets import known_kinds
from tests.bench.real.client import Client
from tests.ha import oracles
from tests.ha.lives import Life, Lives
from tests.ha.load import NAMESPACE, Load, quiet
from tests.ha.oracles import Acknowledged, Election, Write
from tests.ha.strikes import Strike, Struck, strike_all
from tests.ha.witness import Witness, print_of
from tests.ha.world import PATIENCE_SECONDS, Pairs
from tests.kit.invariants import faults_of
from tests.kit.nats import connected, until

QUIET_SECONDS = 2.0
"""Without a new event, after which nothing more comes."""

WARM_UP = 8
"""Jobs before the first strike."""


class Course(msgspec.Struct, frozen=True):
    """How a run goes on."""

    every: float = 0.0
    """Seconds from one strike to the next, if all is well by then; without, as soon as all is well."""
    lasting: float = math.inf
    """Seconds after which no strike begins, however long all took to be well."""
    spared: tuple[str, ...] = ()
    """Processes that stand still where others are killed or stopped, so that they live for as long as the run."""
    a_second: float = 2.0
    """Jobs; each is some thirty events and a dozen calls."""
    most_jobs: int = 3_000
    most_kept: int = 3_000
    """Jobs that are not deleted by their lives; the oldest one makes room."""
    over: int = 0
    """Jobs whose seals are in the log and whose histories are in the archive when the services begin."""


AT_ONCE = Course()


class Outcome(msgspec.Struct):
    """All that is needed for figures, and what is wrong."""

    struck: list[Struck]
    told: list[Acknowledged]
    """By the clock."""
    late: list[tuple[Struck, list[Write]]]
    """Of each pause of a service: what it wrote after waking up, before it was the owner again."""
    owners: dict[str, list[tuple[float, bool]]]
    """By replica, when it became the owner, and when it was no more."""
    elections: list[Election]
    """Of all servers of the log, by the clock."""
    owed: dict[int, float]
    """By the sequence of a decision, when that was told on which it was taken."""
    events: int
    jobs: int
    scaled: int
    compared: int
    faults: list[str]
    lives: list[Life] = []
    """Of all processes that were struck at."""
    log: Sequence[Stored] = ()


async def run(
    folder: Path,
    strikes: Sequence[Strike],
    *,
    seed: int = 0,
    course: Course = AT_ONCE,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        began = time.monotonic()
        world = await enter(Pairs(folder, course.over))
        tell(f"all is up in {time.monotonic() - began:.0f} s")
        witnesses = [await enter(Witness(world.nats, server)) for server in world.nats.servers]
        client = await enter(Client(world.cluster.kubeconfig(CLUSTER_ADMIN)))
        load = Load(client, seed=seed, a_second=course.a_second, most=course.most_jobs, most_kept=course.most_kept)
        stack.push_async_callback(load.close)
        await load.begin()

        async def warm() -> bool:
            return len(load) >= WARM_UP

        await until(warm, within=PATIENCE_SECONDS)
        # Not for longer: what the questions at the end cost is no part of a life under load.
        async with Lives(world, tell, lambda: f"{len(load)} jobs, {load.scaled} scalings") as lives:
            struck = await strike_all(
                world, strikes, tell, every=course.every, lasting=course.lasting, spared=course.spared
            )
        tell(f"{len(load)} jobs so far; no new ones")
        await load.end()
        await quiet(load)
        outcome = await _asked(world, load, witnesses, struck)
        outcome.lives = lives.all
        return outcome


async def _asked(world: Pairs, load: Load, witnesses: Sequence[Witness], struck: list[Struck]) -> Outcome:
    async with connected(world.nats, READER) as reader:
        end = -1
        while end != (end := await reader.end()):
            await asyncio.sleep(QUIET_SECONDS)
        _, log = await everything(reader, namespace_filters(NAMESPACE))
        # The questions end here: services may record more meanwhile, such as the seal of a job that is gone.
        end = log[-1].sequence
        verified = await verified_jobs(reader, world.kube, known_kinds(), NAMESPACE)
    for witness in witnesses:
        await until(lambda one=witness: one.reached(end), within=PATIENCE_SECONDS)  # type: ignore[misc]
    replicas = {name: [*_lines(child.log)] for name, child in world.services.items()}
    acknowledged = (ack for name, lines in replicas.items() for ack in oracles.acknowledged(name, lines))
    told = sorted((ack for ack in acknowledged if ack.sequence <= end), key=lambda ack: ack.at)
    elections = sorted(
        election
        for server in world.nats.servers.values()
        for election in oracles.elections((server.directory / "server.log").read_text(errors="replace").splitlines())
    )
    owners = {name: _ownership(lines) for name, lines in replicas.items()}
    # The API server begins a new file when one is full, and gives the old one a name that sorts before.
    made = oracles.writes(line for file in sorted(world.data.glob("audit*.jsonl")) for line in _lines(file))
    tokens = {replica.name: replica.token for replica in world.replicas}
    late = [
        (one, oracles.late(made, tokens[one.name], one.up, _owner_again(owners[one.name], one.up)))
        for one in struck
        if one.strike.how == "pause" and one.strike.service in SERVICES
    ]
    faults = [*oracles.lost(log, told), *oracles.delay(log), *faults_of(log)]
    for witness in witnesses:
        seen = [(at, print_) for at, print_ in witness.seen if world.before < at <= end]
        faults += oracles.changed(log, witness.server, seen)
    for name in world.nats.servers:
        copy = [(stored.sequence, print_of(stored)) for stored in await world.copy(name, end)]
        faults += oracles.changed(log, f"{name}, asked alone,", copy)
    faults += oracles.made_twice(load.made, load.deleted)
    faults += [fault for _, written in late for fault in oracles.stale(written)]
    # As `muster replay --verify` does: each status is what the log says (I3).
    faults += [str(answer) for answer in verified.answers if answer.verdict in (*WRONG, "absent")]
    identical = verified.count("identical")
    return Outcome(
        struck, told, late, owners, elections, _owed(log), len(log), len(load), load.scaled, identical, faults, log=log
    )


def _owed(log: Sequence[Stored]) -> dict[int, float]:
    at = {stored.sequence: oracles.seconds(stored.time) for stored in log}
    return {stored.sequence: at[int(stored.basis.partition(":")[0])] for stored in log if stored.basis}


def _ownership(lines: Sequence[dict[str, Any]]) -> list[tuple[float, bool]]:
    words = {"lease acquired": True, "lease lost": False, "lease offered": False, "started": False}
    return [(oracles.seconds(line["timestamp"]), words[line["event"]]) for line in lines if line["event"] in words]


def _owner_again(ownership: Sequence[tuple[float, bool]], after: float) -> float:
    return min((at for at, owner in ownership if owner and at > after), default=time.time())


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Whole lines; a process that was killed may have left a piece of one."""
    with file.open() as lines:
        for line in lines:
            with suppress(ValueError):
                yield json.loads(line)
