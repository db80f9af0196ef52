"""Following an object until what was asked for is so: each change on a line, a bound, and a way out.

Exit codes of all commands: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import typer

from muster.targets import Target, fail
from shared.cluster import Cluster
from shared.cluster.objects import Custom
from shared.errors import Transient

LOOK_SECONDS = 0.5

PATIENCE_SECONDS = 10.0
"""How long nothing may move before we say that nobody seems to work here."""

TIMEOUT_SECONDS = 600
"""How long a command waits unless told: longer than pods take to end, or images to be pulled."""

WAITED_TOO_LONG = 3

ONLY_THE_WAITING = "only the waiting ended; what was asked for goes on"

Answer = Callable[[dict[str, Any]], bool | None]
"""Of a status: True is done, False failed, None goes on."""


async def follow(cluster: Cluster, target: Target, asked: Custom, answer: Answer, *, timeout: int) -> None:
    """Print each phase until `answer` is there; `asked` is the object as it was when it was asked for.

    Exits with 1 when it failed or went away, with 3 after `timeout` seconds; 0 waits for ever.
    """
    try:
        async with asyncio.timeout(timeout or None):
            done = await _answered(cluster, target, asked, answer)
    except TimeoutError as late:
        typer.secho(f"muster: waited {timeout} s for {label(target)}; {ONLY_THE_WAITING}", err=True)
        raise typer.Exit(WAITED_TOO_LONG) from late
    except asyncio.CancelledError:
        typer.secho(f"\nmuster: {ONLY_THE_WAITING}", err=True)
        raise
    if not done:
        raise typer.Exit(1)


async def _answered(cluster: Cluster, target: Target, asked: Custom, answer: Answer) -> bool:
    shown, before, warned, began = "", status_of(asked), False, time.monotonic()
    while True:
        try:
            now = await cluster.get(target.resource, asked.metadata.namespace, target.name)
        except Transient:
            await asyncio.sleep(LOOK_SECONDS)
            continue
        if now is None or now.metadata.uid != asked.metadata.uid:
            raise fail(f"{target.resource.kind} {asked.metadata.namespace}/{target.name} was deleted meanwhile")
        status = status_of(now)
        line = _line(status)
        if line != shown:
            typer.echo(f"{label(target)} {line}")
            shown = line
        done = answer(status)
        if done is not None:
            return done
        if status == before and not warned and time.monotonic() - began > PATIENCE_SECONDS:
            warned = True
            typer.echo(
                f"nobody has taken it up for {PATIENCE_SECONDS:.0f} s: is Muster running? "
                "It is still waited for; Ctrl-C ends only the waiting",
                err=True,
            )
        await asyncio.sleep(LOOK_SECONDS)


def label(target: Target) -> str:
    """`trainingjob/resnet`."""
    return f"{target.resource.kind.lower()}/{target.name}"


def status_of(resource: Custom) -> dict[str, Any]:
    """Its status; empty before there is one."""
    return resource.status if isinstance(resource.status, dict) else {}


def phase_of(status: dict[str, Any]) -> str:
    phase = status.get("phase")
    return phase if isinstance(phase, str) else ""


def conditions_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [known for known in status.get("conditions") or () if isinstance(known, dict)]


def _line(status: dict[str, Any]) -> str:
    phase, conditions = phase_of(status), conditions_of(status)
    newest = conditions[-1] if conditions else {}
    reason, message = newest.get("reason") or "", newest.get("message") or ""
    why = f"{reason}: {message}" if reason and message else reason
    # `Running (TrainingJobRunning)` says the same thing twice.
    return f"{phase} ({why})" if phase and why and (message or phase not in reason) else phase
