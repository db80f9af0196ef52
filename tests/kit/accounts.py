"""The laws of the ledger: each place is in one bucket at any moment, and the buckets sum to the time it was held."""

from shared.job.events.catalog import AnyEvent
from shared.job.events.event import At
from shared.job.ledger import Ledger, Place
from shared.job.state import Job
from shared.job.views import occupies
from shared.telemetry.metrics import seconds_between

NEARLY = 0.001
"""Seconds."""


class Account:
    """The ledger of one job, and the time for which its places were held, counted beside it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._held = 0.0
        self._places: set[Place] = set()
        self._now = ""

    def note(self, before: Job, event: AnyEvent, after: Job, at: At) -> str:
        """Add an event; the law that is broken since, or nothing."""
        now = at.logged or at.time
        self._held += len(self._places) * (seconds_between(self._now, now) or 0.0 if self._now else 0.0)
        self.ledger.note(before, event, after, at)
        self._now, self._places = now, {place for place, lane in self.ledger.lanes.items() if not lane[-1].until}
        pods = {Place(pod.role, pod.index) for pod in after.pods.views.values() if occupies(pod)}
        if after.spec is not None and not pods <= self._places:
            return f"pods hold {sorted(pods - self._places)}, which the ledger does not count"
        return ""

    def fault(self) -> str:
        """The law that does not hold, or nothing."""
        for place, lane in self.ledger.lanes.items():
            times = [time for each in lane for time in (each.since, each.until or self._now)]
            if times != sorted(times):
                return f"{place} is in two buckets at a time: {times}"
        spent = sum(sum(of_roles.values()) for of_roles in self.ledger.seconds(self._now).values())
        return "" if abs(spent - self._held) < NEARLY else f"buckets have {spent} s of {self._held} s held"
