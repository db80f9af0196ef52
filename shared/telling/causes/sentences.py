"""The sentence of each event, with its values put in, as `muster why`, `audit` and `report` print it.  Pure.

`sentence` has every type of event, or mypy complains; the cause of each is in `walk.py`.
"""

import signal
from collections.abc import Iterable
from typing import get_args

from shared.job.events import scaler, scheduler, status, watcher
from shared.job.events.catalog import AnyEvent, Decision
from shared.job.events.event import ChangeAttributed, EffectRefused, EventDisowned, LogCreated
from shared.job.events.scaler import DrainChecked, ScriptFinished
from shared.job.events.watcher import ChildrenObserved, DisruptionNoticed, NodeBack, NodeLost, ScaleRequested
from shared.job.naming import Slot, Uid, config_name
from shared.job.reasons import of_refusal, plain
from shared.job.spec import LAUNCHER, WORKER, JobSpec, RoleSpec
from shared.job.state import Job, refusal_key
from shared.job.text import MOST_MESSAGE, counted, in_a_row, in_one_line, last_words
from shared.job.timers import BACK_OFF, FORCED_DELETION, NOTICE, REPLACEMENT, WELL
from shared.job.timing import next_due
from shared.job.training import begins, goes_back
from shared.job.views import ChildView, PodView, each, ended
from shared.telemetry.metrics import seconds_between
from shared.telling.causes.links import OfPeople, listing, names_of, of_at_most, problem_line, rest_of_line, waits_of
from shared.telling.causes.links import because as why

_WENT = {"Bound": "the request went to its job", "HistoryLost": "the request had ended in a history that was lost"}
"""Why a request is of its history no more, by reason; it was deleted otherwise."""
_TIMERS = {
    "ActiveDeadline": "it was active for all the time that it may be{}",
    "BelowMinimum": "it stayed below its minimum for all the time that it may{}",
    "DisruptionDrain": "the pods that are about to go had their time to finish{}",
    "DrainCheck": "the wait before the next look at the leaving workers is over{}",
    "Drain": "the leaving workers had their time to finish{}",
    "LauncherWait": "the workers held their places without a launcher, or without enough of them, as long as may be{}",
    "Grow": "more workers may join those that train{}",
    "Restart": "the wait before the next attempt is over{}",
    "ScalingDeadline": "the time of the request is over{}",
    "Settle": "the workers that are Ready have waited for more{}",
    "Stall": "its training made no step for all the time that it may{}",
    "Steady": "a worker that took the place of a lost one is steady{}",
    "Scheduling": "its pods had their time to become Ready{}",
    "Seal": "it was gone for the time after which its history is sealed{}",
    "TimeToLive": "it was over for the time that it is kept{}",
    "Unseen": "the pods of released slots that were not seen had their time to appear{}",
}
_SIGNAL_CODES = 128
"""An exit code above this is the number of a signal plus this, as in shells and container runtimes."""
PHASES = tuple(kind for kind in get_args(status.Decision) if issubclass(kind, status.PhaseEntered))
_PHASES = {
    "JobCreated": "the job is admitted",
    "JobRunning": "the job runs",
    "JobScaling": "the job changes its size",
    "JobRestarting": "another attempt is due",
    "JobSuspending": "the job is being suspended: its pods are deleted",
    "JobSuspended": "the job is suspended",
    "JobSucceeded": "the job succeeded",
    "JobFailed": "the job failed",
}
_OUTCOMES = {"ScaleRejected": "was rejected", "ScaleSucceeded": "is done", "ScaleFailed": "failed"}


def sentence(event: AnyEvent, before: Job, after: Job) -> str:
    """What happened, for a person who knows the job."""
    match event:
        case watcher.JobObserved() | watcher.JobDeleting() | watcher.JobGone() | ScaleRequested():
            return of_change(event, before.spec, after.spec)
        case watcher.JobRelabelled():
            # An older release recorded none.
            return "its labels were changed" if before.resource.labels is not None else "its labels were seen"
        case watcher.JobOfAnother(obstacle=obstacle):
            hinders = f"; Muster cannot take it over: {obstacle}" if obstacle else ""
            return f"another operator began it, and may still be running{hinders}"
        case watcher.JobAdopted():
            return f"the history begins here, in the middle: adopted from {event.source}"
        case watcher.PodsObserved():
            news = [of_pod(pod, before) for pod in event.pods]
            return "; ".join(filter(None, news)) or "pods were seen"
        case watcher.PodsGone():
            gone = [before.pods.views[uid].name for uid in event.uids if uid in before.pods.views]
            return f"{in_a_row(gone) or 'a pod'} is gone"
        case watcher.LauncherLost():
            return f"{before.pods.views[event.uid].name if event.uid in before.pods.views else 'the launcher'} vanished"
        case watcher.DisruptionNoticed():
            return noticed(event, _named(event.uids, before))
        case watcher.NodeLost() | watcher.NodeBack():
            return of_node(event, _named(event.uids, before))
        case watcher.ProgressReported():
            return goes_back(event) if event.backwards else progress(before, after)
        case watcher.CheckpointTaken():
            return f"a checkpoint of step {event.step} was taken"
        case watcher.ChildrenObserved():
            return of_workloads(event, before) or "the objects of the job were seen"
        case watcher.ChildGone():
            return f"{event.kind} {event.name} is gone"
        case watcher.ScaleRequestGone():
            return _WENT.get(event.reason, "the request was deleted")
        case watcher.TimePassed():
            timer = (event.anchor, event.timer)
            seconds = next((due.seconds for due in next_due(before) if (due.anchor, due.name) == timer), None)
            return timer_line(event.timer, seconds)
        case EffectRefused():
            return refusal_line(event, after)
        case scaler.ScriptFinished():
            return script_line(event)
        case scaler.DrainChecked():
            return drain_line(event)
        case watcher.HistoryBroken():
            return f"the log does not lead to the head in the resource: {event.reason}"
        case watcher.HistoryDisputed():
            return f"the resource shows the head {event.theirs}, log and checkpoint {event.ours}"
        case watcher.HistoryAccepted():
            return "a person accepted that the log goes on without that head"
        case scheduler.SecretMade():
            return "the Secret with the ssh keys was made"
        case scheduler.SecretGone():
            return "the Secret with the ssh keys is gone"
        case scheduler.AutoscalerMade():
            return "the HorizontalPodAutoscaler with the metrics of the job was made"
        case scheduler.AutoscalerGone():
            return "the HorizontalPodAutoscaler is gone"
        case LogCreated():
            return "the log was made"
        case EventDisowned():
            return f"the event {event.sequence} was disowned: {event.reason}"
        case ChangeAttributed():
            return f"{in_one_line(event.user)} made the change of event {event.of}"
        case _:
            # What is left are the decisions; `decided` has all of them, or mypy complains.
            return decided(event, before, after)[0]


def of_change(event: OfPeople, was: JobSpec | None, now: JobSpec | None, by: str = "") -> str:
    """What a person or a program changed; `by` is who, as the rest of a line."""
    match event:
        case watcher.JobObserved(problems=problems) if problems:
            return f"what was applied{by} {waits_of(problems) or 'cannot be acted upon'}: {problem_line(problems)}"
        case watcher.JobObserved():
            if now is None or now == was:
                return "the resource was seen"
            return applied(now, by) if was is None else changed(was, now, event.generation, by)
        case watcher.JobDeleting():
            held = f"its finalizers keep it ({', '.join(event.finalizers)})" if event.finalizers else ""
            if event.orphan:
                held = "its pods and all that belongs to it stay, as `--cascade=orphan` asks"
            return f"it was deleted{by}, and {held or 'waits for a finalizer'}"
        case watcher.JobGone():
            return f"the resource is gone{f': it was deleted{by}' if by else ''}"
        case ScaleRequested():
            return scale_request(event, by)


def _named(uids: Iterable[Uid], job: Job) -> list[PodView]:
    return [job.pods.views[uid] for uid in uids if uid in job.pods.views]


def of_pod(pod: PodView, before: Job) -> str:
    """All news of a pod; empty without."""
    known = before.pods.views.get(pod.uid)
    was, news = known or unseen(pod), list[str]()
    ends = over(pod) and not over(was)
    if known is None:
        news.append(f"was created on {pod.node}" if pod.node else "was created")
    if pod.ready and not was.ready and not ends:
        news.append("is Ready")
    elif pod.phase == "Running" and was.phase != "Running" and not ends:
        news.append("runs")
    if pod.restarts > was.restarts and known is not None:
        news.append(f"was begun again in place (restart {pod.restarts})")
    if pod.reason and pod.reason != was.reason and not ended(pod):
        news.append(f"{'has trouble beside it' if pod.ready else 'waits'}: {plain(pod.reason, pod.message)}")
    if pod.deleting and not was.deleting:
        news.append("is being deleted")
    if ends:
        news.append(exit_line(pod))
    if pod.disruption and not was.disruption:
        news.append(f"is about to go: {plain(pod.disruption)}")
    return f"{pod.name} {in_a_row(news)}" if news else ""


def unseen(pod: PodView) -> PodView:
    """The pod as if nothing of it was seen yet."""
    return PodView(uid=pod.uid, name=pod.name, version=0, attempt=pod.attempt, role=pod.role, index=pod.index)


def over(pod: PodView) -> bool:
    """True if its training ended: the exit of a container is reported before the end of its pod."""
    return ended(pod) or bool(pod.exits)


def decided(event: Decision, before: Job, after: Job) -> tuple[str, Iterable[Slot]]:
    """The words for a decision, and the slots that it concerns."""
    match event:
        case scheduler.SlotsAssigned():
            slots = each(event.slots)
            gang = f", of which {event.gang} find places together or none" if event.gang else ""
            return f"{names_of(before, slots)} assigned{gang}{why(event.reason)}", slots
        case scheduler.SlotsReleased() | scaler.WorkersReleased():
            slots = each(event.slots)
            return f"{names_of(before, slots)} released{why(event.reason)}", slots
        case scheduler.JobRestarted():
            limit = of_at_most(after.spec.backoff_limit if after.spec else 0)
            counted = f"restart {after.retries.restarts}{limit}" if event.counted else "not counted as a restart"
            return f"attempt {event.attempt + 1} begins, {counted}{why(event.reason)}", ()
        case scheduler.JobExpired():
            return f"it is deleted{why(event.reason)}", ()
        case scaler.HostsPublished():
            joined, left = after.listed_workers - before.listed_workers, before.listed_workers - after.listed_workers
            come, went = ([*map(after.attempt.worker_slot, indices)] for indices in (joined, left))
            words = [f"{names_of(before, come)} joined"] * bool(come) + [f"{names_of(before, went)} left"] * bool(went)
            change = " and ".join(words) or "no worker joined or left"
            return f"{change}: {listing(after)} of version {event.version}{why(event.reason)}", (*come, *went)
        case scaler.ScaleAccepted():
            leaving = [before.attempt.worker_slot(member.index) for member in event.leaving]
            those, direction = ([*each(event.added)], "join") if event.added else (leaving, "leave")
            be = "is" if len({*those}) == 1 else "are"
            return f"accepted: {names_of(before, those)} {be} to {direction} within {event.deadline} s", those
        case scaler.ScriptStarted():
            return "the script of the request was started", ()
        case scaler.ScaleRejected() | scaler.ScaleSucceeded() | scaler.ScaleFailed() | scaler.ScaleCancelled():
            request = after.scaling.requests.get(event.request)
            what = f"{request.kind} {request.name}" if request else "the request"
            said = request.conditions[-1].message if request and request.conditions else ""
            how = _OUTCOMES.get(type(event).__name__, "was cancelled")
            released = () if isinstance(event, (scaler.ScaleRejected, scaler.ScaleSucceeded)) else each(event.released)
            return f"{what} {how}{why(event.reason, said)}", released
        case status.JobSealed():
            return "its history is whole, and ends here", ()
        case _:
            return _PHASES[type(event).__name__] + why(event.reason, event.message), ()


def applied(spec: JobSpec, by: str = "") -> str:
    """The size and the roles that the job was applied with."""
    pause = ", suspended" if spec.suspend else ""
    roles = [_role(role, spec) for role in spec.roles if role.name != LAUNCHER and role.replicas]
    without = ", ".join(known.field for known in spec.ignored)
    return f"the job was applied{by}: {in_a_row(roles)}{pause}" + (f"; without effect: {without}" if without else "")


def _role(role: RoleSpec, spec: JobSpec) -> str:
    """`2 workers (1 to 4)`, `1 chief`."""
    if role.name != WORKER:
        # The plural of a framework's role is not known.
        return f"{role.replicas} {role.name}"
    most = f"to {role.max_replicas}" if role.max_replicas is not None else "or more"
    return counted(role.replicas, "worker") + (f" ({role.min_replicas} {most})" if spec.handling.elastic else "")


def of_runtime(was: JobSpec, now: JobSpec) -> bool:
    """True for a change of the job's runtime: neither a pause nor a restart of the job was asked for."""
    return now.runtime != was.runtime and (now.suspend, now.restart) == (was.suspend, was.restart)


def changed(was: JobSpec, now: JobSpec, generation: int, by: str = "") -> str:
    """The changes of an edit of the resource."""
    if of_runtime(was, now):
        return "the runtime of the job was changed"
    wishes = []
    if now.suspend != was.suspend:
        wishes.append("suspend it" if now.suspend else "resume it")
    if now.restart != was.restart:
        wishes.append("restart it")
    if now.worker.replicas != was.worker.replicas:
        wishes.append(f"run {counted(now.worker.replicas, 'worker')} instead of {was.worker.replicas}")
    if not wishes:
        return f"the job was edited{by} (generation {generation})"
    return f"the job was edited{by} to {in_a_row(wishes)}"


def scale_request(event: ScaleRequested, by: str = "") -> str:
    """The workers that a scale request adds or removes."""
    if event.spec is None and not event.problems:
        return f"{event.kind} {event.name} has a new version"
    created = f"{event.kind} {event.name} was created{by}"
    if event.problems or event.spec is None:
        return f"{created}, which {waits_of(event.problems) or 'cannot be acted upon'}: {problem_line(event.problems)}"
    spec = event.spec
    if spec.workers or spec.stranger:
        return f"{created}: {spec.stranger or f'worker {spec.workers}'} to leave"
    direction = "more worker" if spec.kind == "ScaleOut" else "fewer worker"
    return f"{created}: {counted(spec.count or 0, direction)}"


def noticed(event: DisruptionNoticed, pods: Iterable[PodView]) -> str:
    """The notice that a node is about to be removed, with its pods."""
    node = f"node {event.node} is about to go" if event.node else "some pods are about to go"
    node += f" in {event.seconds} s" if event.seconds else ""
    names = ", ".join(sorted(pod.name for pod in pods))
    return f"{node}: {plain(event.reason)}" + (f"; it takes {names} along" if names else "")


def of_node(event: NodeLost | NodeBack, pods: Iterable[PodView]) -> str:
    """A node that is lost, or back, with its pods."""
    node = f"node {event.node}" if event.node else "a node"
    names = in_a_row(sorted(pod.name for pod in pods))
    if isinstance(event, NodeBack):
        return f"{node} stays after all, with {names}" if event.stays else f"{node} is back, with {names}"
    since = f" since {event.since}" if event.since else ""
    return f"{node} is lost{since}: {plain(event.reason)}; {names} on it may run or not"


def progress(before: Job, after: Job) -> str:
    """How far the training is; after a change of the group that it trains again, and what the change cost."""
    was, now = before.training, after.training
    if now.reported is None or now.at is None or begins(now.reported):
        return "the training program begins"
    if was.reported is None or was.changed is None:
        return f"the training is at {now.words}"
    seconds = seconds_between(was.changed.time, now.at.time) or 0.0
    back = was.reached - now.reached if was.reached is not None and now.reached is not None else 0
    lost = f", {counted(back, 'step')} back" if back > 0 else ""
    return f"the group trains again at {now.words}{lost}: {seconds:.0f} s after it changed"


def hosts_of(event: ChildrenObserved, job: Job) -> int:
    """The version of the job's hosts files among these objects; 0 without them."""
    name = config_name(job.key.name)
    return max((child.hosts for child in event.children if child.name == name and child.ours), default=0)


def of_workloads(event: ChildrenObserved, job: Job) -> str:
    """What Kueue decided about the job's quota; empty without news.  `job` is the state before."""
    told = (_of_workload(child, job.objects.children.get((child.kind, child.name))) for child in event.children)
    return "; ".join(filter(None, told))


def _of_workload(child: ChildView, before: ChildView | None) -> str:
    now, was = child.workload, before.workload if before is not None and before.uid == child.uid else None
    if now is None or (was is not None and was.answer == now.answer):
        return ""
    flavors = in_a_row([*dict.fromkeys(name for each in now.pod_sets for name in each.flavors)])
    size = in_a_row([counted(each.count, each.role) for each in now.pod_sets])
    if now.finished:
        said = f"is finished: {plain(now.finished)}"
    elif now.deleting:
        said = "is being deleted"
    elif now.evicted:
        said = f"was evicted by Kueue: {plain(now.evicted, now.message)}"
    elif now.admitted:
        said = f"was admitted by Kueue to {flavors or 'no flavor'}: {size}"
    elif now.reserved:
        said = "has quota, and waits for its admission checks"
    else:
        said = f"waits for quota in queue {now.queue}: {size}"
    return f"Workload {child.name} {said}"


def refusal_line(event: EffectRefused, job: Job) -> str:
    """The refused effect, the reason, and the number of refusals; `job` is the state after the refusal."""
    refusal = job.efforts.refusals.get(refusal_key(event.effect, event.reason))
    times = f", {refusal.count} times in a row" if refusal and refusal.count > 1 else ""
    final = ", and would be again unless something changes" if event.permanent else ""
    told = of_refusal(event.effect, event.reason, event.field, plain(event.reason, event.message))
    return f"{told}{final}{times}"


def script_line(event: ScriptFinished) -> str:
    how = f"with exit code {event.exit_code}" if event.exit_code is not None else "and its exit code is not known"
    return f"the script ended, {how}{rest_of_line(plain(event.reason))}"


def drain_line(event: DrainChecked) -> str:
    """The leaving workers that the launcher still uses."""
    those = "worker {} is" if len(event.in_use) == 1 else "workers {} are"
    used = those.format(", ".join(map(str, event.in_use))) + " still in use" if event.in_use else ""
    return used or plain(event.reason) or "the leaving workers are no longer in use"


def timer_line(name: str, seconds: int | None) -> str:
    """The expired timer, and its length."""
    length = f" ({seconds} s)" if seconds is not None else ""
    if name.startswith(BACK_OFF):
        return f"the wait before {name.removeprefix(BACK_OFF)} is tried again is over{length}"
    if name.startswith(REPLACEMENT):
        return f"the wait before the next replacement is over{length}"
    if name.startswith(NOTICE):
        return f"the node goes soon, and its workers leave{length}"
    if name.startswith(FORCED_DELETION):
        return f"the pods of the lost node had their time to end{length}"
    if name.startswith(WELL):
        return "the containers that crashed beside the training ran without a crash for ten minutes"
    return _TIMERS.get(name, f"the timer {name} ran out{{}}").format(length)


def exit_line(pod: PodView) -> str:
    """The end of a pod: its exit codes, of several containers with their names, or its phase without any."""
    codes = [
        (f"{end.container}: " if pod.exits[1:] else "")
        + _exit(end.code, end.reason)
        + rest_of_line(last_words(end.message, MOST_MESSAGE))
        for end in pod.exits
    ]
    reason = f" ({plain(pod.reason, pod.message)})" if pod.reason else ""
    return f"ended{reason}: {', '.join(codes)}" if codes else f"ended as {pod.phase}{reason}"


def _exit(code: int, reason: str) -> str:
    try:
        name = f" ({signal.Signals(code - _SIGNAL_CODES).name})" if code > _SIGNAL_CODES else ""
    except ValueError:
        name = ""
    known = f", {plain(reason)}" if reason not in ("", "Error", "Completed") else ""
    return f"exit code {code}{name}{known}"


def refilled(job: Job, slot: Slot, old: Slot, reason: str) -> str:
    """The words for a slot that replaces another one, or that is filled again."""
    name = names_of(job, [slot])
    change = f"takes the place of {names_of(job, [old])}" if slot != old else "is made again"
    return f"{name} {change}{why(reason)}"
