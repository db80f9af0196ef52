"""What the strikes cost: from a strike to the first append of the new lease holder, and the log's silences."""

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from muster.stack import SERVICES
from tests.ha.oracles import Acknowledged
from tests.ha.run import Outcome
from tests.ha.strikes import NATS, How, Role, Strike, Struck

GOAL_SECONDS = 2.5


class Figure(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    taken: list[float]
    """Seconds, one a strike."""
    goal: float = 0.0
    """Seconds that 99 of 100 may take at most; 0 when there is none."""

    @property
    def missed(self) -> str:
        """A sentence when they took longer."""
        if not (self.goal and self.taken) or (p99 := percentile(self.taken, 99)) <= self.goal:
            return ""
        return f"missed: {self.what.strip('*')}: p99 {p99:.2f} s, and the goal is ≤ {self.goal} s"

    def row(self) -> str:
        goal = f"p99 ≤ {self.goal} s" if self.goal else ""
        if not self.taken:
            return f"| {self.what} | 0 |  |  |  | {goal} |"
        p50, p99 = percentile(self.taken, 50), percentile(self.taken, 99)
        return f"| {self.what} | {len(self.taken)} | {p50:.2f} s | {p99:.2f} s | {max(self.taken):.2f} s | {goal} |"


def percentile(taken: Sequence[float], per: int) -> float:
    """With so few as a hundred the 99th is next to the longest."""
    if len(taken) == 1:
        return taken[0]
    return statistics.quantiles(taken, n=100, method="inclusive")[per - 1]


def figures(outcomes: Sequence[Outcome]) -> list[Figure]:
    lines = [
        Figure(f"owner of the {service} killed → the standby's first append", _failovers(outcomes, "kill", service))
        for service in SERVICES
    ]
    lines.append(Figure("**all owners killed**", owners_killed(outcomes), GOAL_SECONDS))
    lines.append(Figure("of that until the standby has the lease", _takeovers(outcomes)))
    lines.append(Figure("of that with the lease and something to decide on", _decisions(outcomes)))
    paused = [gap for service in SERVICES for gap in _failovers(outcomes, "pause", service)]
    lines.append(Figure("owner stands still → the standby's first append", paused, GOAL_SECONDS))
    stopped = [gap for service in SERVICES for gap in _failovers(outcomes, "stop", service)]
    lines.append(Figure("owner is asked to stop (SIGTERM) → the standby's first append", stopped))
    without = "longest time without an acknowledged append"
    lines += [
        Figure(f"the log's leader killed: {without}", _silences(outcomes, "kill", "leader")),
        Figure(f"the server that keeps the leases killed: {without}", _silences(outcomes, "kill", "keeper")),
        Figure(f"another server of the log killed: {without}", _silences(outcomes, "kill", "follower")),
        Figure(f"the log's leader stands still: {without}", _silences(outcomes, "pause", "leader")),
        Figure(f"the log's leader is asked to stop: {without}", _silences(outcomes, "stop", "leader")),
    ]
    return lines


def owners_killed(outcomes: Sequence[Outcome]) -> list[float]:
    return [gap for service in SERVICES for gap in _failovers(outcomes, "kill", service)]


def _takeovers(outcomes: Sequence[Outcome]) -> list[float]:
    return [_acquired(outcome, one) - one.began for outcome, one in _owners_killed(outcomes)]


def _decisions(outcomes: Sequence[Outcome]) -> list[float]:
    """From then on, or from the event that asked for a decision later still; no event asks for a fact."""
    return [
        ack.at - max(_acquired(outcome, one), outcome.owed.get(ack.sequence, 0.0))
        for outcome, one in _owners_killed(outcomes)
        if (ack := _first(outcome.told, one)) is not None
    ]


def _owners_killed(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Struck]]:
    return [
        (outcome, one)
        for outcome in outcomes
        for one in outcome.struck
        if (one.strike.how, one.strike.role) == ("kill", "owner")
    ]


def slow(outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each owner that was killed and followed later than the goal: what it was that took so long."""
    found = []
    for outcome, one in _owners_killed(outcomes):
        taken = _appended(outcome, one) - one.began
        if taken > GOAL_SECONDS:
            during = [each for each in outcome.elections if 0 < each.at - one.began < taken]
            elected = ", ".join(f"{each.stream} after {each.at - one.began:.2f} s" for each in during)
            found.append(
                f"late: {one.name} was killed, and the first append came after {taken:.2f} s; "
                f"its lease was another's after {_acquired(outcome, one) - one.began:.2f} s, "
                f"all was well after {one.well - one.began:.2f} s; new leaders at NATS meanwhile: {elected or 'none'}"
            )
    return found


def _acquired(outcome: Outcome, one: Struck) -> float:
    return min((at for at, owner in _of_service(outcome, one) if owner and at > one.began), default=math.inf)


def _appended(outcome: Outcome, one: Struck) -> float:
    ack = _first(outcome.told, one)
    return ack.at if ack is not None else math.inf


def _of_service(outcome: Outcome, one: Struck) -> list[tuple[float, bool]]:
    return [moment for name, known in outcome.owners.items() if name.startswith(one.strike.service) for moment in known]


def table(lines: Sequence[Figure]) -> str:
    head = ["|  | strikes | p50 | p99 | longest | goal |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *(line.row() for line in lines)])


def summary(outcomes: Sequence[Outcome], over: int = 0) -> str:
    """What was done and what came of it, in a few sentences."""
    struck = [one for outcome in outcomes for one in outcome.struck]
    hows = {how: sum(one.strike.how == how for one in struck) for how in ("kill", "pause", "stop")}
    total = {
        name: sum(getattr(outcome, name) for outcome in outcomes) for name in ("jobs", "scaled", "events", "compared")
    }
    told = sum(len(outcome.told) for outcome in outcomes)
    late = [write for outcome in outcomes for _, written in outcome.late for write in written]
    faults = sum(len(outcome.faults) for outcome in outcomes)
    beside = f" beside {over:,} that were over" if over else ""
    return (
        f"{hows['kill']} kills, {hows['pause']} pauses of ten seconds and {hows['stop']} orderly stops "
        f"while {total['jobs']} jobs lived{beside}, with {total['scaled']} scalings: {total['events']:,} events, "
        f"{told:,} acknowledged appends in the logs of the services. "
        f"Faults of any kind: {faults}. "
        f"Statuses replayed from the log and identical: {total['compared']}. "
        f"Writes of a process that woke up and was not the owner: {len(late)}, "
        f"of them accepted by the API server: {sum(write.code < 300 for write in late)}."
    )


def _failovers(outcomes: Sequence[Outcome], how: How, service: str) -> list[float]:
    return [
        _appended(outcome, one) - one.began
        for outcome in outcomes
        for one in outcome.struck
        if (one.strike.how, one.strike.service, one.strike.role) == (how, service, "owner")
    ]


def _first(told: Sequence[Acknowledged], struck: Struck) -> Acknowledged | None:
    """The first append that the other replica, or the one that came up again, told of."""
    for ack in told[bisect_left(told, struck.began, key=lambda ack: ack.at) :]:
        if ack.author == struck.strike.service and (ack.replica != struck.name or ack.at >= struck.up):
            return ack
    return None


def _silences(outcomes: Sequence[Outcome], how: How, role: Role) -> list[float]:
    found = []
    for outcome in outcomes:
        for one in outcome.struck:
            if one.strike == Strike(how, NATS, role):
                during = [one.began, *(ack.at for ack in outcome.told if one.began <= ack.at <= one.well)]
                found.append(max(later - sooner for sooner, later in itertools.pairwise(during)))
    return found
