"""`muster restart`: end the running attempt of a job and begin a new one of the same size."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import typer

from muster.following import LASTING_SECONDS, Answer, condition_of, follow, status_of
from muster.jobs import PAUSED, must_not_be_over, must_not_pause, patched, the_job
from muster.targets import Asked, Target, fail
from shared.cluster import Cluster
from shared.job.naming import RESTART

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
    """Ask for a new attempt and wait until it runs."""
    target, job = await the_job(cluster, asked, namespace, "restarted")
    must_not_be_over(job, target, "restarted")
    must_not_pause(job, target)
    if not target.phase(status_of(job)):
        raise fail(f"{target.label} has not been admitted yet, there is nothing to restart; `muster why` says why")
    if wait and _since(status_of(job), "Running") == this_second():
        # Times are whole seconds: two attempts that begin within one second look the same.
        await asyncio.sleep(1)
    job = await patched(cluster, target, job, {"metadata": {"annotations": {RESTART: value()}}})
    typer.echo(f"{target.label} asked to restart")
    if wait and "conditions" not in status_of(job):
        typer.echo(f"its status does not say when an attempt began; `muster history {target.label} --follow` does")
    elif wait:
        # The status shows the restart of a running attempt.  For a job that never ran it shows none, so an attempt that
        # stays Running for `LASTING_SECONDS` counts as the new one.
        before = status_of(job)
        ran = target.phase(before) in RUNS
        lasting = 0.0 if ran else LASTING_SECONDS
        await follow(
            cluster, target, job, _begun_again(target, before if ran else {}), timeout=timeout, lasting=lasting
        )


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
