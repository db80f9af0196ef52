"""The server: TLS, authentication, the choice of the handler, and the answers to errors."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web

from devcluster.apiserver import discovery
from devcluster.apiserver.accounts import Accounts
from devcluster.apiserver.aggregation import Aggregation
from devcluster.apiserver.binder import Binder
from devcluster.apiserver.call import ANONYMOUS, BODY_LIMIT, Call, Target, User, authenticate, parse_path
from devcluster.apiserver.collector import Collector
from devcluster.apiserver.errors import ApiError, Json, bad_request, no_such_path
from devcluster.apiserver.handlers import Handlers
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.render import answer
from devcluster.apiserver.streams import Streams
from devcluster.apiserver.watches import Watches

VERSION: Json = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+muster",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "python",
}
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")
"""Paths that need no token, as in a real server."""

IDLE = 3600.0
"""Seconds that an idle connection stays open: Muster's clients use it again after long pauses."""

LONGEST_LINE = 1 << 20
"""The most bytes of a URL, which for an exec has the whole command; Go's servers accept as many."""

log = structlog.get_logger()


class Audit:
    """A file with one JSON line for each request; tests read from it which user did what.

    A watch is recorded when it begins, other requests when they are answered.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def record(self, *, user: str, verb: str, target: Target, code: int) -> None:
        line = {
            "time": round(time.time(), 6),
            "user": user,
            "verb": verb,
            "group": target.group,
            "resource": target.plural,
            "subresource": target.subresource,
            "namespace": target.namespace,
            "name": target.name,
            "code": code,
        }
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()


@dataclass
class ApiServer:
    objects: Objects
    users: Mapping[str, User]
    """By token."""
    node_token: str = ""
    audit: Audit | None = None
    aggregation: Aggregation | None = None

    def __post_init__(self) -> None:
        self.controllers: list[asyncio.Future[None]] = []
        """The tasks that run while serving; if one ends it has failed, and the server fails too."""
        self._watches = Watches(self.objects)
        self._streams = Streams(self.objects.store, self.node_token)
        self._handlers = Handlers(self.objects, self._watches, self._streams, Accounts(self.objects.store, self.users))

    @contextlib.asynccontextmanager
    async def serving(self, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve on the loopback interface for as long as the context lasts; yields the port."""
        collector, binder = Collector(self.objects), Binder(self.objects.store)
        loop = asyncio.get_running_loop()

        def request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_LIMIT)

        runner = web.ServerRunner(
            web.Server(
                self._answer,
                request_factory=request,
                keepalive_timeout=IDLE,
                access_log=None,
                max_line_size=LONGEST_LINE,
            ),
            shutdown_timeout=1.0,
        )
        await runner.setup()
        work = (collector.run(), binder.run())
        self.controllers = [asyncio.ensure_future(task) for task in work]
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls, backlog=1024)
            await site.start()
            yield int(runner.addresses[0][1])
        finally:
            self._watches.end()
            await runner.cleanup()
            await self._streams.close()
            if self.aggregation is not None:
                await self.aggregation.close()
            for task in self.controllers:
                task.cancel()
            for task in self.controllers:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer any request, with an error if it fails."""
        call = None
        user = ANONYMOUS
        try:
            if request.path not in OPEN_PATHS:
                user = authenticate(request.headers.get("Authorization", ""), self.users)
            if self.aggregation and (api := self.aggregation.of(request.path)):
                return await self.aggregation.pass_on(request, user, api)
            target = parse_path(request.path)
            if target is None:
                return self._meta(request)
            call = Call(request, user, target)
            return await self._on_kind(call, target)
        except ApiError as error:
            self._record(call, user, error.code)
            return answer(error.status(), error.code)
        except ConnectionError:
            raise
        except web.HTTPException as error:
            self._record(call, user, error.status)
            return answer(ApiError(error.status, "BadRequest", error.reason).status(), error.status)
        except RecursionError:
            self._record(call, user, 400)
            return answer(bad_request("the body is nested too deeply").status(), 400)

    async def _on_kind(self, call: Call, target: Target) -> web.StreamResponse:
        resource = self.objects.registry.get(target.group, target.version, target.plural)
        if resource is None:
            raise no_such_path()
        if call.verb == "watch":
            self._record(call, call.user, 200)
        response = await self._handlers.handle(call, resource)
        if call.verb != "watch":
            self._record(call, call.user, response.status)
        return response

    def _record(self, call: Call | None, user: User, code: int) -> None:
        if self.audit and call:
            self.audit.record(user=user.name, verb=call.verb, target=call.target, code=code)

    def _meta(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request whose path names no kind."""
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        registry = self.objects.registry
        match [part for part in request.path.split("/") if part]:
            case []:
                return answer({"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
            case ["healthz" | "livez" | "readyz", *_]:
                return web.Response(text="ok")
            case ["version"]:
                return answer(VERSION)
            case ["api"]:
                return answer(discovery.core_versions())
            case ["apis"]:
                return answer(discovery.groups(registry, self.aggregation.groups() if self.aggregation else ()))
            case ["apis", group]:
                if self.aggregation and (aggregated := self.aggregation.group(group)):
                    return answer({"kind": "APIGroup", "apiVersion": "v1", **aggregated})
                return answer(discovery.group(registry, group))
            case ["api", version]:
                return answer(discovery.resources(registry, "", version))
            case ["apis", group, version]:
                return answer(discovery.resources(registry, group, version))
            case ["openapi", "v2"]:
                # kubectl looks here for a kind that version 3 lacks: an empty document has it say that there is none.
                return web.Response(body=b"", content_type=OPENAPI_V2)
            case ["openapi", "v3"]:
                aggregated = self.aggregation.described() if self.aggregation else {}
                return answer({"paths": discovery.openapi_paths(registry) | aggregated})
            case ["openapi", "v3", *path]:
                return answer(discovery.openapi_document(registry, "/".join(path)))
            case _:
                raise no_such_path()
