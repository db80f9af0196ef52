"""The status service's shell: documents, heads and Kubernetes Events, written to the cluster."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import structlog

from services.status.checkpoints import ANNOUNCED, SWEPT, Anchoring, Announced, Checkpoints
from services.status.core.decide import decide, sealing
from services.status.core.documents import replacing, same, with_head
from services.status.core.effects import Announce, PatchStatus
from shared.cluster import Cluster, Resource
from shared.cluster.kinds import EVENTS
from shared.cluster.objects import Custom
from shared.errors import Conflict, Refused, Transient, accepting
from shared.eventlog import Bucket
from shared.eventlog.retry import backoff
from shared.frameworks.kinds import BUILT_IN, Kinds
from shared.job import text
from shared.job.chain import Head, shown_in
from shared.job.events.event import Author
from shared.job.fold import Histories, History, closed
from shared.job.naming import JobKey, Uid
from shared.job.state import Job, Memo
from shared.job.steps import Effect, Step
from shared.process.main import Dependencies
from shared.runtime import log_lines
from shared.runtime.acts import Context
from shared.runtime.appends import REFUSED_SECONDS, stamp
from shared.runtime.heads import astray
from shared.runtime.ownership import must_be_asked_of
from shared.runtime.run import Runtime

EVENTS_LIVE = timedelta(hours=1)
"""Kubernetes deletes Events after an hour; an older one is not written again after a restart."""

ANNOUNCED_SECONDS = 30.0
"""How often the bucket is told which jobs have all their Events: a start creates those of so many seconds again."""

MOST_CLEARED = 10_000
"""As many jobs are remembered of which the bucket has nothing; before a seal it is asked again about others."""

NOT_YET = 0
"""In place of the sequence of a job that is gone, while the bucket is cleared of it."""

LONGEST_MESSAGE = 1024
"""The most bytes of an Event's message (Kubernetes API, of events with an eventTime)."""

REPORTER = "muster.dev/status"

LONGEST_STEM = 120
"""Characters of an object's name in the name of its Event, which may have 253."""

T = TypeVar("T")

log = structlog.get_logger()

_Shape = tuple[int, bool, int]
"""What the set of fields of a status depends on: the job's generation, whether that is valid, and the newest acceptance
of a head.
"""


class Status:
    author: Author = "status"

    def __init__(
        self,
        cluster: Cluster,
        heads: Bucket,
        identity: str,
        kinds: Kinds = BUILT_IN,
        *,
        chance: Callable[[], float] = random.random,
        anchoring: Anchoring | None = None,
    ) -> None:
        """`heads` is the checkpoint bucket, `identity` that of the log; `chance`, from 0 to 1, spreads retries."""
        self._anchoring = anchoring
        self._cluster = cluster
        self._heads = heads
        self._checkpoints = Checkpoints(heads, identity)
        self._identity = identity
        self._kinds = kinds
        self._now: Callable[[], float | None] = lambda: None
        """The log server's clock."""
        self._chance = chance
        self._written: defaultdict[JobKey, dict[Uid, tuple[_Shape | None, str]]] = defaultdict(dict)
        """The objects of a job whose status this process wrote: its shape, and the version of the object since then.

        The next write of this shape is made on this version, without a GET.
        """
        self._steps = Memo(partial(decide, kinds=kinds))
        self._announced = Announced()
        self._noted: int | None = None
        """Jobs without an event after this one have all their Events; None before it is read."""
        self._histories = Histories()
        """Those of the runtime, once it has begun."""
        self._began = 0
        """The last event of the log when this replica began to decide."""
        self._closed = asyncio.Queue[History | Job | Uid]()
        """Closed jobs, sealed ones, and requests that are gone, whose entries in the bucket are to be removed."""
        self._cleared: dict[JobKey, int] = {}
        """Closed jobs of which the bucket has nothing any more, and when they were gone: they may be sealed."""
        self._acts = asyncio.Event()
        """Set while this replica decides: a standby replica removes and notes nothing."""

    def known(self) -> Iterable[JobKey]:
        """Jobs whose seal a start may find due."""
        return (history.job.key for history in self._histories.closed() if sealing(history) is not None)

    def decide(self, history: History) -> list[Step]:
        if not self._acts.is_set():
            # Another replica may have noted more meanwhile.
            self._noted, self._began = None, self._histories.position
            self._acts.set()
        if not history.sequence:
            # It was sealed: nothing is noted of it any more.
            return []
        if history.job.resource.gone:
            self._let_go(history.job.key)
            if closed(history.job):
                if self._cleared.get(history.job.key) != history.job.resource.gone:
                    self._closed.put_nowait(history)
                elif (seal := sealing(history)) is not None:
                    return [seal]
                return []
        self._cleared.pop(history.job.key, None)
        self._let_go_of_requests(history.job)
        steps = self._steps(history.job)
        if not history.job.resource.gone:
            self._announced.decided(history, steps)
        return steps

    def forget(self, key: JobKey) -> None:
        self._let_go(key)
        self._cleared.pop(key, None)
        self._steps.forget(key)

    def _let_go(self, key: JobKey) -> None:
        self._written.pop(key, None)
        self._announced.forget(key)
        self._checkpoints.forget(key.uid)

    def _let_go_of_requests(self, job: Job) -> None:
        """A job may live for years, with thousands of requests."""
        written, requests = self._written.get(job.key, {}), job.scaling.requests
        for uid in [*written]:
            if uid != job.key.uid and (uid not in requests or requests[uid].gone):
                del written[uid]
                self._closed.put_nowait(uid)

    async def attend(self, runtime: Runtime) -> None:
        """Keep the bucket small, and the sequence that says which jobs have all their Events."""
        self._histories, self._now = runtime.histories, runtime.eventlog.now
        await self._acts.wait()
        work = [self._remove_closed(runtime), self._note_announced(runtime)]
        if self._anchoring is not None:
            work.append(self._anchoring.keep(runtime))
        await asyncio.gather(*work)

    async def _note_announced(self, runtime: Runtime) -> None:
        """Note it again and again.  Only events of the last hour matter: Events about earlier ones are not created."""
        while True:
            await self._acts.wait()
            noted = await self._insist(self._noted_before)
            await asyncio.sleep(ANNOUNCED_SECONDS)
            position = runtime.histories.position
            earliest = stamp(datetime.fromtimestamp(self._now() or 0.0, UTC) - EVENTS_LIVE)
            owing = [
                history.sequence - 1
                async for history in runtime.in_slices(runtime.histories.open())
                if history.sequence > noted and history.time > earliest and self._announced.owes(history)
            ]
            await self._insist(partial(self._note, min([position, *owing]), runtime.owns))

    async def _note(self, complete: int, owns: Callable[[], bool]) -> None:
        """Note it, unless another replica does so now."""
        if not owns():
            self._acts.clear()
        elif complete > await self._noted_before():
            await self._checkpoints.note(ANNOUNCED, complete)
            self._noted = complete

    async def _noted_before(self) -> int:
        if self._noted is None:
            self._noted = await self._checkpoints.noted(ANNOUNCED, self._began)
        return self._noted

    async def _remove_closed(self, runtime: Runtime) -> None:
        """Remove the bucket's entries of the jobs that closed since the last start, and of each that closes now."""
        position = runtime.histories.position
        swept = await self._insist(lambda: self._checkpoints.noted(SWEPT, position))
        closed_since = [
            history
            async for history in runtime.in_slices(runtime.histories)
            if history.sequence > swept and closed(history.job)
        ]
        for history in closed_since:
            await self._remove(history, runtime)
        await self._insist(lambda: self._checkpoints.note(SWEPT, position))
        while True:
            match await self._closed.get():
                case History() as history:
                    await self._remove(history, runtime)
                case Job() as job:
                    await self._insist(partial(self._checkpoints.remove, job))
                case uid:
                    await self._insist(partial(self._checkpoints.remove_shown, uid))

    async def _remove(self, history: History, runtime: Runtime) -> None:
        """Remove a job's entries, but not a head to which this log does not lead: `muster replay --verify` finds it."""

        async def remove() -> None:
            # A restored store may have the job again.
            key, gone = history.job.key, history.job.resource.gone
            if not closed(history.job) or self._cleared.get(key) == gone:
                return
            if (head := await astray(self._heads, runtime.eventlog, history)) is not None:
                log_lines.unproven(history, head)
                return
            # A write that ends meanwhile takes this away: it may have come after its entry was removed.
            self._cleared[key] = NOT_YET
            if len(self._cleared) > MOST_CLEARED:
                del self._cleared[next(iter(self._cleared))]
            await self._checkpoints.remove(history.job)
            if key not in self._cleared:
                return
            self._cleared[key] = gone
            runtime.wake(key)

        await self._insist(remove)

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the bucket until it answers; what it refuses a person has to mend."""
        tries = 0
        while True:
            try:
                return await ask()
            except Transient as trouble:
                log.info("cannot use the bucket of checkpoints now", why=str(trouble))
                await asyncio.sleep(backoff(tries, chance=self._chance))
                tries += 1
            except Refused as refusal:
                log.warning("cannot use the bucket of checkpoints", why=str(refusal))
                await asyncio.sleep(REFUSED_SECONDS)

    async def act(self, effect: Effect, context: Context) -> None:
        match effect:
            case PatchStatus():
                try:
                    await self._patch(effect, context, self._version(effect, context.job))
                except Conflict:
                    # Somebody wrote in between, such as a user, or the scaler the owner of a request: read once more.
                    # The client checks the lease before each write, so that a replica that was paused stops here.
                    await self._patch(effect, context)
            case Announce():
                if context.head.sequence > await self._noted_before():
                    await self._announce(effect, context.job.key.namespace)
                self._announced.made(context.job.key, effect)
            case _:
                raise AssertionError(f"not an effect of the status service: {effect}")

    def _version(self, effect: PatchStatus, job: Job) -> str:
        """The object's version since its status was written last, or before its first; empty if it has to be read."""
        # If the write fails, the version has to be read again.
        written = self._written[job.key]
        first = effect.uid not in written
        shape, version = written.get(effect.uid, (None, ""))
        written[effect.uid] = None, ""
        if shape == _shape(effect, job):
            return version
        # Before this replica decided, another one may have written.
        alone = effect.uid == job.key.uid and job.resource.blank and job.resource.edited > self._began
        return str(job.resource.version) if alone and first else ""

    async def _patch(self, effect: PatchStatus, context: Context, version: str = "") -> None:
        """Write the document on this version, or on the one that is there."""
        job, head = context.job, context.head
        resource, namespace = self._kinds.resource(effect.api_version, effect.kind), job.key.namespace
        status = with_head(effect.document, self._identity, head, context.time)
        if not version:
            stays = effect.over and not effect.repair
            if stays and await self._checkpoints.shows(effect.uid, effect.document, job.resource.epoch):
                return
            held = await self._cluster.get(resource, namespace, effect.name)
            if held is None or held.metadata.uid != effect.uid:
                return
            version, (named, shown) = held.metadata.resource_version, shown_in(held.status)
            shown = shown if named == self._identity else None
            newer = shown is not None and shown.sequence > head.sequence
            if shown is not None and not effect.repair and not self._leads_to(shown, job.key, head):
                # A replica that has read more of the log wrote first, so that this document is old; or the log was
                # rewritten, of which this head is the witness, and the watcher has not compared them yet.
                return
            forged = effect.repair and (shown is None or newer or shown in job.integrity.accepted)
            if not forged and same(held.status, effect.document):
                await self._done(effect, job, version)
                return
            if effect.uid != job.key.uid and (scaled := self._kinds.scaled) is not None:
                await must_be_asked_of(self._cluster, scaled, job, effect.kind, held, over=effect.over)
            status = replacing(status, held.status)
        if effect.uid == job.key.uid:
            if not self._lives(job.key):
                # The API server answered late: of a job that is gone the bucket keeps nothing.
                return
            await self._keep(job, self._checkpoints.reach(effect.uid, head))
        patch = {"metadata": {"resourceVersion": version}, "status": status}
        try:
            patched = await self._cluster.patch(resource, namespace, effect.name, patch, subresource="status")
        except Refused as refusal:
            # NotFound may also mean the kind, or come from a proxy.
            if refusal.reason != "NotFound" or not await self._gone(resource, namespace, effect):
                raise
        else:
            await self._done(effect, job, patched.metadata.resource_version)

    def _leads_to(self, shown: Head, key: JobKey, own: Head) -> bool:
        """False for a head that is newer than this fold's `own`, or with which the fold disagrees."""
        if shown.sequence >= own.sequence:
            return shown == own
        return self.hash_at(key, shown.sequence) in (None, shown.hash)

    def hash_at(self, key: JobKey, sequence: int) -> str | None:
        """The hash of a job's history at an event; None where the fold keeps none."""
        history = self._histories.get(key)
        return history.hash_at(sequence) if history is not None else None

    def _lives(self, key: JobKey) -> bool:
        """False once this fold knows that the job is gone."""
        history = self._histories.get(key)
        return not self._histories.position or (history is not None and not history.job.resource.gone)

    async def _done(self, effect: PatchStatus, job: Job, version: str) -> None:
        """The object shows the document: neither this process nor, of one that is over, the next one has to look."""
        self._written[job.key][effect.uid] = (_shape(effect, job), version)
        if effect.over and self._lives(job.key):
            await self._keep(job, self._checkpoints.shown(effect.uid, effect.document, job.resource.epoch))

    async def _keep(self, job: Job, write: Awaitable[None]) -> None:
        """Write into the bucket.  It may have been cleared of the job meanwhile: then it is cleared once more."""
        try:
            await write
        finally:
            if not self._lives(job.key):
                self._cleared.pop(job.key, None)
                self._closed.put_nowait(self._histories.get(job.key) or job)

    async def _gone(self, resource: Resource[Custom], namespace: str, effect: PatchStatus) -> bool:
        """True if the object is gone, or its name has another uid; the watcher records that."""
        held = await self._cluster.get(resource, namespace, effect.name)
        return held is None or held.metadata.uid != effect.uid

    async def _announce(self, effect: Announce, namespace: str) -> None:
        began, now = datetime.fromisoformat(effect.logged or effect.time), self._now()
        if now is not None and datetime.fromtimestamp(now, UTC) - began > EVENTS_LIVE:
            return
        with accepting("AlreadyExists", "NotFound", "NamespaceTerminating"):
            await self._cluster.create(EVENTS, namespace, event_of(effect, namespace))


def event_of(effect: Announce, namespace: str) -> dict[str, Any]:
    """The Kubernetes Event.

    Its times are those of the log's event.  Readers differ: some take the first and last time and the count, as
    client-go's recorder has written them for long, and some the time of events.k8s.io, which has microseconds.
    """
    time = datetime.fromisoformat(effect.time).astimezone(UTC)
    seconds = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": event_name(effect), "namespace": namespace},
        "eventTime": f"{time:%Y-%m-%dT%H:%M:%S.%fZ}",
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": "muster-status",
        "action": effect.reason,
        "reason": effect.reason,
        "type": "Warning" if effect.warning else "Normal",
        "message": text.ends(effect.message, LONGEST_MESSAGE),
        "involvedObject": {
            "apiVersion": effect.api_version,
            "kind": effect.kind,
            "namespace": namespace,
            "name": effect.name,
            "uid": effect.uid,
        },
    }


def event_name(effect: Announce) -> str:
    """The name of a Kubernetes Event: the same for the same event of the log, and never too long."""
    return f"{effect.name[:LONGEST_STEM].rstrip('-.')}.{effect.uid[:8]}.{effect.sequence}.{effect.reason.lower()}"


def build(dependencies: Dependencies) -> Status:
    anchoring = Anchoring(dependencies.cluster, dependencies.settings.anchor, dependencies.identity)
    return Status(
        dependencies.cluster, dependencies.heads, dependencies.identity, dependencies.kinds, anchoring=anchoring
    )


def _shape(effect: PatchStatus, job: Job) -> _Shape:
    return job.resource.generation, bool(job.resource.problems), effect.repair
