"""Which lost pods are replaced, and when: by their role's restartPolicy, within backoffLimit.  Pure.

The scheduler assigns the new slots, the verdict waits for them, the watcher measures the back-off.

A new worker's index is one after the highest, as the README of et-operator shows it.  A name may come again once its
worker left in order and its pod is gone.  That of a worker that failed or was lost does not come again in the attempt,
as Horovod trusts no host that failed; nor does one whose pod was not seen and may still appear.
"""

from collections.abc import Iterable

from shared.job import causes
from shared.job.attempt import Tally, Vacancy
from shared.job.events.event import UNKNOWN, Cause
from shared.job.naming import Slot
from shared.job.policies import retries
from shared.job.policies.retries import before_start
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, RENDEZVOUS, WORKER, JobSpec
from shared.job.state import Job
from shared.job.timers import REPLACEMENT, STEADY, passed
from shared.job.views import PodView, Slots

STEADY_SECONDS = 120
"""After this time without a loss, a slot's count of losses begins anew.

Workers on spot nodes usually run longer, as AWS gives two minutes' notice: their losses delay no replacement.
"""


def filled(job: Job) -> SortedSet[Slot]:
    """The slots of all workers, and of those that will be replaced; of those replaced ahead only the new ones."""
    return job.attempt.workers - job.attempt.replaced_ahead | [slot for slot in replaceable(job) if slot.role == WORKER]


def replaceable(job: Job) -> dict[Slot, Vacancy]:
    """The vacancies to fill, in the order of their slots; none if the job has its full size, or is being deleted."""
    if not job.attempt.vacancies or job.spec is None or job.deleting or job.resource.gone:
        # Every decision of a job asks, and most jobs have lost no pod.
        return {}
    arriving, leaving = job.scaling.arriving, job.outgoing
    missing = _missing(job)
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


def unreplaced(job: Job) -> dict[Slot, str]:
    """The lost workers that the job lacks and nothing replaces, the newest first → why not.

    None of a job that is being deleted: its pods end with it.
    """
    if job.spec is None or not job.attempt.vacancies or job.deleting or job.resource.gone:
        # Every status document asks, and most jobs have lost no pod.
        return {}
    replaced = replaceable(job)
    missing = _missing(job) - sum(slot.role == WORKER for slot in replaced)
    others = job.scaling.arriving | job.outgoing | [*replaced]
    lost = [
        slot
        for slot, vacancy in job.attempt.vacancies.items()
        if slot.role == WORKER and not vacancy.succeeded and slot not in others
    ]
    vacancies = job.attempt.vacancies
    lost.sort(key=lambda slot: (-vacancies[slot].at.sequence, slot))
    return {
        slot: "backoffLimit is used up"
        if allowed(job.spec, slot, vacancies[slot])
        else f"restartPolicy: {job.spec.policy(slot.role)}"
        for slot in lost[: max(missing, 0)]
    }


def outcome(job: Job, role: str) -> Tally:
    """The pods of a role that succeeded, and that failed; one that begins again did neither."""
    tally = job.attempt.tallies.get(role, Tally())
    ends = {slot: vacancy.succeeded for slot, vacancy in job.attempt.vacancies.items() if slot.role == role}
    if job.over and not ends:
        # A launcher leaves no vacancy, nor does a pod of a job that was taken over at its end.
        return tally
    if role == LAUNCHER:
        return Tally(tally.succeeded)
    again = {} if job.over else replaceable(job)
    done = [succeeded for slot, succeeded in ends.items() if slot not in again]
    return Tally(sum(done), len(done) - sum(done))


def _missing(job: Job) -> int:
    """The number of workers that the job lacks for its size."""
    # The open request's workers do not count, lost or not.  The size includes them until the hosts files do not.
    present = job.attempt.workers - job.scaling.arriving - job.outgoing - job.attempt.replaced_ahead
    return job.scaling.size - len(job.about_to_leave) - len(present)


def _of_request(job: Job) -> dict[Slot, Vacancy]:
    """Workers of a scale-out that ended before all were Ready: the request's own backoffLimit bounds them."""
    request = job.scaling.open_request
    if request is None or job.spec is None:
        return {}
    limit = request.spec.backoff_limit if request.spec is not None else job.spec.backoff_limit
    vacancies = job.attempt.vacancies
    lost = [(slot, vacancies[slot]) for slot in job.scaling.arriving if slot in vacancies]
    return dict(lost) if request.replaced + len(lost) <= limit else {}


def back_off(job: Job, slot: Slot, *, succeeded: bool) -> int:
    """Seconds until a worker that is lost now for its own fault is replaced: it grows with each replacement."""
    request = job.scaling.open_request
    replaced = request.replaced if request is not None and slot in job.scaling.arriving else job.attempt.replaced
    # At the end of a training all pods exit with 0, the leader perhaps last: the job ends before one begins again.
    return before_start(max(replaced, succeeded))


def due(job: Job, vacancy: Vacancy) -> bool:
    """True if the back-off of this vacancy is over."""
    return not vacancy.wait or passed(job, vacancy.at.sequence, timer_name(vacancy.wait))


def cause_of_refill(job: Job, slot: Slot) -> Cause:
    """The cause of filling a slot again: the loss of its pod, the end of its back-off, or a notice before it."""
    vacancy = job.attempt.vacancies.get(slot)
    if vacancy is None:
        return Cause(job.attempt.news.get(slot, 0), slot) if slot in job.attempt.slots else UNKNOWN
    waited = causes.timer(job, vacancy.at.sequence, timer_name(vacancy.wait))
    return waited if waited.sequence else Cause(vacancy.at.sequence, slot)


def timer_name(seconds: int) -> str:
    return f"{REPLACEMENT}{seconds}"


def without_store(job: Job, pods: Iterable[PodView]) -> bool:
    """True if the pods of an elastic group lack their rendezvous, or lacked it a short time ago.

    Their agents end without it, which is no fault of theirs.  `pods` are the present ones, whichever of them are known
    to `job`.
    """
    slot = Slot(job.attempt.number, RENDEZVOUS, 0)
    if slot in job.attempt.vacancies:
        return True
    if slot not in job.attempt.slots:
        # The job has none, or began when it had none.
        return False
    filled = job.attempt.refilled.get(slot)
    if filled is not None and not passed(job, filled.at.sequence, STEADY):
        return True
    # On a node that is only announced to go it still runs.
    return not any(
        pod.slot == slot and pod.phase == "Running" and not (pod.deleting or pod.disruption or pod.uid in job.pods.lost)
        for pod in pods
    )


MOST_IN_PLACE = 3
"""The restarts of a container in place after which its pod is replaced: its node or its files may be at fault."""


def in_place(spec: JobSpec | None, role: str) -> bool:
    """True if the kubelet begins failed training containers of the role again, as Muster told it.

    Only where a new pod would have the name of the failed one: then the others take either for the same.
    """
    if spec is None or not (spec.restarts_in_place and spec.handling.in_place) or role in (LAUNCHER, RENDEZVOUS):
        return False
    of_job = role == spec.handling.leader and spec.handling.restarts == "Job"
    return not of_job and spec.policy(role) != "Never"


def losses_before(job: Job, slot: Slot) -> int:
    """The number of consecutive losses of this slot; 0 if it was steady since its replacement."""
    filled = job.attempt.refilled.get(slot)
    return 0 if filled is None or passed(job, filled.at.sequence, STEADY) else filled.losses


def allowed(spec: JobSpec, slot: Slot, vacancy: Vacancy) -> bool:
    """True if the policies let this vacancy be filled, backoffLimit aside."""
    handling = spec.handling
    if not spec.has(slot.role):
        # An edit removed the role and its pod template.
        return False
    if slot.role == handling.leader and (vacancy.succeeded or handling.restarts == "Job"):
        # The end of this pod ended the job or its attempt.
        return False
    if vacancy.disrupted or (vacancy.taken and (handling.in_place or (spec.gang is not None and not vacancy.ran))):
        # A disruption is no fault of the pod, nor is a deletion: it comes back under its name.  Where it would get
        # another one restartPolicy decides, but for a gang that waits: with a pod less it would wait for ever.
        return True
    match spec.policy(slot.role):
        case "Never":
            return False
        case "Always":
            return True
        case "OnFailure":
            return not vacancy.succeeded
        case "ExitCode":
            return vacancy.taken or (not vacancy.succeeded and not retries.is_final(spec, vacancy.code, vacancy.reason))


def new_workers(job: Job, count: int) -> Slots:
    """Slots for `count` new workers, all of them after the highest."""
    first = max([job.attempt.spoilt, *(index + 1 for index in taken(job))])
    return Slots(job.attempt.number, WORKER, ((first, first + count - 1),))


def taken(job: Job) -> SortedSet[int]:
    """The indices that no new worker gets: a terminating pod keeps its name, and a vacancy may be filled under it."""
    there = job.attempt.unreleased | job.attempt.vacancies.keys() | {pod.slot for pod in job.pods.views.values()}
    return SortedSet(slot.index for slot in there if (slot.attempt, slot.role) == (job.attempt.number, WORKER))
