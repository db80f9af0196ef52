"""Waits for the outcome of a command: prints each change of the object, up to a timeout.

Exit codes of all commands: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import typer

from muster.targets import Target, fail
from muster.terminal import say
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Transient
from shared.job.reasons import of_request

LOOK_SECONDS = 0.5

PATIENCE_SECONDS = 10.0
"""Seconds without a change after which a line says so."""

LASTING_SECONDS = 2.0
"""Seconds that an answer has to last if the status names no generation: Muster acts far sooner."""

TIMEOUT_SECONDS = 600
"""Seconds that a command waits without `--timeout`: longer than the end of pods or the pull of images takes."""

WAITED_TOO_LONG = 3

ONLY_THE_WAITING = "only the waiting ended; what was asked for goes on"

Answer = Callable[[dict[str, Any]], bool | None]
"""The answer of a status: True for done, False for failed, None to go on waiting."""


async def follow(
    cluster: Cluster, target: Target, asked: Custom, answer: Answer, *, timeout: int, lasting: float = 0.0
) -> None:
    """Print each phase until there is an `answer`; `asked` is the object right after the command's write.

    A status of an older generation is no answer.  If the status names no generation, an answer counts once it has been
    the same for `lasting` seconds.
    Exits with 1 if the command failed or the object is gone, with 3 after `timeout` seconds; 0 waits for ever.
    """
    try:
        async with asyncio.timeout(timeout or None):
            await _answered(cluster, target, asked, answer, lasting)
    except TimeoutError as late:
        typer.secho(f"muster: waited {timeout} s for {target.label}; {ONLY_THE_WAITING}", err=True)
        raise typer.Exit(WAITED_TOO_LONG) from late
    except asyncio.CancelledError:
        typer.secho(f"\nmuster: {ONLY_THE_WAITING}", err=True)
        raise


async def _answered(cluster: Cluster, target: Target, asked: Custom, answer: Answer, lasting: float) -> None:
    shown, warned, began, before, since = "", False, monotonic(), None, 0.0
    while True:
        status, away = await _look(cluster, target, asked)
        now = monotonic()
        if away:
            began = now
        line = _line(target, status)
        if line != shown:
            say(f"{target.label} {line}")
            shown = line
        done = None if older(status, asked) else answer(status)
        if done != before:
            before, since = done, now
        if done is not None and now - since >= lasting:
            if not done:
                raise fail(f"{target.label} is {line}")
            return
        if problem := _problem(target, status, asked):
            raise fail(f"{target.label} is not carried out as it is written now: {problem}")
        if status == status_of(asked) and now - began > PATIENCE_SECONDS and not warned:
            warned = True
            said = _silence(target, status, asked)
            typer.echo(f"{said} It is still waited for; Ctrl-C ends only the waiting", err=True)
        await asyncio.sleep(LOOK_SECONDS)


async def _look(cluster: Cluster, target: Target, asked: Custom) -> tuple[dict[str, Any], bool]:
    """The object's status, and True if it took more than one try; an outage and its end are a line each."""
    away = False
    while True:
        try:
            found = await cluster.get(target.resource, asked.metadata.namespace, target.name)
        except Transient as trouble:
            if not away:
                typer.echo(f"the API server cannot be reached, still trying: {trouble}", err=True)
            away = True
            await asyncio.sleep(LOOK_SECONDS)
            continue
        if away:
            typer.echo("the API server answers again", err=True)
        if found is None or found.metadata.uid != asked.metadata.uid:
            raise fail(f"{target.resource.kind} {asked.metadata.namespace}/{target.name} was deleted meanwhile")
        return status_of(found), away


def _silence(target: Target, status: dict[str, Any], asked: Custom) -> str:
    """The line about a status that has not changed since the command's write."""
    if target.phase(status) in ("Created", "Restarting") and not older(status, asked):
        # While old pods end and new ones start, the status may stay the same.
        return f"nothing of it changed for {PATIENCE_SECONDS:.0f} s; `muster why` says what it waits for."
    return f"no Muster service seems to have looked at it for {PATIENCE_SECONDS:.0f} s: is Muster running?"


def _problem(target: Target, status: dict[str, Any], asked: Custom) -> str:
    """Why the services do not act on the present spec; empty if they do."""
    created, failed = condition_of(status, "Created"), condition_of(status, "Failed")
    # Some kinds show a job that was never admitted as one that failed.
    refused = failed if failed and not target.phase(status) else created
    fine = not refused or (refused is created and str(created.get("reason") or "").startswith(target.resource.kind))
    if fine or "observedGeneration" not in status or older(status, asked):
        return ""
    return _because(refused)


def status_of(resource: Custom) -> dict[str, Any]:
    """The status of a resource; empty before it has one."""
    return resource.status if isinstance(resource.status, dict) else {}


def older(status: dict[str, Any], than: Custom) -> bool:
    """True if the status is of an earlier generation.  Et-operator's definitions have no generation in a status."""
    observed = status.get("observedGeneration")
    return isinstance(observed, int) and observed < than.metadata.generation


def condition_of(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of that type; empty if there is none."""
    return next((known for known in _conditions(status) if known.get("type") == kind), {})


def _conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [known for known in status.get("conditions") or () if isinstance(known, dict)]


def _line(target: Target, status: dict[str, Any]) -> str:
    phase, conditions = target.phase(status), _conditions(status)
    newest = conditions[-1] if conditions else {}
    why = _because(newest)
    # `Running (TrainingJobRunning)` says the same thing twice.
    return f"{phase} ({why})" if phase and why and (why != newest["reason"] or phase not in why) else phase


def _because(condition: dict[str, Any]) -> str:
    """`AboveMaximum: 5 workers would be more than maxReplicas (4)`."""
    reason = str(condition.get("reason") or "")
    message = condition.get("message") or (of_request(reason) if condition.get("type") == "Pending" else "")
    return f"{reason}: {message}" if reason and message else reason
