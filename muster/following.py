"""Waits for the outcome of a change: tells each step of the object, up to a timeout.

Exit codes of all commands: 0 done, 1 refused or failed, 2 wrong usage, 3 waited too long, 130 Ctrl-C.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from time import monotonic
from typing import Any

import msgspec

from muster.terminal import say
from shared.cluster import Blind, Cluster
from shared.cluster.objects import Custom
from shared.errors import Refused, Transient
from shared.job.reasons import of_request
from shared.job.spec import TURNS
from shared.telling.targets import Target

WELL = ("Created", "Running", "Scaling", "Succeeded")
"""Phases of which a condition's own reason and message say no more."""
LOOK_SECONDS = 0.5
"""Seconds between two looks at first; four times as many once it was waited for long."""
LONGER_AFTER_SECONDS = 15.0
"""Seconds of waiting after each of which the time between two looks grows by `LOOK_SECONDS`."""
WATCHED_SECONDS = 5.0
"""Seconds between two looks while a watch tells of each change: for the lines about silence alone."""

PATIENCE_SECONDS = 10.0
"""Seconds without a change after which a line says so."""

LASTING_SECONDS = 2.0
"""Seconds that an answer has to last if the status names no generation: Muster acts far sooner."""

WAITED_TOO_LONG = 3

ONLY_THE_WAITING = "only the waiting ended; what was asked for goes on"

Answer = Callable[[dict[str, Any]], bool | None]
"""The answer of a status: True for done, False for failed, None to go on waiting."""


Tell = Callable[[str], None]
"""Called with each line that a person may want to read."""


class Failed(Refused):
    """The job ended otherwise than it was waited for, or what was asked of it failed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="Failed")


class WaitedTooLong(Transient):
    """Only the waiting ended; what was asked for goes on."""


class Change(msgspec.Struct, frozen=True):
    """What was asked of a job or of a request, and how its outcome is known."""

    target: Target
    said: str
    """A line about it."""
    asked: Custom | None = None
    """The object right after the write; None if there is nothing to wait for."""
    answer: Answer = lambda _: True
    lasting: float = 0.0
    """Seconds that an answer has to last."""


def by_phase(target: Target, answers: Mapping[str, bool]) -> Answer:
    """The answer of the phase that a status shows; in any other phase there is none yet."""
    return lambda status: answers.get(target.phase(status))


def warn(line: str) -> None:
    """Print a line on standard error."""
    say(line, err=True)


async def carried_out(cluster: Cluster, asking: Awaitable[Change], *, wait: bool, timeout: float) -> None:
    """Ask for a change; print what was asked for, and each phase until it is done, for a command.

    Raises as `follow` does.
    """
    change = await asking
    say(change.said)
    if not wait or change.asked is None:
        return
    try:
        await follow(cluster, change, timeout=timeout, tell=say, trouble=warn)
    except asyncio.CancelledError:
        warn(f"\nmuster: {ONLY_THE_WAITING}")
        raise


async def follow(cluster: Cluster, change: Change, *, timeout: float, tell: Tell, trouble: Tell) -> Custom:
    """The object once there is an answer; `tell` is called with each phase.

    A status of an older generation is no answer.  If the status names no generation, an answer counts once it has been
    the same for `lasting` seconds.
    Raises `Failed` if the change failed, `Refused` if the object is gone or its spec is not carried out, and
    `WaitedTooLong` after `timeout` seconds; 0 waits for ever.
    """
    assert change.asked is not None, change.said
    seen = [change.asked]
    try:
        async with asyncio.timeout(timeout or None), _news(cluster, change.target, change.asked) as news:
            return await _answered(cluster, change, change.asked, seen, news, tell, trouble)
    except TimeoutError as late:
        now = _waits(change.target, status_of(seen[-1]))
        words = f"waited {timeout:g} s for {change.target.label}{f': it is {now}' if now else ''}; {ONLY_THE_WAITING}"
        raise WaitedTooLong(words) from late


async def _answered(
    cluster: Cluster, change: Change, asked: Custom, seen: list[Custom], news: "_News", tell: Tell, trouble: Tell
) -> Custom:
    """As `follow`; the newest object is the last of `seen`."""
    target = change.target
    shown, warned, began, before, since = "", False, monotonic(), None, 0.0
    first = began
    while True:
        # A change from here on is after the look, or seen by it.
        news.changed.clear()
        found, away = await _look(cluster, target, asked, trouble)
        seen[:] = [found]
        status = status_of(found)
        now = monotonic()
        if away:
            began = now
        line = _line(target, status)
        if line != shown:
            tell(f"{target.label} {line}")
            shown = line
        done = None if older(status, asked) else change.answer(status)
        if done != before:
            before, since = done, now
        if done is not None and now - since >= change.lasting:
            if not done:
                raise Failed(f"{target.label} is {line}")
            return found
        if problem := _problem(target, status, asked):
            raise Refused(f"{target.label} is not carried out as it is written now: {problem}", reason="Invalid")
        if status == status_of(asked) and now - began > PATIENCE_SECONDS and not warned:
            warned = True
            said = _silence(target, status, asked)
            trouble(f"{said} It is still waited for; Ctrl-C ends only the waiting")
        watched = news.watched and done is None
        await news.within(WATCHED_SECONDS if watched else between_looks(now - first))


class _News:
    """Whether an object changed, as a watch tells it: a look at it is due."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.watched = False
        """False while the watch is broken, or not permitted: changes are found by looking alone."""

    async def within(self, seconds: float) -> None:
        """Wait for a change, at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return

    async def follow(self, cluster: Cluster, target: Target, asked: Custom) -> None:
        """Watch the object for ever."""
        watch = cluster.watch(target.resource, namespace=asked.metadata.namespace, name=target.name)
        try:
            async with aclosing(watch) as seen:
                async for each in seen:
                    self.watched = not isinstance(each, Blind)
                    self.changed.set()
        finally:
            self.watched = False


@asynccontextmanager
async def _news(cluster: Cluster, target: Target, asked: Custom) -> AsyncIterator[_News]:
    news = _News()
    watching = asyncio.create_task(news.follow(cluster, target, asked))
    try:
        yield news
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def between_looks(waited: float) -> float:
    """Seconds until the next look, after so many seconds of waiting."""
    return LOOK_SECONDS * min(1 + waited // LONGER_AFTER_SECONDS, 4)


async def _look(cluster: Cluster, target: Target, asked: Custom, trouble: Tell) -> tuple[Custom, bool]:
    """The object, and True if it took more than one try; an outage and its end are a line each."""
    away = False
    while True:
        try:
            found = await cluster.get(target.resource, asked.metadata.namespace, target.name)
        except Transient as error:
            if not away:
                trouble(f"the API server cannot be reached, still trying: {error}")
            away = True
            await asyncio.sleep(LOOK_SECONDS)
            continue
        if away:
            trouble("the API server answers again")
        if found is None or found.metadata.uid != asked.metadata.uid:
            words = f"{target.resource.kind} {asked.metadata.namespace}/{target.name} was deleted meanwhile"
            raise Refused(words, reason="NotFound")
        return found, away


def _silence(target: Target, status: dict[str, Any], asked: Custom) -> str:
    """The line about a status that has not changed since the command's write."""
    if target.phase(status) in ("Created", "Restarting") and not older(status, asked):
        # While old pods end and new ones start, the status may stay the same.
        return f"nothing of it changed for {PATIENCE_SECONDS:.0f} s; `muster why` says what it waits for."
    return f"no Muster service seems to have looked at it for {PATIENCE_SECONDS:.0f} s; `muster doctor` says why."


def _problem(target: Target, status: dict[str, Any], asked: Custom) -> str:
    """Why the services do not act on the present spec; empty if they do."""
    created, failed = condition_of(status, "Created"), condition_of(status, "Failed")
    # Some kinds show a job that was never admitted as one that failed.
    refused = failed if failed and not target.phase(status) else created
    fine = not refused or (refused is created and str(created.get("reason") or "").startswith(target.resource.kind))
    fine = fine or refused.get("reason") in TURNS
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
    if newest.get("type") in ("Created", "Running") and why.startswith(target.resource.kind):
        # Its message is the phase once more, or what the job lacks.
        why = str(newest.get("message") or why)
    # `Running (PyTorchJobRunning: PyTorchJob default/train runs)` says the same thing three times.
    plain = phase in WELL and why.startswith(target.resource.kind)
    return (
        f"{phase} ({why})" if phase and why and not plain and (why != newest["reason"] or phase not in why) else phase
    )


def _waits(target: Target, status: dict[str, Any]) -> str:
    """The phase, and what is not there yet with its reason: `Created; Unschedulable: worker-1: no node fits`."""
    missing = [_because(known) for known in _conditions(status) if known.get("status") == "False"]
    told = [words for words in missing if ": " in words]
    return f"{target.phase(status)}; {told[-1]}" if told else _line(target, status)


def _because(condition: dict[str, Any]) -> str:
    """`AboveMaximum: 5 workers would be more than maxReplicas (4)`."""
    reason = str(condition.get("reason") or "")
    message = condition.get("message") or (of_request(reason) if condition.get("type") == "Pending" else "")
    return f"{reason}: {message}" if reason and message else reason
