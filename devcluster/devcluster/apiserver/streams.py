"""Logs and exec: proxied to the kubelet API of the pod's node.

The node's certificate is self-signed, so a shared token authenticates both sides.
"""

import asyncio
import ssl
from typing import Any

import aiohttp
from aiohttp import web

from devcluster.apiserver.call import Call
from devcluster.apiserver.errors import ApiError, Json, bad_request, not_found
from devcluster.apiserver.pods import containers
from devcluster.apiserver.resources import NODES
from devcluster.apiserver.store import Entry, Place, Store, dig

CHANNEL_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
LOG_OPTIONS = ("follow", "tailLines", "previous", "timestamps", "sinceSeconds", "sinceTime", "limitBytes")
EXEC_STREAMS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
"""The names of the streams in requests to the API server, and in those to the kubelet."""

CONNECT_TIMEOUT = 5.0


class _NodeRefusedError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Streams:
    def __init__(self, store: Store, node_token: str) -> None:
        self._store = store
        self._headers = {"Authorization": f"Bearer {node_token}"} if node_token else {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=0),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                raise_for_status=_must_have_upgraded,
            )
        return self._session

    async def log(self, call: Call, entry: Entry) -> web.StreamResponse:
        url = self._url("containerLogs", call, entry)
        options = {name: call.query[name] for name in LOG_OPTIONS if name in call.query}
        try:
            async with self._client().get(url, params=options) as upstream:
                if upstream.status != 200:
                    raise await _kubelet_error(upstream)
                response = web.StreamResponse(headers={"Content-Type": "text/plain"})
                response.enable_chunked_encoding()
                await response.prepare(call.request)
                try:
                    async for chunk in upstream.content.iter_any():
                        await response.write(chunk)
                except (ConnectionError, asyncio.CancelledError, aiohttp.ClientPayloadError):
                    # Following a log ends when either side closes the connection.
                    pass
                return response
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(url, error) from error

    async def exec(self, call: Call, entry: Entry) -> web.StreamResponse:
        request, url = call.request, self._url("exec", call, entry)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            raise bad_request("exec is offered over WebSocket only (kubectl 1.31 or newer); SPDY is not")
        if not call.query.get("command"):
            raise bad_request("you must specify at least one command for the container")
        asked = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        offered = [name for name in CHANNEL_PROTOCOLS if name in asked]
        if not offered:
            raise bad_request(f"unable to upgrade: none of {', '.join(CHANNEL_PROTOCOLS)} was asked for")
        parameters = [("command", part) for part in request.query.getall("command")]
        parameters += [(EXEC_STREAMS[n], "1") for n in EXEC_STREAMS if call.query.get(n, "") in ("true", "1")]
        socket = self._client().ws_connect(
            url,
            params=parameters,
            protocols=offered,
            max_msg_size=0,
            headers={"Accept": request.headers.get("Accept", "*/*")},
        )
        try:
            # The node chooses the protocol first; the client is then offered only that one.
            async with socket as node:
                protocols = [node.protocol] if node.protocol else offered
                client = web.WebSocketResponse(protocols=protocols, max_msg_size=0)
                await client.prepare(request)
                await _bridge(client, node)
                return client
        except _NodeRefusedError as refusal:
            # The real server passes the kubelet's answer on unchanged.
            return web.Response(status=refusal.code, text=refusal.text)
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(502, "BadGateway", f"the node does not speak WebSocket: {error.message}") from error
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(url, error) from error

    def _url(self, action: str, call: Call, entry: Entry) -> str:
        pod = entry.object()
        node = self._store.get(NODES.key, Place("", entry.field("spec.nodeName")))
        if not entry.field("spec.nodeName"):
            raise bad_request(f"pod {entry.place.name} does not have a host assigned")
        if node is None:
            raise not_found("", "nodes", entry.field("spec.nodeName"))
        container = _container(pod, call.query.get("container", ""))
        return f"{_kubelet(node.object())}/{action}/{entry.place.namespace}/{entry.place.name}/{container}"


def _container(pod: Json, asked: str) -> str:
    name = entry_name = pod["metadata"]["name"]
    regular = [one["name"] for one in pod["spec"]["containers"]]
    names = [one["name"] for one in containers(pod["spec"])]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {entry_name}")
        return asked
    if len(regular) > 1:
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]")
    return str(regular[0])


def _kubelet(node: Json) -> str:
    """The address of the node's kubelet API."""
    addresses: list[Any] = dig(node, "status.addresses") or []
    address = next((one["address"] for one in addresses if one["type"] == "InternalIP"), "")
    port = dig(node, "status.daemonEndpoints.kubeletEndpoint.Port")
    if not address or not port:
        name = node["metadata"]["name"]
        raise ApiError(503, "ServiceUnavailable", f"the status of node {name} has no address and port of a kubelet")
    return f"https://[{address}]:{port}" if ":" in address else f"https://{address}:{port}"


async def _bridge(client: web.WebSocketResponse, node: aiohttp.ClientWebSocketResponse) -> None:
    """Pass messages both ways, unchanged, until either side closes."""

    async def pump(source: Any, sink: Any) -> None:
        async for message in source:
            if message.type == aiohttp.WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            elif message.type == aiohttp.WSMsgType.TEXT:
                await sink.send_str(message.data)

    pumps = [asyncio.ensure_future(pump(client, node)), asyncio.ensure_future(pump(node, client))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
    await client.close()


async def _must_have_upgraded(response: aiohttp.ClientResponse) -> None:
    """Raise with the body of a refused WebSocket handshake, which the library drops."""
    if response.status >= 400 and "Upgrade" in response.request_info.headers:
        raise _NodeRefusedError(response.status, await response.text())


async def _kubelet_error(upstream: aiohttp.ClientResponse) -> ApiError:
    text = (await upstream.text())[:1000].strip()
    code = upstream.status if 400 <= upstream.status < 600 else 502
    reasons = {400: "BadRequest", 404: "NotFound", 403: "Forbidden", 401: "Unauthorized"}
    return ApiError(code, reasons.get(code, "InternalError"), text or f"the node answered {upstream.status}")


def _unreachable(url: str, error: Exception) -> ApiError:
    return ApiError(503, "ServiceUnavailable", f"cannot reach the node at {url}: {error}")
