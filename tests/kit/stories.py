"""Stories: given these events, then these steps.

given(*a_running_job(workers=2), scale_in(names=("no-such-worker",))).then(
    scaler, Record(ScaleRejected(request=R1, reason="NoSuchWorker"))
)
"""

from collections.abc import Callable

from msgspec.structs import replace

from services.scaler.core import Policy
from services.scaler.core.decide import decide as decide_scaler
from services.scheduler.core.decide import decide as scheduler
from services.status.core.decide import decide as status
from shared.job.attempt import Verdict
from shared.job.events.catalog import AnyEvent
from shared.job.events.event import UNKNOWN
from shared.job.fold import History
from shared.job.policies.verdict import verdict
from shared.job.state import Job
from shared.job.steps import Step
from tests.kit.histories import a_history

Decider = Callable[[Job], list[Step]]

__all__ = ["Story", "given", "judged", "scaler", "scheduler", "status"]


def scaler(job: Job) -> list[Step]:
    return decide_scaler(job, Policy())


class Story:
    """Some history, and what follows from it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.job = history.job

    def steps(self, decider: Decider) -> list[Step]:
        return decider(self.job)

    def then(self, decider: Decider, *steps: Step) -> None:
        """Exactly these steps are owed."""
        assert self.steps(decider) == list(steps)

    def then_nothing(self, decider: Decider) -> None:
        assert self.steps(decider) == []

    def then_among_others(self, decider: Decider, *steps: Step) -> None:
        owed = self.steps(decider)
        for step in steps:
            assert step in owed, f"{step} is not among {owed}"


def given(*events: AnyEvent) -> Story:
    return Story(a_history(events))


def judged(*events: AnyEvent) -> Verdict | None:
    """How the attempt ended, whatever made it end."""
    end = verdict(given(*events).job)
    return replace(end, because=UNKNOWN) if end is not None else None
