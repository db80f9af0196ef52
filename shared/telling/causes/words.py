"""The plain words of causes.  Pure."""

import signal
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from shared.job.events.event import EffectRefused
from shared.job.events.scaler import DrainChecked, ScriptFinished
from shared.job.events.watcher import ChildrenObserved, DisruptionNoticed, NodeBack, NodeLost, ScaleRequested
from shared.job.naming import Slot, config_name
from shared.job.reasons import of_refusal, plain
from shared.job.spec import LAUNCHER, PASSING, UNLIMITED, WORKER, JobSpec, Problem, RoleSpec, waits_for_turn
from shared.job.state import Job, needed_workers, refusal_key
from shared.job.text import MOST_MESSAGE, counted, in_a_row, last_words, range_words
from shared.job.timers import BACK_OFF, FORCED_DELETION, NOTICE, REPLACEMENT, WELL
from shared.job.views import Actor, ChildView, PodView, alive, ranges
from shared.telling.causes.links import Person, names

_TIMERS = {
    "ActiveDeadline": "it was active for all the time that it may be{}",
    "BelowMinimum": "it stayed below its minimum for all the time that it may{}",
    "DisruptionDrain": "the pods that are about to go had their time to finish{}",
    "DrainCheck": "the wait before the next look at the leaving workers is over{}",
    "Drain": "the leaving workers had their time to finish{}",
    "LauncherWait": "the launcher found no node for all the time that its workers hold theirs{}",
    "Restart": "the wait before the next attempt is over{}",
    "ScalingDeadline": "the time of the request is over{}",
    "Steady": "a worker that took the place of a lost one is steady{}",
    "Scheduling": "its pods had their time to become Ready{}",
    "TimeToLive": "it was over for the time that it is kept{}",
}

OWN_OUTPUT = "why it ended so; its own output may say"

_SIGNAL_CODES = 128
"""An exit code above this is the number of a signal plus this, as in shells and container runtimes."""


def sentence(message: str) -> str:
    """A message as the rest of a line."""
    return f": {message}" if message else ""


def because(reason: str, message: str = "") -> str:
    """The reason as the rest of a line: its sentence, if there is one, and its word in status and metrics."""
    if message:
        return f": {message}" + (f" ({reason})" if reason and reason not in message else "")
    return f" ({plain(reason)})" if reason else ""


def problem_line(problems: tuple[Problem, ...]) -> str:
    first = problems[0]
    where = f" ({first.field})" if first.field else ""
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return f"{first.reason}{where}{sentence(first.message)}{more}"


def waits_for(problems: Iterable[Problem]) -> str:
    """What a job or a request waits for that begins by itself; empty for one that cannot be acted upon."""
    problems = tuple(problems)
    if waits_for_turn(problems):
        return "waits for its turn"
    return "waits for its runtime" if any(problem.reason in PASSING for problem in problems) else ""


def by(actors: Sequence[Actor], people: Sequence[Person] = ()) -> str:
    """Who wrote it, as the rest of a line: ` by kubectl-edit`; empty where that is not known."""
    known = names(people, actors)
    return f" by {known}" if known else ""


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


def scale_wish(event: ScaleRequested, by: str = "") -> str:
    """The workers that a scale request adds or removes."""
    created = f"{event.kind} {event.name} was created{by}"
    if event.problems or event.spec is None:
        return f"{created}, which {waits_for(event.problems) or 'cannot be acted upon'}: {problem_line(event.problems)}"
    spec = event.spec
    if spec.pod_names:
        return f"{created}: {', '.join(spec.pod_names)} to leave"
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


def hosts_of(event: ChildrenObserved, job: Job) -> int:
    """The version of the job's hosts files among these objects; 0 without them."""
    name = config_name(job.key.name)
    return max((child.hosts for child in event.children if child.name == name and child.ours), default=0)


def of_workloads(event: ChildrenObserved, job: Job) -> str:
    """What Kueue decided about the job's quota; empty without news.  `job` is the state before."""
    told = (_of_workload(child, job.children.get((child.kind, child.name))) for child in event.children)
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
    refusal = job.refusals.get(refusal_key(event.effect, event.reason))
    times = f", {refusal.count} times in a row" if refusal and refusal.count > 1 else ""
    final = ", and would be again unless something changes" if event.permanent else ""
    told = of_refusal(event.effect, event.reason, event.field, plain(event.reason, event.message))
    return f"{told}{final}{times}"


def script_line(event: ScriptFinished) -> str:
    """The end of a script."""
    how = f"with exit code {event.exit_code}" if event.exit_code is not None else "and its exit code is not known"
    return f"the script ended, {how}{sentence(plain(event.reason))}"


def drain_line(event: DrainChecked) -> str:
    """The leaving workers that the launcher still uses."""
    those = "worker {} is" if len(event.in_use) == 1 else "workers {} are"
    used = those.format(", ".join(map(str, event.in_use))) + " still in use" if event.in_use else ""
    return used or plain(event.reason) or "the leaving workers are no longer in use"


def of_at_most(limit: int) -> str:
    """The rest of `2 of at most 6`; empty without a limit."""
    return f" of at most {limit}" if limit < UNLIMITED else ""


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


def at_time(time: str, seconds: int) -> str:
    """`at 10:59:01 UTC`, so many seconds after a time; with the date where that is another day."""
    since = datetime.fromisoformat(time).astimezone(UTC)
    until = since + timedelta(seconds=seconds)
    return f"at {until:%H:%M:%S} UTC" if until.date() == since.date() else f"at {until:%Y-%m-%d %H:%M:%S} UTC"


def back_off_line(since: str, seconds: int) -> str:
    """When a lost pod is replaced; `since` is the time of its loss."""
    if not seconds:
        return "it is replaced"
    return f"it is replaced after a back-off of {seconds} s, {at_time(since, seconds)}"


def slots_that_run(job: Job) -> set[Slot]:
    """The slots of workers whose pods run."""
    views = job.by_slot()
    return {slot for slot in job.attempt.workers if alive(views.get(slot)) and views[slot].phase == "Running"}


def minimum_line(job: Job, without: Sequence[Slot] = ()) -> str:
    """How many workers run, of those that the job needs; several that it is without are named."""
    running = len(slots_that_run(job))
    runs = counted(running, "running worker") if running else "no running worker"
    lost = f" without {names_of(job, without)}" if len(without) > 1 else ""
    return f"{runs} left{lost}, and minReplicas is {needed_workers(job)}"


def exit_line(pod: PodView) -> str:
    """The end of a pod: its exit codes, of several containers with their names, or its phase without any."""
    codes = [
        (f"{end.container}: " if pod.exits[1:] else "")
        + _exit(end.code, end.reason)
        + sentence(last_words(end.message, MOST_MESSAGE))
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


def listing(job: Job) -> str:
    """The word for the list of a job's members: its hosts files, or its group if it has none."""
    return "hosts files" if job.spec is None or job.spec.handling.hosts_files else "group"


def names_of(job: Job, slots: Iterable[Slot]) -> str:
    """`resnet-worker-3`; several are `the launcher and workers 0-3`, or their names in a job without a launcher."""
    found = sorted(slots)
    if len(found) == 1:
        return job.pod_name(found[0])
    if job.spec is not None and not job.spec.has_launcher:
        return in_a_row([_names(job, role, found) for role in dict.fromkeys(slot.role for slot in found)]) or "no pod"
    words = ["the launcher"] if any(slot.role == LAUNCHER for slot in found) else []
    if workers := [slot.index for slot in found if slot.role == WORKER]:
        words.append(f"worker{'s' if len(workers) > 1 else ''} {range_words(ranges(workers))}")
    return " and ".join(words) or "no pod"


def _names(job: Job, role: str, slots: list[Slot]) -> str:
    """`resnet-ps-0`, `resnet-ps-[0-3]`."""
    those = [slot for slot in slots if slot.role == role]
    if len(those) == 1:
        return job.pod_name(those[0])
    stem = job.pod_name(those[0]).removesuffix(str(those[0].index))
    return f"{stem}[{range_words(ranges([slot.index for slot in those]))}]"
