"""Budgets: how many bytes of a namespace the watcher records, a minute and in all.  Pure: "now" is an argument.

A fact beyond its budget waits for its turn and is then observed afresh, so that changes merge and none is lost.
Only facts that begin something wait.  A fact that ends something is free: the log has at most one for each beginning,
and for each slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import Literal, Self

import msgspec

from shared.job.events import watcher
from shared.job.events.catalog import Fact
from shared.job.fold import Use
from shared.job.naming import JobKey
from shared.job.spec import OVER_BUDGET, Problem, waits_for_turn
from shared.job.state import Job
from shared.job.views import PodView, ended, newest_versions

replace = msgspec.structs.replace

Budget = Literal["log", "memory", "total", "share", "room"]
"""What a fact waits for: its namespace's bytes of a minute, of memory, or of the log; or memory or room for all."""

JUDGED = (watcher.PodsObserved, watcher.ChildrenObserved, watcher.DisruptionNoticed, watcher.NodeLost, watcher.NodeBack)
"""What happens to pods and children decides whether a job or a request is in time."""

ENDS = (
    *(watcher.JobDeleting, watcher.JobGone, watcher.LauncherLost, watcher.PodsGone),
    *(watcher.ChildGone, watcher.ScaleRequestGone),
)

MIB = 2**20

ENVELOPE = 300
"""Bytes of an event in the log besides its body: subject, headers, framing."""

OF_A_JOB, OF_A_REQUEST = 4_000, 800
"""Bytes of the decisions that follow the first event of a job, and of a request."""

BRIEFS = 8
"""A namespace may have a part of a minute's bytes more, to be told of what waits: one in so many."""

TOLD = 1.1
"""So many times the budget of memory: beyond it what waits is not even recorded in brief."""

_WAITS: dict[Budget, Problem] = {
    "log": Problem(
        reason=OVER_BUDGET,
        message="the namespace has recorded as many bytes within a minute as it may; this one waits for its turn",
    ),
    "memory": Problem(
        reason=OVER_BUDGET,
        message="the services keep as many bytes of the namespace as they may; this one waits until jobs that are gone "
        "have left the log, other jobs and requests that wait are deleted, or MUSTER_NAMESPACE_MIB is raised",
    ),
    "total": Problem(
        reason=OVER_BUDGET,
        message="the services keep as many bytes of all namespaces as they may, of this one no less than of others; "
        "this one waits until jobs that are gone have left the log, or MUSTER_MEMORY_MIB is raised",
    ),
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of each namespace; 0 sets no bound."""

    per_minute: int = 16 * MIB
    """Bytes."""
    memory: int = 256 * MIB
    """Bytes that each service keeps."""
    total: int = 512 * MIB
    """Those of all namespaces together."""
    share: float = 0.5
    """The part of the log's room."""


class Standing(msgspec.Struct, frozen=True):
    """Which budgets of a namespace are met, besides that of a minute."""

    full: Literal["share", "room"] | None = None
    """Nothing that begins is recorded."""
    crowded: Literal["memory", "total"] | None = None
    """No new job and no new request is recorded, but in brief."""
    silent: bool = False
    """Nor that."""

    @property
    def stops(self) -> bool:
        return self.full is not None or self.crowded is not None


WITHIN = Standing()


class Memory(msgspec.Struct, frozen=True):
    """What a service keeps of all namespaces together."""

    used: int = 0
    namespaces: int = 1

    @classmethod
    def of(cls, uses: Iterable[Use]) -> Self:
        kept = [use.memory for use in uses if use.memory > 0]
        return cls(sum(kept), len(kept))


def parts_used(use: Use, limits: Limits, room: int, memory: Memory) -> dict[Budget, float]:
    """How much of its budgets a namespace has used; `room` is that of the log, 0 without a bound."""
    found: dict[Budget, float] = {}
    if limits.memory:
        found["memory"] = use.memory / limits.memory
    if limits.total:
        # A namespace with less than an equal part goes on: many others could not shut it out.
        found["total"] = min(memory.used, use.memory * memory.namespaces) / limits.total
    if limits.share and room:
        found["share"] = (use.log + use.sealed) / (limits.share * room)
    return found


def standing(parts: dict[Budget, float], *, reserved: bool) -> Standing:
    """The standing of a namespace that has used these parts; with `reserved` the rest of the log is for decisions."""
    own, total = parts.get("memory", 0.0), parts.get("total", 0.0)
    crowded: Literal["memory", "total"] | None = "memory" if own >= 1 else "total" if total >= 1 else None
    full: Literal["share", "room"] | None = "share" if parts.get("share", 0.0) >= 1 else None
    return Standing("room" if reserved else full, crowded, max(own, total) >= TOLD)


def is_free(job: Job, fact: Fact) -> bool:
    """True if no budget pays for the fact."""
    if isinstance(fact, watcher.PodsObserved):
        return _ends_something(job, [pod for pod in fact.pods if ended(pod)])
    # Services must not act on a doubtful history, and a person ended that state.
    return isinstance(fact, (*ENDS, watcher.HistoryBroken, watcher.HistoryAccepted))


def begins(job: Job, fact: Fact) -> bool:
    """True if the fact is a new job or request, or one whose turn comes."""
    match fact:
        case watcher.JobObserved(problems=problems) if not waits_for_turn(problems):
            return not job.resource.generation or waits_for_turn(job.resource.problems)
        case watcher.ScaleRequested(uid=uid):
            known = job.scaling.requests.get(uid)
            return known is None or waits_for_turn(known.problems)
        case _:
            return False


def cost(job: Job, fact: Fact) -> int:
    """The bytes in the log of the fact, and of what follows if it begins a job or a request."""
    follows = (OF_A_JOB if isinstance(fact, watcher.JobObserved) else OF_A_REQUEST) if begins(job, fact) else 0
    return len(msgspec.json.encode(fact)) + ENVELOPE + follows


def _ends_something(job: Job, over: Collection[PodView]) -> bool:
    """True if a known pod ended, or the first pod of a slot that still waits for one: its end empties the slot."""
    if any(pod.uid in job.pods.views and not ended(job.pods.views[pod.uid]) for pod in over):
        return True
    fresh = [pod for pod in over if pod.uid not in job.pods.views and pod.slot in job.attempt.slots]
    newest = newest_versions(job.pods.views.values()) if fresh else {}
    return any(newest.get(pod.slot, 0) <= pod.version for pod in fresh)


class Budgets:
    """The budgets of a minute of all namespaces.  A new one is full: a minute's worth may come at once."""

    def __init__(self, per_minute: int) -> None:
        self._rate = per_minute
        self._used: dict[tuple[str, bool], tuple[float, float]] = {}
        """What each namespace has taken and promised, in brief or not, and when that was so; it falls by the rate."""
        self._places: dict[JobKey, tuple[Budget, float, int]] = {}
        """The jobs that wait: for what, when their turn comes, and its cost."""
        self._paid: dict[JobKey, tuple[int, int]] = {}
        """What each job has paid since its last recorded fact: an append that failed is not paid again."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        """How many jobs of each namespace wait."""

    def note_recorded(self, key: JobKey, recorded: int) -> None:
        """`recorded` is the sequence of the job's last fact: what was paid before a newer one is used up."""
        if key in self._paid and self._paid[key][0] != recorded:
            del self._paid[key]

    def wait(self, key: JobKey, cost: int, now: float, recorded: int = 0) -> float:
        """Seconds until the job's turn comes, first come, first served; 0 if it has come, and then it is used.

        The next fact after `recorded` pays once, however often its append fails.
        """
        if not self._rate or key in self._paid:
            return 0.0
        budget, due, promised = self._places.get(key, ("", now, 0))
        if budget != "log":
            self._leave(key)
            promised = cost
            used = self._take(key.namespace, cost, now)
            due = now + max(used - self._rate, 0.0) * 60 / self._rate
            if due > now:
                self._enter(key, "log", due, cost)
        if due > now:
            return due - now
        self._leave(key)
        self._paid[key] = recorded, promised
        return 0.0

    def may_tell(self, namespace: str, cost: int, now: float) -> bool:
        """True if a record in brief fits into what a namespace has for such; then it is used."""
        rate = self._rate / BRIEFS
        if rate and self._in_use((namespace, True), now) + cost > max(rate, cost):
            return False
        self._take(namespace, cost, now, brief=True)
        return True

    def wait_for_room(self, key: JobKey, budget: Budget, now: float) -> float:
        if self._places.get(key, ("",))[0] != budget:
            self._give_back(key, now)
            self._enter(key, budget, inf, 0)
        return inf

    def stopped(self) -> Iterator[JobKey]:
        """The jobs that wait until their namespace has fewer bytes."""
        return (key for key, (budget, _, _) in [*self._places.items()] if budget in ("memory", "total", "share"))

    def keep(self, key: JobKey, *, waits: bool, pays: bool, now: float) -> None:
        """The turn of a job that does not wait, and the payment of one that records nothing, go to its namespace."""
        if not waits:
            self._give_back(key, now)
        if not pays and key in self._paid:
            _, paid = self._paid.pop(key)
            self._take(key.namespace, -paid, now)

    def forget(self, key: JobKey) -> None:
        self._leave(key)
        self._paid.pop(key, None)

    def _give_back(self, key: JobKey, now: float) -> None:
        promised = self._leave(key)
        if promised:
            self._take(key.namespace, -promised, now)

    def _take(self, namespace: str, cost: int, now: float, *, brief: bool = False) -> float:
        if (namespace, brief) not in self._used:
            # Those that are full again are as good as new.
            self._used = {each: known for each, known in self._used.items() if self._in_use(each, now)}
        used = max(self._in_use((namespace, brief), now) + cost, 0.0)
        self._used[namespace, brief] = used, now
        return used

    def _in_use(self, of: tuple[str, bool], now: float) -> float:
        used, at = self._used.get(of, (0.0, now))
        return max(used - (now - at) * self._rate / (BRIEFS if of[1] else 1) / 60, 0.0)

    def _enter(self, key: JobKey, budget: Budget, due: float, cost: int) -> None:
        self._places[key] = budget, due, cost
        self.waiting[key.namespace, budget] += 1

    def _leave(self, key: JobKey) -> int:
        """What the job was to pay."""
        if (place := self._places.pop(key, None)) is None:
            return 0
        budget, _, promised = place
        self.waiting[key.namespace, budget] -= 1
        if not self.waiting[key.namespace, budget]:
            del self.waiting[key.namespace, budget]
        return promised


class Allowed(msgspec.Struct, frozen=True):
    """What may be recorded now."""

    facts: tuple[Fact, ...]
    """The first one is paid for; the others ask again in their turns."""
    seconds: float = 0.0
    """Until the turn of a fact that waits; 0 if none waits, and infinite while it waits for room in the log."""
    late: bool = False
    """True if one of them waits by which deadlines are judged."""


def allowed(
    job: Job, facts: Iterable[Fact], budgets: Budgets, now: float, *, recorded: int = 0, met: Standing = WITHIN
) -> Allowed:
    """The facts that their budgets, and those that the namespace has `met`, allow; the others wait.

    `recorded` is the sequence of the job's last fact.
    A new job or request that waits is recorded in brief, so that its status says why.
    """
    found: list[Fact] = []
    seconds: list[float] = []
    late = pays = False
    budgets.note_recorded(job.key, recorded)
    for fact in facts:
        if is_free(job, fact):
            found.append(fact)
            continue
        stop: Budget | None = met.full or (met.crowded if begins(job, fact) else None)
        if stop:
            wait = budgets.wait_for_room(job.key, stop, now)
        else:
            wait = budgets.wait(job.key, cost(job, fact), now, recorded) if not found else 0.0
        if not wait:
            found.append(fact)
            pays = True
            continue
        seconds.append(wait)
        late = late or isinstance(fact, JUDGED)
        brief = _in_brief(job, fact, stop or "log") if not (met.full or met.silent) else None
        if brief is not None and budgets.may_tell(job.key.namespace, cost(job, brief), now):
            found.append(brief)
    budgets.keep(job.key, waits=bool(seconds), pays=pays, now=now)
    return Allowed(tuple(found), min(seconds, default=0.0), late)


def _in_brief(job: Job, fact: Fact, budget: Budget) -> Fact | None:
    """The fact that this job or request waits, until the log has it."""
    if not begins(job, fact):
        return None
    match fact:
        case watcher.JobObserved() if _WAITS[budget] not in job.resource.problems:
            return replace(fact, spec=None, problems=(_WAITS[budget],))
        case watcher.ScaleRequested(uid=uid) if uid not in job.scaling.requests:
            return replace(fact, spec=None, problems=(_WAITS[budget],))
        case _:
            return None
