"""The metrics of one process: effects, appends, and how long they take.  They begin anew with the process."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import Conflict, Refused, Transient
from shared.eventlog import Batch, Stored
from shared.job.events.event import Author
from shared.job.steps import Effect
from shared.telemetry.metrics import Count, Histogram, Metric, Series, seconds_between

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: from an append to a fast disk to an API call that nearly timed out."""

EFFECTS = Metric(
    "muster_effects_total",
    "counter",
    ("service", "effect", "outcome"),
    "Effects by how they ended: Succeeded, Refused, Retried, Failed",
)
EFFECT_SECONDS = Metric(
    "muster_effect_duration_seconds",
    "histogram",
    ("service", "effect"),
    "How long an effect took, waiting for its turn included",
    QUICK,
)
APPENDS = Metric(
    "muster_appends_total",
    "counter",
    ("service", "outcome"),
    "Appends by how they ended: Stored, Conflict (something newer was there), Retried, Refused",
)
APPEND_SECONDS = Metric(
    "muster_append_duration_seconds",
    "histogram",
    ("service",),
    "How long an append took that was stored, waiting for its turn included",
    QUICK,
)
DECISION_SECONDS = Metric(
    "muster_decision_latency_seconds",
    "histogram",
    ("service",),
    "From the last event of a job to the decision that was taken on it and stored",
    QUICK,
)
LATE = Metric(
    "muster_facts_after_seal_total",
    "counter",
    ("service", "type"),
    "Facts that came after their job's seal; they change nothing",
)
REQUESTS = Metric(
    "muster_kubernetes_requests_total",
    "counter",
    ("service", "method", "code"),
    "Requests to the API server; the code is `error` where no answer came",
)
REPORTS = Metric("muster_progress_reports_total", "counter", ("code",), "Reports of training programs, by HTTP status")


class ProcessMetrics:
    def __init__(self, service: Author) -> None:
        self._service = service
        self._effects, self._effect_seconds = Count(EFFECTS), Histogram(EFFECT_SECONDS)
        self._appends, self._append_seconds = Count(APPENDS), Histogram(APPEND_SECONDS)
        self._decision_seconds = Histogram(DECISION_SECONDS)
        self._requests = Count(REQUESTS)
        self._reports = Count(REPORTS)
        self._late = Count(LATE)
        self.series: tuple[Series, ...] = tuple(each for each in vars(self).values() if isinstance(each, Series))
        """Every metric above."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        """How many jobs of each namespace wait for each budget, or for room in the log; the watcher's alone."""
        self.outside: dict[str, int] = {}
        """How many jobs of each namespace do not begin, as Muster does not work there; the watcher's alone."""
        self.used: dict[tuple[str, str], float] = {}
        """The part of each budget that each namespace has used; the watcher's alone."""
        self.anchor: str | None = None
        """Why the log does not lead to its anchor, empty if it does; the status service's alone, once it has looked."""
        self._last_read = ""
        """The time of the last event read."""
        self.pending = 0
        """How many later events the log held when the last one was read."""
        self.effects_in_flight = 0
        for outcome in ("Stored", "Conflict", "Retried", "Refused"):
            self._appends.add(service, outcome, by=0)

    @contextmanager
    def effect(self, effect: Effect) -> Iterator[None]:
        """Count one effect that is carried out in this context; what it raises says how it ended."""
        kind, loop = type(effect).__name__, asyncio.get_running_loop()
        begun, outcome = loop.time(), ""
        self.effects_in_flight += 1
        try:
            yield
            outcome = "Succeeded"
        except Refused:
            outcome = "Refused"
            raise
        except (Transient, Conflict) as trouble:
            # With a reason it is about this object alone, such as a name that is held, and the job is told of it.
            outcome = "Refused" if isinstance(trouble, Transient) and trouble.reason else "Retried"
            raise
        except Exception:
            outcome = "Failed"
            raise
        finally:
            self.effects_in_flight -= 1
            # A cancelled effect has no outcome: the process ends.
            if outcome:
                self._effects.add(self._service, kind, outcome)
                self._effect_seconds.observe(loop.time() - begun, self._service, kind)

    def read(self, batch: Batch) -> None:
        """Note that this batch was folded."""
        self.pending = batch.pending
        if batch.events:
            self._last_read = batch.events[-1].time

    def seconds_behind(self, now: str) -> float:
        """The greatest age that the oldest unread event can have; 0 if there is none."""
        return (seconds_between(self._last_read, now) or 0.0) if self.pending else 0.0

    def append(self, outcome: str, seconds: float | None = None) -> None:
        self._appends.add(self._service, outcome)
        if seconds is not None:
            self._append_seconds.observe(seconds, self._service)

    def decided(self, seconds: float | None) -> None:
        """Count a decision; `seconds` is None if its basis has no readable time."""
        if seconds is not None:
            self._decision_seconds.observe(seconds, self._service)

    def late(self, stored: Stored) -> None:
        """Count a fact that came after its job's seal."""
        self._late.add(self._service, stored.subject.rpartition(".")[2])

    def request(self, method: str, code: str) -> None:
        self._requests.add(self._service, method, code)

    def reported(self, code: int) -> None:
        """Count a report of a training program; the watcher's alone."""
        self._reports.add(str(code))
