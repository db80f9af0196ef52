"""`muster logs`: the logs of a job's pods, each line after the name of its pod."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import msgspec
import typer

from muster.following import LOOK_SECONDS, Tell, status_of, warn
from muster.jobs import OVER, objects, the_job
from shared.cluster import Applied, Snapshot
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.cluster.objects import ContainerStatus, Custom, Pod
from shared.errors import Refused, Transient
from shared.frameworks.runtimes import NODE
from shared.job.naming import JOB_UID
from shared.job.spec import JobSpec
from shared.telling.targets import Asked, Target

WAITING_LINES = 1_000
"""The most lines of a job that are in memory at a time."""


class Line(msgspec.Struct, frozen=True):
    """One line that a pod wrote."""

    pod: str
    """The name of the pod."""
    time: str
    """When the container wrote it, by its node's clock: RFC 3339, UTC, nanoseconds."""
    text: str


async def logs(cluster: KubeCluster, asked: Asked, namespace: str, *, follow: bool, tail: int | None) -> None:
    """Print the logs of a job's pods, as `lines` gives them."""
    found = lines(cluster, asked, namespace, follow=follow, tail=tail, trouble=lambda words: warn(f"muster: {words}"))
    async with aclosing(found):
        async for line in found:
            typer.echo(f"[{line.pod}] {line.text}")


async def lines(
    cluster: KubeCluster, asked: Asked, namespace: str, *, follow: bool, tail: int | None, trouble: Tell
) -> AsyncGenerator[Line, None]:
    """The logs of a job's pods, one pod after the other; with `follow` as they come, until the job is over.

    `tail` is the number of last lines of each pod to begin with; None for all.
    Raises `Refused` if there is no such job, or without `follow` if it has no pods.
    """
    if asked.is_request:
        raise Refused("only a job has pods that write logs; name the job", reason="Invalid")
    target, job = await the_job(cluster, asked, namespace, "read")
    reader = _Reader(cluster, target, job, tail, trouble)
    reading = asyncio.create_task(reader.follow() if follow else reader.present())
    try:
        while not (reading.done() and reader.lines.empty()):
            coming = asyncio.ensure_future(reader.lines.get())
            await asyncio.wait((coming, reading), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                yield coming.result()
            else:
                coming.cancel()
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class _Reader:
    """The logs of one job."""

    def __init__(self, cluster: KubeCluster, target: Target, job: Custom, tail: int | None, trouble: Tell) -> None:
        self.lines: asyncio.Queue[Line] = asyncio.Queue(WAITING_LINES)
        """In the order of their reading."""
        self._trouble = trouble
        self._cluster = cluster
        self._target = target
        self._job = job
        self._tail = tail
        self._namespace = job.metadata.namespace
        self._selector = f"{JOB_UID}={job.metadata.uid}"
        self._containers = _training_containers(target, job)
        self._begun: dict[str, asyncio.Task[None]] = {}
        """The task that reads each pod's log, by uid."""

    async def present(self) -> None:
        """Read the present lines, one pod after the other."""
        pods = await self._pods()
        if not pods:
            label = self._target.label
            raise Refused(f"{label} has no pods now; `muster why {label}` says why", reason="NotFound")
        for pod in pods:
            container = self._container(pod)
            if not _started(container):
                self._trouble(_why_not_started(pod, container))
                # What ran before says why.
                for before in filter(_started, pod.status.init_container_statuses or ()):
                    await self._read(pod, before.name, follow=False)
                continue
            await self._read(pod, container.name, follow=False)

    async def follow(self) -> None:
        """Read the lines of each pod from its start, until the job is over and all pods have ended."""
        watching = asyncio.create_task(self._watch())
        try:
            while not watching.done() and not await self._is_over():
                await asyncio.sleep(LOOK_SECONDS)
            if watching.done():
                await watching
            # A pod may have started and ended since the last list; it still has its log.
            self._begin(await self._pods())
            await asyncio.gather(*self._begun.values())
        finally:
            for task in (watching, *self._begun.values()):
                task.cancel()
            await asyncio.gather(watching, *self._begun.values(), return_exceptions=True)

    async def _watch(self) -> None:
        watch = self._cluster.watch(PODS, namespace=self._namespace, selector=self._selector)
        async with aclosing(watch):
            async for seen in watch:
                match seen:
                    case Snapshot(found):
                        self._begin(found)
                    case Applied(pod):
                        self._begin([pod])

    def _begin(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.metadata.uid not in self._begun and _started(container := self._container(pod)):
                reading = self._read(pod, container.name, follow=True)
                self._begun[pod.metadata.uid] = asyncio.create_task(reading)

    async def _is_over(self) -> bool:
        try:
            held = await self._cluster.get(self._target.resource, self._namespace, self._job.metadata.name)
        except Transient:
            return False
        gone = held is None or held.metadata.uid != self._job.metadata.uid
        return gone or (held is not None and self._target.phase(status_of(held)) in OVER)

    async def _pods(self) -> list[Pod]:
        found = await objects(self._cluster, PODS, self._namespace, self._selector)
        return sorted(found or (), key=lambda pod: _natural(pod.metadata.name))

    def _container(self, pod: Pod) -> ContainerStatus:
        """The training container, or the first one if none has its name."""
        containers = pod.status.container_statuses or (ContainerStatus(),)
        return next((one for one in containers if one.name in self._containers), containers[0])

    async def _read(self, pod: Pod, container: str, *, follow: bool) -> None:
        """Read one pod's lines; a broken stream is opened again after the last line."""
        name, seen = pod.metadata.name, Seen()
        while True:
            tail = None if seen.last else self._tail
            lines = self._cluster.log(self._namespace, name, container, follow=follow, since=seen.begin(), tail=tail)
            try:
                async with aclosing(lines):
                    async for line in lines:
                        time, _, text = line.decode(errors="replace").partition(" ")
                        if seen.is_new(time):
                            await self.lines.put(Line(name, time, text))
            except Refused as refusal:
                self._trouble(str(refusal))
            except Transient as trouble:
                if not follow:
                    raise
                self._trouble(f"{trouble}; trying again")
                await asyncio.sleep(LOOK_SECONDS)
                continue
            return


class Seen:
    """The position in a container's log, so that a stream that is opened again repeats no line.

    Several lines may have the same time, and a server begins with the whole second of the requested time.
    """

    def __init__(self) -> None:
        self.last = ""
        """The time of the last line; empty before the first."""
        self._lines = 0
        """The number of lines with this time."""
        self._repeated: tuple[str, int] = "", 0
        """The time and the number of lines that a stream repeats when it is opened again."""

    def begin(self) -> str:
        """Begin a stream; return the time to ask for."""
        self._repeated = self.last, self._lines
        return self.last

    def is_new(self, time: str) -> bool:
        """True if the next line of the stream was not read before."""
        last, lines = self._repeated
        # Compared without the zone, 00.1 sorts before 00.12, which is the order of the times.
        if time.rstrip("Z") < last.rstrip("Z"):
            return False
        if time == last and lines:
            self._repeated = last, lines - 1
            return False
        self._lines = self._lines + 1 if time == self.last else 1
        self.last = time
        return True


def _training_containers(target: Target, job: Custom) -> set[str]:
    assert target.framework is not None, target
    spec = target.framework.parse(job)
    if isinstance(spec, JobSpec):
        return {role.container for role in spec.roles}
    # Without its runtime a job cannot be read.
    return {NODE} if target.framework.runtimes else set()


def _why_not_started(pod: Pod, container: ContainerStatus) -> str:
    failed = next((one for one in pod.status.init_container_statuses or () if _exit_code(one)), None)
    if failed is not None:
        return f"{pod.metadata.name} did not start: init container {failed.name} exited with {_exit_code(failed)}"
    reason = container.state.waiting.reason if container.state.waiting else ""
    return f"{pod.metadata.name} has not started yet{f' ({reason})' if reason else ''}"


def _exit_code(container: ContainerStatus) -> int:
    """0 for a container that runs or waits, too."""
    return container.state.terminated.exit_code if container.state.terminated is not None else 0


def _started(container: ContainerStatus) -> bool:
    return bool(container.name) and container.state.waiting is None


def _natural(name: str) -> list[tuple[int, str]]:
    """The sort key of a name: by number, so that `worker-10` comes after `worker-9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
