"""Two replicas of each service and three NATS servers beside a real control plane, each a process of its own."""

import asyncio
import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from devcluster.child import Child
from devcluster.cluster import ADMIN, SERVICES_NAMESPACE
from devcluster.controlplane import ControlPlane
from devcluster.kubeconfig import write_kubeconfig
from muster.stack import SERVICES, Stack
from shared.errors import Refused, Trouble
from shared.eventlog import Stored, api, wire
from shared.eventlog.account import ADMIN as LOG_ADMIN
from shared.eventlog.account import LEASES, STREAM, stream_of
from shared.eventlog.connection import Connection
from shared.eventlog.server import NatsServer
from shared.ports import free_port
from tests.bench.archive import archived, publish
from tests.kit.controlplane import UNLIMITED, fake_nodes
from tests.kit.nats import NatsCluster, connected, until
from tests.kit.stopping import go_on, stop

REPLICAS = 2
NODES = 4
PATIENCE_SECONDS = 90.0
PROBE_SECONDS = 0.5
"""A process that stands still does not answer."""

LAST_LINES = 20
"""Of a log, when something went wrong."""

AT_ONCE = 25
"""Questions to one server of the log."""

SETTINGS = {"MUSTER_DRAIN": "PT0S", "MUSTER_LOG_LEVEL": "debug", "MUSTER_SEAL_AFTER": "5"}
"""At debug a service tells of every append that was acknowledged, facts too.  Jobs are sealed amid the strikes."""


class Replica(msgspec.Struct, frozen=True):
    """One process of a service."""

    service: str
    name: str
    health: int
    """The port of its probes."""
    token: str
    """The id of its token: the API server's audit log tells replicas apart by it."""


class Pairs(Stack):
    """A stack whose services and log have no single process that matters."""

    nats: NatsCluster  # type: ignore[assignment]
    cluster: ControlPlane

    def __init__(self, data: Path, over: int) -> None:
        make: Callable[..., ControlPlane] = partial(ControlPlane, nodes=0, more=UNLIMITED)
        self.audit = data / "audit.jsonl"
        super().__init__(data, make, settings=SETTINGS, audit=self.audit)
        self.nats = NatsCluster(data / "nats")
        self.replicas: list[Replica] = []
        self._over = over
        self.before = 0
        """The last sequence when the services began: the log's first event, and jobs that were over."""

    async def _start_services(self) -> None:
        await self._stack.enter_async_context(fake_nodes(self.cluster, self.data, nodes=NODES))
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_SECONDS))
        )
        self._admin = await Connection.open(
            self.nats.url, name="test", user=LOG_ADMIN, password=self.nats.users[LOG_ADMIN]
        )
        self._stack.push_async_callback(self._admin.close)
        async with connected(self.nats, LOG_ADMIN) as log:
            await publish(self.nats, archived(self._over, self._over, await log.identity()))
            self.before = await log.end()
        async with self.cluster.session(ADMIN) as session:
            for service in SERVICES:
                for number in range(REPLICAS):
                    await self._start_replica(session, service, f"{service}-{number}")
        for replica in self.replicas:
            await until(partial(self.ready, replica), within=PATIENCE_SECONDS)

    async def _start_replica(self, session: aiohttp.ClientSession, service: str, name: str) -> None:
        path = f"/api/v1/namespaces/{SERVICES_NAMESPACE}/serviceaccounts/{service}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        async with session.post(path, json=request) as answer:
            token: str = (await answer.json())["status"]["token"]
        kubeconfig = self.data / f"kubeconfig-{name}"
        authority = self.cluster.authority.read_bytes()
        write_kubeconfig(kubeconfig, server=self.cluster.url, authority=authority, user=service, token=token)
        replica = Replica(service, name, free_port(), _id(token))
        own = {"KUBECONFIG": str(kubeconfig), "MUSTER_HEALTH_PORT": str(replica.health)}
        self._start_service(f"services.{service}", name, self.environment(service) | own)
        self.replicas.append(replica)

    async def probed(self, replica: Replica) -> dict[str, Any]:
        """What it says of itself; nothing when it does not answer."""
        try:
            async with self._session.get(f"http://127.0.0.1:{replica.health}/readyz") as answer:
                report: dict[str, Any] = await answer.json()
                return report
        except (aiohttp.ClientError, TimeoutError):
            return {}

    async def ready(self, replica: Replica) -> bool:
        """Raises `ChildError` when its process ended."""
        if not self.services[replica.name].running:
            raise self.services[replica.name].error("ended")
        return bool((await self.probed(replica)).get("ready"))

    async def owner(self, service: str) -> Replica:
        """Who holds the lease of this service."""
        found: list[Replica] = []

        async def known() -> bool:
            found[:] = [
                replica
                for replica in self.replicas
                if replica.service == service and (await self.probed(replica)).get("owner")
            ]
            return bool(found)

        await until(known, within=PATIENCE_SECONDS)
        return found[0]

    async def standby(self, service: str) -> Replica:
        owner = await self.owner(service)
        return next(replica for replica in self.replicas if replica.service == service and replica != owner)

    async def all_well(self) -> bool:
        """Every service is ready, one of each pair is the owner, and the streams are whole on all three servers."""
        answers = await asyncio.gather(*map(self.probed, self.replicas))
        reports = [(replica.service, answer) for replica, answer in zip(self.replicas, answers, strict=True)]
        owners = [service for service, report in reports if report.get("owner")]
        return all(report.get("ready") for _, report in reports) and len(owners) == len(SERVICES) and await self.whole()

    async def whole(self) -> bool:
        """The log and the leases have a leader, and two followers that are up to date."""
        try:
            return all([_whole(await self._stream(name)) for name in (STREAM, stream_of(LEASES))])
        except Trouble:
            return False

    async def leader(self, stream: str) -> str:
        """The server that leads it."""
        name: str = (await self._stream(stream))["cluster"]["leader"]
        return name

    async def copy(self, name: str, end: int) -> list[Stored]:
        """What this server itself has of the log behind `before`, up to `end`.

        Single messages are asked of the leader, so it leads.
        """

        async def leads() -> bool:
            try:
                if await self.leader(STREAM) == name:
                    return True
                wish = {"placement": {"preferred": name}}
                await api.call(self._admin, f"STREAM.LEADER.STEPDOWN.{STREAM}", wish, dict)
            except (Trouble, KeyError):
                pass  # Between two leaders no server answers.
            await asyncio.sleep(PROBE_SECONDS)
            return False

        await until(leads, within=PATIENCE_SECONDS)
        found: list[Stored] = []
        for first in range(self.before + 1, end + 1, AT_ONCE):
            asked = range(first, min(first + AT_ONCE, end + 1))
            answers = await asyncio.gather(*(self._held(sequence) for sequence in asked))
            found += [stored for stored in answers if stored is not None]
        assert await leads(), f"{name} was asked, and another server may have answered"
        return found

    async def _held(self, sequence: int) -> Stored | None:
        try:
            message = await api.message(self._admin, STREAM, seq=sequence)
        except Refused:
            # It knows that there is one, and cannot read it.
            return None
        return None if message is None else wire.stored(message.seq, message.subject, message.hdrs, message.data)

    async def _stream(self, name: str) -> dict[str, Any]:
        return await api.call(self._admin, f"STREAM.INFO.{name}", None, dict, timeout=PROBE_SECONDS)

    async def last_words(self, name: str) -> str:
        """Who is not well, and the end of the log of `name`."""
        answers = {replica.name: await self.probed(replica) for replica in self.replicas}
        sick = [f"{one}: {answer or 'no answer'}" for one, answer in answers.items() if not answer.get("ready")]
        streams = "whole" if await self.whole() else "not whole"
        lines = self.process(name).log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([*sick, f"the streams are {streams}; {name} said last:", *lines])

    def process(self, name: str) -> Child | NatsServer:
        """A replica, a server of the log, or the API server."""
        if name in self.services:
            return self.services[name]
        return self.nats.servers.get(name) or self.cluster.apiserver

    def kill(self, name: str) -> None:
        self.process(name).kill()

    async def stop(self, name: str) -> None:
        """In order, as an upgrade does it."""
        if name in self.services:
            await self.services[name].stop()
        else:
            await asyncio.to_thread(self.nats.servers[name].stop)

    async def start(self, name: str) -> None:
        if name in self.services:
            self.services[name].start()
        else:
            await self.nats.servers[name].start()

    def pause(self, name: str) -> None:
        stop(self.process(name).pid)

    def wake(self, name: str) -> None:
        go_on(self.process(name).pid)


def _whole(info: dict[str, Any]) -> bool:
    cluster = info["cluster"]
    others = cluster.get("replicas") or []
    return bool(cluster.get("leader")) and len(others) == 2 and all(other["current"] for other in others)


def _id(token: str) -> str:
    """Of a service account's token, as an audit log names it."""
    claims = token.split(".")[1]
    decoded = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return f"JTI={decoded['jti']}"
