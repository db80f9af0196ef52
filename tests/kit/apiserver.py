"""An API server that answers from a script, to play faults that a well-behaved one does not have.

Lists and watches have a queue each; when it is empty, `every_list` and `every_watch` answer: at first with an empty
list, and with a watch that stays open and silent.  Questions whether the server is as far as a version are answered
with yes.
Everything else is answered from `answers`, in order.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import yaml
from aiohttp import web

from devcluster.certificates import server_context

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an API server's certificate, and of the `ca.crt` that issued it."""
    folder = tmp_path_factory.mktemp("certificates")
    server_context(folder)
    return folder


class Asked(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class ScriptedApiServer:
    """`async with ScriptedApiServer() as server: server.kubeconfig(folder)`."""

    def __init__(self) -> None:
        self.lists: deque[Answer] = deque()
        self.watches: deque[Answer] = deque()
        self.questions: deque[Answer] = deque()
        self.answers: deque[Answer] = deque()
        self.every_list: Answer = page([])
        self.every_watch: Answer = silence()
        self.asked: list[Asked] = []
        self.url = ""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        # A handler ends with its connection, so that silent watches do not keep the test waiting.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def kubeconfig(self, folder: Path, user: dict[str, Any] | None = None) -> Path:
        return write_kubeconfig(folder / "kubeconfig", self.url, user or {"token": "first"})

    def of_kind(self, kind: str) -> list[Asked]:
        """The lists, the watches, or the questions that were asked."""
        return [asked for asked in self.asked if asked.method == "GET" and _kind(asked.query) == kind]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        query = dict(request.query)
        parsed = json.loads(body) if body else None
        self.asked.append(Asked(request.method, request.path, query, dict(request.headers), parsed))
        if self.answers:
            return await self.answers.popleft()(request)
        if _kind(query) == "question":
            return await (self.questions.popleft() if self.questions else page([]))(request)
        if query.get("watch"):
            return await (self.watches.popleft() if self.watches else self.every_watch)(request)
        return await (self.lists.popleft() if self.lists else self.every_list)(request)


def _kind(query: Mapping[str, str]) -> str:
    """A list that must not be older than something is a question: only whether it is answered matters."""
    if "resourceVersionMatch" in query:
        return "question"
    return "watch" if "watch" in query else "list"


def write_kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def a_pod(name: str, version: int, *, uid: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team-a", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}, **more}


def event(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def a_status(code: int, reason: str, message: str = "no", **details: Any) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def page(items: list[dict[str, Any]], version: int = 1, *, more: str = "") -> Answer:
    """One page of a list; `more` is the token of the next one."""
    return ok({"kind": "List", "metadata": {"resourceVersion": str(version), "continue": more}, "items": items})


def ok(body: dict[str, Any]) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    return answer


def status(code: int, reason: str, message: str = "no", *, retry_after: str = "", **details: Any) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        headers = {"Retry-After": retry_after} if retry_after else {}
        return web.json_response(a_status(code, reason, message, **details), status=code, headers=headers)

    return answer


def html(code: int) -> Answer:
    """What a proxy on the way says."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text="<html><body>Bad Gateway</body></html>\n", content_type="text/html")

    return answer


def stream(*parts: bytes, cut: bool = False, hang: bool = False) -> Answer:
    """A watch that sends these parts, and then ends well, is cut, or stays open and silent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if cut:
            # What was written is on its way; the end of the answer never comes.
            assert request.transport is not None
            request.transport.close()
        elif hang:
            await asyncio.Event().wait()
        return response

    return answer


def channels(*messages: bytes, protocol: str = "v5.channel.k8s.io", cut: bool = False, hang: bool = False) -> Answer:
    """A WebSocket that sends these messages, and then is closed, is cut, or stays open and silent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=[protocol])
        await socket.prepare(request)
        for message in messages:
            await socket.send_bytes(message)
        if cut:
            assert request.transport is not None
            request.transport.close()
        elif hang:
            await asyncio.Event().wait()
        else:
            await socket.close()
        return socket

    return answer


def silence() -> Answer:
    return stream(hang=True)


def never() -> Answer:
    """No answer at all."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    return answer
