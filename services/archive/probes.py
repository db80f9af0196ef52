"""The answers to probes and scrapers.

Ready: there is an archive that takes histories, and the log lets this process in.  A history that cannot be archived is
a warning: it stays in the log.
"""

from collections.abc import Iterable

import msgspec

from services.archive.core.steps import Sealed
from shared.eventlog.account import ARCHIVER
from shared.job.text import counted
from shared.process.kept_connection import Figures
from shared.process.serving import Report
from shared.telemetry.metrics import Count, Metric, Series

DONE = Metric(
    "muster_archive_histories_total",
    "counter",
    ("what",),
    "Histories that were archived and purged, and messages that retention removed from the archive",
)
WAITING = Metric("muster_archive_waiting", "gauge", (), "Sealed histories whose events are still in the log")
FAILING = Metric("muster_archive_failing", "gauge", (), "Those of them that could not be archived, and are tried again")
OLDEST = Metric("muster_archive_oldest_seconds", "gauge", (), "For how long the oldest of them waits")
WHAT = ("archived", "purged", "removed")


class ArchiveFigures(Figures):
    """The report and the metrics of this process."""

    def __init__(self) -> None:
        super().__init__(ARCHIVER)
        self.names = False
        self._done = Count(DONE)
        self._waiting = self._failing = 0
        self._oldest = 0.0
        self._warnings: tuple[str, ...] = ()
        for what in WHAT:
            self._done.add(what, by=0)

    def done(self, what: str, number: int = 1) -> None:
        self._done.add(what, by=number)

    def tell(self, sealed: Iterable[Sealed], now: float) -> None:
        waiting = [each for each in sealed if each.waits]
        failing = [each for each in sealed if each.trouble]
        self._waiting, self._failing = len(waiting), len(failing)
        self._oldest = max(now - waiting[0].at, 0.0) if waiting else 0.0
        why = {each.trouble: each for each in reversed(failing)}
        self._warnings = tuple(
            f"{each.key}: {trouble}" if self.names else "a sealed history is not archived"
            for trouble, each in why.items()
        )[:1]

    def report(self) -> Report:
        found = super().report()
        warnings = self._warnings
        if self._failing > 1:
            warnings = (*warnings, f"{counted(self._failing, 'sealed history')} cannot be archived")
        return msgspec.structs.replace(found, warnings=warnings)

    def series(self) -> list[Series]:
        return [
            *super().series(),
            self._done,
            Count.now(WAITING, {(): self._waiting}),
            Count.now(FAILING, {(): self._failing}),
            Count.now(OLDEST, {(): self._oldest}),
        ]
