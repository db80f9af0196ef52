"""Runs the containers of one pod: starts each, waits for its end, and restarts it if the policy says so."""

import asyncio
import contextlib
import os

from devcluster.node import status as statuses
from devcluster.node.containers import Container, OnNode
from devcluster.node.environment import BadConfiguration
from devcluster.node.launching import CannotStart, prepare
from devcluster.node.probes import watch_readiness
from devcluster.node.runtime import Process, RuntimeProblem

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
        delay, pull_delay = FIRST_RETRY, FIRST_PULL
        while not self._pod.stopping.is_set():
            image = container.spec["image"]
            if self._machine.images.missing(image):
                self._waits(container, "ErrImagePull", f'failed to pull image "{image}": not found')
                await self.pause(FIRST_RETRY)
                self._waits(container, "ImagePullBackOff", f'Back-off pulling image "{image}"')
                await self.pause(pull_delay)
                pull_delay = min(2 * pull_delay, LAST_PULL)
                continue
            try:
                return await self._begin(container)
            except BadConfiguration as problem:
                self._waits(container, "CreateContainerConfigError", str(problem))
            except (CannotStart, RuntimeProblem, OSError) as problem:
                self._waits(container, "CreateContainerError", str(problem))
            await self.pause(delay)
            delay = min(2 * delay, LAST_RETRY)
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
