"""What a job lacks has one reason: in its status, in an Event, and in the first line of `muster why`."""

import pytest

from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from shared.frameworks.kinds import BUILT_IN
from shared.job.naming import JobKey, key_of
from shared.job.waiting import told
from shared.telling.causes.people import People
from shared.telling.causes.walk import Causes
from shared.telling.targets import Target
from shared.telling.why import explained
from tests.kit.telling import says, told_differently
from tests.simulation.plan import plan_of
from tests.simulation.run import simulate

SEEDS = range(3, 11)


def of(causes: Causes) -> str:
    """What tells no reason, or another one."""
    job = causes.job
    if job.halted or job.gone or not BUILT_IN.knows(job) or (wait := told(job)) is None:
        return ""
    framework = BUILT_IN.of(job)
    (first, *_), _ = explained(causes, "", Target(framework.resource, job.key.name, framework=framework))
    return told_differently(job, BUILT_IN) or (
        "" if says(first, wait) else f"waits for {wait.reason}, and why: {first}"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_status_event_and_why_give_one_reason_at_any_event_of_a_simulation(seed: int):
    log: list[Stored] = []
    simulate(plan_of(seed), log.append)
    known: dict[JobKey, Causes] = {}
    for stored in log:
        key = key_of(Subject.parse(stored.subject))
        causes = known.setdefault(key, Causes(key, People()))
        if causes.history.sequence >= stored.sequence:
            # The plan loses the end of the log.
            return
        causes.fold(stored)
        assert not of(causes), stored.sequence
