"""What a job or a request waits for, if the log has it.  Pure."""

from collections.abc import Iterable

from shared.job.naming import Slot
from shared.job.reasons import NAME_HELD
from shared.job.request import Request
from shared.job.sorted_set import SortedSet
from shared.job.state import Job, hosts_seen, refusal_key
from shared.telling.causes.link import Link, Links, newest

_OF_THE_STATUS_SERVICE = ("PatchStatus", "Announce")
"""Effects for which no job waits."""


def waits_for(causes: Links) -> Link | None:
    """What a job that does not run yet waits for; of one that runs, the newest effect that is refused."""
    job = causes.job
    if job.integrity.doubt is not None:
        return causes.doubt
    if job.another:
        return causes.newest.get("JobOfAnother")
    if job.gone or job.over or job.phase == "Suspended":
        return None
    if job.problems and not job.phase:
        return causes.newest.get("JobObserved")
    if job.phase == "Suspending":
        return newest(causes.last.get(pod.slot) for pod in job.pods.values())
    if job.phase == "Restarting" and not job.attempt.slots:
        # A new attempt uses the same pod names: it begins once the old pods are gone.
        return newest(causes.last.get(pod.slot) for pod in job.pods.values())
    if not job.starting:
        refusals = (known for known in job.refusals.values() if known.effect not in _OF_THE_STATUS_SERVICE)
        return newest(causes.at.get(refusal.at.sequence) for refusal in refusals)
    refused = newest(_refused(causes, job, effect) for effect in ("CreateSecret", "CreateService", "WriteHosts"))
    return refused or awaited(causes, job, first_awaited(job)) or awaited(causes, job, job.attempt.slots)


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


def first_awaited(job: Job) -> SortedSet[Slot]:
    """The slots that the start waits for first: the workers', then the launcher's; without a launcher, all."""
    return job.attempt.workers if job.spec is None or job.spec.has_launcher else job.attempt.slots


def awaited(causes: Links, job: Job, slots: Iterable[Slot]) -> Link | None:
    """What the first slot without a Ready pod waits for."""
    views = job.by_slot()
    for slot in sorted(slots):
        if slot not in views:
            return _refused(causes, job, "CreatePod") or causes.last.get(slot)
        if not views[slot].ready:
            return causes.last.get(slot)
    return None


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
