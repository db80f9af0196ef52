"""A pod's status as the kubelet computes it from the states of its containers.  Pure."""

from collections.abc import Iterable, Sequence

from devcluster.node.kubernetes import Json

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"


def phase(policy: str, init: Sequence[Json], main: Sequence[Json], *, ended: bool) -> str:
    """The pod's phase from its container statuses; `ended` is True if no container will run again."""
    failed = [one for one in init if _terminated(one) and _exit_code(one) != 0]
    if failed and (policy == NEVER or ended):
        return "Failed"
    if not all(_terminated(one) for one in init):
        return "Failed" if ended and any(_stopped(one) for one in [*init, *main]) else "Pending"
    running = [one for one in main if "running" in one["state"]]
    stopped = [one for one in main if _stopped(one)]
    if len(running) + len(stopped) < len(main) and not (ended and stopped):
        return "Pending"
    if running:
        return "Running"
    if policy == ALWAYS and not ended:
        return "Running"
    if all(_terminated(one) and _exit_code(one) == 0 for one in main):
        return "Succeeded"
    return "Failed" if ended or policy == NEVER else "Running"


def _terminated(one: Json) -> bool:
    return "terminated" in one["state"]


def _stopped(one: Json) -> bool:
    """True if the container has terminated, or waits for a restart."""
    return _terminated(one) or ("waiting" in one["state"] and "terminated" in one["lastState"])


def _exit_code(one: Json) -> int:
    return int(one["state"]["terminated"]["exitCode"])


def conditions(phase: str, init: Sequence[Json], main: Sequence[Json]) -> list[Json]:
    """The pod's conditions without times, which `merge_conditions` adds."""
    incomplete = [one["name"] for one in init if not one["ready"]]
    unready = [one["name"] for one in main if not one["ready"]]
    initialized = _condition("Initialized", "ContainersNotInitialized", "incomplete", incomplete)
    if phase == "Succeeded":
        initialized["reason"] = "PodCompleted"
        ready, containers_ready = (_false(kind, "PodCompleted") for kind in ("Ready", "ContainersReady"))
    elif phase == "Failed":
        ready, containers_ready = (_false(kind, "PodFailed") for kind in ("Ready", "ContainersReady"))
    else:
        ready, containers_ready = (
            _condition(kind, "ContainersNotReady", "unready", unready) for kind in ("Ready", "ContainersReady")
        )
    return [initialized, ready, containers_ready, {"type": "PodScheduled", "status": "True"}]


def _condition(kind: str, reason: str, lack: str, names: Sequence[str]) -> Json:
    if not names:
        return {"type": kind, "status": "True"}
    return _false(kind, reason) | {"message": f"containers with {lack} status: [{' '.join(names)}]"}


def _false(kind: str, reason: str) -> Json:
    return {"type": kind, "status": "False", "reason": reason}


def merge_conditions(old: Iterable[Json], new: Sequence[Json], now: str) -> list[Json]:
    """The new conditions, with the time of their last change of status.

    A field that a condition no longer has is None, because the patch merges conditions by type.
    """
    before = {one["type"]: one for one in old}
    merged = []
    for one in new:
        was = before.get(one["type"], {})
        changed = was.get("status") != one["status"]
        vanished = {name: None for name in ("reason", "message") if was.get(name) and name not in one}
        merged.append(one | vanished | {"lastTransitionTime": now if changed else was.get("lastTransitionTime", now)})
    return merged
