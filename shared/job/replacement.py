"""Which empty places of workers are filled again, and when: by the workers' restartPolicy, within backoffLimit.  Pure.

The scheduler assigns the new slots, the verdict waits for them, the watcher measures the back-off.
"""

from shared.job.naming import Slot
from shared.job.spec import WORKER, RestartPolicy
from shared.job.state import Job, Vacancy

FIRST_BACK_OFF_SECONDS = 10
LONGEST_BACK_OFF_SECONDS = 300
"""Kubernetes' own for containers that crash (kubelet: 10 s, doubled, five minutes at most)."""

STEADY_SECONDS = 120
"""A place that was filled so long ago begins its row of losses anew; what is lost sooner may be lost without end.

Spot nodes live longer: AWS alone tells two minutes before one goes.
"""

LEAST_RETRYABLE_CODE = 128
"""From here on an exit code means a signal: somebody ended the container (docs: contract, line 13)."""

TIMER = "Replacement"


def back_off(count: int) -> int:
    """Seconds before the next beginning after `count` of them failed: none before the first, then 10, 20, ... 300."""
    return min(FIRST_BACK_OFF_SECONDS << min(count - 1, 16), LONGEST_BACK_OFF_SECONDS) if count else 0


def retryable(code: int | None) -> bool:
    """Whether ExitCode begins again after this exit; without a code nobody says that it would fail again."""
    return code is None or code >= LEAST_RETRYABLE_CODE


def owed(job: Job) -> dict[Slot, Vacancy]:
    """The places to fill again, by index; empty when the job has as many workers as it shall have."""
    if not job.vacancies or job.spec is None:
        return {}
    arriving, leaving = job.arriving, job.departing
    # Those that a request takes are not missed, whether they live to be taken or not.
    missing = job.size - len(leaving) - len(job.workers - arriving - leaving)
    policy, left = job.spec.role(WORKER).restart_policy, job.spec.backoff_limit - job.replaced
    found = _of_request(job)
    missing += len(found)
    for slot, vacancy in sorted(job.vacancies.items()):
        if len(found) >= missing:
            break
        if slot in arriving | leaving or not _wanted(policy, vacancy):
            continue
        if not vacancy.blameless:
            if left <= 0:
                continue
            left -= 1
        found[slot] = vacancy
    return found


def _of_request(job: Job) -> dict[Slot, Vacancy]:
    """Workers of a scale-out that ended before all were Ready: its own backoffLimit says how many are replaced."""
    request = job.open_request
    if request is None or job.spec is None:
        return {}
    limit = request.spec.backoff_limit if request.spec is not None else job.spec.backoff_limit
    lost = [(slot, job.vacancies[slot]) for slot in sorted(job.arriving) if slot in job.vacancies]
    return dict(lost) if request.replaced + len(lost) <= limit else {}


def delay(job: Job, slot: Slot, vacancy: Vacancy) -> int:
    """Seconds for which a place stays empty: a worker that is lost again and again comes back ever later."""
    if vacancy.blameless:
        return back_off(vacancy.losses)
    request = job.open_request
    return back_off(request.replaced if request is not None and slot in job.arriving else job.replaced)


def _wanted(policy: RestartPolicy, vacancy: Vacancy) -> bool:
    if vacancy.disrupted:
        # Its node went: that the job may run on with fewer is no reason to leave it so.
        return True
    match policy:
        case "Never":
            return False
        case "Always":
            return True
        case "OnFailure":
            return not vacancy.succeeded
        case "ExitCode":
            return vacancy.taken or (not vacancy.succeeded and retryable(vacancy.code))
