"""Aggregated APIs: what an APIService names is asked at its Service, with the front proxy's certificate.

As kube-apiserver does, with one kind of Service, `ExternalName`: this process reaches no addresses of pods.
There is no authorization here, and no look whether an API is available; a server that is away is a 503.
"""

import base64
import ssl
from urllib.parse import quote

import aiohttp
from aiohttp import web

from devcluster.apiserver.call import User
from devcluster.apiserver.errors import ApiError, Json
from devcluster.apiserver.objects import Objects, Write
from devcluster.apiserver.resources import API_SERVICES, CONFIG_MAPS, SERVICES
from devcluster.apiserver.store import Entry, Place
from devcluster.certificates import FRONT_PROXY, Credentials

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
SECONDS = 60.0
HOP_BY_HOP = ("connection", "content-length", "host", "transfer-encoding", "upgrade", "authorization")
PREFIX = "x-remote-"
IDLE_SECONDS = 90.0
"""For which a connection without a request is kept."""
PASSED_BACK = ("Content-Type", "Link", "Retry-After")
"""The headers of the answer that the client sees."""


class Aggregation:
    def __init__(self, objects: Objects, credentials: Credentials) -> None:
        """Publishes the authority of the front proxy, which aggregated servers believe."""
        self._store = objects.store
        self._credentials = credentials
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        """By the authority of the servers, whose connections are kept."""
        credentials.make()
        data = {
            "requestheader-client-ca-file": credentials.front_proxy.read_text(),
            "requestheader-allowed-names": f'["{FRONT_PROXY}"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        if not objects.store.get(CONFIG_MAPS.key, Place(NAMESPACE, NAME)):
            objects.create(CONFIG_MAPS, NAMESPACE, {"metadata": {"name": NAME}, "data": data}, Write())

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    def groups(self) -> list[Json]:
        return [self._group(entry) for entry in self._store.all(API_SERVICES.key)]

    def group(self, name: str) -> Json | None:
        return next((group for group in self.groups() if group["name"] == name), None)

    def described(self) -> Json:
        """The OpenAPI documents of these APIs, for the index: their servers are asked for them."""
        specs = [entry.object()["spec"] for entry in self._store.all(API_SERVICES.key)]
        paths = [f"apis/{spec['group']}/{spec['version']}" for spec in specs]
        return {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}

    def of(self, path: str) -> Entry | None:
        """The APIService of a path `/apis/<group>/<version>/...`, or of the OpenAPI document of such paths."""
        match path.removeprefix("/openapi/v3").split("/"):
            case ["", "apis", group, version, *_] if group and version:
                return self._store.get(API_SERVICES.key, Place("", f"{version}.{group}"))
        return None

    async def pass_on(self, request: web.BaseRequest, user: User, entry: Entry) -> web.StreamResponse:
        spec = entry.object()["spec"]
        service = spec.get("service")
        if not service:
            raise ApiError(503, "ServiceUnavailable", "the APIService names no service; nothing else is served here")
        target = self._target(service)
        headers = [(name, value) for name, value in request.headers.items() if _passes(name)]
        headers += [("X-Remote-User", user.name)]
        headers += [("X-Remote-Group", group) for group in (*user.groups, "system:authenticated")]
        passed: web.StreamResponse | None = None
        url = f"{target}{quote(request.path, safe='/:')}"
        try:
            async with self._session(spec.get("caBundle") or "").request(
                request.method,
                url,
                params=request.query,
                headers=headers,
                data=await request.read(),
                server_hostname=f"{service['name']}.{service['namespace']}.svc",
                timeout=_timeout(request),
            ) as answer:
                kept = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
                if not _watches(request):
                    return web.Response(body=await answer.read(), status=answer.status, headers=kept)
                passed = web.StreamResponse(status=answer.status, headers=kept)
                await passed.prepare(request)
                async for chunk in answer.content.iter_any():
                    await passed.write(chunk)
                return passed
        except (TimeoutError, aiohttp.ClientError) as error:
            if passed is not None:
                # The headers are sent; the client sees a stream that was cut.
                if request.transport is not None:
                    request.transport.abort()
                return passed
            raise ApiError(503, "ServiceUnavailable", f"error trying to reach service: {error}") from error

    def _target(self, named: Json) -> str:
        service = self._store.get(SERVICES.key, Place(named["namespace"], named["name"]))
        host = service.field("spec.externalName") if service is not None else ""
        if not host:
            words = f"service {named['namespace']}/{named['name']} is no ExternalName, and this server reaches no other"
            raise ApiError(503, "ServiceUnavailable", words)
        return f"https://{host}:{named.get('port', 443)}"

    def _session(self, authority: str) -> aiohttp.ClientSession:
        if authority not in self._sessions:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if authority:
                context.load_verify_locations(cadata=base64.b64decode(authority).decode())
            context.load_cert_chain(self._credentials.front_proxy, self._credentials.front_proxy_key)
            connector = aiohttp.TCPConnector(ssl=context, limit=0, keepalive_timeout=IDLE_SECONDS)
            self._sessions[authority] = aiohttp.ClientSession(connector=connector)
        return self._sessions[authority]

    def _group(self, entry: Entry) -> Json:
        spec = entry.object()["spec"]
        version = {"groupVersion": f"{spec['group']}/{spec['version']}", "version": spec["version"]}
        return {"name": spec["group"], "versions": [version], "preferredVersion": version}


def _watches(request: web.BaseRequest) -> bool:
    return request.query.get("watch") in ("1", "true")


def _timeout(request: web.BaseRequest) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None if _watches(request) else SECONDS)


def _passes(name: str) -> bool:
    # A client may not say who it is.
    return name.lower() not in HOP_BY_HOP and not name.lower().startswith(PREFIX)
