"""Runs the containers of one pod: starts each, probes it, waits for its end, and restarts it if the policy says so."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from devcluster.client import Json
from devcluster.clock import doubled
from devcluster.node import status as statuses
from devcluster.node.containers import Container, OnNode
from devcluster.node.dns import hosts_file, resolver_file
from devcluster.node.environment import BadConfiguration, environment, expand, identity
from devcluster.node.rootfs import PRIVATE, Mount
from devcluster.node.runtime import Isolation, Launch, Process, Runtime, RuntimeProblem

FIRST_RETRY, LAST_RETRY = 0.2, 5.0
"""Seconds between two attempts to start a container that waits, for a ConfigMap for example."""

FIRST_PULL, LAST_PULL = 10.0, 300.0
"""Seconds between two attempts to pull an image."""


class Runner:
    def __init__(self, pod: OnNode) -> None:
        self._pod = pod
        self._machine = pod.machine

    async def run(self, policy: str, init: list[Container], main: list[Container]) -> None:
        """Run all containers until none will run again."""
        for container in init:
            await self._keep(container, statuses.NEVER if policy == statuses.NEVER else statuses.ON_FAILURE)
            if container.exit_code != 0:
                return
        async with asyncio.TaskGroup() as group:
            for container in main:
                group.create_task(self._keep(container, policy))

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the pod is stopping."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pod.stopping.wait(), seconds)

    def warn(self, reason: str, message: str) -> None:
        self._machine.recorder.warn(self._pod.object, reason, message)

    async def _keep(self, container: Container, policy: str) -> None:
        """Run a container as often as the policy says."""
        while not self._pod.stopping.is_set():
            if container.exit_code is not None:
                if policy == statuses.NEVER or (policy == statuses.ON_FAILURE and container.exit_code == 0):
                    return
                await self._back_off(container)
            process = await self._start(container)
            if process is None:
                return
            self._pod.changed()
            await self._attend(container, process)
            self._pod.changed()

    async def _back_off(self, container: Container) -> None:
        delay = container.next_delay()
        if delay:
            metadata = self._pod.object["metadata"]
            whose = f"container={container.name} pod={metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            container.wait("CrashLoopBackOff", f"back-off {delay:g}s restarting failed {whose}")
            self._pod.changed()
            self.warn("BackOff", f"Back-off restarting failed {whose}")
        await self.pause(delay)

    async def _start(self, container: Container) -> Process | None:
        """Start a run, with retries; None if the pod ends before it begins."""
        failures = pulls = 0
        while not self._pod.stopping.is_set():
            image = container.spec["image"]
            if self._machine.images.missing(image):
                self._waits(container, "ErrImagePull", f'failed to pull image "{image}": not found')
                await self.pause(FIRST_RETRY)
                self._waits(container, "ImagePullBackOff", f'Back-off pulling image "{image}"')
                pulls += 1
                await self.pause(doubled(FIRST_PULL, pulls, LAST_PULL))
                continue
            try:
                return await self._begin(container)
            except BadConfiguration as problem:
                self._waits(container, "CreateContainerConfigError", str(problem))
            except (CannotStart, RuntimeProblem, OSError) as problem:
                self._waits(container, "CreateContainerError", str(problem))
            failures += 1
            await self.pause(doubled(FIRST_RETRY, failures, LAST_RETRY))
        return None

    async def _begin(self, container: Container) -> Process:
        launch, isolation = await prepare(self._pod, container)
        container.message_file.parent.mkdir(parents=True, exist_ok=True)
        container.message_file.write_bytes(b"")
        # Writable for any user, because the container may run as one.
        container.message_file.chmod(0o666)
        run = container.logs.begin()
        with contextlib.ExitStack() as outputs:
            pipes = [run.pipe("stdout"), run.pipe("stderr")]
            for pipe in pipes:
                outputs.callback(os.close, pipe)
            process = await self._machine.runtime.start(launch, isolation, pipes)
        container.began(process, launch)
        return process

    async def _attend(self, container: Container, process: Process) -> None:
        """Wait for the end of the run, and probe it meanwhile."""
        if not container.probed or process.problem:
            await container.ended(process)
            return
        probing = asyncio.ensure_future(
            watch_readiness(self._machine.runtime, container, process, self._pod.address, self._pod.changed)
        )
        await container.ended(process)
        probing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await probing

    def _waits(self, container: Container, reason: str, message: str) -> None:
        if container.wait(reason, message):
            self.warn("Failed", f"Error: {message}")
            self._pod.changed()


NAME_SERVICES = "hosts: files dns\npasswd: files\ngroup: files\nshadow: files\n"
"""The container's `nsswitch.conf`: the host's may name a resolver that does not know the pods."""


class CannotStart(Exception):  # noqa: N818 - the kubelet's word for it is CreateContainerError
    """The container cannot be started; the message says what is missing."""


async def prepare(pod: OnNode, container: Container) -> tuple[Launch, Isolation]:
    """The launch of a container.  Raises `BadConfiguration` or `CannotStart`; a change of an object may mend both."""
    spec, status, images, hostname = container.spec, pod.field_values, pod.machine.images, pod.field_values["hostname"]
    image = spec["image"]
    variables = await environment(pod.object, spec, status, pod.fetch, images.programs(image))
    command = [expand(word, variables) for word in [*(spec.get("command") or ()), *(spec.get("args") or ())]]
    if not command:
        raise CannotStart("no command specified: images have none on this node, so the pod has to name one")
    who = identity(pod.object, spec)
    mounts = _program_mounts(images.visible(image), everywhere=bool(who.user)) + pod.volumes.mounts(spec, variables)
    message_path = spec.get("terminationMessagePath") or "/dev/termination-log"
    mounts.append({"source": str(container.message_file), "target": message_path, "read_only": False})
    folder = spec.get("workingDir") or images.folder(image)
    launch = Launch(command=command, environment=variables, folder=folder, identity=who)
    files = {
        "/etc/hosts": hosts_file(pod, hostname, pod.object["spec"].get("hostAliases") or ()),
        "/etc/resolv.conf": resolver_file(pod.object["spec"], pod.namespace, pod.machine.resolver),
        "/etc/hostname": hostname + "\n",
        "/etc/nsswitch.conf": NAME_SERVICES,
    }
    return launch, Isolation(pod=pod.uid, hostname=hostname, mounts=mounts, files=files)


def _program_mounts(folders: list[str], *, everywhere: bool) -> list[Mount]:
    """Mounts of the image, the Python and this code, if a container has a private folder in their place.

    With `everywhere` they are always mounted, because a user other than root may not be able to read the folders above.
    """
    ours = str(Path(__file__).parents[2])
    needed = {*folders, ours, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    return [
        {"source": folder, "target": folder, "read_only": True}
        for folder in sorted(needed)
        if everywhere or any(folder.startswith(f"{private}/") for private in PRIVATE)
    ]


async def watch_readiness(
    runtime: Runtime, container: Container, process: Process, address: str, changed: Callable[[], None]
) -> None:
    """Probe one run of a container until the run ends."""
    probe = container.spec["readinessProbe"]
    good, bad = 0, 0
    await _until_over(process, probe.get("initialDelaySeconds", 0))
    while not process.exit.done():
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                well = await _ask(runtime, container, process, address, probe)
        except (OSError, TimeoutError, RuntimeProblem):
            well = False
        good, bad = (good + 1, 0) if well else (0, bad + 1)
        ready = container.ready
        if good >= probe.get("successThreshold", 1):
            ready = True
        elif bad >= probe.get("failureThreshold", 3):
            ready = False
        if ready != container.ready and container.process is process and container.running:
            container.ready = ready
            changed()
        await _until_over(process, probe.get("periodSeconds", 10))


async def _until_over(process: Process, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(process.exit), seconds)


async def _ask(runtime: Runtime, container: Container, process: Process, address: str, probe: Json) -> bool:
    if command := (probe.get("exec") or {}).get("command"):
        return await _exec(runtime, container, process, command)
    target = probe.get("tcpSocket") or probe.get("httpGet")
    if not target:
        return False
    connection = await runtime.socket("tcp")
    with connection:
        port = _port(container.spec, target["port"])
        await asyncio.get_running_loop().sock_connect(connection, (target.get("host") or address, port))
        return "tcpSocket" in probe or await _get(connection, target, f"{address}:{port}")


async def _exec(runtime: Runtime, container: Container, process: Process, command: list[str]) -> bool:
    assert container.launch is not None, "a container that runs was launched"
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        asked = await runtime.exec(process, replace(container.launch, command=command), [nothing] * 3)
    finally:
        os.close(nothing)
    try:
        return (await asyncio.shield(asked.exit)).code == 0 and not asked.problem
    finally:
        asked.signal(signal.SIGKILL)


async def _get(connection: socket.socket, target: Json, host: str) -> bool:
    """True if an HTTP GET is answered with 2xx or 3xx."""
    headers = {"Host": host, "User-Agent": "kube-probe/1.32", "Accept": "*/*", "Connection": "close"}
    lines = [f"GET {target.get('path') or '/'} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    reader, writer = await asyncio.open_connection(sock=connection.dup())
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        words = (await reader.readline()).split()
        return len(words) > 1 and words[1].isdigit() and 200 <= int(words[1]) < 400
    finally:
        writer.transport.abort()


def _port(container: Json, port: int | str) -> int:
    """The number of a port, which may be given by name."""
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    try:
        return int(port)
    except ValueError:
        raise OSError(f"no port is named {port}") from None
