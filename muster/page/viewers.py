"""`muster-page`: the page in a cluster, for several people, each with the rights of a token of their own.

A browser sends the token with each request: as `Authorization: Bearer`, which a proxy adds that people log in at, or as
the password that the browser asks for.  This process has no credentials, keeps no token on a disk, and forgets what it
read with one soon after the last request with it.
"""

import asyncio
import re
import ssl
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import aiohttp
import structlog
from aiohttp import web

from muster.asking import HISTORIES
from muster.page.following import Kept, Readable, View
from muster.page.server import Admit, at, root_of
from shared.cluster.access import find_cluster
from shared.cluster.calls import Access
from shared.cluster.kube import KubeCluster
from shared.cluster.kubeconfig import current_context
from shared.errors import Refused
from shared.process.main import run_process
from shared.process.serving import READY, RENEW_SECONDS, Certificate, Report, forever, meanwhile, probes
from shared.process.settings import Settings
from shared.release import this_release
from shared.telemetry.metrics import Count

PAGE = "page"
EVERYWHERE = "-"
"""The root of all namespaces; that of a single one is its name."""
MOST_VIEWS = 64
"""The most tokens and namespaces that are read at a time: each has a stream of the history service, and its table."""
MOST_BYTES = 2**15
"""The most bytes of a header: a token with many groups is long."""
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


def let_in(seen: Callable[[str], Readable], views: Kept[tuple[bytes, str], View]) -> Admit:
    """Who sends a token that the API server knows sees what `seen` says for it."""

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
            async with views.of(key, lambda: View(seen(token), namespace)) as view:
                yield view
        except Refused as refusal:
            if refusal.reason == "Unauthorized":
                raise web.HTTPUnauthorized(text=str(refusal), headers=ASKED) from refusal
            raise

    return admit


class TokenAccess:
    """A cluster by a token; what opens its connections has no credentials."""

    def __init__(self, place: Access, token: str) -> None:
        self.url, self.options = place.url, place.options
        self._place, self._token = place, token

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        return self._place.open(requests)

    async def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"}

    async def renew(self) -> None:
        raise Refused("the API server does not know this token: it may have expired", reason="Unauthorized")


class Viewer(Readable):
    """What the history service tells the holder of a token."""

    def __init__(self, place: Access, token: str) -> None:
        self._cluster = KubeCluster(TokenAccess(place, token))
        super().__init__(self._cluster)

    async def begin(self) -> None:
        await self._cluster.serves(HISTORIES)

    async def end(self) -> None:
        await self._cluster.close()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port.  Raises `Refused` if it cannot begin."""
    place = await _place(settings)
    certificate = Certificate("PAGE", settings.page_cert, settings.page_key)
    used = await certificate.read()
    context = certificate.context()

    async def renew() -> None:
        nonlocal used
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                if (now := await certificate.read()) != used:
                    context.load_cert_chain(settings.page_cert or "", settings.page_key)
                    used = now
            except (Refused, ssl.SSLError, OSError) as trouble:
                log.warning("certificates not read", why=str(trouble))

    views = Kept[tuple[bytes, str], View](MOST_VIEWS, f"{MOST_VIEWS} people look at jobs here: try again later")
    served: dict[str, Any] = {}

    def site(runner: web.AppRunner) -> web.BaseSite:
        served["runner"] = runner
        return web.TCPSite(runner, settings.page_host or None, settings.page_port, ssl_context=context)

    def told() -> list[Report]:
        return [Report(service=PAGE, version=this_release(), ready=True)]

    try:
        async with (
            at(let_in(lambda token: Viewer(place, token), views), site, max_field_size=MOST_BYTES),
            probes(told, lambda: [Count.now(READY, {(PAGE,): 1.0})], settings.health_host, settings.health_port),
            meanwhile(renew(), views.rest()),
        ):
            port: int = served["runner"].addresses[0][1]
            log.info("serving", port=port)
            yield port
    finally:
        await views.close()


async def _place(settings: Settings) -> Access:
    """The cluster, without credentials: with some, a viewer would have the rights of this process."""
    if settings.kubeconfig is None or current_context([str(settings.kubeconfig)], settings.context).user:
        raise Refused("name a kubeconfig without a user in KUBECONFIG: each viewer has a token", reason="BadKubeconfig")
    return await find_cluster(settings.kubeconfig, settings.context)


def run() -> None:
    """The entry point: serve until SIGTERM or Ctrl-C; exit 0 then, 1 after a fault."""
    run_process(PAGE, lambda settings: forever(serving(settings)))


if __name__ == "__main__":
    run()
