"""The statuses of pods: computed as the kubelet does from the states of the containers, and written to the API server.

One patch per pod is in flight, the newest status wins, and an unchanged one is not written.  Kubernetes Events of
failures, for `kubectl describe`, wait in a bounded queue, so that they delay no status.
"""

import asyncio
import collections
from collections.abc import Callable, Iterable, Sequence

import structlog

from devcluster.client import STRATEGIC_MERGE, Conflict, Delays, Json, Kubernetes, Refused, Transient, Trouble, path_of
from devcluster.clock import now

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


log = structlog.get_logger()


class Reporter:
    def __init__(self, api: Kubernetes, pod: Json, compute: Callable[[], Json]) -> None:
        """`compute` returns the whole status, with conditions without times."""
        metadata = pod["metadata"]
        self._api = api
        self._path = path_of("pods", metadata["namespace"], metadata["name"], "status")
        self._uid = metadata["uid"]
        self._compute = compute
        self._conditions: list[Json] = (pod.get("status") or {}).get("conditions") or []
        self._reported: Json = {}
        self._dirty = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._finished = False
        """True once the pod is gone from the API: no status is written any more."""

    def changed(self) -> None:
        if not self._finished:
            self._dirty.set()
            self._idle.clear()

    async def flush(self) -> None:
        """Wait until the present status is written, or the pod is gone from the API."""
        await self._idle.wait()

    async def run(self) -> None:
        """Report each change until the pod is gone from the API."""
        delays = Delays()
        try:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                try:
                    await self._report()
                except Transient as problem:
                    log.debug("status not written", path=self._path, problem=str(problem))
                    self._dirty.set()
                    await asyncio.sleep(delays.next())
                except Conflict:
                    # Another pod has its name.
                    return
                except Refused as refusal:
                    if refusal.reason == "NotFound":
                        return
                    log.warning("status refused", path=self._path, problem=str(refusal))
                if not self._dirty.is_set():
                    self._idle.set()
        finally:
            self._finished = True
            self._idle.set()

    async def _report(self) -> None:
        status = self._compute()
        if status == self._reported:
            return
        conditions = merge_conditions(self._conditions, status["conditions"], now())
        body = {"metadata": {"uid": self._uid}, "status": status | {"conditions": conditions}}
        await self._api.call("PATCH", self._path, body, media=STRATEGIC_MERGE)
        self._reported = status
        self._conditions = conditions


LIMIT = 1000
"""The most events that wait to be written; more are dropped, because the pod's status says the same."""

NOTE = 1024


class Recorder:
    def __init__(self, api: Kubernetes, node: str) -> None:
        self._api = api
        self._node = node
        self._written: collections.OrderedDict[tuple[str, str, str], None] = collections.OrderedDict()
        """The events written before, by pod, reason and message: each is written once."""
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(LIMIT)

    def warn(self, pod: Json, reason: str, message: str) -> None:
        metadata, time = pod["metadata"], now()
        what = metadata["uid"], reason, message
        if self._queue.full() or what in self._written:
            return
        self._written[what] = None
        if len(self._written) > LIMIT:
            self._written.popitem(last=False)
        event = {
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                **{name: metadata[name] for name in ("namespace", "name", "uid")},
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:NOTE],
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        self._queue.put_nowait((metadata["namespace"], event))

    async def run(self) -> None:
        while True:
            namespace, event = await self._queue.get()
            try:
                await self._api.call("POST", path_of("events", namespace), event)
            except Trouble:
                continue
