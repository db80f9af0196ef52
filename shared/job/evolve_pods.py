"""Folds facts about pods: spent slots, vacancies, tallies, failures, milestones.  Pure; called by `evolve`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from shared.job import text
from shared.job.attempt import KEPT_FAILURES, UNREACHABLE, Failure, LostNode, Notice, Tally, Vacancy
from shared.job.conditions import holds, with_condition
from shared.job.events.event import At
from shared.job.events.watcher import DisruptionNoticed, NodeBack, NodeLost, PodsObserved, TimePassed
from shared.job.evolve_requests import seen
from shared.job.naming import Slot, Uid
from shared.job.policies import capacity, nodes
from shared.job.policies.nodes import with_failure
from shared.job.policies.replacement import MOST_IN_PLACE, back_off, in_place, losses_before, without_store
from shared.job.policies.retries import before_start
from shared.job.policies.verdict import succeeded_with
from shared.job.reasons import RENDEZVOUS_LOST
from shared.job.sorted_set import SortedSet
from shared.job.spec import LAUNCHER, RENDEZVOUS
from shared.job.state import (
    Job,
    Refusal,
    exit_of,
    held_by_others,
    needed_workers,
    no_longer_refused,
    running_workers,
    with_attempt,
    with_objects,
    with_pods,
    with_resource,
    with_scaling,
    with_status,
    without,
)
from shared.job.timers import WELL
from shared.job.views import PodView, alive, ended, newer, newest_versions, trouble

replace = msgspec.structs.replace

V = TypeVar("V")


def in_epoch(job: Job, epoch: int) -> Job:
    """The job in a newer epoch of the cluster's store: versions start anew, so every view of that store is newer.

    That store may lack a Secret of the job, so that the scheduler makes it again.
    """
    if epoch <= job.resource.epoch:
        return job
    requests = {uid: replace(request, version=0) for uid, request in job.scaling.requests.items()}
    return with_objects(
        with_pods(
            with_resource(with_scaling(job, requests=requests), epoch=epoch, version=0, blank=False),
            views={uid: replace(pod, version=0) for uid, pod in job.pods.views.items()},
        ),
        children={at: replace(child, version=0) for at, child in job.objects.children.items()},
        secrets={},
    )


def pods_observed(job: Job, event: PodsObserved, at: At) -> Job:
    if event.epoch < job.resource.epoch:
        return job
    job = in_epoch(job, event.epoch)
    attempt = job.attempt
    pods, disrupted, troubles = dict(job.pods.views), dict(job.pods.disrupted), dict(job.pods.troubles)
    tallies, vacancies, launcher = dict(attempt.tallies), dict(attempt.vacancies), attempt.launcher_gone
    failures, over, news = [*job.status.failures], dict[Slot, None](), dict(attempt.news)
    newest: dict[Slot, int] | None = None
    storeless: bool | None = None
    fresh, replaced, failed_on = 0, attempt.replaced, job.pods.failures_on
    for pod in event.pods:
        known = pods.get(pod.uid)
        if known is not None and not newer(pod, known):
            continue
        pods[pod.uid], slot = pod, pod.slot
        if known is None and ended(pod) and newest is None:
            newest = newest_versions(pods.values())
        elif newest is not None:
            newest[slot] = max(newest.get(slot, 0), pod.version)
        if pod.attempt == attempt.number and (known is None or _course(known) != _course(pod)):
            news[slot] = at.sequence
        if pod.ready and not (pod.deleting or pod.reason):
            troubles.pop(pod.uid, None)
        elif _changes(known, pod):
            troubles[pod.uid] = at
        if pod.disruption:
            disrupted[pod.uid] = pod.disruption
        elif known is not None and known.disruption and not pod.deleting and pod.uid not in job.pods.notices:
            # The eviction was called off, and the pod's node stays.
            disrupted.pop(pod.uid, None)
        if pod.role == LAUNCHER and pod.attempt == attempt.number and ended(pod) and not pod.deleting:
            launcher = launcher or replace(pod, disruption=disrupted.get(pod.uid, ""))
        awaited = slot in attempt.slots and slot not in over
        if awaited and (failed_in_place := _failed_in_place(job, known, pod)):
            if storeless is None:
                storeless = without_store(job, {**job.pods.views, **{pod.uid: pod for pod in event.pods}}.values())
            disruption = disrupted.get(pod.uid) or (RENDEZVOUS_LOST if storeless else None)
            last = known or pod
            failed = replace(pod, phase="Failed", reason=last.reason or "Error", message=last.message)
            vacancy, failure = _lost(job, slot, failed, disruption, at, ran=True)
            failures.append(failure)
            if disruption is None:
                failed_on = with_failure(failed_on, pod.node, at)
                replaced += failed_in_place - 1
                if pod.restarts >= MOST_IN_PLACE or (job.spec is not None and replaced >= job.spec.backoff_limit):
                    # The pod counts as lost, whatever its kubelet does, and its replacement against the limit.
                    over[slot], vacancies[slot] = None, vacancy
                else:
                    replaced += 1
        fresh += known is None and awaited
        if known is None and ended(pod) and newest is not None and newest[slot] > pod.version:
            # The pod ended before its successor was created.
            continue
        if ended(pod) and awaited and not (known is not None and ended(known)):
            over[slot] = None
            if not pod.deleting:
                tallies[pod.role] = _counted(tallies.get(pod.role, Tally()), pod)
            if pod.role != LAUNCHER and slot not in attempt.replaced_ahead:
                # A kubelet may lose the status of a container that ran.
                ran = pod.ran or (known is not None and known.phase == "Running")
                if storeless is None:
                    storeless = without_store(job, {**job.pods.views, **{pod.uid: pod for pod in event.pods}}.values())
                disruption = disrupted.get(pod.uid) or (RENDEZVOUS_LOST if storeless else None)
                vacancies[slot], failure = _lost(job, slot, pod, disruption, at, ran=ran)
                if not vacancies[slot].succeeded:
                    failures.append(failure)
                    if not vacancies[slot].blameless:
                        failed_on = with_failure(failed_on, pod.node, at)
    attempt = replace(
        attempt,
        placed=attempt.placed or (bool(attempt.gang) and any(_has_place(job, pod) for pod in event.pods)),
        slots=attempt.slots - over if over else attempt.slots,
        spent=attempt.spent | over if over else attempt.spent,
        tallies=tallies,
        vacancies=vacancies,
        news=news,
        launcher_gone=launcher,
        launcher_ended=attempt.launcher_ended or (at.sequence if launcher is not None else 0),
        replaced=replaced,
    )
    unseen = job.pods.unseen
    if unseen.slots:
        unseen = replace(unseen, slots=unseen.slots - {pod.slot for pod in event.pods})
    job = replace(
        job,
        attempt=attempt,
        pods=replace(
            job.pods, unseen=unseen, views=pods, troubles=troubles, disrupted=disrupted, failures_on=failed_on
        ),
        status=replace(job.status, failures=tuple(failures[-KEPT_FAILURES:])),
        efforts=replace(job.efforts, refusals=_progress(job, fresh, event)),
    )
    job = _with_stuck(job, [pod.uid for pod in event.pods], at)
    return with_minimum_checked(seen(with_milestones(job, at), at), at)


def _has_place(job: Job, pod: PodView) -> bool:
    """True for a pod of the attempt that has a node; launcher and rendezvous are in no gang."""
    return bool(pod.node) and pod.attempt == job.attempt.number and pod.role not in (LAUNCHER, RENDEZVOUS)


def _failed_in_place(job: Job, known: PodView | None, pod: PodView) -> int:
    """How often the kubelet began the failed training container of a pod again, as Muster told it, since it is known.

    Between two views it may have been more than once.
    """
    if ended(pod) or pod.deleting or not in_place(job.spec, pod.role):
        return 0
    return max(pod.restarts - (known.restarts if known is not None else 0), 0)


def with_milestones(job: Job, at: At) -> Job:
    """The job with the milestones that its pods reached: each becomes true once in an attempt."""
    if not job.starting:
        return job
    conditions = job.status.conditions
    # The pods that start together: all but the launcher.
    together = job.spec is not None and not job.spec.has_launcher
    if not holds(conditions, "WorkersReady") and (workers := job.attempt.slots if together else job.attempt.workers):
        message = text.counted(len(workers), "pod" if together else "worker")
        # The look at each slot comes once there can be enough pods.
        enough = len(workers) if together else min(capacity.least_to_start(job), len(workers))
        pods = job.by_slot() if len(job.pods.views) >= enough else {}
        views = [pod for slot, pod in pods.items() if slot in workers and alive(pod)]
        if len(views) >= enough:
            conditions = with_condition(
                conditions, "WorkersCreated", at, reason=f"{job.resource.kind}WorkersCreated", message=message
            )
            if sum(view.ready for view in views) >= enough:
                conditions = with_condition(
                    conditions, "WorkersReady", at, reason=f"{job.resource.kind}WorkersReady", message=message
                )
    if job.launcher is not None:
        conditions = with_condition(conditions, "LauncherCreated", at, reason=f"{job.resource.kind}LauncherCreated")
    return with_status(job, conditions=conditions) if conditions is not job.status.conditions else job


def _changes(known: PodView | None, pod: PodView) -> bool:
    """True if a pod has another trouble than before, or none any more, or is not Ready and was."""
    if known is None:
        return bool(trouble(pod))
    return (known.ready and not pod.ready) or trouble(known) != trouble(pod)


def _with_launcher_wait(job: Job, at: At) -> Job:
    """Note since when the launcher of an attempt that starts finds no node, or the workers that a job needs do not."""
    if job.between_attempts or job.over:
        return job
    waits = nodes.has_no_place(job) or capacity.starves(job)
    if waits == (job.attempt.launcher_waits is not None):
        return job
    return with_attempt(job, launcher_waits=at if waits else None)


def pods_already_seen(job: Job, slots: SortedSet[Slot], at: At) -> Job:
    """The job whose `slots` were just assigned: pods that were seen in them before are folded as if seen now.

    The log has lost the decision that made them, or they were seen between an assignment and its basis.
    """
    there = tuple(pod for pod in job.pods.views.values() if pod.slot in slots)
    if not there:
        return job
    others = {uid: pod for uid, pod in job.pods.views.items() if pod.slot not in slots}
    return pods_observed(with_pods(job, views=others), PodsObserved(pods=there, epoch=job.resource.epoch), at)


def _course(pod: PodView) -> tuple[object, ...]:
    """The fields of a pod that decisions depend on."""
    return pod.phase, pod.ready, pod.exits, pod.lingers, pod.restarts, pod.deleting, pod.disruption


def _counted(tally: Tally, pod: PodView) -> Tally:
    if pod.phase == "Succeeded":
        return replace(tally, succeeded=tally.succeeded + 1)
    return replace(tally, failed=tally.failed + 1)


def _lost(job: Job, slot: Slot, pod: PodView, disruption: str | None, at: At, *, ran: bool) -> tuple[Vacancy, Failure]:
    """What the loss of a pod leaves in its slot; the disruption is None if none was noticed."""
    end = exit_of(job, pod)
    # What a pod that ran waited for, such as being Ready, is not why it went.
    said = pod.reason if pod.phase != "Running" else ""
    reason = said or (end.reason if end else "") or ("Deleted" if pod.deleting else "Failed")
    message = end.message if end and end.message else pod.message if said else ""
    done, losses = succeeded_with(end, pod), losses_before(job, slot)
    if disruption == RENDEZVOUS_LOST and (done or pod.role == RENDEZVOUS):
        disruption = None
    blameless = pod.deleting or disruption is not None
    vacancy = Vacancy(
        at=at,
        reason=disruption or reason,
        message=message,
        code=end.code if end else None,
        succeeded=done,
        taken=pod.deleting,
        disrupted=disruption is not None,
        losses=losses,
        wait=before_start(losses) if blameless else back_off(job, slot, succeeded=done),
        ran=ran,
    )
    return vacancy, Failure(pod.name, vacancy.cause, vacancy.code, at, message, vacancy.deleted)


def noticed(job: Job, event: DisruptionNoticed, at: At) -> Job:
    """Note that these pods will be evicted or lose their node."""
    known = {uid: job.pods.notices.get(uid, ()) for uid in event.uids if uid in job.pods.views}
    new = {
        uid: (*before, Notice(at, event.seconds))
        for uid, before in known.items()
        if not before or event.seconds < before[-1].seconds
    }
    if not new:
        return job
    job = with_pods(with_news(job, new, at), disrupted={**job.pods.disrupted, **dict.fromkeys(new, event.reason)})
    return with_pods(job, notices={**job.pods.notices, **new})


def node_lost(job: Job, event: NodeLost, at: At) -> Job:
    """Note that nothing is known of these pods."""
    # A node that is lost for another reason was lost all the time: what is being deleted there has waited since then.
    new = {
        uid: LostNode(
            node=event.node,
            reason=event.reason,
            since=event.since,
            at=at,
            force_after=event.force_after,
            terminating=job.pods.lost[uid].terminating if uid in job.pods.lost else None,
        )
        for uid in event.uids
        if uid in job.pods.views
    }
    job = with_pods(with_news(job, new, at), lost={**job.pods.lost, **new})
    after = _with_stuck(job, new, at)
    # A lost node alone changes no pod, and hundreds may be lost at once.
    return with_minimum_checked(with_milestones(after, at), at) if after is not job else job


def well_again(job: Job, event: TimePassed) -> Job:
    """The containers that crashed beside a pod's training have run for long, so that nothing is amiss any more."""
    told, _, restarts = event.timer.removeprefix(WELL).rpartition(":")
    uid = Uid(told)
    since = job.pods.troubles.get(uid)
    if since is None or since.sequence != event.anchor:
        return job
    well = replace(job.pods.views[uid], reason="", message="", runs_again=int(restarts))
    return with_pods(job, views={**job.pods.views, uid: well}, troubles=_but(job.pods.troubles, [uid]))


def node_back(job: Job, event: NodeBack, at: At) -> Job:
    """Note that the kubelet of these pods reports again, or that their node stays."""
    if event.stays:
        uids = [uid for uid in event.uids if (pod := job.pods.views.get(uid)) is not None and not pod.disruption]
        job = with_pods(with_news(job, uids, at), disrupted=_but(job.pods.disrupted, uids))
        return with_pods(job, notices=_but(job.pods.notices, uids))
    return with_milestones(with_pods(with_news(job, event.uids, at), lost=_but(job.pods.lost, event.uids)), at)


def _with_stuck(job: Job, uids: Iterable[Uid], at: At) -> Job:
    """The job in which terminating pods of unreachable nodes count as gone, of these; they stay among its pods."""
    terminating = [job.pods.views[uid] for uid in uids if uid in job.pods.lost and job.pods.views[uid].deleting]
    if not terminating:
        return job
    lost = dict(job.pods.lost)
    for pod in terminating:
        lost[pod.uid] = replace(lost[pod.uid], terminating=lost[pod.uid].terminating or at)
    job = with_pods(job, lost=lost)
    going = [pod for pod in terminating if _counts_as_gone(job, pod)]
    if not going:
        return job
    disrupted = {**{pod.uid: lost[pod.uid].reason for pod in going}, **job.pods.disrupted}
    after = pods_gone(with_pods(job, disrupted=disrupted), [pod.uid for pod in going], at)
    launcher = any(pod.role == LAUNCHER for pod in going)
    after = with_attempt(after, launcher_lost=after.attempt.launcher_lost or (launcher and not job.over))
    return with_pods(
        after,
        views=job.pods.views,
        troubles=job.pods.troubles,
        disrupted=job.pods.disrupted,
        notices=job.pods.notices,
        lost=lost,
    )


def _counts_as_gone(job: Job, pod: PodView) -> bool:
    """True if only a silent kubelet could tell how this pod ends."""
    return (
        pod.deleting
        and not ended(pod)
        and pod.slot in job.attempt.slots
        and job.pods.lost[pod.uid].reason == UNREACHABLE
    )


def _but(mapping: Mapping[Uid, V], uids: Iterable[Uid]) -> Mapping[Uid, V]:
    """The mapping without these pods; most jobs have none in it."""
    going = {*uids} & mapping.keys()
    return {uid: value for uid, value in mapping.items() if uid not in going} if going else mapping


def with_news(job: Job, uids: Iterable[Uid], at: At) -> Job:
    """Note this event as the newest about these pods, if they are of the present attempt."""
    slots = [pod.slot for uid in uids if (pod := job.pods.views.get(uid)) and pod.attempt == job.attempt.number]
    return with_attempt(job, news={**job.attempt.news, **dict.fromkeys(slots, at.sequence)}) if slots else job


def pods_gone(job: Job, uids: Sequence[Uid], at: At) -> Job:
    job = with_news(job, uids, at)
    attempt = job.attempt
    pods, disrupted = dict(job.pods.views), dict(job.pods.disrupted)
    vacancies, launcher = dict(attempt.vacancies), attempt.launcher_gone
    failures, lost = [*job.status.failures], dict[Slot, None]()
    newest = newest_versions(pods.values())
    for uid in uids:
        pod, disruption = pods.pop(uid, None), disrupted.pop(uid, None)
        if pod is None:
            continue
        slot = pod.slot
        if pod.role == LAUNCHER and pod.attempt == attempt.number and launcher is None:
            launcher = replace(pod, disruption=pod.disruption or disruption or "")
        if slot in attempt.slots and slot not in lost and newest[slot] <= pod.version:
            # No decision released the slot, so the pod was lost.
            lost[slot] = None
            if pod.role != LAUNCHER and slot not in attempt.replaced_ahead:
                vacancies[slot], failure = _lost(job, slot, replace(pod, deleting=True), disruption, at, ran=pod.ran)
                failures.append(failure)
    attempt = replace(
        attempt,
        slots=attempt.slots - lost,
        spent=attempt.spent | lost,
        vacancies=vacancies,
        launcher_gone=launcher,
        launcher_ended=attempt.launcher_ended or (at.sequence if launcher is not None else 0),
    )
    return replace(
        job,
        attempt=attempt,
        pods=replace(
            job.pods,
            views=pods,
            troubles=_but(job.pods.troubles, uids),
            disrupted=disrupted,
            notices=_but(job.pods.notices, uids),
            lost=_but(job.pods.lost, uids),
            drained=job.pods.drained - uids if job.pods.drained else job.pods.drained,
        ),
        status=replace(job.status, failures=tuple(failures[-KEPT_FAILURES:])),
        efforts=replace(
            job.efforts,
            refusals=no_longer_refused(job.efforts.refusals, ("DeletePod",))
            if job.efforts.refusals
            else job.efforts.refusals,
        ),
    )


def with_minimum_checked(job: Job, at: At) -> Job:
    """Note since when fewer workers run than a running job needs, and since when some of them find no node."""
    job = _with_launcher_wait(job, at)
    if job.spec is None or job.status.phase not in ("Running", "Scaling"):
        return job
    if running_workers(job) >= needed_workers(job):
        enough_now = job.attempt.gathered and not job.attempt.below_minimum
        return job if enough_now else with_attempt(job, gathered=True, below_minimum=0)
    # A launcher starts after all its workers; in a job without one, workers that never ran are not lost.
    lost = job.attempt.gathered or job.spec.has_launcher
    return with_attempt(job, below_minimum=at.sequence) if lost and not job.attempt.below_minimum else job


def _progress(job: Job, fresh: int, event: PodsObserved) -> Mapping[str, Refusal]:
    """The refusals after new pods were seen: the next probe may create twice as many; without missing pods it ends.

    Those of an effect whose outcome a pod shows are over.
    """
    if not job.efforts.refusals:
        return job.efforts.refusals
    refusals = no_longer_refused(
        job.efforts.refusals, [effect for pod in event.pods for effect in _shown(job.pods.views.get(pod.uid), pod)]
    )
    refusal, held = refusals.get("CreatePod"), job.held_names
    if not fresh:
        return refusals
    if held is not None and held.slots & (there := [pod.slot for pod in event.pods]):
        refusals = held_by_others(refusals, replace(held, probe=held.probe * 2), there)
    if refusal is None or not refusal.due:
        return refusals
    filled = {pod.slot for pod in job.pods.views.values()}
    if len(job.attempt.slots - filled) <= fresh:
        return without(refusals, "CreatePod")
    return {**refusals, "CreatePod": replace(refusal, probe=refusal.probe * 2)}


def _shown(known: PodView | None, pod: PodView) -> Iterator[str]:
    """The effects that have succeeded by what a pod shows now."""
    if pod.deleting:
        yield "DeletePod"
    if known is not None and pod.hosts > known.hosts:
        yield from ("NudgeLauncher", "LinkHosts")
    if known is not None and pod.claimed and not known.claimed:
        yield "ClaimPod"
