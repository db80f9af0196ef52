"""`muster restart`: have a job that runs begin again in a new attempt, with the size it has."""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import typer

from muster.following import Answer, conditions_of, follow, label, phase_of, status_of
from muster.jobs import must_not_be_over, patched, the_job
from muster.targets import Target, fail
from shared.cluster import Cluster
from shared.job.naming import RESTART


def a_word() -> str:
    """One that nobody has used before: when it was asked for, and chance for two that ask at once."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}-{secrets.token_hex(4)}"


async def restart(
    cluster: Cluster, target: Target, namespace: str, *, wait: bool, timeout: int, word: Callable[[], str] = a_word
) -> None:
    """Ask for a new attempt and wait until it runs."""
    job = await the_job(cluster, target, namespace, "restarted")
    must_not_be_over(job, target, "restarted")
    status = status_of(job)
    phase = phase_of(status)
    if phase == "Suspended":
        raise fail(f"{label(target)} is suspended; `muster resume {label(target)}` begins a new attempt")
    if not phase:
        raise fail(f"{label(target)} has not been taken up yet, there is nothing to restart; `muster why` says why")
    job = await patched(cluster, job, {"metadata": {"annotations": {RESTART: word()}}})
    typer.echo(f"{label(target)} asked to restart")
    if wait:
        # One that has yet to run need not be interrupted: then its next attempt is the one that was asked for.
        before = _restarting(status) if phase in ("Running", "Scaling") else None
        await follow(cluster, target, job, _begun_again(before), timeout=timeout)


def _begun_again(before: str | None) -> Answer:
    """Whether an attempt runs that began after the condition Restarting was as `before`; None takes any."""

    def answer(status: dict[str, Any]) -> bool | None:
        phase = phase_of(status)
        if phase == "Failed":
            return False
        # The phase Restarting may be over between two looks; its condition stays and tells.
        begun = _restarting(status) != before
        return True if phase == "Succeeded" or (begun and phase in ("Running", "Scaling")) else None

    return answer


def _restarting(status: dict[str, Any]) -> str:
    """When the condition Restarting changed last; empty before the first restart."""
    known = next((known for known in conditions_of(status) if known.get("type") == "Restarting"), {})
    return str(known.get("lastTransitionTime") or "")
