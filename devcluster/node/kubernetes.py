"""The node agent's client of the Kubernetes API: Muster's own, for objects as plain JSON."""

import asyncio
import base64
import random
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import structlog

from shared.backoff import Backoff
from shared.cluster import Applied, Blind, Deleted, Resource, Snapshot
from shared.cluster.answers import FailedRequest, trouble
from shared.cluster.calls import Caller, Timeouts
from shared.cluster.connections import AbruptResponse
from shared.cluster.kubeconfig import current_context
from shared.cluster.objects import Custom, CustomMetadata, plain
from shared.cluster.reflector import Pace, Reflector
from shared.errors import Transient
from shared.flow import Limiter

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

TIMEOUTS = Timeouts(connect=5.0, total=15.0)
FIRST_DELAY, LAST_DELAY = 0.1, 5.0
"""Seconds between two attempts; short, because the API server of a development cluster restarts quickly."""


log = structlog.get_logger()


class WholeMetadata(CustomMetadata, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The metadata that a node reads; absent fields are not encoded."""

    deletion_grace_period_seconds: int | None = None


class Whole(Custom, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    metadata: WholeMetadata = WholeMetadata()


PODS = Resource("", "v1", "pods", "Pod", Whole)
SERVICES = Resource("", "v1", "services", "Service", Whole)


class NodeAccess:
    """The API server and the token of a kubeconfig with everything inlined, as development clusters write it.

    `shared.cluster.access` reads all kubeconfigs, but costs each agent 0.3 s and 18 MiB.
    """

    options: Mapping[str, Any] = {}

    def __init__(self, kubeconfig: Path, agent: str) -> None:
        self._kubeconfig = kubeconfig
        self._agent = agent
        cluster, self._user, _ = current_context([str(kubeconfig)])
        self.url = str(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"])
        self._trust = ssl.create_default_context(cadata=authority.decode())

    def open(self, requests: type[aiohttp.ClientRequest] = aiohttp.ClientRequest) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        return aiohttp.ClientSession(connector=connector, request_class=requests, response_class=AbruptResponse)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._user['token']}", "User-Agent": self._agent}

    async def renew(self) -> None:
        self._user = current_context([str(self._kubeconfig)]).user


class Kubernetes:
    def __init__(self, kubeconfig: Path, agent: str) -> None:
        access = NodeAccess(kubeconfig, agent)
        self.url = access.url
        self._caller = Caller(access, timeouts=TIMEOUTS, limiter=Limiter())

    async def close(self) -> None:
        await self._caller.close()

    async def call(self, method: str, path: str, body: Json | None = None, *, media: str = "application/json") -> Json:
        """One attempt; raises `Transient`, `Conflict` or `Refused`."""
        what, data = f"{method} {path}", None if body is None else msgspec.json.encode(body)
        try:
            answered = await self._caller.request(method, path, what=what, body=data, content_type=media)
            return msgspec.json.decode(answered.body, type=Json)
        except FailedRequest as failure:
            raise trouble(failure.status, what, method=method) from failure
        except msgspec.MsgspecError as error:
            raise Transient(f"{what}: the answer is not a JSON object") from error

    async def insist(self, method: str, path: str, body: Json | None = None, **options: Any) -> Json:
        """Repeat the call until it is answered; raises `Conflict` or `Refused`."""
        delays = backoff()
        while True:
            try:
                return await self.call(method, path, body, **options)
            except Transient:
                await asyncio.sleep(delays.next())

    async def follow(
        self,
        resource: Resource[Whole],
        changed: Callable[[Json], None],
        gone: Callable[[str], None],
        listed: asyncio.Event,
        *,
        fields: str = "",
    ) -> None:
        """For ever: call `changed` with each object that `fields` selects, and `gone` with the uid of a removed one.

        `listed` is set after the first complete list.  After a gap, `changed` may get an object again.
        """
        pace = Pace(first_wait=FIRST_DELAY, longest_wait=LAST_DELAY)
        known: set[str] = set()
        async for seen in Reflector(self._caller, resource, "", "", pace, fields=fields).run():
            match seen:
                case Snapshot(objects=objects):
                    present = {each.metadata.uid for each in objects}
                    for uid in known - present:
                        gone(uid)
                    known = present
                    for each in objects:
                        changed(plain(each))
                    listed.set()
                case Applied(object=one):
                    known.add(one.metadata.uid)
                    changed(plain(one))
                case Deleted(object=one):
                    known.discard(one.metadata.uid)
                    gone(one.metadata.uid)
                case Blind(reason=reason):
                    log.debug("watch broken", resource=resource.plural, problem=reason)


def backoff() -> Backoff:
    return Backoff(first=FIRST_DELAY, longest=LAST_DELAY, clock=time.monotonic, random=random.random)


def path_of(plural: str, namespace: str = "", name: str = "", *rest: str, group: str = "api/v1") -> str:
    parts = [group]
    if namespace:
        parts += ["namespaces", quote(namespace)]
    parts += [plural]
    if name:
        parts += [quote(name), *rest]
    return "/" + "/".join(parts)
