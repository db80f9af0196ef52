"""The node's writes about its pods: their statuses, and Kubernetes Events of failures for `kubectl describe`.

One patch per pod is in flight, the newest status wins, and an unchanged one is not written.  Kubernetes Events wait in
a bounded queue, so that they delay no status.
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
