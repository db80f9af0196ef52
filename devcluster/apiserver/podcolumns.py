"""What `kubectl get pods` says of a pod: the one word for how it is, restarts, and how many containers are ready."""

from collections.abc import Callable
from typing import Any

from devcluster.apiserver.age import age
from devcluster.apiserver.entry import dig
from devcluster.apiserver.errors import Json

NONE = "<none>"


def ready(pod: Json) -> str:
    statuses = dig(pod, "status.containerStatuses") or ()
    return f"{sum(1 for one in statuses if one.get('ready'))}/{len(dig(pod, 'spec.containers') or ())}"


def state(pod: Json) -> str:
    """The most telling reason: of the first init container that is not done, else of the first container in trouble."""
    status = pod.get("status") or {}
    reason: str = status.get("reason") or status.get("phase") or "Unknown"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    initializing = _init_state(pod)
    if initializing:
        return initializing
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        waiting, terminated = _part(container, "waiting"), _part(container, "terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated:
            reason = _end(terminated)
        elif container.get("ready"):
            running = True
    if reason == "Completed" and running:
        reason = "Running"
    return "SchedulingGated" if reason == "Pending" and dig(pod, "spec.schedulingGates") else reason


def _init_state(pod: Json) -> str:
    statuses = dig(pod, "status.initContainerStatuses") or []
    for index, container in enumerate(statuses):
        waiting, terminated = _part(container, "waiting"), _part(container, "terminated")
        if terminated and terminated.get("exitCode") == 0:
            continue
        if terminated:
            return f"Init:{_end(terminated)}"
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(statuses)}"
    return ""


def _part(container: Json, name: str) -> Json | None:
    part: Json | None = (container.get("state") or {}).get(name)
    return part


def _end(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode')}"


def restarts(pod: Json) -> str:
    statuses = dig(pod, "status.containerStatuses") or ()
    count = sum(one.get("restartCount") or 0 for one in statuses)
    ends = [dig(one, "lastState.terminated.finishedAt") for one in statuses]
    last = max((end for end in ends if isinstance(end, str)), default=None)
    return f"{count} ({age(last)} ago)" if count and last else str(count)


def _text(path: str) -> Callable[[Json], Any]:
    return lambda pod: dig(pod, path) or NONE


def _gates(pod: Json) -> str:
    return NONE


POD_COLUMNS: tuple[tuple[str, Callable[[Json], Any], bool], ...] = (
    ("Ready", ready, False),
    ("Status", state, False),
    ("Restarts", restarts, False),
    ("IP", _text("status.podIP"), True),
    ("Node", _text("spec.nodeName"), True),
    ("Nominated Node", _text("status.nominatedNodeName"), True),
    ("Readiness Gates", _gates, True),
)
"""Name, cell, and whether it is only shown with `-o wide`; the age stands after the third."""
