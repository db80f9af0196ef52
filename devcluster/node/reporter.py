"""Writing a pod's status: one patch in flight, the newest wins, and none that would change nothing."""

import asyncio
from collections.abc import Callable

import structlog

from devcluster.node.clock import now
from devcluster.node.kubernetes import STRATEGIC_MERGE, Json, Kubernetes, backoff, path_of
from devcluster.node.status import merge_conditions
from shared.errors import Conflict, Refused, Transient

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
        """Wait until what is true now was reported, or nobody wants to hear it."""
        await self._idle.wait()

    async def run(self) -> None:
        """For as long as the pod is somebody's; ends when the API server no longer knows it."""
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
