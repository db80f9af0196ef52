"""One request to an API server: credentials, timeouts, the bound on requests in flight, errors as `Trouble`.

Bytes in, bytes out; `kube.py` and `reflector.py` decode them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp.connector import Connection
from yarl import URL

from shared.cluster import Resource
from shared.cluster.answers import FailedRequest, may_be_starting
from shared.cluster.connections import as_trouble, read_refusal, reused_descriptors
from shared.cluster.kinds import LEASES
from shared.errors import Refused, Transient, Withheld
from shared.flow import Limiter, is_wanted

BASE_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muster"}
"""Uncompressed: decompression costs more processor time than a cluster's network saves."""

METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
METADATA_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
"""For kinds of which Muster reads only the metadata: their content must not be sent.

There is no second media type, so that a server that cannot omit the content refuses.
"""

REVIEWING = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Groups whose `POST` requests change nothing."""

HEARTBEAT_SECONDS = 50.0
"""Seconds between pings on a quiet WebSocket: many load balancers drop a quiet connection after a minute.

A WebSocket without a pong within half of this is lost.
"""

RETRIED_SECONDS = 3.5
"""From the first try of a request that the server turns away to the last: later a decision may have changed."""

FAREWELL_SECONDS = 0.2
"""Seconds for closing a WebSocket that the server has not closed: enough to send the close frame."""


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts of requests, in seconds."""

    connect: float = 10.0
    total: float = 30.0
    """One request and its whole answer; streams have an idle time instead."""


class Access(Protocol):
    """The address of the API server, and the credentials for it."""

    url: str

    @property
    def options(self) -> Mapping[str, Any]:
        """Further options of every request: a proxy, a TLS server name, certificates that were renewed."""

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        """A new session that trusts the cluster's certificates, for requests of this class."""

    async def headers(self) -> Mapping[str, str]:
        """The headers with the current credentials."""

    async def renew(self) -> None:
        """Read the credentials again after the server has rejected them."""

    async def trust(self) -> None:
        """Read the authorities again after the server's certificate was not trusted: the cluster may have new ones."""


class Answered(NamedTuple):
    """A successful answer."""

    body: bytes
    headers: Mapping[str, str]
    """Case-insensitive."""


class TooLong(Exception):  # noqa: N818 - what is the matter
    """The answer has more bytes than its reader takes."""


class Caller:
    """Requests to one API server."""

    def __init__(
        self,
        access: Access,
        *,
        timeouts: Timeouts,
        limiter: Limiter,
        answered: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """`answered` is told of each request: its method, and the status of the answer or `error`."""
        self._access = access
        self._session = access.open(_guarded(self))
        self.timeouts = timeouts
        self._limiter = limiter
        self._answered = answered
        self.closed = False
        self.succeeded = 0
        """The requests so far that succeeded; no streams are among them."""
        self.may_change: Callable[[], bool] = lambda: True
        """Called for every request that may change something, after it has its connection and before it is sent."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        most: int | None = None,
    ) -> Answered:
        """A successful answer.  Raises `FailedRequest` for any other answer, `Transient` without one.

        Raises `TooLong` for one of more than `most` bytes, without reading it to its end.
        Raises `Withheld`, without sending, if the request would change something and `may_change` is false, or create
        something that is no longer wanted when its place comes (`only_while`).  A request that the server turned away
        (429) and asks for again is sent again, as client-go does: what takes several requests would else begin anew
        with each of them.
        """
        timeout = aiohttp.ClientTimeout(total=self.timeouts.total, sock_connect=self.timeouts.connect)
        more = {**(headers or {}), **({"Content-Type": content_type} if body is not None else {})}
        until = asyncio.get_running_loop().time() + RETRIED_SECONDS
        while True:
            async with self._limiter.place(namespace_of(path)) as sent:
                if method == "POST" and not is_wanted():
                    raise Withheld("its job no longer wants it")
                try:
                    async with self._answer(method, path, query, timeout, what, body=body, headers=more) as response:
                        await _must_have_succeeded(response)
                        answer = await _body(response, most)
                except Transient as trouble:
                    if isinstance(trouble.__cause__, TimeoutError):
                        sent.throttled()
                    raise
                except FailedRequest as failure:
                    if failure.status.code == 429 or failure.status.code >= 500:
                        sent.throttled()
                    seconds = failure.status.retry_after
                    late = asyncio.get_running_loop().time() + seconds > until
                    if failure.status.code != 429 or not seconds or late:
                        raise
                else:
                    sent.answered()
                    self.succeeded += 1
                    return Answered(answer, response.headers)
            # Others have the place in flight meanwhile.
            await asyncio.sleep(seconds)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        what: str,
        idle: float | None,
        media: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a successful answer of this media type as it comes.

        Raises as `request` does, within the context too; `Transient` also after `idle` seconds without data.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect, sock_read=idle)
        async with self._answer("GET", path, query, timeout, what, headers=headers) as response:
            await _must_have_succeeded(response)
            if response.content_type != media:
                raise Transient(f"{what}: the answer is {response.content_type}, not {media}; a proxy is in between")
            yield response.content

    async def open_socket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str], *, what: str
    ) -> aiohttp.ClientWebSocketResponse:
        """An open WebSocket, which the caller closes.  Raises as `request` does.

        Neither the WebSocket nor its opening counts as a request in flight: the API server may wait for half a minute
        for a kubelet that is gone.
        """
        self._must_be_open(what)
        url = URL(f"{self._access.url}{path}?{urlencode(query)}", encoded=True)
        with as_trouble(what):
            async with asyncio.timeout(self.timeouts.total):
                try:
                    return await self._upgrade(url, protocols)
                except FailedRequest as failure:
                    if failure.status.code != 401:
                        raise
                    await self._access.renew()
                    return await self._upgrade(url, protocols)

    async def close(self) -> None:
        self.closed = True
        await self._session.close()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        what: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        self._must_be_open(what)
        url = URL(f"{self._access.url}{path}{f'?{urlencode(query)}' if query else ''}", encoded=True)
        with as_trouble(what):
            response = await self._send(method, url, timeout, body, headers or {})
            if response.status == 401:
                # Read to its end, so that the connection can be used again.
                await response.read()
                await self._access.renew()
                response = await self._send(method, url, timeout, body, headers or {})
            if response.status == 403 and may_be_starting(await response.read()):
                # A starting API server forbids everything until it has read its roles.
                if not await self.is_ready():
                    raise Transient(f"{what}: forbidden, but the API server is still starting")
                response = await self._send(method, url, timeout, body, headers or {})
            try:
                yield response
            finally:
                response.release()

    def _must_be_open(self, what: str) -> None:
        if self.closed:
            raise Refused(f"{what}: this client was closed", reason="Closed")

    async def _upgrade(self, url: URL, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse:
        credentials = await self._access.headers()
        with reused_descriptors():
            socket: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                url,
                protocols=protocols,
                heartbeat=HEARTBEAT_SECONDS,
                timeout=aiohttp.ClientWSTimeout(ws_close=FAREWELL_SECONDS),
                # The API server passes this on to the kubelet, which insists on `*/*`.
                headers={**BASE_HEADERS, "Accept": "*/*", **credentials},
                **self._access.options,
            )
        return socket

    async def is_ready(self) -> bool:
        """False if the server reports that it is not ready, forbids even that question, or takes long to answer."""
        timeout = aiohttp.ClientTimeout(total=self.timeouts.connect)
        try:
            response = await self._send("GET", URL(f"{self._access.url}/readyz"), timeout, None, {})
            await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False
        return response.status != 403 and response.status < 500

    async def _send(
        self,
        method: str,
        url: URL,
        timeout: aiohttp.ClientTimeout,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        credentials = await self._access.headers()
        try:
            try:
                response = await self._request(method, url, timeout, body, {**headers, **credentials})
            except aiohttp.ClientConnectorCertificateError:
                await self._access.trust()
                response = await self._request(method, url, timeout, body, {**headers, **credentials})
        except (aiohttp.ClientError, OSError):
            self._answered(method, "error")
            raise
        self._answered(method, str(response.status))
        return response

    async def _request(
        self, method: str, url: URL, timeout: aiohttp.ClientTimeout, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        with reused_descriptors():
            return await self._session.request(
                method,
                url,
                data=body,
                timeout=timeout,
                allow_redirects=False,
                headers={**BASE_HEADERS, **headers},
                **self._access.options,
            )


def _guarded(caller: Caller) -> type[aiohttp.ClientRequest]:
    """A request class that calls `may_change` right before sending: name resolution and TLS may have taken long."""

    class Guarded(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if _changes(self) and not caller.may_change():
                if conn.transport is not None:
                    # `close` would wait for the server's TLS goodbye.
                    conn.transport.abort()
                raise Withheld("this replica lost the lease")
            return await super().send(conn)

    return Guarded


def _changes(request: aiohttp.ClientRequest) -> bool:
    """True unless the request only reads.  A review is a `POST` that reads, a command a `GET` that acts."""
    if request.method == "POST":
        return not any(group in request.url.raw_path for group in REVIEWING)
    return request.method != "GET" or "Upgrade" in request.headers


async def _body(response: aiohttp.ClientResponse, most: int | None) -> bytes:
    if most is None:
        return await response.read()
    chunks, length = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        length += len(chunk)
        if length > most:
            raise TooLong
    return b"".join(chunks)


async def _must_have_succeeded(response: aiohttp.ClientResponse) -> None:
    if not 200 <= response.status < 300:
        raise FailedRequest(await read_refusal(response))


def path_of(resource: Resource[Any], namespace: str, name: str = "", subresource: str = "") -> str:
    """The URL path of one object, or of the collection without a `name`; without a `namespace` cluster-wide."""
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    rest = "".join(f"/{quote(part, safe='')}" for part in (name, subresource) if part)
    return f"{base}{scope}/{resource.plural}{rest}"


def namespace_of(path: str) -> str:
    """The namespace of the objects at a path; empty for those of the whole cluster, and for Muster's own Lease."""
    _, _, rest = path.partition("/namespaces/")
    namespace, _, objects = rest.partition("/")
    return "" if objects.partition("/")[0] == LEASES.plural else namespace
