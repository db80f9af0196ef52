"""A namespace of a real cluster, with what the tests do in it in one line each."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from devcluster.cluster import Devcluster
from devcluster.node.runtime import Runtime, RuntimeProblem
from tests.devcluster.apiserver.client import BOUND, Client

TERMINATES = "trap 'exit 0' TERM; "
FOREVER = TERMINATES + "echo up; sleep 1000 & wait"
"""A shell that ends at once when it is asked to; as the first process of a container it would else ignore that."""


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Space:
    """One namespace."""

    def __init__(self, api: Client, name: str) -> None:
        self.api = api
        self.name = name

    def path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    async def create(self, plural: str, name: str, body: dict[str, Any], **metadata: Any) -> Any:
        answer = await self.api.create(self.path(plural), {"metadata": {"name": name, **metadata}, **body})
        assert answer.code == 201, answer.body
        return answer.body

    async def config(self, name: str, **data: str) -> None:
        await self.create("configmaps", name, {"data": data})

    async def run(self, name: str, command: str = FOREVER, *, labels: Any = None, **spec: Any) -> None:
        """A pod with one container, `main`, that runs a shell command; `container` adds fields to that."""
        main = {"name": "main", "image": "code:1", "command": ["sh", "-c", command], **spec.pop("container", {})}
        spec = {"restartPolicy": "Never", "containers": [main], **spec}
        await self.create("pods", name, {"spec": spec}, labels=labels or {})

    async def pod(self, name: str, holds: Callable[[Any], Any]) -> Any:
        """The pod as soon as it is as wanted."""

        def is_so(answer: Any) -> bool:
            return answer.code == 200 and "containerStatuses" in answer.body["status"] and bool(holds(answer.body))

        return (await self.api.until(self.path("pods", name), is_so)).body

    async def over(self, name: str) -> Any:
        return await self.pod(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))

    async def ready(self, name: str) -> Any:
        return await self.pod(name, is_ready)

    async def gone(self, name: str) -> None:
        await self.api.until(self.path("pods", name), lambda answer: answer.code == 404)

    async def logs(self, name: str, query: str = "") -> str:
        answer = await self.api.get(f"{self.path('pods', name)}/log?{query}")
        assert answer.code == 200, answer.body
        return str(answer.body.decode())

    @asynccontextmanager
    async def following(self, name: str, query: str = "") -> AsyncIterator[aiohttp.ClientResponse]:
        """The log of a container as it is written: the answer has begun."""
        url = f"{self.api.url}{self.path('pods', name)}/log?follow=true&{query}"
        async with asyncio.timeout(BOUND), self.api.session.get(url) as answer:
            assert answer.status == 200, await answer.text()
            yield answer

    async def logged(self, name: str, text: str, query: str = "") -> str:
        """The log as soon as it has the text."""
        async with asyncio.timeout(BOUND):
            while True:
                answer = await self.api.get(f"{self.path('pods', name)}/log?{query}")
                if answer.code == 200 and text in answer.body.decode():
                    return str(answer.body.decode())
                await asyncio.sleep(0.02)

    async def output(self, name: str, command: str = "", **spec: Any) -> str:
        """What a pod writes that runs a command to its end."""
        await self.run(name, command, **spec)
        await self.over(name)
        return await self.logs(name)

    async def exec(self, name: str, *command: str, stdin: bytes = b"", protocol: str = "v5.channel.k8s.io") -> Done:
        query = [
            ("container", "main"),
            *(("command", word) for word in command),
            ("stdout", "true"),
            ("stderr", "true"),
            ("stdin", "true"),
        ]
        said: dict[int, bytes] = {1: b"", 2: b"", 3: b""}
        async with (
            asyncio.timeout(BOUND),
            self.api.session.ws_connect(
                f"{self.api.url}{self.path('pods', name)}/exec", params=query, protocols=(protocol,)
            ) as socket,
        ):
            await socket.send_bytes(b"\0" + stdin)
            await socket.send_bytes(b"\xff\0")
            async for message in socket:
                said[message.data[0]] += message.data[1:]
        status = json.loads(said[3])
        code = 0
        if status["status"] == "Failure":
            causes = (status.get("details") or {}).get("causes") or [{"message": "-1"}]
            code = int(causes[0]["message"])
        return Done(code, said[1].decode(), said[2].decode() or status.get("message", ""))

    async def merge(self, plural: str, name: str, body: Any) -> None:
        answer = await self.api.merge(self.path(plural, name), body)
        assert answer.code == 200, answer.body

    async def touch(self, pod: str, value: str) -> None:
        await self.merge("pods", pod, {"metadata": {"annotations": {"touched": value}}})


def state(pod: Any, container: int = 0) -> Any:
    return pod["status"]["containerStatuses"][container]["state"]


def condition(pod: Any, kind: str) -> Any:
    return next(one for one in pod["status"]["conditions"] if one["type"] == kind)


def is_ready(pod: Any) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


@asynccontextmanager
async def a_space(cluster: Devcluster, name: str) -> AsyncIterator[Space]:
    """A new namespace, whose pods are asked to end when it is left."""
    config = yaml.safe_load(cluster.kubeconfig("admin").read_text())
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        api = Client(session, config["clusters"][0]["cluster"]["server"])
        await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        yield Space(api, name)
        await api.delete(f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=1")


@contextmanager
def a_cluster(folder: Path, *options: str) -> Iterator[Devcluster]:
    """Its node with quick restarts, and `code` as an image; in the main thread, which its processes live as long as."""
    code, programs = folder / "code", folder / "environment" / "bin"
    code.mkdir(parents=True)
    (code / "greeting").write_text("hello from the image\n")
    programs.mkdir(parents=True)
    (programs / "whoami").write_text("#!/bin/sh\necho that of the image\n")
    (programs / "whoami").chmod(0o755)
    (code / ".venv").symlink_to(programs.parent)
    with asyncio.Runner() as runner:
        skip_unless_permitted(folder, runner)
        cluster = Devcluster(folder / "data", images={"code": code})
        cluster.node.command += ["--restart-delay", "0.3", *options]
        runner.run(cluster.__aenter__())
        try:
            yield cluster
        finally:
            runner.run(cluster.__aexit__(None, None, None))


def skip_unless_permitted(folder: Path, runner: asyncio.Runner) -> None:
    async def attempt() -> None:
        runtime = Runtime(folder, "10.88.0.1", lambda: None)
        try:
            await runtime.launch()
        finally:
            await runtime.close()

    try:
        runner.run(attempt())
    except RuntimeProblem as problem:
        pytest.skip(f"this machine does not permit namespaces: {problem}")
