"""The agent: watches the pods of its node at the API server, and runs each one."""

import asyncio
import contextlib
import shutil
import ssl
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from devcluster.certificates import kubelet_context
from devcluster.client import Json, Kubernetes, Trouble
from devcluster.node.dns import DOMAIN, DnsServer, Names
from devcluster.node.environment import Fetch, Images
from devcluster.node.kubelet_api import KubeletApi
from devcluster.node.machine import Addresses, Machine, Registration
from devcluster.node.pods import Pod
from devcluster.node.relay import APISERVER, PORT, into, out_to, relaying
from devcluster.node.runtime import Runtime, RuntimeProblem
from devcluster.node.status import Recorder

ADDRESS = "127.0.0.1"
"""The address of the node, and of its kubelet API."""

POD_NETWORK = "10.88.0.0/16"
MOST_PODS = 250
DNS_PORT = 53

SHUTDOWN_GRACE = 2.0
"""Seconds that containers have to end when the agent stops; longer grace periods are cut."""

REPORT_TIMEOUT = 1.5
"""Seconds to write the last statuses; the API server may be down."""

SHUTDOWN = "Pod was terminated in response to imminent node shutdown."

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Options:
    kubeconfig: Path
    data: Path
    name: str
    images: Mapping[str, Path]
    node_token: str
    client_authority: Path | None
    tunnel: Path | None
    """The socket through which the API server reaches pods; None if it does not."""
    outlet: int | None
    """A port of this machine that pods reach at their gateway."""
    sync_period: float
    """The most seconds until a changed ConfigMap or Secret is in the files of its pods."""
    restart_delay: float


class Agent:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._pods: dict[str, Pod] = {}
        """By uid."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when the zygote or a vital task ends: the agent then ends with that error."""
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, or until the zygote or a vital task ends."""
        options = self._options
        options.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        tls = await asyncio.to_thread(kubelet_context, options.name, ADDRESS, options.client_authority)
        async with contextlib.AsyncExitStack() as stack:
            api = Kubernetes(options.kubeconfig, f"devcluster-node/{options.name}")
            stack.push_async_callback(api.close)
            machine = await self._machine(api, stack)
            stack.push_async_callback(self._end_background)
            stopped = asyncio.ensure_future(stop.wait())
            starting = asyncio.ensure_future(self._serve(machine, tls, stack))
            await self._first(starting, stopped)
            if starting.done():
                starting.result()
                log.info("the node is ready", node=options.name)
                await self._first(stopped)
            starting.cancel()
            stopped.cancel()
            if self._failed.done():
                self._failed.result()

    async def _first(self, *ends: "asyncio.Future[Any]") -> None:
        """Wait for one of these, or for the end of the zygote or a vital task."""
        await asyncio.wait([*ends, self._failed], return_when=asyncio.FIRST_COMPLETED)

    async def _machine(self, api: Kubernetes, stack: contextlib.AsyncExitStack) -> Machine:
        options = self._options
        root = options.data / "root"
        root.mkdir(exist_ok=True)
        addresses = Addresses(POD_NETWORK)
        runtime = Runtime(root, addresses.gateway, self._lost_the_zygote)
        try:
            await runtime.launch()
        except RuntimeProblem as problem:
            raise RuntimeProblem(
                f"this machine does not let the node agent separate pods ({problem}); "
                "the agent needs Linux 5.12 or newer, and root or permitted user namespaces"
            ) from problem
        stack.push_async_callback(runtime.close)
        return Machine(
            folder=options.data,
            api=api,
            runtime=runtime,
            addresses=addresses,
            images=Images(options.images),
            recorder=Recorder(api, options.name),
            host_address=ADDRESS,
            resolver=addresses.gateway,
            restart_delay=options.restart_delay,
        )

    async def _serve(self, machine: Machine, tls: ssl.SSLContext, stack: contextlib.AsyncExitStack) -> None:
        options, api = self._options, machine.api
        names = Names(self._pods.values, {f"{APISERVER}.{DOMAIN}": machine.resolver})
        await self._serve_names(machine.runtime, machine.resolver, names, stack)
        await self._relay_out(PORT, machine.api.url, machine, stack)
        if options.outlet is not None:
            await self._relay_out(options.outlet, f"https://{ADDRESS}:{options.outlet}", machine, stack)
        await self._relay_to_the_pods(machine.runtime, stack)
        kubelet = KubeletApi(self._pods.values, machine.runtime, options.node_token)
        port = await stack.enter_async_context(kubelet.serving(ADDRESS, tls))
        registration = Registration(api=api, name=options.name, address=ADDRESS, port=port, most_pods=MOST_PODS)
        services, pods = asyncio.Event(), asyncio.Event()
        self._background(api.follow("services", names.service_changed, names.service_gone, services))
        self._background(
            api.follow(
                "pods",
                lambda pod: self._pod_changed(pod, machine),
                self._pod_gone,
                pods,
                fields=f"spec.nodeName={options.name}",
            )
        )
        self._background(machine.recorder.run())
        await pods.wait()
        await services.wait()
        self._clean(options.data / "pods")
        self._background(self._refresh_forever())
        await registration.register()
        self._background(registration.heartbeat())
        stack.push_async_callback(self._shut_down, registration)

    async def _serve_names(
        self, runtime: Runtime, address: str, names: Names, stack: contextlib.AsyncExitStack
    ) -> None:
        made = await runtime.socket("udp", (address, DNS_PORT))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: DnsServer(names.resolve, names.reverse), sock=made)
        stack.callback(transport.close)

    async def _relay_out(self, port: int, url: str, machine: Machine, stack: contextlib.AsyncExitStack) -> None:
        made = await machine.runtime.socket("tcp", (machine.resolver, port))
        listening = relaying(out_to(url), lambda relay: asyncio.start_server(relay, sock=made))
        await stack.enter_async_context(listening)

    async def _relay_to_the_pods(self, runtime: Runtime, stack: contextlib.AsyncExitStack) -> None:
        tunnel = self._options.tunnel
        if tunnel is None:
            return
        # A killed agent leaves its socket.
        tunnel.unlink(missing_ok=True)
        dial = into(runtime, POD_NETWORK)
        await stack.enter_async_context(relaying(dial, lambda relay: asyncio.start_unix_server(relay, tunnel)))

    def _pod_changed(self, obj: Json, machine: Machine) -> None:
        uid = obj["metadata"]["uid"]
        known = self._pods.get(uid)
        if known:
            known.update(obj)
            return
        try:
            pod = self._pods[uid] = Pod(obj, machine)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log.warning("pod not understood", uid=uid, problem=repr(error))
            return
        if objection := self._objection(obj):
            pod.fail(*objection)
        self._background(self._run(pod), vital=False)

    def _objection(self, obj: Json) -> tuple[str, str] | None:
        """The reason and message with which this node rejects a new pod; None if it can run here."""
        if self._stopping:
            return "NodeShutdown", "Pod was rejected as the node is shutting down."
        if sum(not one.over for one in self._pods.values()) > MOST_PODS:
            return "OutOfpods", "Pod was rejected: Node didn't have enough resource: pods"
        if obj["spec"].get("hostNetwork"):
            return "NotOffered", "Pod was rejected: this node offers no hostNetwork"
        if any(container.get("restartPolicy") for container in obj["spec"].get("initContainers") or ()):
            return "NotOffered", "Pod was rejected: this node offers no sidecars among init containers"
        if any(container.get("restartPolicy") for container in obj["spec"]["containers"]):
            return "NotOffered", "Pod was rejected: this node offers no restartPolicy of a container"
        return None

    async def _run(self, pod: Pod) -> None:
        await pod.run()
        if pod.gone:
            self._pods.pop(pod.uid, None)

    def _pod_gone(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod:
            pod.vanished()
            if pod.finished.is_set():
                del self._pods[uid]

    def _clean(self, folder: Path) -> None:
        """Remove the folders of an earlier agent's pods that the API server no longer has."""
        for left in folder.iterdir() if folder.exists() else ():
            if left.name not in self._pods:
                shutil.rmtree(left, ignore_errors=True)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self._options.sync_period)
            once = Once()
            for pod in [pod for pod in self._pods.values() if pod.needs_refresh]:
                await pod.refresh(once.of(pod))

    async def _shut_down(self, registration: Registration) -> None:
        self._stopping = True
        pods = [*self._pods.values()]
        for pod in pods:
            pod.fail("Terminated", SHUTDOWN, SHUTDOWN_GRACE)
        with contextlib.suppress(TimeoutError, Trouble):
            async with asyncio.timeout(SHUTDOWN_GRACE + REPORT_TIMEOUT):
                await asyncio.gather(registration.leave(), *(pod.ended() for pod in pods))

    def _lost_the_zygote(self) -> None:
        if not self._failed.done():
            self._failed.set_exception(RuntimeProblem("the zygote died, and all containers with it"))

    def _background(self, work: Coroutine[Any, Any, None], *, vital: bool = True) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(done, vital=vital))

    def _ended(self, task: "asyncio.Task[None]", *, vital: bool) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._failed.done():
            return
        if error := task.exception():
            self._failed.set_exception(error)
        elif vital:
            self._failed.set_exception(AssertionError("a vital task has ended"))

    async def _end_background(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Once:
    """Reads every object at most once, even if several pods use it."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, str, str], Json | None] = {}

    def of(self, pod: Pod) -> Fetch:
        async def fetch(plural: str, name: str) -> Json | None:
            key = pod.namespace, plural, name
            if key not in self._read:
                self._read[key] = await pod.fetch(plural, name)
            return self._read[key]

        return fetch
