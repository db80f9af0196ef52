"""A watch through random weather ends with what is true; each seed is another story."""

import asyncio
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from shared.cluster import Applied, Deleted, Snapshot
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import Pod
from tests.kit.apiserver import Answer, ScriptedApiServer, a_pod, a_status, bookmark, event, html, status, stream
from tests.kit.watching import Hurry, next_of

CHANGES = 1_000
"""While the weather is bad; then it clears."""
NAMES = [f"pod-{number}" for number in range(8)]


class Weather:
    """Pods that change while they are watched, seen through a server at its worst."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._version = 100
        self._floor = 100
        self._lives = 0
        self._history: list[tuple[int, bytes]] = []
        self._pages: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.changes = 0

    @property
    def clear(self) -> bool:
        return self.changes >= CHANGES

    def truth(self) -> dict[str, tuple[str, str]]:
        return {name: (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]) for name, pod in self.pods.items()}

    async def list(self, request: web.Request) -> web.StreamResponse:
        self._change_sometimes()
        if self._happens(0.3):
            return await self._trouble()(request)
        token, limit = request.query.get("continue", ""), int(request.query["limit"])
        if token and (token not in self._pages or self._happens(0.2)):
            return await status(410, "Expired")(request)
        version, rest = self._pages[token] if token else (self._version, list(self.pods.values()))
        more = f"token-{len(self._pages)}" if len(rest) > limit else ""
        if more:
            self._pages[more] = (version, rest[limit:])
        return web.json_response(
            {"metadata": {"resourceVersion": str(version), "continue": more}, "items": rest[:limit]}
        )

    async def watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        self._change_sometimes()
        if self._happens(0.2):
            return await self._trouble()(request)
        if since < self._floor:
            gone = event("ERROR", a_status(410, "Expired"))
            return await (stream(gone) if self._chance.random() < 0.5 else status(410, "Expired"))(request)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while True:
            waiting = [each for each in self._history if each[0] > since]
            for version, line in waiting:
                if self._happens(0.05):
                    return await self._break(request, response, line)
                await response.write(line)
                since = version
                if self._happens(0.1):
                    told_before = [line for version, line in self._history if version <= since]
                    await response.write(self._chance.choice(told_before))
            if self.clear or self._happens(0.1):
                await response.write(bookmark(since))
            if self.clear and since == self._version:
                await asyncio.Event().wait()
            self._change()

    async def _break(self, request: web.Request, response: web.StreamResponse, line: bytes) -> web.StreamResponse:
        assert request.transport is not None
        match self._chance.randrange(4):
            case 0:
                await response.write(line[: self._chance.randrange(len(line))])
                request.transport.close()
            case 1:
                request.transport.abort()
            case 2:
                await response.write(event("ERROR", a_status(500, "InternalError")))
            case _:
                await response.write(b"<html>Bad Gateway</html>\n")
        return response

    def _trouble(self) -> Answer:
        return self._chance.choice(
            [
                html(502),
                html(200),
                status(429, "TooManyRequests", retry_after="1"),
                status(500, "InternalError"),
                stream(),
            ]
        )

    def _happens(self, share: float) -> bool:
        return not self.clear and self._chance.random() < share

    def _change_sometimes(self) -> None:
        while self._happens(0.7):
            self._change()

    def _change(self) -> None:
        if self.clear:
            return
        self.changes += 1
        name = self._chance.choice(NAMES)
        held = self.pods.get(name)
        if held is None or self._chance.random() < 0.3:
            if held is not None:
                self._record("DELETED", name, held["metadata"]["uid"])
            if held is None or self._chance.random() < 0.5:
                self._lives += 1
                self._record("ADDED", name, f"life-{self._lives}")
        else:
            self._record("MODIFIED", name, held["metadata"]["uid"])
        if self._happens(0.02):
            self._floor = self._version
            self._pages.clear()

    def _record(self, kind: str, name: str, uid: str) -> None:
        self._version += 1
        pod = a_pod(name, self._version, uid=uid)
        if kind == "DELETED":
            del self.pods[name]
        else:
            self.pods[name] = pod
        self._history.append((self._version, event(kind, pod)))


class Follower:
    """Folds what a watch says, and holds it to what may be relied on."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}

    def level(self) -> dict[str, tuple[str, str]]:
        return {name: (pod.metadata.uid, pod.metadata.resource_version) for name, pod in self.pods.items()}

    def take(self, seen: Any) -> None:
        match seen:
            case Snapshot(objects=objects):
                self.pods = {pod.metadata.name: pod for pod in objects}
            case Applied(object=pod):
                known = self.pods.get(pod.metadata.name)
                if known is not None:
                    assert pod.metadata.uid == known.metadata.uid, "the end of a life was not told"
                    assert pod.metadata.version > known.metadata.version, "an old state was told again"
                self.pods[pod.metadata.name] = pod
            case Deleted(object=pod):
                known = self.pods.pop(pod.metadata.name, None)
                assert known is not None, "the end of what was not there"
                assert known.metadata.uid == pod.metadata.uid, "the end of another life"


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_weather_the_end_is_the_truth(seed: int, server: ScriptedApiServer, tmp_path: Path) -> None:
    weather, follower, hurry = Weather(seed), Follower(), Hurry()
    server.every_list, server.every_watch = weather.list, weather.watch
    pace = msgspec.structs.replace(hurry.pace, page=3)
    cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), pace=pace)
    try:
        async with aclosing(cluster.watch(PODS)) as watch:
            while not weather.clear or follower.level() != weather.truth():
                follower.take(await next_of(watch))
    finally:
        await cluster.close()
