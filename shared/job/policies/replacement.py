"""Which empty places are filled again, and when: by their role's restartPolicy, within backoffLimit.  Pure.

The scheduler assigns the new slots, the verdict waits for them, the watcher measures the back-off.
"""

from shared.job.doubling import doubled
from shared.job.losses import Vacancy
from shared.job.naming import Slot
from shared.job.policies import exit_codes
from shared.job.spec import WORKER, JobSpec
from shared.job.state import Job

FIRST_BACK_OFF_SECONDS = 10
LONGEST_BACK_OFF_SECONDS = 300
"""Kubernetes' own for containers that crash (kubelet: 10 s, doubled, five minutes at most)."""

STEADY_SECONDS = 120
"""A place that was filled so long ago begins its row of losses anew; what is lost sooner may be lost without end.

Spot nodes live longer: AWS alone tells two minutes before one goes.
"""

TIMER = "Replacement:"
"""Followed by the seconds: pods that one event reports wait for different times."""

STEADY = "Steady"
"""The timer of a slot that was filled again: it ran out when the slot was steady."""


def back_off(count: int) -> int:
    """Seconds before the next beginning after `count` of them failed: none before the first, then 10, 20, ... 300."""
    return doubled(FIRST_BACK_OFF_SECONDS, count, LONGEST_BACK_OFF_SECONDS)


def owed(job: Job) -> dict[Slot, Vacancy]:
    """The places to fill again, by index; empty when the job has all the pods that it shall have."""
    if not job.attempt.vacancies or job.spec is None:
        return {}
    arriving = job.scaling.arriving
    # Those that a request takes are not missed, whether they live to be taken or not; once the hosts files are without
    # them, the size is too.
    leaving = job.outgoing
    missing = job.scaling.size - len(job.departing) - len(job.attempt.workers - arriving - leaving)
    left = job.spec.backoff_limit - job.attempt.replaced
    found = _of_request(job)
    for slot, vacancy in sorted(job.attempt.vacancies.items()):
        if slot.role == WORKER and missing <= 0:
            continue
        if slot in arriving | leaving or not allowed(job.spec, slot, vacancy):
            continue
        if not vacancy.blameless:
            if left <= 0:
                continue
            left -= 1
        found[slot] = vacancy
        missing -= slot.role == WORKER
    return found


def _of_request(job: Job) -> dict[Slot, Vacancy]:
    """Workers of a scale-out that ended before all were Ready: its own backoffLimit says how many are replaced."""
    request = job.scaling.open_request
    if request is None or job.spec is None:
        return {}
    limit = request.spec.backoff_limit if request.spec is not None else job.spec.backoff_limit
    vacancies = job.attempt.vacancies
    lost = [(slot, vacancies[slot]) for slot in job.scaling.arriving if slot in vacancies]
    return dict(lost) if request.replaced + len(lost) <= limit else {}


def delay(job: Job, slot: Slot, vacancy: Vacancy) -> int:
    """Seconds for which a place stays empty: a worker that is lost again and again comes back ever later."""
    if vacancy.blameless:
        return back_off(vacancy.losses)
    request = job.scaling.open_request
    return back_off(request.replaced if request is not None and slot in job.scaling.arriving else job.attempt.replaced)


def due(job: Job, slot: Slot, vacancy: Vacancy) -> bool:
    """The back-off of this empty slot is over."""
    seconds = delay(job, slot, vacancy)
    return not seconds or (vacancy.at.sequence, timer_name(seconds)) in job.timers_passed


def timer_name(seconds: int) -> str:
    return f"{TIMER}{seconds}"


def losses_before(job: Job, slot: Slot) -> int:
    """How many times this slot was lost in a row before; none if it was steady since it was filled."""
    filled = job.attempt.refilled.get(slot)
    return 0 if filled is None or (filled.at.sequence, STEADY) in job.timers_passed else filled.losses


def allowed(spec: JobSpec, slot: Slot, vacancy: Vacancy) -> bool:
    """Whether this place may be filled again, as long as backoffLimit is not reached."""
    handling = spec.handling
    if not spec.has(slot.role):
        # There is nothing to make a pod from.
        return False
    if slot.role == handling.judge and (vacancy.succeeded or handling.restarts == "Job"):
        # That was the job's own end, or that of its attempt.
        return False
    if vacancy.disrupted or (vacancy.taken and handling.strict):
        # Its node went: that the job may run on with fewer is no reason to leave it so.
        return True
    match spec.policy(slot.role):
        case "Never":
            return False
        case "Always":
            return True
        case "OnFailure":
            return not vacancy.succeeded
        case "ExitCode":
            return vacancy.taken or (not vacancy.succeeded and not exit_codes.final(spec, vacancy.code, vacancy.reason))
