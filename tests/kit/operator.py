"""A running stack as a test's users see it: kubectl, waiting, killing."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import binaries
from devcluster.cluster import ADMIN
from muster.stack import Stack
from services.status.core.documents import canonical, document_of, with_head
from shared.cluster import Resource, Snapshot
from shared.cluster.kinds import PODS
from shared.cluster.objects import Pod
from shared.eventlog import Stored
from shared.eventlog.account import READER
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.chain import Head
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.state import Job
from shared.telling.reading import everything
from tests.kit.commands import established, run
from tests.kit.histories import folded
from tests.kit.hosts import MakeHost
from tests.kit.invariants import faults_of
from tests.kit.nats import connected
from tests.kit.tasks import beside

PATIENCE_SECONDS = 300.0
"""The slowest things waited for are a real garbage collector, which learns of new definitions within half a minute, and
a step of a job whose servers are killed at each event meanwhile.
"""

A_SCALED_LIFE = [
    "Created",
    "WorkersCreated",
    "WorkersReady",
    "LauncherCreated",
    "Running",
    "Scaling",
    "ScaleSucceeded",
    "Succeeded",
]
"""The conditions of a job that was scaled and succeeded, in order."""

SHELL = "shell:1"
"""With a tag, as a kubelet looks for an image without one at its registry."""

FOR_EVER = "sleep 1000 & wait"
UNTIL_TOLD = "trap 'exit 0' USR1; while :; do sleep 0.05; done"
"""What a launcher does: to end this one tell it so."""

WAITING_WORKER = {"name": "main", "image": SHELL, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]}


EXAMPLES = Path(__file__).parents[2] / "examples"


def an_example(name: str) -> dict[str, Any]:
    """A published example, such as `tensorflow/limits`."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return found


def of_kubeflow(job: str) -> str:
    """The selector of a job's pods by the training operator's label."""
    return f"training.kubeflow.org/job-name={job}"


def launcher_that(script: str) -> dict[str, Any]:
    """A launcher that is a line of shell."""
    return {"name": "main", "image": SHELL, "command": ["sh", "-c", f"trap 'exit 143' TERM; {script}"]}


def worker_that(script: str = "sleep 1000 & wait") -> dict[str, Any]:
    """A worker that is a line of shell; `$n` is its name."""
    return {"name": "main", "image": SHELL, "command": ["sh", "-c", f"n=$(hostname); trap 'exit 0' TERM; {script}"]}


def a_job(
    name: str, script: str, *, workers: int = 2, worker: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A TrainingJob whose launcher runs a line of shell and whose workers wait."""
    replicas = {"replicas": workers, "minReplicas": 1, "maxReplicas": 6}
    return {
        "apiVersion": TRAININGJOBS.api_version,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "etReplicaSpecs": {
                "launcher": {"template": {"spec": {"containers": [launcher_that(script)]}}},
                "worker": {**replicas, "template": {"spec": {"containers": [dict(worker or WAITING_WORKER)]}}},
            },
            **spec,
        },
    }


def a_request(kind: str, name: str, job: str, **spec: Any) -> dict[str, Any]:
    """A ScaleOut or ScaleIn."""
    return {
        "apiVersion": TRAININGJOBS.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"name": job}, **spec},
    }


def audited(audit: Path, *, after: int = 0) -> list[dict[str, Any]]:
    """The calls in an API server's audit log, which is being written, beyond its first `after` bytes."""
    with audit.open("rb") as log:
        log.seek(after)
        *whole, _ = log.read().split(b"\n")
    return [json.loads(line) for line in whole]


class Operator:
    """What a test does with the stack."""

    def __init__(self, stack: Stack, audit: Path) -> None:
        self.stack = stack
        self.audit = audit

    async def kubectl(self, *words: str, given: Any = None, fails: bool = False) -> str:
        """kubectl as the administrator, given a document or several; its output, or with `fails` its complaint."""
        text = yaml.safe_dump_all(given if isinstance(given, tuple) else [given]) if given is not None else ""
        ended = await run(*self._kubectl(), *words, given=text)
        assert bool(ended.code) == fails, f"kubectl {' '.join(words)}: {ended.out}{ended.complaint}"
        return ended.complaint if fails else ended.out

    async def established(self, *definitions: str) -> None:
        """Wait until custom resources of these definitions, named as for `kubectl wait`, can be made."""
        await established(*self._kubectl(), of=definitions)

    def _kubectl(self) -> tuple[str, ...]:
        try:
            program = str(binaries.kubectl())
        except binaries.MissingProgram as missing:
            pytest.skip(f"these tests speak as users of kubectl do: {missing}")
        return program, "--kubeconfig", str(self.stack.cluster.kubeconfig(ADMIN))

    async def leaves_nothing(self, job: str, kinds: str) -> None:
        """Wait until no object of these kinds, a comma between them, has the job's name in its own."""

        async def nothing() -> bool:
            if left := [name for name in (await self.kubectl("get", kinds, "-o", "name")).split() if job in name]:
                # It watches: the garbage collector takes its time, and each kubectl that asks again is a process.
                await self.kubectl("wait", "--for=delete", "--timeout=50s", *left)
            return not left

        await self.until(nothing, lambda: "something of the job is left")

    async def leaves_no_pod(self, job: str) -> None:
        """Wait until no pod of the job is there."""
        await self.has_pods(job)

    async def members(self, job: str, *names: str) -> None:
        """Wait until these workers, and no others, are in the hosts files and Ready."""

        def so(status: dict[str, Any]) -> bool:
            return status.get("currentWorkers") == list(names) and status.get("phase") == "Running"

        await self.shows(TRAININGJOBS, job, so, f"Running with {names}")

    async def tell_to_end(self, job: str) -> None:
        """Send the launcher the signal that its script waits for."""
        await self.signal(f"{job}-launcher")

    async def delete(self, *jobs: str) -> None:
        """Ask for the end of jobs that no test needs any more."""
        await self.kubectl("delete", "trainingjob", *jobs, "--wait=false")

    async def signal(self, pod: str, container: str = "main") -> None:
        """Send the first process of a container the signal that its script waits for."""
        # A moment later: the end of the container would take the exec with it.  The shell's own `kill`: an image need
        # not have the program.
        kill = "(sleep 0.5; kill -USR1 1) > /dev/null 2>&1 &"
        await self.kubectl("exec", pod, "-c", container, "--", "sh", "-c", kill)

    async def apply(self, *manifests: Any) -> str:
        """One `kubectl apply` of them all, in this order."""
        return await self.kubectl("apply", "-f", "-", given=manifests)

    async def muster(self, *words: str, code: int = 0) -> str:
        """A command of Muster as a user who only reads the log."""
        ended = await run(sys.executable, "-m", "muster", *words, environment=self.stack.reader())
        said = ended.out + ended.complaint
        assert ended.code == code, f"muster {' '.join(words)}: {ended.code}\n{said}"
        return said

    async def status(self, resource: Resource[Any], name: str, namespace: str = "default") -> dict[str, Any]:
        found = await self.stack.kube.get(resource, namespace, name)
        return found.status if found is not None and isinstance(found.status, dict) else {}

    async def phase(
        self, wanted: str, resource: Resource[Any], name: str, namespace: str = "default"
    ) -> dict[str, Any]:
        """Wait for a phase; return the status."""
        return await self.shows(resource, name, lambda status: status.get("phase") == wanted, wanted, namespace)

    async def comes_to(self, state: str, resource: Resource[Any], name: str) -> dict[str, Any]:
        """Wait until the newest condition or the phase is this one, as the column State shows; return the status."""

        def there(status: dict[str, Any]) -> bool:
            return state in (status.get("phase"), (status.get("conditions") or [{}])[-1].get("type"))

        return await self.shows(resource, name, there, state)

    async def shows(
        self,
        resource: Resource[Any],
        name: str,
        wanted: Callable[[dict[str, Any]], bool],
        what: str,
        namespace: str = "default",
    ) -> dict[str, Any]:
        """Wait until the status is as wanted; return it."""
        status: dict[str, Any] = {}

        async def there() -> bool:
            nonlocal status
            status = await self.status(resource, name, namespace)
            return wanted(status)

        await self.until(there, lambda: f"{name} is not {what!r}: {status}")
        return status

    async def keep_running(self) -> None:
        """Start a service again when it ended by itself, as a kubelet would; say so, with its last words."""
        while True:
            for service in self.stack.services.values():
                if not service.running:
                    print(f"{service.name} ended by itself:\n{_tail(service.log)}")
                    service.start()
            await asyncio.sleep(0.5)

    def last_words(self) -> str:
        """The end of every service's log: what a person would look at first."""
        return "\n".join(f"-- {service.name}\n{_tail(service.log)}" for service in self.stack.services.values())

    async def until(self, holds: Callable[[], Any], why: Callable[[], str] = lambda: "never") -> None:
        """Wait until a coroutine function answers true; a server that is down meanwhile is waited for."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            try:
                if await holds():
                    return
            except Exception as trouble:
                if asyncio.get_running_loop().time() > deadline:
                    raise AssertionError(f"{why()}\n{self.last_words()}") from trouble
            assert asyncio.get_running_loop().time() < deadline, f"{why()}\n{self.last_words()}"
            await asyncio.sleep(0.05)

    async def pods(self, job: str, namespace: str = "default") -> list[str]:
        """Names of a job's pods, sorted."""
        return sorted(await self.pod_uids(job, namespace))

    async def pod_uids(self, job: str, namespace: str = "default") -> dict[str, str]:
        """The uids of a job's pods, by name."""
        found = await self.found(f"training-job-name={job}", namespace)
        return {pod.metadata.name: pod.metadata.uid for pod in found}

    async def found(self, selector: str, namespace: str = "default") -> tuple[Pod, ...]:
        """The pods that a selector finds."""
        # It is asked again and again, and each kubectl is a process.
        async with aclosing(self.stack.kube.watch(PODS, namespace=namespace, selector=selector)) as watch:
            seen = await anext(watch)
        assert isinstance(seen, Snapshot)
        return seen.objects

    async def has_pods(self, job: str, *names: str) -> None:
        """Wait until these are the job's pods, and no others."""
        await self.selects(f"training-job-name={job}", *names)

    async def selected(self, selector: str) -> list[str]:
        """Names of the pods that a selector finds, sorted."""
        return sorted(pod.metadata.name for pod in await self.found(selector))

    async def selects(self, selector: str, *names: str) -> None:
        """Wait until a selector finds these pods, and no others."""
        now: list[str] = []

        async def so() -> bool:
            nonlocal now
            now = await self.selected(selector)
            return now == sorted(names)

        await self.until(so, lambda: f"{now} are the pods, not {names}")

    async def pod_is_gone(self, name: str) -> bool:
        return await self.stack.kube.get(PODS, "default", name) is None

    async def log(self) -> list[Stored]:
        """Every event there is."""
        async with connected(self.stack.nats, READER) as reader:
            _, events = await everything(reader)
        return events

    async def job(self, name: str) -> Job:
        """The newest life of a job, folded from the log."""
        return (await self.history(name)).job

    async def history(self, name: str) -> History:
        lives = [h for h in folded(await self.log()) if h.job.key.name == name and h.job.key.uid != "none"]
        return max(lives, key=lambda life: life.sequence) if lives else History(JobKey("default", name, Uid("none")))

    async def types(self, name: str) -> list[str]:
        """The types of a job's events, in order."""
        return [s.subject.rpartition(".")[2] for s in await self.log() if s.subject.split(".")[2] == name]

    async def assert_replayed(self, name: str) -> None:
        """What the API server holds of a TrainingJob is what the log says, byte for byte, and the history is whole."""
        held = await self.status(TRAININGJOBS, name)
        whole = await self.history(name)
        assert not whole.held, whole.held
        must_be_the_logs(held, await self.log(), whole.job.key)

    async def assert_lawful(self) -> None:
        """The log breaks no rule, and every status there is is the log's."""
        shown = {}
        for job in (history.job for history in folded(await self.log())):
            if BUILT_IN.knows(job) and not job.resource.gone:
                shown[job.key] = await self.status(BUILT_IN.of(job).resource, job.key.name, job.key.namespace)
        log = await self.log()
        broken = faults_of(log)
        assert not broken, broken
        for key, status in shown.items():
            if status.get("history"):
                must_be_the_logs(status, log, key)

    def crash(self, service: str) -> None:
        """SIGKILL, and start again at once."""
        self.stack.services[service].kill()
        self.stack.services[service].start()


@asynccontextmanager
async def an_operator(
    folder: Path, make: MakeHost, *, reports: bool = False, **settings: str
) -> AsyncIterator[Operator]:
    """Everything up, with a short drain and these settings; services that end by themselves are started again.

    With `reports` programs say how far they are.
    """
    audit = folder / "audit.jsonl"
    settings = {"MUSTER_DRAIN": "PT1S", **settings}
    async with Stack(folder, make, settings=settings, audit=audit, reports=reports) as stack:
        operator = Operator(stack, audit)
        async with beside(operator.keep_running()):
            yield operator
            await operator.assert_lawful()


def must_be_the_logs(status: dict[str, Any], log: Iterable[Stored], key: JobKey) -> None:
    """A status is the document of the log at the head that it shows, byte for byte."""
    shown, history = Head(status["history"]["sequence"], status["history"]["hash"]), History(key)
    for stored in log:
        if stored.sequence <= shown.sequence and stored.subject.split(".")[3] == key.uid:
            history.fold(stored)
    assert history.head == shown
    replayed = with_head(document_of(history.job), status["history"]["log"], shown, history.time)
    assert canonical(replayed) == canonical(status)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-12:])
