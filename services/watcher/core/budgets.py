"""Budgets: how many jobs, requests and events of a namespace the watcher records a minute.  Pure: "now" is an argument.

A fact beyond its budget waits for its turn and is then observed afresh, so that changes merge and none is lost.
Only facts that begin something wait.  A fact that ends something is free: the log has at most one for each beginning,
and for each slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from math import inf
from typing import Literal, get_args

import msgspec

from shared.job.events import watcher
from shared.job.events.catalog import Fact
from shared.job.naming import JobKey
from shared.job.spec import OVER_BUDGET, Problem, waits_for_turn
from shared.job.state import Job
from shared.job.views import PodView, ended, newest_versions

replace = msgspec.structs.replace

Budget = Literal["jobs", "requests", "events", "room"]
"""What a fact waits for: its share of a minute, or room in the log."""

BUDGETS: tuple[Budget, ...] = get_args(Budget)

JUDGED = (watcher.PodsObserved, watcher.ChildrenObserved, watcher.DisruptionNoticed, watcher.NodeLost, watcher.NodeBack)
"""What happens to pods and children decides whether a job or a request is in time."""

_JOB_WAITS = Problem(
    reason=OVER_BUDGET,
    message="the namespace has begun as many jobs within a minute as it may; this one waits for its turn",
)
_REQUEST_WAITS = Problem(
    reason=OVER_BUDGET,
    message="the namespace has made as many requests within a minute as it may; this one waits for its turn",
)


class PerMinute(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of each namespace; 0 sets no bound."""

    jobs: int = 3_000
    requests: int = 3_000
    events: int = 60_000


def budget_of(job: Job, fact: Fact) -> Budget | None:
    """The budget that pays for the fact; None if the fact is free."""
    match fact:
        case watcher.JobObserved(problems=problems) if not waits_for_turn(problems):
            return "jobs" if not job.resource.generation or waits_for_turn(job.resource.problems) else "events"
        case watcher.ScaleRequested(uid=uid):
            known = job.scaling.requests.get(uid)
            return "requests" if known is None or waits_for_turn(known.problems) else "events"
        case watcher.PodsObserved(pods=pods):
            return None if _ends_something(job, [pod for pod in pods if ended(pod)]) else "events"
        case watcher.JobDeleting() | watcher.JobGone() | watcher.LauncherLost() | watcher.PodsGone():
            return None
        case watcher.ChildGone() | watcher.ScaleRequestGone():
            return None
        case watcher.HistoryBroken() | watcher.HistoryAccepted():
            # Services must not act on a doubtful history, and a person ended that state.
            return None
        case _:
            return "events"


def _ends_something(job: Job, over: Collection[PodView]) -> bool:
    """True if a known pod ended, or the first pod of a slot that still waits for one: its end empties the slot."""
    if any(pod.uid in job.pods.views and not ended(job.pods.views[pod.uid]) for pod in over):
        return True
    fresh = [pod for pod in over if pod.uid not in job.pods.views and pod.slot in job.attempt.slots]
    newest = newest_versions(job.pods.views.values()) if fresh else {}
    return any(newest.get(pod.slot, 0) <= pod.version for pod in fresh)


class Budgets:
    """The budgets of all namespaces.  A new one is full: a minute's worth may come at once."""

    def __init__(self, per_minute: PerMinute) -> None:
        self._rates = {"jobs": per_minute.jobs, "requests": per_minute.requests, "events": per_minute.events}
        self._used: dict[tuple[str, Budget], tuple[float, float]] = {}
        """What each namespace has taken and promised, and when that was so; it falls by the rate."""
        self._places: dict[JobKey, dict[Budget, float]] = {}
        """When the turn of each job that waits comes."""
        self._paid: dict[JobKey, tuple[int, set[Budget]]] = {}
        """What each job has paid since its last recorded fact: an append that failed is not paid again."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        """How many jobs of each namespace wait."""

    def note_recorded(self, key: JobKey, recorded: int) -> None:
        """`recorded` is the sequence of the job's last fact: what was paid before a newer one is used up."""
        if key in self._paid and self._paid[key][0] != recorded:
            del self._paid[key]

    def wait(self, key: JobKey, budget: Budget, now: float, recorded: int = 0) -> float:
        """Seconds until the job's turn comes, first come, first served; 0 if it has come, and then it is used.

        The next fact after `recorded` pays once, however often its append fails.
        """
        rate = self._rates[budget]
        _, paid = self._paid.get(key, (recorded, ()))
        if not rate or budget in paid:
            return 0.0
        due = self._places.get(key, {}).get(budget)
        if due is None:
            used = self._take(key.namespace, budget, 1, now)
            due = now + max(used - rate, 0.0) * 60 / rate
            if due > now:
                self._enter(key, budget, due)
        if due > now:
            return due - now
        self._leave(key, budget)
        self._paid.setdefault(key, (recorded, set()))[1].add(budget)
        return 0.0

    def wait_for_room(self, key: JobKey) -> float:
        if "room" not in self._places.get(key, {}):
            self._enter(key, "room", inf)
        return inf

    def keep(self, key: JobKey, wanted: Collection[Budget], now: float) -> None:
        """The job wants only the `wanted` ones: turns and payments for others go back to its namespace."""
        for budget in [each for each in self._places.get(key, {}) if each not in wanted]:
            self._leave(key, budget)
            if budget != "room":
                self._take(key.namespace, budget, -1, now)
        _, paid = self._paid.get(key, (0, set[Budget]()))
        for budget in paid - {*wanted}:
            paid.remove(budget)
            self._take(key.namespace, budget, -1, now)
        if not paid:
            self._paid.pop(key, None)

    def _take(self, namespace: str, budget: Budget, number: int, now: float) -> float:
        if (namespace, budget) not in self._used:
            # Those that are full again are as good as new.
            self._used = {each: known for each, known in self._used.items() if self._in_use(each, now)}
        used = max(self._in_use((namespace, budget), now) + number, 0.0)
        self._used[namespace, budget] = used, now
        return used

    def _in_use(self, of: tuple[str, Budget], now: float) -> float:
        used, at = self._used.get(of, (0.0, now))
        return max(used - (now - at) * self._rates[of[1]] / 60, 0.0)

    def _enter(self, key: JobKey, budget: Budget, due: float) -> None:
        self._places.setdefault(key, {})[budget] = due
        self.waiting[key.namespace, budget] += 1

    def _leave(self, key: JobKey, budget: Budget) -> None:
        places = self._places.get(key, {})
        if places.pop(budget, None) is None:
            return
        if not places:
            del self._places[key]
        self.waiting[key.namespace, budget] -= 1
        if not self.waiting[key.namespace, budget]:
            del self.waiting[key.namespace, budget]


class Allowed(msgspec.Struct, frozen=True):
    """What may be recorded now."""

    facts: tuple[Fact, ...]
    """The first one is paid for; the others ask again in their turns."""
    seconds: float = 0.0
    """Until the turn of a fact that waits; 0 if none waits, and infinite while it waits for room in the log."""
    late: bool = False
    """True if one of them waits by which deadlines are judged."""


def allowed(
    job: Job, facts: Iterable[Fact], budgets: Budgets, now: float, *, recorded: int = 0, full: bool = False
) -> Allowed:
    """The facts that their budgets, and the room of a `full` log, allow; the others wait.

    `recorded` is the sequence of the job's last fact.
    A new job or request that waits is recorded in brief, as an event, so that its status says why.
    """
    found: list[Fact] = []
    seconds: list[float] = []
    late = False
    wanted: list[Budget] = []
    budgets.note_recorded(job.key, recorded)
    for fact in facts:
        budget = budget_of(job, fact)
        if budget is None:
            found.append(fact)
            continue
        wanted.append("room" if full else budget)
        if full:
            seconds.append(budgets.wait_for_room(job.key))
            late = late or isinstance(fact, JUDGED)
        elif found:
            found.append(fact)
        elif wait := budgets.wait(job.key, budget, now, recorded):
            seconds.append(wait)
            late = late or isinstance(fact, JUDGED)
            brief = _in_brief(job, fact, budget)
            if brief is not None:
                wanted.append("events")
                if longer := budgets.wait(job.key, "events", now, recorded):
                    seconds.append(longer)
                else:
                    found.append(brief)
        else:
            found.append(fact)
    budgets.keep(job.key, wanted, now)
    return Allowed(tuple(found), min(seconds, default=0.0), late)


def _in_brief(job: Job, fact: Fact, budget: Budget) -> Fact | None:
    """The fact that this job or request waits, until the log has it."""
    match fact:
        case watcher.JobObserved() if budget == "jobs" and _JOB_WAITS not in job.resource.problems:
            return replace(fact, spec=None, problems=(_JOB_WAITS,))
        case watcher.ScaleRequested(uid=uid) if budget == "requests" and uid not in job.scaling.requests:
            return replace(fact, spec=None, problems=(_REQUEST_WAITS,))
        case _:
            return None
