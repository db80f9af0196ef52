"""When an attempt succeeded: the launcher exited with 0, or enough pods of the leader role did.  Pure."""

from shared.job.spec import JobSpec
from shared.job.state import Job


def leaders_succeeded(job: Job, spec: JobSpec) -> bool:
    """In a job without a launcher: True if the pods of the leader role that have to succeed did."""
    leader, attempt = spec.handling.leader, job.attempt
    vacancies = {slot: vacancy for slot, vacancy in attempt.vacancies.items() if slot.role == leader}
    succeeded = [slot for slot, vacancy in vacancies.items() if vacancy.succeeded]
    if not any(slot.role == leader for slot in attempt.unreleased):
        # An edit named another leader role, whose pods come with the next attempt: this attempt ends with its last pod.
        every = attempt.vacancies.values()
        return bool(every) and all(vacancy.succeeded for vacancy in every) and not attempt.slots
    match spec.handling.succeeds:
        case "First":
            return any(slot.index == 0 for slot in succeeded)
        case "Any":
            return bool(succeeded)
        case "All":
            waiting = any(slot.role == leader for slot in attempt.slots)
            return bool(succeeded) and len(succeeded) == len(vacancies) and not waiting
