"""The training container of a pod: whether it runs, is Ready or ended, and what keeps it from running.  Pure.

The container is the replica: neither the pod's phase nor its condition Ready tells of it where other containers run
beside it.  What the kubelet restarts in place has not ended (the rules: Kubernetes' API reference, `Container`,
`restartPolicy` and `restartPolicyRules`).

One that crashes beside it runs for seconds in each try, so that it runs says nothing: its last end is told in the same
words while it waits, runs and has ended again, with the number of its restarts.  `turns.py` says when it is well.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shared.cluster.objects import Container, ContainerStatus, Pod, Terminated
from shared.job import text
from shared.job.naming import CONTAINER
from shared.job.policies.retries import never_started
from shared.job.reasons import END_UNKNOWN, ENDED_BY_KUBELET, INIT_CONTAINER_FAILED
from shared.job.views import INITIALIZING, ON_THE_WAY

RUNS = " runs"
"""What the words about an init container that runs have and no others."""

_DEFAULT_SCHEDULER = "default-scheduler"
_RESTARTS_ALL = "RestartAllContainers"
_LOST_BY_CONTAINERD = "Unknown"
"""What containerd says of a container that ran when its machine, or containerd's own record of it, went."""
_CRASHES = "CrashLoopBackOff"
_OF_ONE_CRASH = frozenset({_CRASHES, "RunContainerError"})
"""A kubelet tells them by turns while it tries to start a container."""


class _Hindrance(NamedTuple):
    """What keeps a container from running, or crashed in it, and the words about it."""

    reason: str = ""
    message: str = ""
    runs_again: int = 0
    """How often the kubelet restarted it, if it crashed and runs again."""


class Training(NamedTuple):
    phase: str
    """Pending, Running, Succeeded, Failed or Unknown."""
    ready: bool
    ran: bool
    """False if nothing shows that it ever ran: the pod was rejected, or ended before it."""
    lingers: bool
    """It ended, and other containers of the pod run on."""
    restarts: int
    """How often the kubelet restarted it in place."""
    ended: tuple[ContainerStatus, ...]
    """Once it ended: its status, then those of the others that ended."""
    reason: str
    """What keeps it from running or from being Ready, or why the kubelet ended or rejected the pod."""
    message: str
    runs_again: int
    """If `reason` is that others crashed which run again: how often the kubelet restarted them."""


def training_of(pod: Pod, *, last_words: bool = True) -> Training:
    """What the training container of a pod does; without `last_words` no message has those of a container."""
    phase = pod.status.phase or "Pending"
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    containers = {container.name: container for container in pod.spec.containers or ()}
    mine = _status(pod, statuses, containers)
    over = phase in ("Succeeded", "Failed")
    begins_again = not over and _all_begin_again(pod, statuses.values())

    def end_of(status: ContainerStatus) -> Terminated | None:
        """How a container ended for good."""
        end = status.state.terminated
        again = begins_again or (end is not None and not over and _begins_again(pod, containers.get(status.name), end))
        return None if again else end

    end = end_of(mine) if mine is not None else None
    if end is not None and not over and not end.exit_code and _is_failing(pod):
        # The kubelet ends the pod, and will say why: a training that exits with 0 when it is told to did not succeed.
        end = None
    if phase != "Unknown":
        phase = _phase(pod, mine, end, phase)
    ended = over or end is not None
    others = [status for status in statuses.values() if status is not mine]
    hindrance = _hindrance(pod, mine, phase, last_words=last_words) if phase != "Unknown" else _Hindrance()
    return Training(
        phase=phase,
        ready=phase == "Running" and _ready(pod, mine),
        ran=_ran(mine) if mine is not None else phase in ("Running", "Succeeded"),
        lingers=not over and end is not None and any(end_of(status) is None for status in others),
        restarts=mine.restart_count if mine is not None else 0,
        ended=tuple(known for known in (mine, *others) if known is not None and end_of(known)) if ended else (),
        reason=hindrance.reason,
        message=hindrance.message,
        runs_again=hindrance.runs_again,
    )


def _status(pod: Pod, statuses: dict[str, ContainerStatus], containers: dict[str, Container]) -> ContainerStatus | None:
    """The status of the training container; None before the kubelet has written one.

    The scheduler names the container in an annotation.  A pod of another operator has none: its first container
    trains, and what an admission webhook has put before it would be taken for that.
    """
    named = (pod.metadata.annotations or {}).get(CONTAINER) or next(iter(containers or statuses), "")
    return statuses.get(named)


def end_is_unknown(pod: Pod, training: Training) -> bool:
    """True if the node does not know how the training ended: it was restarted, or has lost the container.

    Of a pod that the kubelet ends for another reason, such as its own limits, that reason counts.
    """
    ends = training.ended[:1] if training.phase == "Failed" and training.ran and not pod.status.reason else ()
    found = (known.state.terminated for known in ends)
    return any(end is not None and end.reason in (END_UNKNOWN, _LOST_BY_CONTAINERD) for end in found)


def _phase(pod: Pod, mine: ContainerStatus | None, end: Terminated | None, phase: str) -> str:
    if phase == "Succeeded" or (phase == "Failed" and (pod.status.reason or end is None)):
        # Evicted, rejected or past its deadline: a container that ended with 0 when it was told to did not succeed.
        return phase
    if end is not None:
        return "Failed" if end.exit_code else "Succeeded"
    if mine is None:
        return phase
    if mine.state.running is not None or _ran(mine):
        return "Running"
    # A kubelet says why a container waits; one that says nothing has only told the pod's phase.
    return "Pending" if mine.state.waiting is not None or mine.state.terminated is not None else phase


def _ran(mine: ContainerStatus) -> bool:
    end, before = mine.state.terminated, mine.last_state.terminated
    if mine.state.running is not None or (mine.restart_count and before is None):
        return True
    if before is not None and not never_started(before.reason or ""):
        return True
    # When a pod ends, a kubelet gives an end without a start to each container that it finds nowhere.
    is_made_up = end is not None and end.reason == END_UNKNOWN and not end.started_at
    return end is not None and not is_made_up and not never_started(end.reason or "")


def _ready(pod: Pod, mine: ContainerStatus | None) -> bool:
    conditions = _true(pod)
    if mine is None:
        return conditions.get("Ready", False)
    # If every container is Ready and the pod is not, its readiness gates or its node say so.
    of_the_pod = conditions.get("ContainersReady", False) and not conditions.get("Ready", True)
    return mine.ready and not of_the_pod


def _is_failing(pod: Pod) -> bool:
    """True once the kubelet has told that the pod will be Failed; it writes that phase when all containers ended."""
    return any(known.type == "Ready" and known.reason == ENDED_BY_KUBELET for known in pod.status.conditions or ())


def _true(pod: Pod) -> dict[str, bool]:
    return {known.type: known.status == "True" for known in pod.status.conditions or ()}


def _begins_again(pod: Pod, container: Container | None, end: Terminated) -> bool:
    """True if the kubelet restarts a container of a pod that has not ended."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    policy = container.restart_policy if container is not None else None
    if policy and _action(container, end):
        return True
    policy = policy or pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and end.exit_code != 0)


def _action(container: Container | None, end: Terminated) -> str:
    """The action of the first rule that names this exit code; empty without one."""
    for rule in (container.restart_policy_rules or ()) if container is not None else ():
        codes = rule.exit_codes
        if codes is not None and (end.exit_code in (codes.values or ())) == (codes.operator == "In"):
            return rule.action
    return ""


def _all_begin_again(pod: Pod, statuses: Iterable[ContainerStatus]) -> bool:
    """True while the kubelet restarts all containers of the pod, as a rule of one that ended says."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if _true(pod).get("AllContainersRestarting", False):
        return True
    ruled = {each.name: each for each in _containers(pod) if each.restart_policy_rules and each.restart_policy}
    ends = [*statuses, *(pod.status.init_container_statuses or ())] if ruled else []
    return any(
        known.state.terminated is not None and _action(ruled.get(known.name), known.state.terminated) == _RESTARTS_ALL
        for known in ends
    )


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers or ()
    yield from pod.spec.containers or ()


def _hindrance(pod: Pod, mine: ContainerStatus | None, phase: str, *, last_words: bool) -> _Hindrance:
    """What keeps the training container from running or being Ready."""
    if pod.status.reason:
        return _Hindrance(pod.status.reason, pod.status.message or "")
    if phase in ("Succeeded", "Failed") and mine is not None and _ran(mine):
        return _Hindrance()
    if phase == "Running":
        look = _beside if _ready(pod, mine) else _unready
        return look(pod, mine, last_words=last_words)
    before = next(_of_init_containers(pod, mine, phase, last_words=last_words), None)
    if before is not None:
        return before
    own = _waiting(mine, "", last_words=last_words) if mine is not None else _Hindrance(message=_untouched(pod))
    if own.reason not in ON_THE_WAY:
        return own
    if mine is not None and own == _Hindrance(INITIALIZING):
        own = _Hindrance(INITIALIZING, f"container {mine.name} has not started")
    told = next(_of_others(pod, mine, last_words=last_words), None)
    placed = [known for known in pod.status.conditions or () if known.type == "PodScheduled" and known.reason]
    why = (_Hindrance(known.reason or "", known.message or "") for known in placed if known.status == "False")
    return told or next(why, own)


def _untouched(pod: Pod) -> str:
    """Which program has not said anything about the pod yet, if what it waits for may not exist."""
    if pod.status.conditions or pod.status.phase not in (None, "", "Pending"):
        return ""
    if pod.spec.node_name:
        return f"no kubelet of a node {pod.spec.node_name} has taken it on yet"
    name = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
    # A kube-scheduler does not say that it waits for a claim that is not there.
    claims = ", ".join(claim.name for claim in pod.spec.resource_claims or ())
    if name == _DEFAULT_SCHEDULER and not claims:
        return ""
    return f"no scheduler called {name} has looked at it yet" + (
        f"; it asks for resource claims: {claims}" if claims else ""
    )


def _of_others(pod: Pod, mine: ContainerStatus | None, *, last_words: bool) -> Iterator[_Hindrance]:
    """What the containers beside the training container wait for, unless that is usual, and those that crash."""
    specs = {each.name: each for each in pod.spec.containers or ()}
    for known in pod.status.container_statuses or ():
        if known is mine:
            continue
        spec, what = specs.get(known.name), f"container {known.name}"
        now = known.state.terminated
        if now is not None and (not _begins_again(pod, spec, now) or _action(spec, now) == _RESTARTS_ALL):
            continue
        if (end := now or _end_before(known, mine)) is not None:
            yield _Hindrance(_CRASHES, _told(what, end, last_words=last_words), 0 if now else known.restart_count)
        elif (told := _waiting(known, what, last_words=last_words)).reason not in ON_THE_WAY:
            yield told


def _end_before(known: ContainerStatus, mine: ContainerStatus | None) -> Terminated | None:
    """How a container that runs ended the last time; None if it began again together with the training container."""
    together = mine is not None and known.restart_count <= mine.restart_count
    return None if together or known.state.running is None else known.last_state.terminated


def _beside(pod: Pod, mine: ContainerStatus | None, *, last_words: bool) -> _Hindrance:
    """What keeps a sidecar, or another container, from running beside a training container that is Ready."""
    sidecars = (
        told
        for told in _of_init_containers(pod, mine, "Running", last_words=last_words)
        if told.reason not in ON_THE_WAY
    )
    found = [*sidecars, *_of_others(pod, mine, last_words=last_words)]
    # Of those that crashed and run again one may be well since long.
    now = next((told for told in found if not told.runs_again), None)
    if now is not None or not found:
        return now or _Hindrance()
    return found[0]._replace(runs_again=sum(told.runs_again for told in found))


def _unready(pod: Pod, mine: ContainerStatus | None, *, last_words: bool) -> _Hindrance:
    """Why a training container that runs, or is about to run again, is not Ready."""
    if _is_failing(pod):
        return _Hindrance(ENDED_BY_KUBELET, "the kubelet ends the pod, and says why once its containers have ended")
    own = _waiting(mine, "", last_words=last_words) if mine is not None else _Hindrance()
    if own.reason:
        return own
    if mine is not None and (end := mine.state.terminated) is not None:
        # A kubelet does not say that it waits before it begins a container of a pod with restartPolicy Never again.
        return _Hindrance(end.reason or "Error", _told("", end, last_words=last_words))
    condition = next((known for known in pod.status.conditions or () if known.type == "Ready"), None)
    return _Hindrance(condition.reason or "", condition.message or "") if condition is not None else _Hindrance()


def _of_init_containers(
    pod: Pod, mine: ContainerStatus | None, phase: str, *, last_words: bool
) -> Iterator[_Hindrance]:
    """What happened to the init containers that the training container waits for, or that kept it from running.

    A sidecar is an init container that runs on: it has done its part once it has started.
    """
    specs = {each.name: each for each in pod.spec.init_containers or ()}
    for known in pod.status.init_container_statuses or ():
        spec = specs.get(known.name)
        is_sidecar = spec is not None and spec.restart_policy == "Always"
        what = f"{'sidecar' if is_sidecar else 'init container'} {known.name}"
        end, before = known.state.terminated, _end_before(known, mine)
        hinders = phase == "Running" or not is_sidecar or known.started is False
        if end is not None and (end.exit_code or is_sidecar):
            again = phase != "Failed" and (is_sidecar or _begins_again(pod, spec, end))
            yield _Hindrance(_CRASHES if again else INIT_CONTAINER_FAILED, _told(what, end, last_words=last_words))
        elif known.state.waiting is not None:
            told = _waiting(known, what, last_words=last_words)
            yield _Hindrance(INITIALIZING, f"{what} has not started") if told.reason in ON_THE_WAY else told
        elif before is not None and (before.exit_code or is_sidecar) and hinders:
            yield _Hindrance(_CRASHES, _told(what, before, last_words=last_words), known.restart_count)
        elif known.state.running is not None and not is_sidecar:
            yield _Hindrance(INITIALIZING, f"{what}{RUNS}")
        elif known.state.running is not None and known.started is False:
            yield _Hindrance(INITIALIZING, f"{what}{RUNS}, and has not started by its startupProbe or postStart hook")


def _waiting(known: ContainerStatus, what: str, *, last_words: bool) -> _Hindrance:
    """The reason and the words of a container that waits, with its last end if it begins again."""
    waiting, end = known.state.waiting, known.last_state.terminated
    if waiting is None or not waiting.reason:
        return _Hindrance()
    ended = _told(what, end, last_words=last_words) if end is not None else what
    if what and end is not None and waiting.reason in _OF_ONE_CRASH:
        return _Hindrance(_CRASHES, ended)
    # Where it could not be started, a kubelet says the same of its end and of its wait.
    more = "" if last_words and end is not None and end.message == waiting.message else waiting.message
    return _Hindrance(waiting.reason, ": ".join(filter(None, (ended, more))))


def _told(what: str, end: Terminated, *, last_words: bool) -> str:
    """`init container fetch exited with 7 (Error): no such bucket`."""
    how = f"exited with {end.exit_code}" + (f" ({end.reason})" if end.reason else "")
    return text.with_last_words(f"{what} {how}".strip(), end.message if last_words and end.message else "")
