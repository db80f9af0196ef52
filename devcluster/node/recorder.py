"""Kubernetes Events about pods, for `kubectl describe`: only what went wrong, and never in anybody's way."""

import asyncio
import collections

from devcluster.node.clock import now
from devcluster.node.kubernetes import Json, Kubernetes, path_of
from shared.errors import Trouble

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
