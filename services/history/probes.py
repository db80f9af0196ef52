"""The answers to probes and scrapers.

Ready: the port of the API is open, the log has not turned this process away, and its first fold is not under way.  A
log that is merely away does not count, because the readiness of the pods decides whether kube-apiserver serves
discovery, and a namespace that is deleted waits for the discovery of every API.
"""

from shared.eventlog.account import HISTORY
from shared.process.kept_connection import Figures
from shared.telemetry.metrics import Count, Histogram, Metric

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)

ANSWERS = Metric("muster_history_answers_total", "counter", ("code",), "Answers of the history service, by HTTP status")
ANSWER_SECONDS = Metric(
    "muster_history_answer_duration_seconds",
    "histogram",
    (),
    "How long an answer of the history service took, waiting for its turn included",
    buckets=_SECONDS,
)
FOLD_SECONDS = Metric(
    "muster_history_fold_duration_seconds",
    "histogram",
    (),
    "How long reading and folding events took for an answer that was not kept",
    buckets=_SECONDS,
)
WAITING = Metric("muster_history_waiting", "gauge", (), "Questions that the history service has not answered yet")

STREAMS = Metric("muster_history_streams", "gauge", (), "Streams of the history service that are open")


class HistoryFigures(Figures):
    """The metrics of this process."""

    def __init__(self) -> None:
        super().__init__(HISTORY)
        self.gauges = {WAITING: lambda: 0, STREAMS: lambda: 0}
        self._answers = Count(ANSWERS)
        self._answer_seconds = Histogram(ANSWER_SECONDS)
        self._fold_seconds = Histogram(FOLD_SECONDS)

    def answered(self, code: int, seconds: float | None) -> None:
        """Count an answer; a stream has no seconds."""
        self._answers.add(str(code))
        if seconds is not None:
            self._answer_seconds.observe(seconds)

    def folded(self, seconds: float) -> None:
        self._fold_seconds.observe(seconds)
