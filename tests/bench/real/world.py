"""The cluster that is measured in: a real control plane, fake nodes, and one operator.

That is Muster, its four services with a NATS server that syncs; or a peer.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import yaml

from devcluster.child import Child
from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.controlplane import ControlPlane
from muster.stack import SERVICES
from shared.eventlog import Stored
from shared.eventlog.account import ADMIN, READER
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import NatsServer
from shared.eventlog.setup import set_up
from shared.frameworks.scale_requests import GROUP
from shared.ports import free_port
from tests.bench.real.client import CallError, Client, Job, Plain, Pod, Watch, encode
from tests.bench.real.manifests import BARE_GROUP, collection, definitions, training_job
from tests.bench.real.peers import Peer, PeerJob, Peers
from tests.bench.real.processes import processor
from tests.kit.controlplane import UNLIMITED, fake_nodes

T = TypeVar("T")

_Watched = tuple[str, Any, Watch[Any]]
"""Path, type and where it is told."""

NODES = 10
PODS = 6_000
"""Of each node: ten thousand jobs of four workers are 50,000."""
STORE = (f"--quota-backend-bytes={8 * 2**30}", "--compaction-batch-limit=10")
"""A tenant that writes 1 MB at once as fast as it can fills etcd's default of 2 GiB between two compactions.

With its default of a thousand revisions a batch, the compaction of those then holds up every call for over a minute.
"""

NO_DRAIN = {"MUSTER_DRAIN": "0"}
"""Leaving workers get no drain time: a configured wait is not a matter of speed."""

PATIENCE = 300.0
"""Seconds for anything that is waited for."""
QUIET = 1.0
"""Seconds without an event in the log, after which the services have nothing more to do."""
ROLES = Path(__file__).parents[3] / "deploy" / "rbac" / "cluster"
BARE = "bench"
"""The bare client's user.  Not the administrator: whom the API server never makes wait."""
PEER = "peer"
"""A peer's user, and its process."""


def progress(text: str) -> None:
    """Print a line of progress; the table goes elsewhere."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


async def patiently(awaited: Awaitable[T], patience: float = PATIENCE) -> T:
    """Raises `TimeoutError` when it does not come in so many seconds."""
    return await asyncio.wait_for(awaited, patience)


class Run(msgspec.Struct, frozen=True):
    """What is asked of a figure."""

    quick: bool = False
    """Small sizes."""
    turns: int = 1
    """How many times each side is measured, one after the other: of many jobs, and of reactions."""
    peers: Peers = ()
    """Who is measured beside Muster, where that can be."""
    writers: int = 0
    """Others who write statuses all the time."""


class World:
    """`async with World() as world`: everything is up and empty; nothing is left after."""

    def __init__(
        self,
        *,
        muster: bool = True,
        together: bool = False,
        log: Path | None = None,
        peer: Peer | None = None,
        writers: int = 0,
    ) -> None:
        """Without `muster` no service runs; `together` all four do in one process, as of `muster run`.

        A `peer` runs in the place of Muster.  `log` is the folder of a log that is there.  So many `writers` keep the
        API server busy.
        """
        self._writers = writers
        self._kept = log
        self._muster = muster and peer is None
        self._peer = peer
        self._together = together
        self._stack = AsyncExitStack()
        self.services: dict[str, Child] = {}
        self.health: dict[str, int] = {}
        """Where each answers probes."""
        self.pods: Watch[Pod] = Watch()
        self.jobs: Watch[Job] = Watch()
        self.bare_jobs: Watch[Job] = Watch()
        self.configs: Watch[Plain] = Watch()
        self.requests: Watch[Plain] = Watch()
        self.peer_jobs: Watch[PeerJob] = Watch()

    async def __aenter__(self) -> Self:
        began = time.perf_counter()
        try:
            await self._enter()
        except BaseException:
            await self._stack.aclose()
            raise
        progress(f"a cluster is up in {time.perf_counter() - began:.1f} s")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _enter(self) -> None:
        enter = self._stack.enter_async_context
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-")))
        more = {**UNLIMITED, "etcd": STORE}
        self.audit = folder / "audit.jsonl"
        plane = ControlPlane(folder / "cluster", users=(*SERVICES, BARE, PEER), nodes=0, more=more, audit=self.audit)
        self._plane = plane
        self._folder = folder
        self.nats = NatsServer(self._kept or folder / "nats")
        await asyncio.gather(enter(plane), enter(self.nats))
        admin = await enter(Client(plane.kubeconfig(CLUSTER_ADMIN)))
        await self._prepare(admin)
        await enter(fake_nodes(plane, folder, nodes=NODES, pods=PODS, writers=self._writers))
        await set_up(self.nats.url, user=ADMIN, password=self.nats.users[ADMIN])
        self._log = await JetStreamEventLog.connect(
            self.nats.url, name=READER, user=READER, password=self.nats.users[READER]
        )
        self._stack.push_async_callback(self._log.close)
        self.client = await enter(Client(plane.kubeconfig(BARE)))
        # What is timed by itself must not wait for a connection that a flood of others holds.
        self.aside = await enter(Client(plane.kubeconfig(BARE)))
        await self._watch()
        if self._muster:
            self.start_services()
            await self._until_ready()
        if self._peer:
            await self._start_peer(self._peer)

    async def _prepare(self, admin: Client) -> None:
        """The CRDs, and who may do what."""
        # An operator of Kubeflow's jobs brings definitions of its own.
        for manifest in self._peer.objects() if self._peer else definitions():
            await admin.call("POST", path_of(manifest), encode(manifest))
        for file in sorted(ROLES.glob("*.yaml"), key=lambda file: file.name != "namespace.yaml"):
            for manifest in yaml.safe_load_all(file.read_text()):
                await admin.call("POST", path_of(manifest), encode(manifest))
        await admin.call("POST", path_of(_MAY_ALL), encode(_MAY_ALL))
        for path, _, _ in self._of_definitions():
            await _served(admin, path)

    async def _watch(self) -> None:
        watches: list[_Watched] = [
            (collection("pods"), Pod, self.pods),
            (collection("configmaps"), Plain, self.configs),
            *self._of_definitions(),
        ]
        tasks = [asyncio.create_task(self.client.follow(path, of, watch.tell)) for path, of, watch in watches]
        for task in tasks:
            task.add_done_callback(_must_not_end)
        self._stack.push_async_callback(_end, tasks)

    def _of_definitions(self) -> list[_Watched]:
        """What exists by definitions: of a peer, its jobs."""
        if self._peer:
            return [(path_of(self._peer.manifest("", "", 1)), PeerJob, self.peer_jobs)]
        return [
            (collection("trainingjobs", group=GROUP), Job, self.jobs),
            (collection("trainingjobs", group=BARE_GROUP), Job, self.bare_jobs),
            (collection("scaleouts", group=GROUP), Plain, self.requests),
            (collection("scaleins", group=GROUP), Plain, self.requests),
        ]

    def start_services(self, services: Sequence[str] = SERVICES) -> None:
        """Start these, each for the first time."""
        self._stack.push_async_callback(self.stop_services)
        # In one process they have one user between them, who has to be everybody.
        users = {"all": ADMIN} if self._together else dict(zip(services, services, strict=True))
        for name, user in users.items():
            self.health[name] = free_port()
            environment = {
                "KUBECONFIG": str(self._plane.kubeconfig(CLUSTER_ADMIN if self._together else name)),
                "NATS_URL": self.nats.url,
                "NATS_USER": user,
                "NATS_PASSWORD": self.nats.users[user],
                "MUSTER_HEALTH_PORT": str(self.health[name]),
            } | NO_DRAIN
            module = ["muster", "run"] if self._together else [f"services.{name}"]
            command = [sys.executable, "-m", *module]
            self.services[name] = Child(f"the {name}", command, self._folder / f"{name}.log", environment)
            self.services[name].start()

    async def _start_peer(self, peer: Peer) -> None:
        folder = self._folder / PEER
        folder.mkdir()
        kubeconfig = self._plane.kubeconfig(PEER)
        command = peer.command(kubeconfig, folder)
        self.services[PEER] = Child(peer.NAME, command, self._folder / f"{PEER}.log", {"KUBECONFIG": str(kubeconfig)})
        self._stack.push_async_callback(self.stop_services)
        self.services[PEER].start()
        await self.namespace("warm-up")
        running = self.peer_jobs.seen(1, lambda _, job: peer.running(job.spec, job.status))
        manifest = peer.manifest("warm-up", "warm-up", 1)
        await self.client.call("POST", path_of(manifest), encode(manifest))

        async def runs() -> bool:
            return running.done()

        await self.services[PEER].until(runs, PATIENCE)
        await self.clear("warm-up")

    async def stop_services(self) -> None:
        await asyncio.gather(*(service.stop() for service in self.services.values()))

    async def _until_ready(self) -> None:
        """One small job all the way, so that no first time of anything is measured."""
        await self.namespace("warm-up")
        running = self.jobs.seen(1, lambda _, job: job.status.phase == "Running")
        body = encode(training_job("warm-up", "warm-up", 1))
        await self.client.call("POST", collection("trainingjobs", "warm-up", GROUP), body)
        await patiently(running)
        await self.clear("warm-up")

    async def namespace(self, name: str) -> None:
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.client.call("POST", "/api/v1/namespaces", encode(manifest))

    async def clear(self, namespace: str) -> None:
        """Delete what is in it, and wait until all is gone and the services are quiet."""
        jobs = [collection("trainingjobs", namespace, group) for group in (GROUP, BARE_GROUP)]
        if self._peer:
            jobs = [path_of(self._peer.manifest("", namespace, 1))]
        now = encode({"gracePeriodSeconds": 0})
        async with asyncio.timeout(PATIENCE):
            for path in jobs:
                await self._delete_all(path)
            await self._delete_all(collection("pods", namespace), now)
            await self._delete_all(collection("configmaps", namespace))
            while any(at[0] == namespace for watch in (self.pods, self.jobs, self.peer_jobs) for at in watch.there):
                await asyncio.sleep(0.05)
            await self.quiet()

    async def _delete_all(self, path: str, how: bytes | None = None) -> None:
        """Delete a collection; an API server that is busy ends the call after a minute, and the next one goes on."""
        while True:
            try:
                await self.client.call("DELETE", path, how)
            except CallError as error:
                if error.status != HTTPStatus.GATEWAY_TIMEOUT:
                    raise
            else:
                return

    async def quiet(self) -> None:
        """Nothing was appended to the log for `QUIET` seconds."""
        end = -1
        while end != (end := await self._log.end()):
            await asyncio.sleep(QUIET)

    async def log_end(self) -> int:
        """The sequence of the newest event."""
        return await self._log.end()

    async def events_since(self, sequence: int) -> list[Stored]:
        """The events after `sequence`, up to the newest."""
        found = list[Stored]()
        async with aclosing(self._log.read(after=sequence)) as batches:
            async for batch in batches:
                found += batch.events
                if not batch.pending:
                    return found
        return found

    def apiserver_used(self) -> float:
        """Processor seconds of kube-apiserver so far."""
        return processor([self._plane.apiserver.pid])

    def used(self) -> dict[str, float]:
        """Processor seconds of each service so far."""
        return {name: processor([service.pid]) for name, service in self.services.items()}


_MAY_ALL = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": BARE},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "namespace": "muster", "name": name} for name in (BARE, PEER)],
}


def path_of(manifest: dict[str, Any]) -> str:
    """Where an object is made; of no namespace, all objects of the kind."""
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    kind = manifest["kind"].lower()
    return f"{base}{scope}/{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{base}{scope}/{kind}s"


async def _served(client: Client, path: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.call("GET", path)
            except RuntimeError:
                await asyncio.sleep(0.1)
            else:
                return


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.remove_done_callback(_must_not_end)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _must_not_end(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        # What waits for this watch would wait for ever.
        sys.exit(f"a watch of the benchmark ended: {error!r}")
