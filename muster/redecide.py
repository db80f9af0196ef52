"""Decides a history again: at each decision's basis, what this release would decide, or this release with a setting.

Pure.  A decision is a function of the events up to its basis and of a few settings.  A timer that expired is compared
with the timers of this release, by the times of the log.  What services observed is taken as it was recorded.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

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
from shared.job.timers import SEAL, WELL
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


class Difference(msgspec.Struct, frozen=True):
    """A decision or a timer that this release would not record, or not then."""

    sequence: int
    """Of the event that is recorded; of the last one before, where none is."""
    author: str
    recorded: AnyEvent | None
    decides: AnyEvent | None
    why: str = ""
    """How a timer differs, or that something came late."""
    release: str = ""
    """Of the service that recorded it, with its settings, as `Decided.release`."""

    def __str__(self) -> str:
        decides = self.why or f"this release decides {_words(self.decides, self.recorded)}"
        author = f"{self.author} ({self.release})" if self.release else self.author
        return f"at {self.sequence} {author} recorded {_words(self.recorded, self.decides)}; {decides}"


class Redecided(msgspec.Struct, frozen=True):
    """What became of the decisions of a history."""

    events: int
    same: int
    differences: tuple[Difference, ...]
    obstacles: dict[str, int]
    """How many decisions could not be decided again, by reason; and how many histories are on hold from some event."""
    late: tuple[Difference, ...]
    """What came later than by this release: it may be sooner now, or its author was away."""
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
        self._late: list[Difference] = []
        self._obstacles: Counter[str] = Counter()

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
            self._decision(decision, history)

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
        try:
            steps = self._deciders[author](job) if self._kinds.knows(job) else []
        except Exception:  # noqa: BLE001  the service would hold this job
            self._obstacles["a broken invariant"] += 1
            return None
        return next((step.event for step in steps if isinstance(step, Record)), None)

    def _silence(self, after: int, job: Job, until: str) -> None:
        """Note which services decided nothing after an event for long, where this release does."""
        seconds = seconds_between(self._times[after], until) or 0.0
        if seconds < QUIET_SECONDS:
            return
        for author in self._deciders:
            if author not in self._waiting.get(after, {}) and (event := self._decided(author, job)) is not None:
                why = f"this release decides {_words(event, None)}, and {author} waited {seconds:g} s or was away"
                self._late.append(Difference(after, author, None, event, why))

    def _decision(self, decision: Stored, history: History) -> None:
        _, author, tag = split(decision.subject)
        try:
            recorded = read_event(decision.body, tag)
        except (UnknownEvent, Malformed):
            recorded = None
        if not isinstance(recorded, Decided) or author not in self._deciders:
            self._obstacles["not readable"] += 1
        elif not self._kinds.knows(history.job):
            self._obstacles["the kind is not known here"] += 1
        elif not history.held:
            release = recorded.release
            if author == "scaler":
                try:
                    named = settings_of(release.split()[1:])
                except ValueError:
                    self._obstacles["settings that do not decide here"] += 1
                    return
                self._policy = policy_of(tuple((named | dict(self._settings)).items()))
            decides = self._decided(author, history.job)
            recorded = msgspec.structs.replace(recorded, because=0, slot=None, release="")
            if decides == recorded:
                self._same += 1
            else:
                self._differences.append(Difference(decision.sequence, author, recorded, decides, release=release))

    def _timer(self, stored: Stored, recent: Iterable[Job]) -> None:
        """Compare a timer with those that run by this release; `recent` are the states before it expired."""
        try:
            event = read_event(stored.body, "TimePassed")
        except Malformed:
            return
        assert isinstance(event, TimePassed), event
        if event.timer == SEAL or event.timer.startswith(WELL):
            # The watcher's own: by whether the installation seals, and by pods as only its cache has them.
            return
        running = (timer for job in recent for timer in next_due(job))
        timer = next((each for each in running if (each.anchor, each.name) == (event.anchor, event.timer)), None)
        why, late = "this release has no such timer", False
        if timer is not None:
            took = seconds_between(timer.since or self._times.get(timer.anchor, ""), stored.time) or 0.0
            late = took > timer.seconds + TOLERANCE_SECONDS
            why = f"this release waits {timer.seconds} s, and {took:g} s had passed"
            if late:
                why += ", or the watcher was away"
            elif took >= timer.seconds - TOLERANCE_SECONDS:
                why = ""
        self._same += late or not why
        if why:
            (self._late if late else self._differences).append(Difference(stored.sequence, "watcher", event, None, why))


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
        made = Settings(**{name.removeprefix("MUSTER_").lower(): value for name, value in given.items()})
    except ValidationError as error:
        raise ValueError(complaint(error)) from error
    return Policy.of(made.drain, commands=made.exec)


def _words(event: AnyEvent | None, other: AnyEvent | None) -> str:
    """The type of a decision, and its details or, beside another one of its type, the fields that differ."""
    if event is None:
        return "nothing"
    kind = type(event).__name__
    if type(event) is not type(other):
        return f"{kind}  {details(event)}".rstrip()
    fields = (each.name for each in msgspec.structs.fields(event))
    differ = (f"{name}={getattr(event, name)}" for name in fields if getattr(event, name) != getattr(other, name))
    return "  ".join([kind, *differ])
