"""`muster demo`: one elastic training job, from apply to a replayed history, on this machine.

It runs a NATS server, an API server for kubectl, the four services, pods as processes, and a model that learns, on the
cluster of the caller's choice.  It leaves nothing behind without `--data` and `--keep`.
"""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from devcluster.binaries import MissingProgram
from devcluster.child import ChildError
from muster.asking import open_log
from muster.stack import DIGITS, Host, Stack, scratch, supervised
from shared.cluster import Resource
from shared.cluster.kinds import PODS
from shared.cluster.objects import Custom, Metadata
from shared.errors import Trouble
from shared.eventlog import EventLog, Stored
from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JobKey, Uid, history_filters
from shared.job.views import alive
from shared.process.main import until_stopped
from shared.process.settings import Settings
from shared.telling.reading import everything
from shared.telling.words import one_line

NAMESPACE = "default"
JOB = "digits"
LAUNCHER = f"{JOB}-launcher"

STORY = (
    (TRAININGJOBS, "training_job.yaml"),
    (SCALEOUTS, "scale_out.yaml"),
    (SCALEINS, "scale_in.yaml"),
)
"""The manifests, in the order in which they are applied."""

PATIENCE_SECONDS = 90.0
"""Seconds for one step of the demo until it counts as failed."""

EPOCHS_BETWEEN = 4
"""Epochs that each size trains before the next scaling."""

SERVICES = {"MUSTER_DRAIN": "PT2S"}
"""This example's workers finish within a second; the default of ten is for larger ones."""


class DemoError(Exception):
    """A step failed; the message says which one, and where to look."""


def main(data: Path | None, cluster: Callable[..., Host], *, keep: bool, image: str | None = None) -> int:
    """Run the demo; the exit code is 0 only if every step succeeded.

    `image` is the pods' image, for an existing cluster.
    """
    return carried_out(data, lambda folder, teller: Demo(folder, teller, cluster, keep=keep, image=image).run())


def carried_out(data: Path | None, work: Callable[[Path, "Teller"], Coroutine[Any, Any, int]]) -> int:
    """The exit code of `work` on the folder `data`, or on one that ends with it; that of Ctrl-C is 130."""
    folder = data or scratch()
    try:
        ended = asyncio.run(until_stopped(work(folder, Teller())))
        return 130 if ended is None else ended
    finally:
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)


STARTING = "starting NATS, the cluster and the four services"


class Teller:
    """Prints the progress: lines, and on a terminal a live line below them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/dim]  {text}")

    def plain(self, text: str) -> None:
        """Print a line of another program, without the time."""
        self._console.print(text, markup=False)

    def doing(self, text: str, *, takes_long: bool = False) -> None:
        """Show the present activity, on a terminal as the live line; elsewhere as a line if it takes long."""
        if self._status is not None:
            self._status.update(text)
            self._status.start()
        elif takes_long:
            self.say(text)

    def still(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


class Demo:
    """The story, step by step."""

    def __init__(
        self, folder: Path, teller: Teller, cluster: Callable[..., Host], *, keep: bool, image: str | None
    ) -> None:
        self._folder = folder
        self._teller = teller
        self._cluster = cluster
        self._keep = keep
        self._image = image
        self._job_uid = ""
        self._epoch = 0
        self._training_ended = False

    async def run(self) -> int:
        """Run every step; return 0 if all succeeded, or 1 after a line with the failure."""
        try:
            self._teller.doing(STARTING, takes_long=True)
            async with Stack(self._folder, self._cluster, settings=SERVICES, reports=True) as stack:
                self._teller.say(f"up: NATS, an API server at {stack.kube.url}, {', '.join(stack.services)}")
                async with supervised(stack.programs, self._teller.say):
                    await self._clear(stack)
                    await self._train(stack)
                    await self._tell_history(stack)
                    if self._keep:
                        await self._stay(stack)
                await self._replay(stack)
                self._teller.still()
                self._teller.say("done")
        except (DemoError, ChildError, MissingProgram, Trouble) as error:
            self._teller.still()
            self._teller.plain(f"muster demo: {error}")
            return 1
        finally:
            self._teller.still()
        return 0

    async def _clear(self, stack: Stack) -> None:
        """Delete the job and the requests of an earlier run on the same folder."""
        earlier = [
            (resource, found)
            for resource, file in STORY
            if (found := await stack.kube.get(resource, NAMESPACE, _manifest(file)["metadata"]["name"]))
        ]
        for resource, found in reversed(earlier):
            name = found.metadata.name
            await stack.kube.delete(resource, NAMESPACE, name, uid=found.metadata.uid)
            self._teller.say(f"deleted {resource.kind.lower()}/{name} of an earlier start")
        deadline = time.monotonic() + PATIENCE_SECONDS
        # The demo would take the lines of the old launcher for those of the new one.
        while await stack.kube.get(TRAININGJOBS, NAMESPACE, JOB) or await stack.kube.get(PODS, NAMESPACE, LAUNCHER):
            if time.monotonic() > deadline:
                raise DemoError(f"trainingjob/{JOB} of an earlier start is still there, or its pod {LAUNCHER}")
            await asyncio.sleep(0.1)

    async def _train(self, stack: Stack) -> None:
        (resource, file), *requests = STORY
        self._job_uid = (await self._apply(stack, resource, file)).uid
        training = asyncio.create_task(self._follow_training(stack))
        try:
            await self._until(stack, TRAININGJOBS, JOB, "Running")
            await self._epochs(EPOCHS_BETWEEN)
            for resource, file in requests:
                request = await self._apply(stack, resource, file)
                await self._until(stack, resource, request.name, "ScaleSucceeded")
                await self._epochs(self._epoch + EPOCHS_BETWEEN)
            await self._until(stack, TRAININGJOBS, JOB, "Succeeded")
            with suppress(TimeoutError):
                await asyncio.wait_for(training, 5)
        finally:
            training.cancel()

    async def _apply(self, stack: Stack, resource: Resource[Custom], file: str) -> Metadata:
        manifest = _manifest(file)
        if self._image is not None:
            for replicas in manifest["spec"].get("etReplicaSpecs", {}).values():
                for container in replicas["template"]["spec"]["containers"]:
                    container["image"] = self._image
        made = await stack.kube.create(resource, NAMESPACE, manifest)
        self._teller.say(f"applied [bold]{resource.kind.lower()}/{made.metadata.name}[/bold]")
        return made.metadata

    async def _until(self, stack: Stack, resource: Resource[Custom], name: str, phase: str) -> None:
        """Wait until an object shows a phase; print each phase on the way."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        shown = ""
        while shown != phase:
            found = await stack.kube.get(resource, NAMESPACE, name)
            status = found.status if found is not None and isinstance(found.status, dict) else {}
            now = status.get("phase") or ""
            if now != shown:
                shown = now
                size = f", workers {status['workers']}" if status.get("workers") else ""
                self._teller.say(f"{resource.kind.lower()}/{name} is [bold]{now}[/bold]{size}")
            if shown != phase and (shown in ("Failed", "ScaleFailed") or time.monotonic() > deadline):
                last = (status.get("conditions") or [{"reason": "no condition"}])[-1]
                why = last.get("message") or last["reason"]
                raise DemoError(f"{resource.kind} {name} is {shown or 'without phase'}, not {phase}: {why}")
            await asyncio.sleep(0.1)

    async def _epochs(self, wanted: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._epoch < wanted:
            if self._training_ended or time.monotonic() > deadline:
                raise DemoError(f"training did not reach epoch {wanted}; see the launcher's lines above")
            await asyncio.sleep(0.05)

    async def _follow_training(self, stack: Stack) -> None:
        """Print lines of the launcher: every group, every tenth epoch, and the end."""
        while True:
            with suppress(Trouble):
                async for line in stack.logs(NAMESPACE, LAUNCHER):
                    self._hear(line)
                self._training_ended = True
                return
            await asyncio.sleep(0.3)

    def _hear(self, line: str) -> None:
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if line.startswith("epoch="):
            self._epoch = int(words["epoch"])
            self._teller.doing(f"training  {line}")
            if self._epoch % 10:
                return
        self._teller.say(f"training: {line}")

    async def _tell_history(self, stack: Stack) -> None:
        self._teller.doing("reading the history")
        async with open_log(reader(stack)) as log:
            events = await whole_history(log, JobKey(NAMESPACE, JOB, Uid(self._job_uid)))
        self._teller.say("its history, decisions only (`muster history trainingjob/digits` shows the facts too):")
        for stored in events:
            if Subject.parse(stored.subject).family == "jobs":
                self._teller.plain(one_line(stored))
        if reports := [stored for stored in events if stored.subject.endswith(".ProgressReported")]:
            self._teller.say("the last of what its program reported, which `muster get` and `muster why` show:")
            self._teller.plain(one_line(reports[-1]))

    async def _stay(self, stack: Stack) -> None:
        self._teller.still()
        self._teller.say("everything stays up; Ctrl-C ends it.  In another terminal:")
        for name, value in stack.reader().items():
            self._teller.plain(f"export {name}={value}")
        self._teller.plain(f"export PATH={Path(sys.executable).parent}:$PATH")
        self._teller.plain("kubectl get trainingjobs,scaleouts,scaleins,pods")
        # In the order of the story: a folder's files are applied in the order of their names.
        again = " ".join(f"-f {DIGITS / file}" for _, file in STORY)
        self._teller.plain(f"kubectl delete -f {DIGITS}; kubectl apply {again}   # all of it again")
        self._teller.plain(
            f"kubectl delete pod {JOB}-worker-0; muster why trainingjob/{JOB} worker-0   # while it trains"
        )
        self._teller.plain(f"muster history trainingjob/{JOB} -f")
        nats = stack.data / "nats"
        self._teller.plain(f"muster subscriber add {NAMESPACE} --data {nats}   # its events, for your programs")
        self._teller.plain(f"tail -f {stack.data}/*.log   # what each service says")
        await asyncio.Event().wait()

    async def _replay(self, stack: Stack) -> None:
        self._teller.doing("stopping the services")
        await stack.stop_services()
        self._teller.say("services stopped; folding the log again in another process")
        folding = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "muster", "replay", "--verify"),
            env={**os.environ, **stack.reader()},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await folding.communicate()
        finally:
            if folding.returncode is None:
                folding.kill()
        for line in said.decode().splitlines():
            self._teller.say(line)
        if folding.returncode:
            raise DemoError("the replayed status differs from the one in the API server")


async def whole_history(log: EventLog, key: JobKey, patience: float = PATIENCE_SECONDS) -> list[Stored]:
    """The events of a job that ended, once its clean-up is done; those so far after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        histories, events = await everything(log, history_filters(key))
        cleaned = not any(alive(pod) for history in histories for pod in history.job.pods.views.values())
        if cleaned or time.monotonic() > deadline:
            return events
        await asyncio.sleep(0.2)


def _manifest(file: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((DIGITS / file).read_text())
    return manifest


def reader(stack: Stack) -> Settings:
    """The settings of a person who reads the log of `stack`."""
    known = stack.reader()
    return Settings(nats_url=known["NATS_URL"], nats_user=known["NATS_USER"], nats_password=known["NATS_PASSWORD"])
