"""One request to an API server: credentials, timeouts, the bound on requests in flight, errors as `Trouble`.

Bytes in, bytes out; what they mean is the business of `kube.py` and `reflector.py`.
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
from shared.cluster.connections import as_trouble, read_refusal, taken_numbers
from shared.cluster.limiter import Limiter
from shared.errors import Refused, Transient

BASE_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muster"}
"""Uncompressed: unpacking costs more processor time than a cluster's network saves."""

METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
METADATA_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
"""For what we read by its metadata alone: hosts files need not travel, and what is in a Secret must not.

Without a second choice, so that a server that cannot leave the rest out refuses.
"""

REVIEWING = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Groups to which questions are posted that leave nothing behind."""

HEARTBEAT_SECONDS = 50.0
"""A WebSocket on which nothing comes is asked for a sign of life: many a load balancer drops one after a minute.

Without an answer within half of this it is lost.
"""

FAREWELL_SECONDS = 0.2
"""For a WebSocket that is left before the other side closed it: enough to say so, not to wait for an answer."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds."""

    connect: float = 10.0
    total: float = 30.0
    """For one request and its whole answer; streams have an idle time instead."""


class Access(Protocol):
    """Where the API server is, and who we are."""

    url: str
    options: Mapping[str, Any]
    """More for every request: a proxy, a TLS server name."""

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        """A new session that trusts the right certificates, for requests of this class."""

    async def headers(self) -> Mapping[str, str]:
        """The credentials of this moment."""

    async def renew(self) -> None:
        """They were not accepted: read them again."""


class Answered(NamedTuple):
    """A successful answer."""

    body: bytes
    headers: Mapping[str, str]
    """By names in any case."""


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
        self.may_change: Callable[[], bool] = lambda: True
        """Asked about every request that may change something once it has its connection, right before it is sent."""

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
    ) -> Answered:
        """A successful answer.  Raises `FailedRequest` for any other, `Transient` when there is none.

        One that changes something is `Transient` too when it may not, and was not sent.
        """
        timeout = aiohttp.ClientTimeout(total=self.timeouts.total, sock_connect=self.timeouts.connect)
        more = {**(headers or {}), **({"Content-Type": content_type} if body is not None else {})}
        async with (
            self._limiter.slot() as number,
            self._answer(method, path, query, timeout, what, body=body, headers=more) as response,
        ):
            if response.status == 429:
                self._limiter.throttled(number)
            await _must_have_succeeded(response)
            answer = await response.read()
            self._limiter.succeeded()
            return Answered(answer, response.headers)

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

        Raises as `request` does, within the context as well; `Transient` also when nothing comes for `idle` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect, sock_read=idle)
        async with self._answer("GET", path, query, timeout, what, headers=headers) as response:
            await _must_have_succeeded(response)
            if response.content_type != media:
                raise Transient(f"{what}: the answer is {response.content_type}, not {media}; something is in between")
            yield response.content

    async def open_socket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str], *, what: str
    ) -> aiohttp.ClientWebSocketResponse:
        """An open WebSocket, which is the caller's to close; it does not count as a request in flight.

        Not while it is being opened either: the API server may wait for half a minute for a kubelet that is gone.

        Raises `FailedRequest` when the answer is a refusal, `Transient` as `request` does.
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
                # It forbids everything until it has read its own rules.
                if await self._is_starting(timeout):
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
        with taken_numbers():
            socket: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                url,
                protocols=protocols,
                heartbeat=HEARTBEAT_SECONDS,
                timeout=aiohttp.ClientWSTimeout(ws_close=FAREWELL_SECONDS),
                # The kubelet, to which this is handed on, serves whoever takes anything and nobody else.
                headers={**BASE_HEADERS, "Accept": "*/*", **credentials},
                **self._access.options,
            )
        return socket

    async def _is_starting(self, timeout: aiohttp.ClientTimeout) -> bool:
        """Whether the server is not ready, which it tells to everybody but in its first moments."""
        response = await self._send("GET", URL(f"{self._access.url}/readyz"), timeout, None, {})
        await response.read()
        return response.status == 403 or response.status >= 500

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
            response = await self._request(method, url, timeout, body, {**headers, **credentials})
        except (aiohttp.ClientError, OSError):
            self._answered(method, "error")
            raise
        self._answered(method, str(response.status))
        return response

    async def _request(
        self, method: str, url: URL, timeout: aiohttp.ClientTimeout, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        with taken_numbers():
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
    """Requests that ask at the last moment: for a name, a connection and its TLS they may have waited for long."""

    class Guarded(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if _changes(self) and not caller.may_change():
                if conn.transport is not None:
                    # Merely closed, it would wait for the other side's goodbye.
                    conn.transport.abort()
                raise Transient("not sent: another replica is the owner by now")
            return await super().send(conn)

    return Guarded


def _changes(request: aiohttp.ClientRequest) -> bool:
    """Whatever does not merely read: a review is posted, and a command begins as a `GET`."""
    if request.method == "POST":
        return not any(group in request.url.raw_path for group in REVIEWING)
    return request.method != "GET" or "Upgrade" in request.headers


async def _must_have_succeeded(response: aiohttp.ClientResponse) -> None:
    if not 200 <= response.status < 300:
        raise FailedRequest(await read_refusal(response))


def path_of(resource: Resource[Any], namespace: str, name: str = "", subresource: str = "") -> str:
    """The URL path of an object, or of all of them without a `name`; without a `namespace` the whole cluster's."""
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    rest = "".join(f"/{quote(part, safe='')}" for part in (name, subresource) if part)
    return f"{base}{scope}/{resource.plural}{rest}"
