"""The link of what a job or a request waits for, by the rule of `shared/job/waiting.py`, if the log has it.  Pure."""

from collections.abc import Container

from shared.job.naming import Slot
from shared.job.reasons import NAME_HELD
from shared.job.scaling import Request
from shared.job.state import Job, hosts_seen, refusal_key
from shared.job.waiting import Wait, waiting
from shared.telling.causes.link import Link, Links, newest

_OF_THE_STATUS_SERVICE = ("PatchStatus", "Announce")
"""Effects for which no job waits."""


def waits_for(causes: Links) -> Link | None:
    """What a job waits for; of one that waits for nothing, the newest effect that is refused."""
    job = causes.job
    if job.integrity.doubt is not None:
        return causes.doubt
    if job.another:
        return causes.newest.get("JobOfAnother")
    if job.gone or job.over:
        return None
    if job.problems and not job.phase:
        return causes.newest.get("JobObserved")
    wait = waiting(job)
    if wait is not None and wait.slot in job.attempt.vacancies:
        # The chain of the lost pods tells it.
        wait = None
    if wait is not None:
        return link_of(causes, job, wait)
    refusals = (known for known in job.refusals.values() if known.effect not in _OF_THE_STATUS_SERVICE)
    return newest(causes.at.get(refusal.at.sequence) for refusal in refusals)


def link_of(causes: Links, job: Job, wait: Wait) -> Link | None:
    """The link of what a job waits for: of a refused effect, of the pod in a slot, or of a node."""
    if wait.effect:
        return causes.at.get(job.refusals[wait.effect].at.sequence)
    return causes.last.get(wait.slot) if wait.slot is not None else causes.at.get(wait.since.sequence)


def request_waits_for(causes: Links, request: Request) -> Link | None:
    """What a request that is not over waits for: its turn, the job, pods, or the hosts files."""
    job = causes.job
    if request.over or job.gone or request.uid not in job.scaling.requests:
        return None
    if request.phase == "Scaling":
        return awaited_by(causes, job, request)
    if job.scaling.open:
        return newest(causes.requests.get(job.scaling.open, ()))
    return _refused(causes, job, "OwnRequest") if job.phase == "Running" else causes.phase


def awaited(causes: Links, job: Job, slots: Container[Slot]) -> Link | None:
    """What the job waits for, if it is about one of these slots or prevents all."""
    wait = waiting(job)
    return link_of(causes, job, wait) if wait is not None and (wait.slot is None or wait.slot in slots) else None


def awaited_by(causes: Links, job: Job, request: Request) -> Link | None:
    """What an open request waits for."""
    if request.published and not hosts_seen(job, request.published):
        return _refused(causes, job, "WriteHosts") or causes.newest.get("HostsPublished")
    if request.kind == "ScaleOut":
        return awaited(causes, job, request.added)
    leaving = (job.attempt.worker_slot(member.index) for member in request.leaving)
    # Workers that are not released yet wait for the request.
    return newest(link for slot in leaving if slot not in job.attempt.slots and (link := causes.last.get(slot)))


def _refused(causes: Links, job: Job, effect: str) -> Link | None:
    refusal = job.refusals.get(effect) or job.refusals.get(refusal_key(effect, NAME_HELD))
    return causes.at.get(refusal.at.sequence) if refusal is not None else None
