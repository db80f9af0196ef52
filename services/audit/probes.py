"""The answers to probes and scrapers.

Ready: the port for API servers is open, and the log has neither turned this process away nor refused to be read.
"""

from collections.abc import Callable

from shared.eventlog.account import AUDIT
from shared.process.health import CONNECTED, READY
from shared.process.report import Report
from shared.release import this_release
from shared.telemetry.metrics import Count, Metric, Series

BATCHES = Metric("muster_audit_batches_total", "counter", ("code",), "Batches of audit events, by HTTP status")
CLAIMS = Metric(
    "muster_audit_claims_total", "counter", (), "Audit events about writes that changed a job or a scale request"
)
ATTRIBUTED = Metric("muster_audit_attributed_total", "counter", (), "Changes whose author was written down")
LOST = Metric(
    "muster_audit_lost_total",
    "counter",
    ("reason",),
    "Claims and changes that were dropped unmatched, so that a change may stay without an author: "
    "NoRoom, QueueFull, Refused or Failed",
)
LOST_FOR = ("NoRoom", "QueueFull", "Refused", "Failed")
WAITING = Metric("muster_audit_waiting", "gauge", (), "Facts of the audit service that wait for the log")
BYTES = Metric("muster_audit_claims_bytes", "gauge", (), "About how many bytes the claims take that may still match")


class Figures:
    """The metrics of this process."""

    def __init__(self) -> None:
        self.trouble: Callable[[], str] = lambda: "starting"
        """Why the service is not ready; empty if it is."""
        self.unread = ""
        """Why the changes in the log cannot be read until an administrator or a release mends it; empty if they can."""
        self.connected: Callable[[], bool] = lambda: False
        self.waiting: Callable[[], int] = lambda: 0
        self.bytes: Callable[[], int] = lambda: 0
        self.forced_out: Callable[[], int] = lambda: 0
        self._batches, self._claims, self._attributed = Count(BATCHES), Count(CLAIMS), Count(ATTRIBUTED)
        self._lost: dict[str, int] = dict.fromkeys(LOST_FOR, 0)

    def answered(self, code: int) -> None:
        self._batches.add(str(code))

    def claimed(self, number: int) -> None:
        self._claims.add(by=number)

    def attributed(self) -> None:
        self._attributed.add()

    def lost(self, reason: str) -> None:
        self._lost[reason] += 1

    def report(self) -> Report:
        trouble = self.trouble() or self.unread
        return Report(service=AUDIT, version=this_release(), ready=not trouble, trouble=trouble)

    def series(self) -> list[Series]:
        ready, connected, waiting, held, lost = map(Count, (READY, CONNECTED, WAITING, BYTES, LOST))
        ready.add(AUDIT, by=float(self.report().ready))
        connected.add(AUDIT, by=float(self.connected()))
        waiting.add(by=self.waiting())
        held.add(by=self.bytes())
        for reason, number in {**self._lost, "NoRoom": self.forced_out()}.items():
            lost.add(reason, by=number)
        return [ready, connected, self._batches, self._claims, self._attributed, lost, waiting, held]
