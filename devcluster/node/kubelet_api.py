"""The kubelet's own API over HTTPS: logs and exec, for an API server with the token."""

import contextlib
import hmac
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from devcluster.node.containers import Container
from devcluster.node.exec import serve_exec
from devcluster.node.logs import Log, Wanted
from devcluster.node.pods import Pod
from devcluster.node.runtime import Runtime

TRUE = ("1", "true")

LONGEST_LINE = 1 << 20
"""The most bytes of a URL, which for an exec has the whole command."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeletApi:
    def __init__(self, pods: Callable[[], Iterable[Pod]], runtime: Runtime, token: str) -> None:
        self._pods = pods
        self._runtime = runtime
        self._token = token

    @contextlib.asynccontextmanager
    async def serving(self, address: str, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve for as long as the context lasts; yields the port."""
        application = web.Application(middlewares=[self._authenticated])
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            application.router.add_route(method, "/exec/{namespace}/{pod}/{container}", self._exec)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5, max_line_size=LONGEST_LINE)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, 0, ssl_context=tls).start()
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    @web.middleware
    async def _authenticated(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        # A client certificate was verified in the TLS handshake.
        certificate = request.transport and request.transport.get_extra_info("peercert")
        known = bool(certificate) or (self._token and hmac.compare_digest(given.encode(), self._token.encode()))
        if not known:
            raise web.HTTPUnauthorized(text="Unauthorized")
        return await handler(request)

    def _container(self, request: web.Request) -> tuple[Pod, Container]:
        asked = request.match_info
        # The newest pod of the name: an older one, deleted at the API server, may still be ending.
        for pod in reversed([*self._pods()]):
            if (pod.namespace, pod.name) == (asked["namespace"], asked["pod"]):
                container = pod.find(asked["container"])
                if container is None:
                    raise web.HTTPNotFound(text=f'container "{asked["container"]}" not found in pod "{pod.name}"')
                return pod, container
        raise web.HTTPNotFound(text=f'pod "{asked["pod"]}" does not exist')

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        pod, container = self._container(request)
        wanted = _wanted(request)
        previous = request.query.get("previous") in TRUE
        log = _log(pod, container, previous=previous)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for text in log.read(wanted):
                await response.write(text)
            await response.write_eof()
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        if "*/*" not in request.headers.get("Accept", "*/*"):
            raise web.HTTPNotAcceptable(text="406: Not Acceptable\n\nAvailable representations: ")
        _, container = self._container(request)
        return await serve_exec(request, self._runtime, container)


def _log(pod: Pod, container: Container, *, previous: bool) -> Log:
    log = container.logs.previous if previous else container.logs.present
    if log:
        return log
    if previous:
        raise web.HTTPBadRequest(text=f'previous terminated container "{container.name}" in pod "{pod.name}" not found')
    reason = (container.state.get("waiting") or {}).get("reason", "ContainerCreating")
    if pod.over:
        raise web.HTTPBadRequest(text=f'container "{container.name}" in pod "{pod.name}" is terminated')
    raise web.HTTPBadRequest(text=f'container "{container.name}" in pod "{pod.name}" is waiting to start: {reason}')


def _wanted(request: web.Request) -> Wanted:
    query = request.query
    try:
        since = None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        elif "sinceTime" in query:
            since = datetime.fromisoformat(query["sinceTime"])
        return Wanted(
            follow=query.get("follow") in TRUE,
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            since=since,
            timestamps=query.get("timestamps") in TRUE,
            limit=int(query["limitBytes"]) if "limitBytes" in query else None,
        )
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
