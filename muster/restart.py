"""`muster restart`: end the running attempt of a job and begin a new one of the same size."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from muster.following import LASTING_SECONDS, Answer, Change, carried_out, condition_of, status_of
from muster.jobs import PAUSED, must_not_be_over, must_not_pause, patched, the_job
from shared.cluster import Cluster
from shared.errors import Refused
from shared.job.naming import RESTART
from shared.telling.targets import Asked, Target

RUNS = ("Running", "Scaling")


def new_value() -> str:
    """A value that the restart annotation never had: the time, and random letters for two requests in one second."""
    return f"{this_second()}-{secrets.token_hex(4)}"


def this_second() -> str:
    """The present time in whole seconds, as a status writes it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


async def restart(
    cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, timeout: int, value: Callable[[], str] = new_value
) -> None:
    """Ask for a new attempt, and print until it runs."""
    change = await ask_to_restart(cluster, asked, namespace, wait=wait, value=value)
    await carried_out(cluster, change, wait=wait, timeout=timeout)


async def ask_to_restart(
    cluster: Cluster, asked: Asked, namespace: str, *, wait: bool, value: Callable[[], str] = new_value
) -> Change:
    """Ask for a new attempt, and with `wait` so that it can be told from the one before.

    Raises `Refused` for a job that does not run.
    """
    target, job = await the_job(cluster, asked, namespace, "restarted")
    must_not_be_over(job, target, "restarted")
    must_not_pause(job, target)
    if not target.phase(status_of(job)):
        words = f"{target.label} has not been admitted yet, there is nothing to restart; `muster why` says why"
        raise Refused(words, reason="Invalid")
    if wait and _since(status_of(job), "Running") == this_second():
        # Times are whole seconds: two attempts that begin within one second look the same.
        await asyncio.sleep(1)
    job = await patched(cluster, target, job, {"metadata": {"annotations": {RESTART: value()}}})
    said, before = f"{target.label} asked to restart", status_of(job)
    if wait and "conditions" not in before:
        hint = f"its status does not say when an attempt began; `muster history {target.label} --follow` does"
        return Change(target, f"{said}\n{hint}")
    # The status shows the restart of a running attempt.  For a job that never ran it shows none, so an attempt that
    # stays Running for `LASTING_SECONDS` counts as the new one.
    ran = target.phase(before) in RUNS
    answer = _begun_again(target, before if ran else {})
    return Change(target, said, job, answer, 0.0 if ran else LASTING_SECONDS)


def _begun_again(target: Target, before: dict[str, Any]) -> Answer:
    """The answer: done once the status shows another attempt than the one `before`."""

    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        if phase in RUNS:
            # The phase Restarting may begin and end between two reads.
            return _since(status, "Running") != _since(before, "Running") or None
        if phase == "Succeeded":
            return not before or _since(status, "Restarting") != _since(before, "Restarting")
        # Suspending cancels the restart.
        return False if phase in ("Failed", *PAUSED) else None

    return answer


def _since(status: dict[str, Any], kind: str) -> object:
    """The last transition of a condition; None without such a condition."""
    return condition_of(status, kind).get("lastTransitionTime")
