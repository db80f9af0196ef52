"""The asynchronous client.

Each method is the command of its name without its output: the code is in the files of the commands.
"""

import asyncio
import builtins
import difflib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, Self, get_args

import msgspec
import yaml
from pydantic import ValidationError

from muster.asking import Source, by_cluster, open_cluster, open_log, report_of, until_now, why_of
from muster.client.models import Cause, Event, Job, Report
from muster.following import LOOK_SECONDS, Answer, Change, condition_of, follow, status_of
from muster.history import job_events
from muster.jobs import OVER, every, the_job
from muster.logs import Line, lines
from muster.steering import ask_for, ask_to_restart, ask_to_resume, ask_to_suspend
from shared.cluster.kube import KubeCluster
from shared.errors import Refused, Transient
from shared.eventlog import Stored
from shared.eventlog.jetstream import JetStreamEventLog
from shared.frameworks.framework import Framework
from shared.frameworks.kinds import Kinds
from shared.job.conditions import MILESTONES
from shared.job.state import Phase
from shared.process.settings import Settings, complaint
from shared.telling.shown import called
from shared.telling.targets import Target, known_kinds, parse_target

TIMEOUT_SECONDS = 600.0
"""Seconds that a method waits without a `timeout`: longer than the end of pods or the pull of images takes."""

WORDS = (*(phase for phase in get_args(Phase) if phase), *MILESTONES, "Complete")
"""What a job can be waited for: phases, and conditions beside them; a TrainJob that succeeded is `Complete`."""

Document = Mapping[str, Any] | str | Path
"""A manifest: as a dict, as YAML or JSON, or a file of it."""


class Client:
    """One user of a cluster, and of the log where its address is known; a context manager.

    A job is given as the commands take it: `resnet`, or `trainingjob/resnet` where several kinds have the name.
    All methods raise `Refused` for what would fail again, `Transient` for what may work later; both are `Trouble`, and
    their message is one line.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        nats_url: str | None = None,
        nats_user: str | None = None,
        nats_password: str | None = None,
        nats_creds: Path | str | None = None,
        nats_ca: Path | str | None = None,
        trouble: Callable[[str], None] | None = None,
    ) -> None:
        """Connects at the first call that needs it.

        What is not given is taken from the environment as the commands take it: `KUBECONFIG`, else the service account
        of the pod, else `~/.kube/config`; `NATS_URL` and the like.  With an address or a user of NATS, here or there,
        histories are read from the log itself, and otherwise from `history.muster.dev`.
        `trouble` is called with a line when something is away for a while and asked again; without it the logger
        `muster.client` warns.
        """
        given = {
            "KUBECONFIG": kubeconfig,
            "context": context,
            "NATS_URL": nats_url,
            "NATS_USER": nats_user,
            "NATS_PASSWORD": nats_password,
            "NATS_CREDS": nats_creds,
            "NATS_CA": nats_ca,
        }
        try:
            self._settings = Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        except ValidationError as error:
            raise Refused(complaint(error), reason="Invalid") from error
        self._trouble = trouble or logging.getLogger("muster.client").warning
        self._opened = AsyncExitStack()
        self._closed = False
        self._opening = asyncio.Lock()
        self._kube: KubeCluster | None = None
        self._reader: JetStreamEventLog | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        await self._opened.aclose()

    async def create(self, namespace: str, document: Document) -> Job:
        """Create a job of any kind that Muster runs, and return it as the API server has it.

        Raises `Refused` with the reason `AlreadyExists` if the name is taken, `Invalid` if the document is no such job.
        """
        manifest = _manifest(document)
        target = _target(manifest)
        named = manifest.get("metadata") or {}
        if not isinstance(named, Mapping):
            raise Refused("the document's metadata is no mapping: write name and namespace there", reason="Invalid")
        metadata = dict(named)
        if (other := metadata.setdefault("namespace", namespace)) != namespace:
            words = f"the document is for the namespace {other}, and not for {namespace}; take it out there"
            raise Refused(words, reason="Invalid")
        made = await (await self._cluster()).create(target.resource, namespace, {**manifest, "metadata": metadata})
        return Job.of(msgspec.structs.replace(target, name=made.metadata.name), made)

    async def get(self, namespace: str, job: str) -> Job:
        """The job as it is now.  Raises `Refused` with the reason `NotFound` if there is none."""
        return Job.of(*await the_job(await self._cluster(), parse_target(job), namespace, "shown"))

    async def wait(
        self, namespace: str, job: str, until: str = "Succeeded", *, timeout: float = TIMEOUT_SECONDS
    ) -> Job:
        """The job once it has this phase or condition, such as `Running` or `WorkersReady`.

        A job that succeeded counts as `Running` too.  Raises `Failed` if it ends in another way, `Refused` if it is
        deleted, its spec is invalid or `until` is a word that no job has, and `WaitedTooLong`, which says what the job
        waits for, after `timeout` seconds; 0 waits for ever.
        """
        target, found = await the_job(await self._cluster(), parse_target(job), namespace, "shown")
        _must_be_known(until, status_of(found))
        return await self._followed(Change(target, "", found, _reaches(target, until)), timeout)

    async def scale(
        self, namespace: str, job: str, to: int, *, wait: bool = True, timeout: float = TIMEOUT_SECONDS
    ) -> Job:
        """Scale a running job to so many workers, at least 1, and within its bounds.

        With `wait` the job has them; `Failed` and `WaitedTooLong` as for `wait()`.
        """
        change = await ask_for(await self._cluster(), parse_target(job), namespace, to)
        return await self._done(namespace, job, change, wait, timeout)

    async def suspend(self, namespace: str, job: str, *, wait: bool = True, timeout: float = TIMEOUT_SECONDS) -> Job:
        """Delete the job's pods; its size and its history stay.  With `wait` it is `Suspended`."""
        change = await ask_to_suspend(await self._cluster(), parse_target(job), namespace)
        return await self._done(namespace, job, change, wait, timeout)

    async def resume(self, namespace: str, job: str, *, wait: bool = True, timeout: float = TIMEOUT_SECONDS) -> Job:
        """Begin a new attempt of a suspended job, of the same size.  With `wait` it runs."""
        change = await ask_to_resume(await self._cluster(), parse_target(job), namespace)
        return await self._done(namespace, job, change, wait, timeout)

    async def restart(self, namespace: str, job: str, *, wait: bool = True, timeout: float = TIMEOUT_SECONDS) -> Job:
        """Begin a new attempt of a running job; it does not count against `backoffLimit`.  With `wait` it runs."""
        change = await ask_to_restart(await self._cluster(), parse_target(job), namespace, wait=wait)
        return await self._done(namespace, job, change, wait, timeout)

    async def delete(self, namespace: str, job: str) -> None:
        """Delete the job and its pods; its history stays.  Raises `Refused` as `get` if there is none."""
        cluster = await self._cluster()
        target, found = await the_job(cluster, parse_target(job), namespace, "deleted")
        await cluster.delete(target.resource, namespace, found.metadata.name, uid=found.metadata.uid)

    async def logs(
        self, namespace: str, job: str, *, follow: bool = False, tail: int | None = None
    ) -> AsyncGenerator[Line, None]:
        """The lines that the job's pods wrote, of each pod the last `tail` or all; with `follow` until the job is over.

        Raises `Refused` without `follow` if the job has no pods.
        """
        found = lines(
            await self._cluster(), parse_target(job), namespace, follow=follow, tail=tail, trouble=self._trouble
        )
        async with aclosing(found):
            async for line in found:
                yield line

    async def events(self, namespace: str, job: str, *, uid: str = "", since: int = 0) -> AsyncGenerator[Event, None]:
        """The job's events with a sequence greater than `since`, in order and each once, and then those to come.

        There is no end: break off after the event that you wait for.  A job that is not in the log yet is waited for.
        It is the newest one of the name, or the one with the `uid`, such as that of `create()`.
        Outages in between are waited for; `since=event.sequence` goes on after an end of the program.
        """
        async with aclosing(self._known_later(namespace, job, uid, answered=since > 0)) as later:
            async for batch in later:
                for stored in batch:
                    if stored.sequence > since:
                        since = stored.sequence
                        yield Event.of(stored)

    async def history(self, namespace: str, job: str, *, uid: str = "") -> builtins.list[Event]:
        """The job's events until now, also of a job that is gone.

        Raises `Refused` with the reason `NotFound` if the log has no such job.
        """
        async with aclosing(until_now(await self._source(), parse_target(job), namespace, uid)) as found:
            return [Event.of(stored) async for batch in found for stored in batch]

    async def why(self, namespace: str, job: str, about: str = "", *, uid: str = "") -> builtins.list[Cause]:
        """Why the job is in its state, or one of its pods or requests: `about` is `worker-1` or `scaleout/more`."""
        told = await why_of(await self._source(), parse_target(job), about, namespace, uid=uid, as_json=True)
        return msgspec.json.decode(told, type=builtins.list[Cause])

    async def report(self, namespace: str, job: str, *, uid: str = "") -> Report:
        """The whole life of a job, also of one that is gone: the newest of that name, or the one with the uid."""
        return await report_of(await self._source(), parse_target(job), namespace, known_kinds(), uid=uid)

    async def list(self, namespace: str = "", *, selector: str = "") -> builtins.list[Job]:
        """The jobs of all kinds that are there now, by namespace and name: of one namespace, or of all without one.

        `selector` is a label selector such as `team=a`.  `muster.client` knows of jobs that are gone by `history`.
        """
        kinds = known_kinds()
        found = await every(await self._cluster(), kinds, namespace, selector)
        jobs = [Job.of(_target_of(kind, each.metadata.name, kinds), each) for kind, each in found]
        return sorted(jobs, key=lambda job: (job.namespace, job.name, job.called))

    async def _done(self, namespace: str, job: str, change: Change, wait: bool, timeout: float) -> Job:
        """The job once a change of it is done, or as it is now without `wait`."""
        if wait and change.asked is not None:
            await self._followed(change, timeout)
        return await self.get(namespace, job)

    async def _followed(self, change: Change, timeout: float) -> Job:
        cluster = await self._cluster()
        return Job.of(
            change.target, await follow(cluster, change, timeout=timeout, tell=lambda _: None, trouble=self._trouble)
        )

    async def _known_later(
        self, namespace: str, job: str, uid: str, *, answered: bool
    ) -> AsyncGenerator[Sequence[Stored], None]:
        """The events of a job, also of one that comes later; once it was `answered`, no answer is waited for."""
        told = False
        while True:
            try:
                async with aclosing(await self._known(namespace, job, uid)) as found:
                    async for batch in found:
                        answered, told = True, False
                        yield batch
            except Refused as refusal:
                if refusal.reason != "NotFound":
                    raise
                answered, told = True, False
            except Transient as trouble:
                if not answered:
                    # It may be a wrong address.
                    raise
                if not told:
                    self._trouble(f"{trouble}; asking on")
                told = True
            await asyncio.sleep(LOOK_SECONDS)

    async def _known(self, namespace: str, job: str, uid: str) -> AsyncGenerator[Sequence[Stored], None]:
        source = await self._source()
        trouble = self._trouble if isinstance(source, KubeCluster) else self._told
        return job_events(source, parse_target(job), namespace, uid=uid, trouble=trouble)

    def _told(self, trouble: str) -> None:
        if trouble:
            self._trouble(f"{trouble}; reading on")

    async def _source(self) -> Source:
        return await (self._cluster() if by_cluster(self._settings, nats=False) else self._log())

    async def _cluster(self) -> KubeCluster:
        async with self._opening:
            self._must_be_open()
            if self._kube is None:
                self._kube = await self._opened.enter_async_context(open_cluster(self._settings))
            return self._kube

    async def _log(self) -> JetStreamEventLog:
        async with self._opening:
            self._must_be_open()
            if self._reader is None:
                self._reader = await self._opened.enter_async_context(open_log(self._settings))
            return self._reader

    def _must_be_open(self) -> None:
        if self._closed:
            words = "this client is closed: ask within `async with muster.client.connect() as client`"
            raise Refused(words, reason="Closed")


connect = Client
"""A client: `async with muster.client.connect() as client`."""


def _manifest(document: Document) -> Mapping[str, Any]:
    if isinstance(document, Mapping):
        return document
    where = str(document) if isinstance(document, Path) else "the document"
    try:
        found = yaml.safe_load(document.read_text() if isinstance(document, Path) else document)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise Refused(f"{where} cannot be read as one document of YAML: {told}", reason="Invalid") from error
    if not isinstance(found, Mapping):
        raise Refused(f"{where} is no manifest: write apiVersion, kind, metadata and spec", reason="Invalid")
    return found


def _target(manifest: Mapping[str, Any]) -> Target:
    kinds, wanted = known_kinds(), (manifest.get("apiVersion"), manifest.get("kind"))
    for framework in kinds:
        for version in (framework, *framework.others):
            if (version.resource.api_version, version.resource.kind) == wanted:
                return _target_of(version, "", kinds)
    words = f"{wanted[0]} {wanted[1]} is no kind of job that Muster runs: correct apiVersion and kind"
    raise Refused(words, reason="Invalid")


def _target_of(framework: Framework, name: str, kinds: Kinds) -> Target:
    return Target(framework.resource, name, called(framework, kinds), framework)


def _must_be_known(until: str, status: dict[str, Any]) -> None:
    """Raise `Refused` for a word that is neither a phase nor a condition that jobs have, or this one has."""
    if until in WORDS or condition_of(status, until):
        return
    # Without regard to case, which is the commonest slip.
    near = difflib.get_close_matches(until.lower(), [word.lower() for word in WORDS], n=1)
    meant = next((word for word in WORDS if near and word.lower() == near[0]), "")
    advice = f"did you mean {meant}?" if meant else f"say one of {', '.join(WORDS)}"
    raise Refused(f"{until[:64]!r} is no phase and no condition of a job: {advice}", reason="Invalid")


def _reaches(target: Target, until: str) -> Answer:
    def answer(status: dict[str, Any]) -> bool | None:
        phase = target.phase(status)
        if until == phase or condition_of(status, until).get("status") == "True":
            return True
        if phase == "Succeeded" and until == "Running":
            return True
        return False if phase in OVER else None

    return answer
