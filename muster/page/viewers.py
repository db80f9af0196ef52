"""`muster-page`: the page in a cluster, for several people, each with the rights of a token of their own.

A browser sends the token with each request: as `Authorization: Bearer`, which a proxy adds that people log in at, or as
the password that the browser asks for.  This process has no credentials, keeps no token on a disk, and forgets what it
read with one soon after the last request with it.
"""

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import aiohttp
import structlog
from aiohttp import web

from muster.page.following import Bounds, Kept, Places, Readable, View
from muster.page.server import Admit, root_of, running
from shared.cluster.access import find_cluster
from shared.cluster.calls import Access
from shared.cluster.kube import KubeCluster
from shared.cluster.kubeconfig import current_context
from shared.cluster.verdicts import Verdicts
from shared.errors import Refused, Trouble
from shared.flow import Shares
from shared.history_api import share_of
from shared.process.bounds import Budget
from shared.process.http import Handler, know
from shared.process.main import run_process
from shared.process.serving import READY, Certificate, Report, forever, listening, meanwhile, probes
from shared.process.settings import Settings
from shared.release import this_release
from shared.telemetry.metrics import Count

PAGE = "page"
EVERYWHERE = "-"
"""The root of all namespaces; that of a single one is its name."""
VIEWS, VIEWS_OF_ONE = 64, 8
"""Tokens and namespaces that are read at a time: each has a stream of the history service, and its table."""
JOBS, JOBS_OF_ONE = 64, 8
"""Jobs that are followed at a time."""
EVENT_BYTES = 160 * 1024 * 1024
"""Bytes of their events, of which one person has half at the most; drawn, they take twice as many."""
REQUESTS, REQUESTS_OF_ONE = 192, 24
"""Requests under way, each over a connection of its own, streams among them."""
STRANGERS = 64
"""Connections of clients that have not shown a token that counts."""
CHECKED_SECONDS = 60.0
"""Seconds for which the API server's word about a token counts."""
MOST_TOKENS = 4096
CHECKS = 16
"""Tokens that the API server is asked about at once; addresses share them."""
HTTPS = Budget(
    port="page",
    reached_by="browsers, or a proxy for logins, with a viewer's token",
    connections=REQUESTS + STRANGERS,
    strangers=STRANGERS,
    of_one=32,
    of_network=48,
    patience=1.0,
    head_bytes=2**15,
    cancels=True,
)
ASKED = {"WWW-Authenticate": 'Basic realm="Muster: any name, and a token of Kubernetes as password", charset="UTF-8"'}

_TOKEN = re.compile(r"[\w.~+/-]{1,32768}=*", re.ASCII)
_NAMESPACE = re.compile(r"-|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

log = structlog.get_logger()


def token_of(header: str) -> str:
    """The token in a header `Authorization`, or in the password there; empty without one."""
    scheme, _, given = header.strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            given = b64decode(given, validate=True).decode().partition(":")[2]
        except (NotBase64, ValueError):
            return ""
    elif scheme.lower() != "bearer":
        return ""
    given = given.strip()
    return given if _TOKEN.fullmatch(given) else ""


class Tokens:
    """Whose token it is, as the API server says."""

    def __init__(self, ask: Callable[[str], Awaitable[str]]) -> None:
        """`ask` brings the user of a token, or raises `Refused` with the reason `Unauthorized`."""
        self._ask = ask
        self._known = Verdicts[str](CHECKED_SECONDS, MOST_TOKENS, asyncio.get_running_loop().time)
        self._asking = Shares(CHECKS)

    async def person(self, token: str, address: str) -> str:
        """Whose places a viewer takes: the accounts of a namespace have theirs together, as it has any number of them.

        Raises `Refused` for a token that does not count, and `Trouble` if the API server does not say.
        """
        user = await self._known.of(token, partial(self._asked, token, address))
        if not user:
            raise Refused("the API server does not know this token: it may have expired", reason="Unauthorized")
        return share_of(user)[0]

    async def must_be_known(self, token: str) -> None:
        """Raises `Refused` once the token does not count any more."""
        try:
            await self.person(token, "")
        except Trouble as trouble:
            if isinstance(trouble, Refused) and trouble.reason == "Unauthorized":
                raise

    async def _asked(self, token: str, address: str) -> str:
        if not self._asking.take(address):
            raise Refused("too many tokens are being checked: try again", reason="TooManyRequests")
        try:
            return await self._ask(token)
        except Refused as refusal:
            if refusal.reason == "Unauthorized":
                return ""
            if refusal.reason in ("Forbidden", "NotFound"):
                # The API server serves no SelfSubjectReview, or refuses it: the token stands for its user.
                return sha256(token.encode()).hexdigest()
            raise
        finally:
            self._asking.give(address)


def let_in(seen: Callable[[str], Readable], tokens: Tokens, views: Kept[tuple[bytes, str], View]) -> Admit:
    """Who sends a token that the API server knows sees what `seen` says for it."""
    bounds, requests = Bounds(Places(JOBS, JOBS_OF_ONE), EVENT_BYTES), Places(REQUESTS, REQUESTS_OF_ONE)

    @asynccontextmanager
    async def admit(request: web.Request) -> AsyncIterator[View]:
        site, mode = (request.headers.get(f"Sec-Fetch-{each}", "") for each in ("Site", "Mode"))
        # A link in a chat, or the way back from a login, may lead here; a script of another site may not ask.
        if site not in ("", "none", "same-origin") and mode != "navigate":
            raise web.HTTPForbidden(text="another site may not ask here")
        if not (root := root_of(request)):
            raise web.HTTPFound(f"/{EVERYWHERE}/")
        if not _NAMESPACE.fullmatch(root):
            raise web.HTTPNotFound
        if not (token := token_of(request.headers.get("Authorization", ""))):
            raise web.HTTPUnauthorized(text="send a token of Kubernetes", headers=ASKED)
        namespace = "" if root == EVERYWHERE else root
        key = sha256(token.encode()).digest(), namespace
        try:
            person = await tokens.person(token, request.remote or "")
        except Refused as refusal:
            if refusal.reason == "Unauthorized":
                raise web.HTTPUnauthorized(text=str(refusal), headers=ASKED) from refusal
            raise
        with requests.place(person, f"{REQUESTS_OF_ONE} of your requests are under way here: close some tabs"):
            know(request)
            async with views.of(key, person, lambda: View(seen(token), namespace, bounds, person)) as view:
                yield view

    return admit


class TokenAccess:
    """A cluster by a token; what opens its connections has no credentials."""

    def __init__(self, place: Access, token: str) -> None:
        self.url = place.url
        self._place, self._token = place, token

    @property
    def options(self) -> Mapping[str, Any]:
        return self._place.options

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        return self._place.open(requests)

    async def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    async def renew(self) -> None:
        raise Refused("the API server does not know this token: it may have expired", reason="Unauthorized")

    async def trust(self) -> None:
        await self._place.trust()


class Viewer(Readable):
    """What the history service tells the holder of a token."""

    def __init__(self, place: Access, token: str, tokens: Tokens) -> None:
        self._cluster = KubeCluster(TokenAccess(place, token))
        self._token, self._tokens = token, tokens
        super().__init__(self._cluster)

    async def must_be_known(self) -> None:
        await self._tokens.must_be_known(self._token)

    async def end(self) -> None:
        await self._cluster.close()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.  Raises `Refused` if it cannot begin."""
    place = await _place(settings)
    certificate = Certificate(PAGE, settings.page)
    views = Kept[tuple[bytes, str], View](Places(VIEWS, VIEWS_OF_ONE), "as many people look at jobs as may: try later")
    reviews = KubeCluster(TokenAccess(place, ""))

    async def user(token: str) -> str:
        return await reviews.user({"authorization": f"Bearer {token}"})

    tokens = Tokens(user)

    def told() -> list[Report]:
        return [Report(service=PAGE, version=this_release(), ready=True)]

    try:
        async with (
            running(let_in(lambda token: Viewer(place, token, tokens), tokens, views)) as runner,
            listening(once(runner), HTTPS, certificate) as port,
            probes(told, lambda: [Count.now(READY, {(PAGE,): 1.0})], settings.health_host, settings.health_port),
            meanwhile(views.rest()),
        ):
            log.info("serving", port=port)
            yield port
    finally:
        await views.close()
        await reviews.close()


def once(runner: web.AppRunner) -> Handler:
    """The handler of all requests.  Each has a connection of its own: an idle one would keep its place."""
    assert runner.server is not None
    handler = runner.server.request_handler

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await handler(request)
        response.force_close()
        return response

    return handle


async def _place(settings: Settings) -> Access:
    """The cluster, without credentials: with some, a viewer would have the rights of this process."""
    if settings.kubeconfig is None or current_context([str(settings.kubeconfig)], settings.context).user:
        raise Refused("name a kubeconfig without a user in KUBECONFIG: each viewer has a token", reason="BadKubeconfig")
    return await find_cluster(settings.kubeconfig, settings.context, anonymous=True)


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(PAGE, lambda settings: forever(serving(settings)))


if __name__ == "__main__":
    run()
