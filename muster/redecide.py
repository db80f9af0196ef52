"""Decides a history again: at each decision's basis, what this release would decide, or this release with a setting.

Pure.  A decision is a function of the events up to its basis and of a few settings.  A timer that expired is compared
with the timers of this release, by the times of the log.  What services observed is taken as it was recorded.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import msgspec
from pydantic import ValidationError

from services.scaler.core import Policy
from services.scaler.core.decide import decide as scaler
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from shared.eventlog import Stored
from shared.eventlog.subject import is_decision, split
from shared.frameworks.kinds import Kinds
from shared.job.events.catalog import AnyEvent, Malformed, UnknownEvent, read_event
from shared.job.events.event import Decided
from shared.job.events.watcher import TimePassed
from shared.job.fold import Histories, History
from shared.job.naming import JobKey
from shared.job.state import Job
from shared.job.steps import Record, Step
from shared.job.timing import next_due
from shared.process.settings import DECIDING, Settings, complaint
from shared.telemetry.metrics import seconds_between
from shared.telling.reading import is_seal
from shared.telling.words import details
from shared.untrusted import whole_number

RECENT = 8
"""A timer counts as running if it ran after one of so many events: the watcher may not have folded the last ones."""
TOLERANCE_SECONDS = 2.0
"""The clocks of the log and of the watcher differ by at most this much."""
QUIET_SECONDS = 5.0
"""A service that decides nothing for so long after an event waits, unless it is away."""

Decide = Callable[[Job], list[Step]]

Obstacle = Literal[
    "the history is on hold",
    "the kind is not known here",
    "not readable",
    "no basis",
    "settings that do not decide here",
]
"""Why a decision cannot be decided again: its basis is no event of this history, or this release cannot read it."""


class Difference(msgspec.Struct, frozen=True):
    """A decision or a timer that this release would not record."""

    sequence: int
    basis: int
    author: str
    recorded: AnyEvent
    decides: AnyEvent | None
    """None if it waits."""
    release: str = ""
    """Of the service that recorded it, with its settings, as `Decided.release`."""
    why: str = ""
    """Of a timer, how it differs."""

    def __str__(self) -> str:
        decides = self.why or "decides " + (_words(self.decides, self.recorded) if self.decides else "nothing")
        recorded = _words(self.recorded, self.decides)
        author = f"{self.author} ({self.release})" if self.release else self.author
        return f"at {self.sequence} {author} recorded {recorded}; this release {decides}"


class Late(msgspec.Struct, frozen=True):
    """A decision or a timer that came later than by this release: it may be sooner now, or its author was away."""

    after: int
    author: str
    seconds: float
    decides: AnyEvent

    def __str__(self) -> str:
        decides = f"this release decides {_words(self.decides, None)}"
        return f"after {self.after} {self.author} waited {self.seconds:g} s, or was away; {decides}"


class Redecided(msgspec.Struct, frozen=True):
    """What became of the decisions of a history."""

    events: int
    same: int
    differences: tuple[Difference, ...]
    obstacles: dict[Obstacle, int]
    """How many decisions could not be decided again, by reason; and how many histories are on hold from some event."""
    late: tuple[Late, ...]
    next: dict[str, AnyEvent]
    """What each service decides after the last event."""

    def lines(self) -> Iterator[str]:
        yield from map(str, (*self.differences, *self.late))
        last = f"{self.events} events; decisions and timers the same: {self.same}, different: {len(self.differences)}"
        more = [f"not decided again, {why}: {count}" for why, count in self.obstacles.items()]
        more += [f"later than now: {len(self.late)}"] if self.late else []
        more += [f"{author} decides next: {_words(event, None)}" for author, event in self.next.items()]
        yield "; ".join([last, *more])

    @property
    def whole(self) -> bool:
        """True if every decision was decided again and is the same."""
        return not self.differences and not self.obstacles


def redecide(events: Sequence[Stored], kinds: Kinds, settings: Mapping[str, str] | None = None) -> Redecided:
    """Decide again at each basis, with the settings that each decision names and these instead."""
    again = _Again(events, kinds, settings or {})
    for stored in events:
        again.fold(stored)
    return again.outcome()


class _Again:
    """One fold over the events of some jobs, which decides at each basis."""

    def __init__(self, events: Sequence[Stored], kinds: Kinds, settings: Mapping[str, str]) -> None:
        self._count = len(events)
        self._kinds = kinds
        self._settings = settings
        self._policy = policy_of(tuple(settings.items()))
        """By the newest decision of the scaler."""
        self._deciders: dict[str, Decide] = {
            "scheduler": scheduler,
            "scaler": lambda job: scaler(job, self._policy),
            "status": lambda job: status(job, kinds),
        }
        self._waiting: defaultdict[int, dict[str, Stored]] = defaultdict(dict)
        """The decisions by basis and author; a reader holds a history with two on one basis."""
        for stored in events:
            # A seal says how long the history is, and `replay --verify` asks whether that is so.
            if is_decision(stored.subject) and not is_seal(stored):
                at = whole_number(stored.basis.partition(":")[0]) or 0
                self._waiting[at].setdefault(split(stored.subject)[1], stored)
        self._histories = Histories()
        self._recent: defaultdict[JobKey, deque[tuple[int, Job]]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._times: dict[int, str] = {}
        self._same = 0
        self._differences: list[Difference] = []
        self._late: list[Late] = []
        self._obstacles: Counter[Obstacle] = Counter()

    def fold(self, stored: Stored) -> None:
        self._times[stored.sequence] = stored.time
        history = self._histories.fold(stored)
        if history is None or history.sequence != stored.sequence:
            # Of no job, or for people alone.
            return
        recent = self._recent[history.job.key]
        if recent and not history.held:
            self._silence(*recent[-1], stored.time)
        if stored.subject.endswith(".watcher.TimePassed"):
            self._timer(stored, [job for _, job in recent])
        recent.append((stored.sequence, history.job))
        for decision in self._waiting.get(stored.sequence, {}).values():
            self._decision(decision, stored.sequence, history)

    def outcome(self) -> Redecided:
        if left := sum(len(decisions) for at, decisions in self._waiting.items() if at not in self._times):
            self._obstacles["no basis"] += left
        if held := sum(bool(history.held) for history in self._histories):
            self._obstacles["the history is on hold"] += held
        differences = tuple(sorted(self._differences, key=lambda each: each.sequence))
        following = {
            author: event
            for history in self._histories
            if not history.held
            for author in self._deciders
            if (event := self._decided(author, history.job)) is not None
        }
        return Redecided(self._count, self._same, differences, dict(self._obstacles), tuple(self._late), following)

    def _decided(self, author: str, job: Job) -> AnyEvent | None:
        """What the service records first, as its process does; None if it waits."""
        steps = self._deciders[author](job) if self._kinds.knows(job) else ()
        return next((step.event for step in steps if isinstance(step, Record)), None)

    def _silence(self, after: int, job: Job, until: str) -> None:
        """Note which services decided nothing after an event for long, where this release does."""
        seconds = seconds_between(self._times[after], until) or 0.0
        if seconds < QUIET_SECONDS:
            return
        for author in self._deciders:
            if author not in self._waiting.get(after, {}) and (event := self._decided(author, job)) is not None:
                self._late.append(Late(after, author, seconds, event))

    def _decision(self, decision: Stored, basis: int, history: History) -> None:
        _, author, tag = split(decision.subject)
        try:
            recorded = read_event(decision.body, tag)
        except (UnknownEvent, Malformed):
            recorded = None
        if recorded is None or author not in self._deciders:
            self._obstacles["not readable"] += 1
        elif not self._kinds.knows(history.job):
            self._obstacles["the kind is not known here"] += 1
        elif not history.held:
            release = recorded.release if isinstance(recorded, Decided) else ""
            if author == "scaler":
                try:
                    named = settings_of(release.split()[1:])
                except ValueError:
                    self._obstacles["settings that do not decide here"] += 1
                    return
                self._policy = policy_of(tuple((named | dict(self._settings)).items()))
            decides = self._decided(author, history.job)
            recorded = _bare(recorded)
            if decides == recorded:
                self._same += 1
            else:
                self._differences.append(Difference(decision.sequence, basis, author, recorded, decides, release))

    def _timer(self, stored: Stored, recent: Iterable[Job]) -> None:
        """Compare a timer with those that run by this release; `recent` are the states before it expired."""
        try:
            event = read_event(stored.body, "TimePassed")
        except Malformed:
            return
        assert isinstance(event, TimePassed), event
        running = (timer for job in recent for timer in next_due(job))
        timer = next((each for each in running if (each.anchor, each.name) == (event.anchor, event.timer)), None)
        missing = Difference(stored.sequence, 0, "watcher", event, None, "has no such timer")
        if timer is None:
            self._differences.append(missing)
            return
        took = seconds_between(timer.since or self._times.get(timer.anchor, ""), stored.time)
        if took is not None and took < timer.seconds - TOLERANCE_SECONDS:
            why = f"waits {timer.seconds} s, and {took:g} s had passed"
            self._differences.append(msgspec.structs.replace(missing, why=why))
            return
        self._same += 1
        if took is not None and took > timer.seconds + TOLERANCE_SECONDS:
            self._late.append(Late(timer.anchor, "watcher", took, event))


def _bare(event: AnyEvent) -> AnyEvent:
    """The decision without what made it and who decided."""
    return msgspec.structs.replace(event, because=0, slot=None, release="") if isinstance(event, Decided) else event


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """The settings of some `SETTING=VALUE`s.  Raises `ValueError` for others than those that decide."""
    found = {name: value for name, _, value in (words.partition("=") for words in given)}
    policy_of(tuple(found.items()))
    return found


@cache
def policy_of(settings: tuple[tuple[str, str], ...]) -> Policy:
    """The scaler's policy with these settings.  Raises `ValueError` for others and for bad values."""
    if others := [name for name, _ in settings if name not in DECIDING]:
        raise ValueError(f"{', '.join(others)} changes no decision; the settings that do: {', '.join(DECIDING)}")
    try:
        given: dict[str, Any] = {**DECIDING, **dict(settings)}
        return Policy.of(Settings(**{name.removeprefix("MUSTER_").lower(): value for name, value in given.items()}))
    except ValidationError as error:
        raise ValueError(complaint(error)) from error


def _words(event: AnyEvent, other: AnyEvent | None) -> str:
    """The type of a decision, and its details or, beside another one of its type, the fields that differ."""
    kind = type(event).__name__
    if type(event) is not type(other):
        return f"{kind}  {details(event)}".rstrip()
    fields = (each.name for each in msgspec.structs.fields(event))
    differ = (f"{name}={getattr(event, name)}" for name in fields if getattr(event, name) != getattr(other, name))
    return "  ".join([kind, *differ])
