"""What a node tells of its pods: their statuses, and Kubernetes Events of what went wrong for `kubectl describe`.

Of a status one patch is in flight, the newest wins, and none is written that would change nothing.  Kubernetes Events
are never in anybody's way.
"""

import asyncio
import collections
from collections.abc import Callable

import structlog

from devcluster.clock import now
from devcluster.node.kubernetes import STRATEGIC_MERGE, Json, Kubernetes, backoff, path_of
from devcluster.node.status import merge_conditions
from shared.errors import Conflict, Refused, Transient, Trouble

log = structlog.get_logger()


class Reporter:
    def __init__(self, api: Kubernetes, pod: Json, compute: Callable[[], Json]) -> None:
        """`compute` gives the whole status, its conditions without times."""
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
        self._unwanted = False

    def changed(self) -> None:
        if not self._unwanted:
            self._dirty.set()
            self._idle.clear()

    async def flush(self) -> None:
        """Wait until the pod's state of now is reported, or the API server no longer knows the pod."""
        await self._idle.wait()

    async def run(self) -> None:
        """Report each change; ends when the API server no longer knows the pod."""
        delays = backoff()
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
            self._unwanted = True
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
"""Events that wait to be written; beyond it they are dropped, because the state says the same."""

NOTE = 1024


class Recorder:
    def __init__(self, api: Kubernetes, node: str) -> None:
        self._api = api
        self._node = node
        self._said: collections.OrderedDict[tuple[str, str, str], None] = collections.OrderedDict()
        """What was told already; what lasts is told once."""
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue(LIMIT)

    def warn(self, pod: Json, reason: str, message: str) -> None:
        metadata, time = pod["metadata"], now()
        what = metadata["uid"], reason, message
        if self._queue.full() or what in self._said:
            return
        self._said[what] = None
        if len(self._said) > LIMIT:
            self._said.popitem(last=False)
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
