"""SIGKILL of a real process at every step of create, scale-out and scale-in: the same end, a whole history.

The steps are taken from the log as it is written; each server, each service and all services at once have their turn.
Which of them dies at which step is the crash matrix's to vary, in simulation.  `SEED=n` replays an order.
"""

import asyncio
import os
import random
from collections.abc import Coroutine

import pytest

from muster.stack import SERVICES
from shared.eventlog.account import READER
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from tests.kit.nats import connected
from tests.kit.operator import CRASHABLE, Operator, a_job, a_request

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SEED = int(os.environ.get("SEED", "0"))

STEPS = {
    "JobObserved",
    "JobCreated",
    "SlotsAssigned",
    "PodsObserved",
    "HostsPublished",
    "ChildrenObserved",
    "JobRunning",
    "ScaleRequested",
    "ScaleAccepted",
    "JobScaling",
    "ScaleSucceeded",
    "TimePassed",
    "WorkersReleased",
    "PodsGone",
}

UNTIL_TOLD = (
    "trap 'exit 0' USR1; "
    "until [ $(/etc/edl/discover_hosts.sh | wc -l) = 4 ]; do sleep 0.1; done; "
    "until [ $(/etc/edl/discover_hosts.sh | wc -l) = 3 ]; do sleep 0.1; done; "
    "while :; do sleep 0.1; done"
)
"""It sees both scalings in its own hosts file, and ends when a signal says so."""

FEWEST_STEPS = 18
"""A life has at least so many steps, however its facts are merged."""


async def _kill_along(operator: Operator, job: str, victims: list[tuple[str, ...]], kills: list[str]) -> None:
    """At each step of the job's log kill the next victims, noting who died at what."""
    async with connected(operator.stack.nats, READER) as reader:
        async for batch in reader.read(subjects=(f"facts.default.{job}.>", f"jobs.default.{job}.>")):
            for stored in batch.events:
                step = stored.subject.rpartition(".")[2]
                if step not in STEPS:
                    continue
                chosen = victims[len(kills) % len(victims)]
                kills.append(f"{'+'.join(chosen)} at {step}")
                for victim in chosen:
                    await _to_its_end(operator.crash(victim))


async def _to_its_end(crash: Coroutine[None, None, None]) -> None:
    """A crash that is interrupted would leave its victim dead for the tests that follow."""
    crashing = asyncio.create_task(crash)
    try:
        await asyncio.shield(crashing)
    except asyncio.CancelledError:
        await crashing
        raise


async def test_a_life_in_which_a_process_dies_at_every_step_ends_as_any_other(operator: Operator):
    job = "fire"
    victims = [*((name,) for name in CRASHABLE), SERVICES]
    random.Random(SEED).shuffle(victims)
    print(f"SEED={SEED}: {victims}")
    kills: list[str] = []
    killing = asyncio.create_task(_kill_along(operator, job, victims, kills))
    try:
        await _create(operator, a_job(job, UNTIL_TOLD))
        await operator.phase("Running", TRAININGJOBS, job)
        await _create(operator, a_request("ScaleOut", f"{job}-out", job, toAdd={"count": 2}))
        await operator.phase("ScaleSucceeded", SCALEOUTS, f"{job}-out")
        await _create(operator, a_request("ScaleIn", f"{job}-in", job, toDelete={"count": 1}))
        await operator.phase("ScaleSucceeded", SCALEINS, f"{job}-in")

        async def caught_up() -> bool:
            return len(kills) >= sum(step in STEPS for step in await operator.types(job))

        # On a busy machine dying takes longer than living.
        await operator.until(caught_up, lambda: f"the killer is at step {len(kills)}")
        await _tell_to_end(operator, job)
        await operator.phase("Succeeded", TRAININGJOBS, job)
    finally:
        killing.cancel()
        ended = await asyncio.gather(killing, return_exceptions=True)
        print(*kills, sep="\n")
    assert isinstance(ended[0], asyncio.CancelledError), ended
    assert len(kills) >= FEWEST_STEPS, "the log was not followed to the end"
    types = await operator.types(job)
    assert [types.count(kind) for kind in ("JobCreated", "ScaleAccepted", "ScaleSucceeded", "JobSucceeded")] == [
        1,
        2,
        2,
        1,
    ]
    folded = await operator.job(job)
    assert sorted(folded.listed_workers) == [0, 1, 2]
    await operator.assert_replayed(job)


async def _create(operator: Operator, manifest: dict) -> None:
    """kubectl apply, again while the API server is down."""

    async def applied() -> bool:
        await operator.apply(manifest)
        return True

    await operator.until(applied, lambda: "could not apply")


async def _tell_to_end(operator: Operator, job: str) -> None:
    """End the training, again while the API server is down."""

    async def told() -> bool:
        await operator.tell_to_end(job)
        return True

    await operator.until(told, lambda: "could not exec")
