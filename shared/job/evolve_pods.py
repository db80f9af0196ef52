"""What pods change in a job: spent slots, vacancies, tallies, failures, milestones.  Pure; called by `evolve`."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from shared.job.events.event import At
from shared.job.events.watcher import DisruptionNoticed, PodsObserved
from shared.job.evolve_requests import seen
from shared.job.losses import KEPT_FAILURES, Failure, Tally, Vacancy
from shared.job.milestones import with_milestones
from shared.job.naming import Slot, Uid
from shared.job.replacement import STEADY_SECONDS
from shared.job.spec import LAUNCHER
from shared.job.state import Job, Refusal, exit_of, running_workers, without
from shared.job.views import PodView, ended

replace = msgspec.structs.replace


def in_epoch(job: Job, epoch: int) -> Job:
    """The job without the versions of another store: whatever the one of a newer epoch shows is news."""
    if epoch <= job.epoch:
        return job
    return replace(
        job,
        epoch=epoch,
        version=0,
        pods={uid: replace(pod, version=0) for uid, pod in job.pods.items()},
        children={at: replace(child, version=0) for at, child in job.children.items()},
        requests={uid: replace(request, version=0) for uid, request in job.requests.items()},
    )


def pods_observed(job: Job, event: PodsObserved, at: At) -> Job:
    if event.epoch < job.epoch:
        return job
    job = in_epoch(job, event.epoch)
    pods = dict(job.pods)
    slots, spent, tallies, failures = job.slots, job.spent, dict(job.tallies), job.failures
    disrupted, vacancies, launcher = dict(job.disrupted), dict(job.vacancies), job.launcher_gone
    fresh = 0
    for pod in event.pods:
        known = pods.get(pod.uid)
        if known is not None and known.version >= pod.version:
            continue
        pods[pod.uid] = pod
        if pod.disruption:
            disrupted[pod.uid] = pod.disruption
        if pod.role == LAUNCHER and pod.attempt == job.attempt and ended(pod) and not pod.deleting:
            launcher = launcher or pod
        fresh += known is None and pod.slot in slots
        if known is None and ended(pod) and _succeeded_by(pods, pod):
            # News of a pod that went before its successor came.
            continue
        if ended(pod) and pod.slot in slots and not (known is not None and ended(known)):
            slots, spent = slots - {pod.slot}, spent | {pod.slot}
            if not pod.deleting:
                tallies[pod.role] = _counted(tallies.get(pod.role, Tally()), pod)
            if pod.role != LAUNCHER:
                vacancies[pod.slot] = vacancy = _vacancy(job, pod, disrupted, at)
                if not vacancy.succeeded:
                    failures = (*failures, _failure(job, pod, at))
    job = replace(
        job,
        pods=pods,
        slots=slots,
        spent=spent,
        disrupted=disrupted,
        vacancies=vacancies,
        launcher_gone=launcher,
        unseen=job.unseen - {pod.slot for pod in event.pods} if job.unseen else job.unseen,
        tallies=tallies,
        failures=failures[-KEPT_FAILURES:],
        refusals=_progress(job, fresh),
    )
    return enough(seen(with_milestones(job, at), at), at)


def _succeeded_by(pods: Mapping[Uid, PodView], pod: PodView) -> bool:
    """Another one is in its place, made later."""
    return any(other.slot == pod.slot and other.version > pod.version for other in pods.values())


def _counted(tally: Tally, pod: PodView) -> Tally:
    if pod.phase == "Succeeded":
        return replace(tally, succeeded=tally.succeeded + 1)
    return replace(tally, failed=tally.failed + 1)


def _failure(job: Job, pod: PodView, at: At) -> Failure:
    end = exit_of(job, pod) or next((end for end in pod.exits if end.code), None)
    reason = pod.reason or (end.reason if end else "") or ("Deleted" if pod.deleting else "Failed")
    return Failure(pod.name, reason, end.code if end else None, at)


def _vacancy(job: Job, pod: PodView, disrupted: Mapping[Uid, str], at: At) -> Vacancy:
    end = exit_of(job, pod)
    return Vacancy(
        at=at,
        reason=_failure(job, pod, at).reason,
        code=end.code if end else None,
        # A sidecar that failed beside a training container that did not is no failure of the worker.
        succeeded=not pod.deleting and (end.code == 0 if end else pod.phase == "Succeeded"),
        taken=pod.deleting,
        disrupted=pod.uid in disrupted,
        losses=losses_before(job, pod.slot, at),
    )


def losses_before(job: Job, slot: Slot, at: At) -> int:
    """How many times this place was lost before, when it was filled again only a short time ago."""
    filled = job.refilled.get(slot)
    if filled is None:
        return 0
    stood = datetime.fromisoformat(at.time) - datetime.fromisoformat(filled.at.time)
    return filled.losses if stood.total_seconds() < STEADY_SECONDS else 0


def noticed(job: Job, event: DisruptionNoticed) -> Job:
    """These pods are about to go."""
    new = {uid: event.reason for uid in event.uids if uid in job.pods}
    return replace(job, disrupted={**job.disrupted, **new}) if new else job


def pods_gone(job: Job, uids: Iterable[Uid], at: At) -> Job:
    pods = dict(job.pods)
    slots, spent, failures, launcher = job.slots, job.spent, job.failures, job.launcher_gone
    disrupted, vacancies = dict(job.disrupted), dict(job.vacancies)
    for uid in uids:
        pod = pods.pop(uid, None)
        if pod is not None and pod.role == LAUNCHER and pod.attempt == job.attempt and launcher is None:
            launcher = pod
        if pod is not None and pod.slot in slots and not _succeeded_by(pods, pod):
            # Nobody released this slot, so its pod was taken from us.
            slots, spent = slots - {pod.slot}, spent | {pod.slot}
            if pod.role != LAUNCHER:
                taken = replace(pod, deleting=True)
                vacancies[pod.slot] = _vacancy(job, taken, disrupted, at)
                failures = (*failures, _failure(job, taken, at))
        disrupted.pop(uid, None)
    return replace(
        job,
        pods=pods,
        slots=slots,
        spent=spent,
        vacancies=vacancies,
        disrupted=disrupted,
        failures=failures[-KEPT_FAILURES:],
        launcher_gone=launcher,
    )


def enough(job: Job, at: At) -> Job:
    """Note since when a running job has fewer workers that run than its minimum."""
    if job.spec is None or job.phase not in ("Running", "Scaling"):
        return job
    if running_workers(job) >= job.spec.worker.min_replicas:
        enough_now = job.gathered and not job.below_minimum
        return job if enough_now else replace(job, gathered=True, below_minimum=0)
    # A launcher runs only after all its workers did; without one, those who never came are not lost.
    lost = job.gathered or job.spec.has_launcher
    return replace(job, below_minimum=at.sequence) if lost and not job.below_minimum else job


def _progress(job: Job, fresh: int) -> Mapping[str, Refusal]:
    """Pods came after a refusal: the next round may make twice as many; none are missing, and it is forgotten."""
    refusal = job.refusals.get("CreatePod")
    if refusal is None or not fresh or not refusal.due:
        return job.refusals
    filled = {pod.slot for pod in job.pods.values()}
    if len(job.slots - filled) <= fresh:
        return without(job.refusals, "CreatePod")
    return {**job.refusals, "CreatePod": replace(refusal, probe=refusal.probe * 2)}
