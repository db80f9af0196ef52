"""One pod on this node, from its binding to its end, as the kubelet runs it."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from devcluster.client import Json, Refused, Trouble, path_of
from devcluster.clock import doubled, now
from devcluster.node import status as statuses
from devcluster.node.containers import Container
from devcluster.node.environment import BadConfiguration, Fetch
from devcluster.node.logs import Logs
from devcluster.node.machine import Machine
from devcluster.node.running import FIRST_RETRY, LAST_RETRY, Runner
from devcluster.node.runtime import RuntimeProblem
from devcluster.node.status import Reporter
from devcluster.node.volumes import VOLUMES, MountFailed, Tokens, Volumes

log = structlog.get_logger()

_STATUS_FIELDS = ("initContainerStatuses", "containerStatuses")

SHORTEST_GRACE = 1.0
"""The kubelet's minimum of seconds for a container to end."""


class Pod:
    def __init__(self, obj: Json, machine: Machine) -> None:
        self.object = obj
        metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        self.uid = str(metadata["uid"])
        self.name = str(metadata["name"])
        self.namespace = str(metadata["namespace"])
        self.hostname = str(spec.get("hostname") or "")
        self.subdomain = str(spec.get("subdomain") or "")
        self.init = [self._container(one, machine) for one in spec.get("initContainers") or ()]
        self.main = [self._container(one, machine) for one in spec["containers"]]
        self.finished = asyncio.Event()
        """Set when the pod has nothing left on this node."""
        self.machine = machine
        self._policy = str(spec.get("restartPolicy") or statuses.ALWAYS)
        self._address = ""
        self._start_time = status.get("startTime") or now()
        self.field_values: dict[str, str] = {
            "hostname": (self.hostname or self.name)[:63],
            "hostIP": machine.host_address,
            "podIP": "",
        }
        """Values of field references that the object may not have yet."""
        tokens = Tokens(machine.api, lambda: self.object)
        self.volumes = Volumes(lambda: self.object, self._folder / "volumes", self.field_values, tokens)
        self._mounted = False
        self._refreshing = asyncio.Lock()
        self._refreshes: set[asyncio.Task[None]] = set()
        self._phase = status.get("phase") or "Pending"
        """The phase last reported."""
        self._over = self._phase in ("Succeeded", "Failed")
        self._verdict: Json = {}
        """Reason and message, if the pod fails for another cause than its containers."""
        self._told: tuple[list[Json], list[Json]] | None = None
        """The statuses of init and main containers that were reported last."""
        self._grace: float | None = None
        """The grace period in seconds that the node sets; None if only the API does."""
        self._gone = False
        self.stopping = asyncio.Event()
        """Set when no container may start any more."""
        self._leaving = asyncio.Event()
        self._ended = asyncio.Event()
        self._news = asyncio.Event()
        self._reporter = Reporter(machine.api, obj, self._status)
        self._runner = Runner(self)
        if not self._over:
            self._recover(status)
        self.update(obj)

    # For the name server

    @property
    def labels(self) -> dict[str, str]:
        return self.object["metadata"].get("labels") or {}

    @property
    def address(self) -> str:
        """The pod's address; empty before it has one, once it is over, and once it is gone from the API."""
        return "" if self._over or self._gone else self._address

    @property
    def serving(self) -> bool:
        """True if all containers are ready and the pod is not being deleted."""
        return not self._leaving.is_set() and all(container.ready for container in self.main)

    # For the agent

    @property
    def over(self) -> bool:
        """True if the pod has succeeded or failed; only its logs are left."""
        return self._over

    def update(self, obj: Json) -> None:
        before, self.object = self.object, obj
        if obj["metadata"].get("deletionTimestamp"):
            self.stopping.set()
            self._leaving.set()
        if any(before["metadata"].get(part) != obj["metadata"].get(part) for part in ("annotations", "labels")):
            task = asyncio.ensure_future(self.refresh(self.fetch))
            self._refreshes.add(task)
            task.add_done_callback(self._refreshes.discard)
        self._news.set()

    def vanished(self) -> None:
        self._gone = True
        self.stopping.set()
        self._leaving.set()
        self._news.set()

    def fail(self, reason: str, message: str, grace: float | None = None) -> None:
        """End the pod for another cause than its containers; its object stays in the API."""
        if not self._over:
            self._verdict = {"reason": reason, "message": message}
            self._grace = grace
            self.stopping.set()
            self.changed()

    @property
    def gone(self) -> bool:
        """True if the pod is gone from the API."""
        return self._gone

    async def ended(self) -> None:
        """Wait until no container runs and the status says so."""
        await self._ended.wait()
        await self._reporter.flush()

    async def refresh(self, fetch: Fetch) -> None:
        """Update the files of the pod's volumes."""
        async with self._refreshing:
            if self._mounted and not self._over:
                await self.volumes.refresh(fetch)

    @property
    def needs_refresh(self) -> bool:
        return self._mounted and not self._over and self.volumes.refreshable

    async def fetch(self, plural: str, name: str) -> Json | None:
        """Read a ConfigMap, Secret or claim of the pod's namespace, or a volume of the cluster."""
        namespace = "" if plural == VOLUMES else self.namespace
        try:
            return await self.machine.api.call("GET", path_of(plural, namespace, name))
        except Refused as refusal:
            if refusal.reason == "NotFound":
                return None
            raise BadConfiguration(str(refusal)) from refusal
        except Trouble as trouble:
            raise BadConfiguration(str(trouble)) from trouble

    def find(self, name: str) -> Container | None:
        return next((one for one in [*self.init, *self.main] if one.name == name), None)

    # Running

    async def run(self) -> None:
        reporting = asyncio.ensure_future(self._reporter.run())
        try:
            if not self._over:
                await self._live()
            self._ended.set()
            await self._leaving.wait()
            await self._leave()
        finally:
            reporting.cancel()
            for container in [*self.init, *self.main]:
                container.logs.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self.finished.set()

    async def _live(self) -> None:
        work = asyncio.ensure_future(self._work())
        stopping = asyncio.ensure_future(self.stopping.wait())
        deadline = self.object["spec"].get("activeDeadlineSeconds")
        ends: list[asyncio.Future[Any]] = [work, stopping]
        await asyncio.wait(ends, timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not self.stopping.is_set():
            self.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        stopping.cancel()
        await self._terminate(work)
        try:
            await work
        except Exception as error:
            # A bug with one pod must not end the other pods of the node.
            log.exception("pod failed", pod=f"{self.namespace}/{self.name}")
            self.fail("InternalError", f"the node agent failed: {error!r}")
            await self._kill()
        self._over = True
        self.machine.runtime.remove_network(self.uid)
        if self._address:
            self.machine.addresses.give_back(self._address)
        shutil.rmtree(self._folder / "volumes", ignore_errors=True)
        self.changed()

    async def _leave(self) -> None:
        if self._gone:
            return
        await self._reporter.flush()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        # The pod may be gone already, or another pod may have its name: both are fine.
        with contextlib.suppress(Trouble):
            await self.machine.api.insist("DELETE", path_of("pods", self.namespace, self.name), body)

    async def _terminate(self, work: "asyncio.Future[None]") -> None:
        """Send SIGTERM to the containers, and SIGKILL after the grace period, which a second deletion may shorten."""
        loop = asyncio.get_running_loop()
        begun, told = loop.time(), set[tuple[int, int]]()
        while not work.done():
            left = begun + self._grace_period() - loop.time()
            number = signal.SIGTERM if left > 0 else signal.SIGKILL
            for container in [*self.init, *self.main]:
                process = container.process
                if process and (process.number, number) not in told:
                    told.add((process.number, number))
                    process.signal(number)
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            ends: list[asyncio.Future[Any]] = [work, news]
            await asyncio.wait(ends, timeout=max(left, 0.0) or None, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()

    async def _kill(self) -> None:
        processes = [container.process for container in [*self.init, *self.main] if container.process]
        for process in processes:
            process.signal(signal.SIGKILL)
        await asyncio.gather(*(asyncio.shield(process.exit) for process in processes))

    def _grace_period(self) -> float:
        metadata, spec = self.object["metadata"], self.object["spec"]
        grace = metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
        if self._gone and "deletionGracePeriodSeconds" not in metadata:
            grace = 0
        if self._grace is not None:
            grace = min(grace, self._grace)
        return max(float(grace), SHORTEST_GRACE)

    async def _work(self) -> None:
        """Run the containers until none will run again."""
        self.changed()
        if not await self._set_up():
            return
        await self._runner.run(self._policy, self.init, self.main)

    async def _set_up(self) -> bool:
        """Set up address, network and volumes, with retries; False if the pod ends before they are ready."""
        if self.stopping.is_set():
            return False
        self._address = self.machine.addresses.take()
        self.field_values["podIP"] = self._address
        failures = 0
        while not self.stopping.is_set():
            try:
                await self.machine.runtime.add_network(self.uid, self._address)
                await self.volumes.set_up(self.fetch)
            except RuntimeProblem as problem:
                self._runner.warn("FailedCreatePodSandBox", str(problem))
            except MountFailed as problem:
                self._runner.warn("FailedMount", str(problem))
            else:
                self._mounted = True
                self.changed()
                return True
            failures += 1
            await self._runner.pause(doubled(FIRST_RETRY, failures, LAST_RETRY))
        return False

    def changed(self) -> None:
        self._reporter.changed()
        self._news.set()

    # Parts and status

    @property
    def _folder(self) -> Path:
        return self.machine.folder / "pods" / self.uid

    def _container(self, spec: Json, machine: Machine) -> Container:
        folder = machine.folder / "pods" / self.uid
        container = Container(
            spec,
            machine.restart_delay,
            Logs(folder / "logs" / spec["name"]),
            folder / "messages" / spec["name"],
            probed="readinessProbe" in spec,
        )
        if self._is_main(spec):
            container.wait("PodInitializing")
        return container

    def _is_main(self, spec: Json) -> bool:
        """True for a main container of a pod that has init containers."""
        return bool(self.object["spec"].get("initContainers")) and spec in self.object["spec"]["containers"]

    def _recover(self, status: Json) -> None:
        """Take over from an earlier agent, whose end killed all containers."""
        old = {one["name"]: one for field in _STATUS_FIELDS for one in status.get(field) or ()}
        for container in [*self.init, *self.main]:
            if container.name in old:
                container.recover(old[container.name])

    def _status(self) -> Json:
        init = [container.status(init=True) for container in self.init]
        main = [container.status() for container in self.main]
        if self._verdict and not self._over:
            # As the kubelet: it tells that the pod will be Failed, and the containers' ends with that phase.
            init, main = self._told or (init, main)
        self._told = init, main
        phase = statuses.phase(self._policy, init, main, ended=self._over and self.stopping.is_set())
        if self._verdict:
            # The phase Failed is reported together with its reason.
            phase = "Failed" if self._over else "Running"
        if phase in ("Succeeded", "Failed") and not self._over:
            # As the kubelet: the containers' ends are reported at once, the pod's phase when it is torn down.
            phase = self._phase
        self._phase = phase
        addresses: Mapping[str, object] = {}
        if self._address:
            # A patch merges them by address, and an earlier agent may have given the pod another one.
            addresses = {"podIP": self._address, "podIPs": [{"$patch": "replace"}, {"ip": self._address}]}
        return {
            "phase": phase,
            "conditions": statuses.conditions("Failed" if self._verdict else phase, init, main),
            "hostIP": self.machine.host_address,
            "hostIPs": [{"ip": self.machine.host_address}],
            **addresses,
            "startTime": self._start_time,
            **({"initContainerStatuses": init} if init else {}),
            "containerStatuses": main,
            **(self._verdict if self._over else {}),
        }
